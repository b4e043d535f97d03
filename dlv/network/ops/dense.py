"""FULL and EMBED: a matrix applied to the last axis, and rows looked up in a matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from dlv.kinds import Array
from dlv.network.fields import Kind
from dlv.network.ops import linear
from dlv.network.ops.axes import Axes, Axis, Part, PortAxes, renamed
from dlv.network.ops.op import BIAS, WEIGHT_AND_BIAS, Attribute, Node, NoRule, Op, Run, Shapes, Slot
from dlv.network.sizes import Dim, Shape, ShapeError, elements

if TYPE_CHECKING:
    from dlv.network.bounds import ball as balls
    from dlv.network.bounds.ball import Form, Passed


_BY_HEADS = ("in_heads", "heads_in")


class Full(Op):
    name = "FULL"
    attributes = (
        Attribute("out", Kind.INT, minimum=1),
        BIAS,
        # The last two hold an axis for the heads of an attention, of its outputs or its inputs.
        Attribute(
            "layout", Kind.TEXT, "out_in", choices=("out_in", "in_out", "in_heads", "heads_in")
        ),
    )
    slots = WEIGHT_AND_BIAS
    makes_features = matrix = dense = True

    def shape(self, node: Node, inputs: Shapes) -> tuple[Shape | None, ...]:
        if inputs[0] is None:
            return (None,)
        if not inputs[0]:
            raise ShapeError("FULL takes at least one axis", seen="scalar", wanted="one axis")
        return ((*inputs[0][:-1], node.attrs["out"]),)

    def parameter_shapes(self, node: Node, inputs: Shapes) -> Mapping[str, Shape | None]:
        attrs = node.attrs
        depth: Dim = inputs[0][-1] if inputs and inputs[0] else None
        out: Dim = attrs["out"]
        weights: Mapping[str, Shape] = {
            "out_in": (out, depth),
            "in_out": (depth, out),
            "in_heads": (depth, None, None),
            "heads_in": (None, None, out),
        }
        found: dict[str, Shape | None] = {"weight": weights[attrs["layout"]]}
        if attrs["bias"]:
            found["bias"] = (None, None) if attrs["layout"] == "in_heads" else (out,)
        return found

    def output_axes(self, node: Node, port: int, inputs: PortAxes, shape: Shape) -> Axes | None:
        return inputs[0] and (*inputs[0][:-1], (Part("c", node.attrs["out"]),)) if inputs else None

    def parameter_axes(self, node: Node, inputs: PortAxes, outputs: PortAxes) -> dict[str, Axes]:
        if not inputs or not inputs[0] or node.attrs["layout"] in _BY_HEADS:
            return {}
        out: Axis = (Part("o.c", node.attrs["out"]),)
        weight = (out, renamed(inputs[0][-1], "i."))
        by_rows = node.attrs["layout"] == "out_in"
        return {"weight": weight if by_rows else weight[::-1], "bias": (out,)}

    def adopted(self, node: Node, slot: str, shape: Shape) -> dict[str, Any]:
        if node.attrs["layout"] == "in_heads":
            sides = shape[1:] if slot == "weight" else shape
            return {"out": prod(side for side in sides if isinstance(side, int))}
        last = slot == "weight" and node.attrs["layout"] != "out_in"
        return {"out": shape[-1 if last else 0]}

    def habits(self, node: Node) -> Mapping[str, str]:
        layout = node.attrs["layout"]
        return {self.name: "in_out" if layout in _BY_HEADS else layout}

    def fan_in(self, node: Node, shape: Sequence[int]) -> int:
        layout = node.attrs["layout"]
        if layout == "heads_in":
            return prod(shape[:-1])
        return prod(shape[1:]) if layout == "out_in" else shape[0]

    def flops(self, node: Node, inputs: Shapes, outputs: Shapes) -> int | None:
        count = elements(inputs[0])
        return None if count is None else 2 * count * node.attrs["out"]

    def forward(self, node: Node, run: Run) -> tuple[Array, ...]:
        return (self._product(node, run.inputs[0], run.params),)

    def _product(self, node: Node, x: Array, params: Mapping[str, Array]) -> Array:
        import numpy as np

        weight = self.by_rows(node, params["weight"])
        x = x.astype(weight.dtype, copy=False)
        # One product of two matrices, whatever axes stand before the last.
        result: Array = np.matmul(x.reshape(-1, x.shape[-1]), weight.T)
        if "bias" in params:
            result += params["bias"].reshape(-1)
        return result.reshape(*x.shape[:-1], weight.shape[0])

    def bounds(self, node: Node, run: balls.BallRun) -> tuple[balls.Ball, ...]:
        norms, given = linear.norms_of(node, run), linear.batch_of(node, run.inputs[0])
        x, bias = given.centre, run.params.get("bias")
        bias = None if bias is None else bias.reshape(-1)
        if x.ndim < 2:
            raise NoRule(node, "its input has no axis after the batch")
        import numpy as np

        from dlv.network.bounds import ball as balls

        centre = self._product(node, x, run.params)
        terms = x.shape[-1]
        each = linear.root(np.einsum("...c,...c->...", x, x), terms)
        places = prod(x.shape[1:-1])
        whole = balls.l2(each) if x.ndim > 2 else each
        reach = linear.Reach(terms, places, centre[:1].size, 1, whole, whole)
        radius = linear.radii(norms, run, reach, given.radius, bias)
        tokens, found = None, None
        if given.tokens is not None and x.ndim == 3:
            alone = linear.Reach(terms, 1, centre.shape[-1], 1, each, each)
            tokens = linear.radii(norms, run, alone, given.tokens, bias)
        if given.box is not None:
            moved = linear.root(np.einsum("...c,...c->...", given.box, given.box), terms)
            most = given.radius.reshape(-1, *(1 for _ in moved.shape[1:]))
            rows = balls.l2(self.by_rows(node, run.params["weight"]))[None]
            moved = np.minimum(moved, most)[..., None]
            found = linear.box(norms, run, reach, rows, bias, each[..., None], moved)
        return (linear.ball(centre, radius, found, tokens),)

    def adjoint(self, node: Node, form: Form) -> Passed | None:
        from dlv.network.bounds import ball as balls

        run, given = form.run, form.run.inputs[0]
        matrix = self.by_rows(node, run.params["weight"])
        terms = given.centre.shape[-1]
        patch = linear.root(_squares(given.centre), terms)
        whole = balls.l2(patch)
        places = prod(given.centre.shape[1:-1])
        reach = linear.Reach(terms, places, form.output.centre[:1].size, 1, whole, whole)
        moved = linear.root(_squares(balls.filled(given)), terms)
        loss = linear.unread_form(node, form, reach, balls.l2(matrix)[None], patch, moved, "last")
        back = form.a @ matrix
        return [back], loss + linear.backwards(node, form, len(matrix), 1)

    def by_rows(self, node: Node, weight: Array) -> Array:
        layout = node.attrs["layout"]
        if layout == "in_heads":
            return weight.reshape(len(weight), -1).T
        if layout == "heads_in":
            return weight.reshape(-1, weight.shape[-1]).T
        return weight if layout == "out_in" else weight.T

    def weight_by_group(self, node: Node, weight: Array) -> Array:
        return self.by_rows(node, weight)[None, :, :, None]

    def along_out(self, node: Node, weight: Array, scale: Array) -> Array:
        return scale[:, None] if node.attrs["layout"] == "out_in" else scale

    def folds(self, node: Node) -> bool:
        return str(node.attrs["layout"]) != "in_heads"

    def row_axis(self, node: Node) -> str:
        return "first" if node.attrs["layout"] == "out_in" else "last"


def _squares(x: Array) -> Array:
    """The sum of squares along the last axis, which stays."""
    import numpy as np

    found: Array = np.einsum("...c,...c->...", x, x)[..., None]
    return found


class Embed(Op):
    name = "EMBED"
    attributes = (Attribute("out", Kind.INT, minimum=1), Attribute("rows", Kind.INT, minimum=1))
    slots = (Slot("weight"),)
    makes_features = matrix = lookup = True

    def shape(self, node: Node, inputs: Shapes) -> tuple[Shape | None, ...]:
        return (None if inputs[0] is None else (*inputs[0], node.attrs["out"]),)

    def parameter_shapes(self, node: Node, inputs: Shapes) -> Mapping[str, Shape | None]:
        return {"weight": (node.attrs["rows"], node.attrs["out"])}

    def output_axes(self, node: Node, port: int, inputs: PortAxes, shape: Shape) -> Axes | None:
        first = inputs[0] if inputs else None
        return None if first is None else (*first, (Part("c", node.attrs["out"]),))

    def parameter_axes(self, node: Node, inputs: PortAxes, outputs: PortAxes) -> dict[str, Axes]:
        return {"weight": ((Part("r", node.attrs["rows"]),), (Part("o.c", node.attrs["out"]),))}

    def adopted(self, node: Node, slot: str, shape: Shape) -> dict[str, Any]:
        return {"rows": shape[0], "out": shape[1]}

    def forward(self, node: Node, run: Run) -> tuple[Array, ...]:
        weight, rows = run.params["weight"], _numbers(node, run.inputs[0])
        return (weight[rows],)

    def bounds(self, node: Node, run: balls.BallRun) -> tuple[balls.Ball, ...]:
        """Rows are taken as they are: only their unread bits are open, nothing is rounded."""
        norms, given = linear.norms_of(node, run), linear.batch_of(node, run.inputs[0])
        if not given.exact:
            raise NoRule(node, "its row numbers are not exact")
        import numpy as np

        from dlv.network.bounds import ball as balls

        rows = _numbers(node, given.centre)
        centre = run.params["weight"][rows]
        each = np.full(rows.shape, norms.dn)
        if norms.drows is not None:
            each = norms.drows[rows]
        radius = balls.l2(each) if norms.dn else np.zeros(len(rows))
        tokens = each if rows.ndim == 2 else None
        return (linear.ball(centre, radius * balls.UP, None, tokens),)

    def weight_by_group(self, node: Node, weight: Array) -> Array:
        return weight[None, :, :, None]


def _numbers(node: Node, x: Array) -> Array:
    """Row numbers; other frameworks hand them in as any dtype. None counts from the end."""
    import numpy as np

    rows = x.astype(np.int64)
    if rows.size and not 0 <= rows.min() <= rows.max() < node.attrs["rows"]:
        raise ValueError(f"row numbers {rows.min()} to {rows.max()} of {node.attrs['rows']} rows")
    return rows
