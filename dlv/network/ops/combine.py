"""CONCAT, ADD, MUL: tensors joined and combined."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dlv.kinds import Array
from dlv.network.fields import Kind
from dlv.network.ops.axes import (
    Attrs,
    Axes,
    Part,
    PortAxes,
    agrees,
    axis_length,
    factors,
    named_axis,
)
from dlv.network.ops.op import Attribute, Node, NoRule, Op, Run, Shapes, Slot
from dlv.network.sizes import Dim, Shape, ShapeError, axis_of, broadcast, same, text

if TYPE_CHECKING:
    from dlv.network.bounds.ball import Ball, BallRun, Form, Passed


class Concat(Op):
    name = "CONCAT"
    inputs = (1, None)
    attributes = (Attribute("axis", Kind.INT, 1),)
    joins = True

    def output_axes(self, node: Node, port: int, inputs: PortAxes, shape: Shape) -> Axes | None:
        known = [axes for axes in inputs if axes is not None and len(axes) == len(shape)]
        if not known or len(known) != len(inputs):
            return None
        place = node.attrs["axis"] % len(shape)
        pieces = tuple(
            (f"{name}:{number}", axes[place])
            for (name, number), axes in zip(node.inputs, known, strict=True)
        )
        joined = (Part("c", shape[place], pieces=pieces),)
        return (*known[0][:place], joined, *known[0][place + 1 :])

    def turned(self, variant: str | None) -> bool:
        return True

    def comparable(
        self, node: Node, attrs: Attrs, inputs: PortAxes, outputs: PortAxes
    ) -> tuple[str | None, Attrs]:
        if inputs and inputs[0] is not None:
            attrs["axis"] = named_axis(inputs[0], attrs["axis"], False)
        return node.variant, attrs

    def shape(self, node: Node, inputs: Shapes) -> tuple[Shape | None, ...]:
        known = [shape for shape in inputs if shape is not None]
        if not known:
            return (None,)
        place = axis_of(node.attrs["axis"], len(known[0]), "axis")
        result = list(known[0])
        for shape in known[1:]:
            if len(shape) != len(result) or not all(
                at == place or same(a, b)
                for at, (a, b) in enumerate(zip(shape, result, strict=True))
            ):
                raise ShapeError(
                    f"shapes differ outside axis {place}",
                    seen=" and ".join(text(item) for item in known),
                    wanted=f"equal lengths but on axis {place}",
                )
            result = [
                b if isinstance(b, int) or a is None else a
                for a, b in zip(shape, result, strict=True)
            ]
        total: int | None = 0
        for item in inputs:
            length = None if item is None else item[place]
            total = total + length if isinstance(length, int) and total is not None else None
        joined: Dim = known[0][place] if len(inputs) == 1 else total
        return ((*result[:place], joined, *result[place + 1 :]),)

    def forward(self, node: Node, run: Run) -> tuple[Array, ...]:
        import numpy as np

        return (np.concatenate(one_dtype(run.inputs), node.attrs["axis"]),)

    def bounds(self, node: Node, run: BallRun) -> tuple[Ball, ...]:
        import numpy as np

        import dlv.network.bounds.grains as grains

        balls = run.inputs
        centre = np.concatenate([ball.centre for ball in balls], node.attrs["axis"])
        place = axis_of(node.attrs["axis"], centre.ndim, "axis")
        found = []
        for lead in grains.leads(balls, centre.ndim):
            parts = [grains.level(grains.grids(b), b.centre.shape, lead) for b in balls]
            if place < lead:
                found.append(np.concatenate(parts, place))
            else:
                found.append(np.sqrt(sum(part * part for part in parts)) * grains.RAISED)
        return (grains.settled(centre, found, box=grains.widest(balls)[1]),)

    def adjoint(self, node: Node, form: Form) -> Passed | None:
        import numpy as np

        given = form.run.inputs
        axis = axis_of(node.attrs["axis"], form.a.ndim, "axis")
        if axis == 0 or any(len(ball.centre) != len(form.output.centre) for ball in given):
            return None
        ends = np.cumsum([ball.centre.shape[axis] for ball in given])[:-1]
        return np.split(form.a, ends, axis), np.zeros(len(form.a))


class Combine(Op):
    """ADD and MUL: of tensors, or of one with a number or a stored tensor."""

    inputs = (1, None)
    # The scalar or stored side; `shape` is that of the tensor in slot `value`.
    attributes = (
        Attribute("const", Kind.FLOAT, None, nullable=True),
        Attribute("shape", Kind.SHAPE, None, nullable=True),
    )
    slots = (Slot("value", "optional"),)
    commutes = True

    def fresh_slots(self, variant: str | None, attrs: Mapping[str, Any]) -> list[str]:
        return [] if attrs["shape"] is None else ["value"]

    def arity(self, node: Node) -> tuple[int, int | None]:
        one = node.attrs["const"] is not None or "value" in node.params
        return (1, 1) if one else (2, None)

    def faults(self, node: Node) -> list[str]:
        attrs, stored = node.attrs, "value" in node.params
        if stored and attrs["const"] is not None:
            return ["const and a tensor in the slot value cannot be combined"]
        if stored != (attrs["shape"] is not None):
            return ["shape is that of the tensor in the slot value: one needs the other"]
        return []

    def shape(self, node: Node, inputs: Shapes) -> tuple[Shape | None, ...]:
        side = node.attrs["shape"]
        known = [shape for shape in (*inputs, side) if shape is not None]
        # All are looked at, so that a mismatch is found beside an unknown too.
        result = broadcast(known) if known else None
        return (None if any(shape is None for shape in inputs) else result,)

    def parameter_shapes(self, node: Node, inputs: Shapes) -> Mapping[str, Shape | None]:
        return {"value": node.attrs["shape"]} if "value" in node.params else {}

    def output_axes(self, node: Node, port: int, inputs: PortAxes, shape: Shape) -> Axes | None:
        """The axes of the first term, but what is joined in any is told."""
        known = [axes for axes in inputs if axes is not None and agrees(axes, shape)]
        if not known:
            return None
        return tuple(
            next((axis for axis in same if any(part.pieces for part in axis)), same[0])
            for same in zip(*known, strict=True)
        )

    def parameter_axes(self, node: Node, inputs: PortAxes, outputs: PortAxes) -> dict[str, Axes]:
        side = node.attrs["shape"]
        if side is None or not outputs or outputs[0] is None or len(side) > len(outputs[0]):
            return {}
        pairs = zip(side, outputs[0][len(outputs[0]) - len(side) :], strict=True)
        axes = [axis if axis_length(axis) == dim else (Part("1", dim),) for dim, axis in pairs]
        return {"value": tuple(axes)}

    def following(self, node: Node, old: Shape, new: Shape) -> dict[str, Any]:
        """A stored side, with the axes that were as long as the input's."""
        side, skip = node.attrs["shape"], len(old) - len(node.attrs["shape"] or ())
        if side is None or len(old) != len(new):
            return {}
        if skip < 0:
            return {"shape": side}
        dims = (
            new[place + skip] if dim == old[place + skip] and dim != 1 else dim
            for place, dim in enumerate(side)
        )
        return {"shape": tuple(dims)}

    def adopted(self, node: Node, slot: str, shape: Shape) -> dict[str, Any]:
        return {"shape": shape}

    def comparable(
        self, node: Node, attrs: Attrs, inputs: PortAxes, outputs: PortAxes
    ) -> tuple[str | None, Attrs]:
        axes = self.parameter_axes(node, inputs, outputs).get("value")
        if axes is not None:
            attrs["shape"] = tuple(sorted(filter(None, map(factors, axes)), key=repr))
        return node.variant, attrs

    def forward(self, node: Node, run: Run) -> tuple[Array, ...]:
        return (functools.reduce(self.function, one_dtype(self._sides(node, run))),)

    def function(self, a: Array, b: Array) -> Array:
        raise NotImplementedError

    def _sides(self, node: Node, run: Run) -> list[Any]:
        """What is combined: tensors, and the number or stored tensor."""
        const = node.attrs["const"]
        if "value" in node.params:
            return [*run.inputs, run.params["value"]]
        if const is None:
            return list(run.inputs)
        # Whole numbers stay whole where nothing makes them fractions.
        return [*run.inputs, int(const) if const.is_integer() else const]

    def bounds(self, node: Node, run: BallRun) -> tuple[Ball, ...]:
        import dlv.network.bounds.grains as grains

        balls = list(run.inputs)
        if "value" in node.params:
            balls.append(grains.exact(run.params["value"]))
        elif node.attrs["const"] is not None:
            import numpy as np

            balls.append(grains.exact(np.asarray(node.attrs["const"])))
        if not balls[0].centre.size:
            raise NoRule(node, "it has no numbers")
        terms = len(balls) + 1  # a constant is rounded, too
        return (functools.reduce(lambda a, b: self.both(a, b, terms, run), balls),)

    def both(self, a: Ball, b: Ball, terms: int, run: BallRun) -> Ball:
        """The ball of two of them; all of them together round `terms` times."""
        import numpy as np

        import dlv.network.bounds.grains as grains

        centre = np.asarray(self.function(a.centre, b.centre), np.float64)
        shape = centre.shape
        if a.exact and b.exact:
            x, y = (np.broadcast_to(each.centre, shape) for each in (a, b))
            held = [grains.held_by(run.reference, each) for each in (x, y, centre)]
            if all(each.all() for each in held) and self.unrounded(x, y).all():
                return grains.exact(centre)
        if grains.whole_numbers([a, b], centre):
            return grains.exact(centre)
        found = []
        for lead in grains.leads([a, b], len(shape)):
            first = grains.level(grains.spread(a, shape), shape, lead)
            second = grains.level(grains.spread(b, shape), shape, lead)
            x, y = (np.broadcast_to(each.centre, shape) for each in (a, b))
            reach, size, extra = self.reach(x, y, first, second, lead)
            n = grains.count(shape, lead)
            rounding = grains.slip(run.reference, terms, size, extra, n)
            found.append((reach + rounding) * grains.RAISED)
        return grains.settled(centre, found, box=grains.widest([a, b])[1])

    def unrounded(self, x: Array, y: Array) -> Array:
        """Where the result is one of both, so that it is rounded in no precision."""
        raise NotImplementedError

    def reach(
        self, x: Array, y: Array, rx: Array, ry: Array, lead: int
    ) -> tuple[Array, Array, Array]:
        """How far the result may be off, the size of what is rounded, and what that is off."""
        raise NotImplementedError


def one_dtype(sides: Sequence[Any]) -> list[Any]:
    """Whole numbers that meet floats become floats of their precision, not of a wider one."""
    dtypes = [each.dtype for each in sides if hasattr(each, "dtype") and each.dtype.kind == "f"]
    if not dtypes:
        return list(sides)
    import numpy as np

    wanted = np.result_type(*dtypes)
    return [
        each.astype(wanted) if hasattr(each, "dtype") and each.dtype.kind in "iub" else each
        for each in sides
    ]


class Add(Combine):
    name = "ADD"

    def function(self, a: Array, b: Array) -> Array:
        return a + b

    def unrounded(self, x: Array, y: Array) -> Array:
        import numpy as np

        return np.asarray((x == 0) | (y == 0))

    def reach(
        self, x: Array, y: Array, rx: Array, ry: Array, lead: int
    ) -> tuple[Array, Array, Array]:
        import dlv.network.bounds.grains as grains

        return rx + ry, grains.norm(x, lead) + grains.norm(y, lead), rx + ry

    def adjoint(self, node: Node, form: Form) -> Passed | None:
        import numpy as np

        import dlv.network.bounds.grains as grains
        from dlv.network.bounds.ball import UP, l2

        run, a = form.run, form.a
        shape = form.output.centre.shape
        if any(ball.centre.shape != shape and not ball.exact for ball in run.inputs):
            return None
        size, extra = np.zeros(shape[0]), np.zeros(shape[0])
        for ball in run.inputs:
            size = size + l2(np.broadcast_to(ball.centre, shape))
            extra = extra + ball.radius
        terms = len(run.inputs) + 1
        side = node.attrs["const"]
        if "value" in node.params or side is not None:
            value = np.asarray(run.params["value"] if "value" in node.params else side, np.float64)
            size = size + l2(np.broadcast_to(value, shape))
            terms += 1
        lost = grains.slip(run.reference, terms, size, extra, form.output.centre[:1].size)
        return [None if ball.exact else a for ball in run.inputs], l2(a) * form.of(lost) * UP


class Mul(Combine):
    name = "MUL"

    def initial(self, node: Node, slot: str, shape: Sequence[int]) -> tuple[str, int]:
        return "one", 0

    def function(self, a: Array, b: Array) -> Array:
        return a * b

    def unrounded(self, x: Array, y: Array) -> Array:
        import numpy as np

        return np.isin(x, (-1, 0, 1)) | np.isin(y, (-1, 0, 1))

    def reach(
        self, x: Array, y: Array, rx: Array, ry: Array, lead: int
    ) -> tuple[Array, Array, Array]:
        """x dy + y dx + dx dy, where dx and dy are no larger than their norms in any place."""
        import dlv.network.bounds.grains as grains

        found = grains.most(x, lead) * ry + grains.most(y, lead) * rx + rx * ry
        return found, grains.norm(x * y, lead), found
