"""RESHAPE: tensors cut and turned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

from dlv.kinds import Array
from dlv.network.fields import Kind
from dlv.network.ops.axes import Axes, Axis, Part, PortAxes, axis_length, cut_axis
from dlv.network.ops.movement import filled_array, moves, number
from dlv.network.ops.op import Attribute, Node, NoRule, Op, Run, Shapes
from dlv.network.sizes import (
    Dim,
    Shape,
    ShapeError,
    axis_of,
    dim_of,
    grouping,
    product,
    refill,
    same,
    text,
)

if TYPE_CHECKING:
    from dlv.network.bounds.ball import Ball, BallRun, Form, Passed

Attrs = Mapping[str, Any]

# Kinds that change how numbers are laid out, and nothing else.
_SAME_ORDER = ("flatten", "view", "reshape", "squeeze", "unsqueeze", "contiguous")
_SHAPING = (*_SAME_ORDER, "getitem")
SIZE_KINDS = frozenset({"size", "arithmetic", "fill"})


class Reshape(Op):
    name = "RESHAPE"
    inputs = (0, None)
    attributes = (Attribute("kind", Kind.TEXT),)
    kinds: ClassVar[Mapping[str, tuple[Attribute, ...]]] = {
        "flatten": (Attribute("start", Kind.INT, 1), Attribute("end", Kind.INT, -1)),
        "view": (Attribute("size", Kind.SHAPE),),
        "reshape": (Attribute("size", Kind.SHAPE),),
        "transpose": (Attribute("axes", Kind.AXES),),
        "permute": (Attribute("axes", Kind.AXES),),
        "squeeze": (Attribute("axis", Kind.AXES, None, nullable=True),),
        "unsqueeze": (Attribute("axis", Kind.INT),),
        "select": (Attribute("axis", Kind.INT), Attribute("index", Kind.INT)),
        "slice": (
            Attribute("axis", Kind.INT, 0),
            Attribute("start", Kind.INT, None, nullable=True),
            Attribute("end", Kind.INT, None, nullable=True),
            Attribute("step", Kind.INT, 1, minimum=1),
        ),
        "expand": (Attribute("size", Kind.SHAPE),),
        "split": (Attribute("axis", Kind.INT, 0), Attribute("sizes", Kind.INTS, minimum=0)),
        "contiguous": (),
        "to": (Attribute("dtype", Kind.DTYPE, None, nullable=True),),
        "getitem": (Attribute("index", Kind.INT, minimum=0),),
        # Numbers about shapes, and tensors filled from such numbers alone: no data flows through.
        "size": (Attribute("axis", Kind.INT),),
        "arithmetic": (Attribute("operator", Kind.TEXT),),
        "fill": (Attribute("size", Kind.SHAPE), Attribute("const", Kind.FLOAT, 0.0)),
    }
    plumbing = True

    def picks(self, node: Node) -> bool:
        return node.attrs.get("kind") == "getitem"

    def sizes_only(self, node: Node) -> bool:
        return node.attrs.get("kind") in SIZE_KINDS

    def gives_number(self, node: Node) -> bool:
        return node.attrs.get("kind") in ("size", "arithmetic")

    def passes(self, node: Node) -> bool:
        return node.attrs.get("kind") == "contiguous"

    def output_axes(self, node: Node, port: int, inputs: PortAxes, shape: Shape) -> Axes | None:
        first = inputs[0] if inputs else None
        return None if first is None else _moved_axes(node, port, first, shape)

    def following(self, node: Node, old: Shape, new: Shape) -> dict[str, Any]:
        attrs, kind = node.attrs, node.attrs.get("kind")
        if len(old) != len(new):
            return {}
        if kind in ("view", "reshape"):
            size = _resized(attrs["size"], old, new)
            return {} if size is None else {"size": size}
        if kind == "expand":
            # -1 and what was widened from 1 stay.
            skip = len(attrs["size"]) - len(old)
            pairs = zip(attrs["size"][skip:], old, new, strict=True)
            kept = tuple(b if size == a and a != 1 else size for size, a, b in pairs)
            return {"size": (*attrs["size"][:skip], *kept)}
        if kind == "split":
            total, sizes = new[attrs["axis"]], attrs["sizes"]
            if isinstance(total, int) and len(set(sizes)) == 1 and total % len(sizes) == 0:
                return {"sizes": (total // len(sizes),) * len(sizes)}
        return {}

    def comparable(
        self, node: Node, attrs: dict[str, Any], inputs: PortAxes, outputs: PortAxes
    ) -> tuple[str | None, dict[str, Any]]:
        return ("shaping", {}) if attrs["kind"] in _SHAPING else (None, attrs)

    def arity(self, node: Node) -> tuple[int, int | None]:
        # Ports behind the first bring lengths computed at run time.
        return (0 if node.attrs["kind"] in ("fill", "arithmetic") else 1, None)

    def ports(self, node: Node) -> int | None:
        return len(node.attrs["sizes"]) if node.attrs["kind"] == "split" else 1

    def faults(self, node: Node) -> list[str]:
        kind, axes = node.attrs["kind"], node.attrs.get("axes", ())
        if kind == "transpose" and len(axes) != 2:
            return [f"transpose takes two axes, not {len(axes)}"]
        if kind == "permute" and len(set(axes)) != len(axes):
            return ["permute names an axis twice"]
        return []

    def shape(self, node: Node, inputs: Shapes) -> tuple[Shape | None, ...]:
        attrs = node.attrs
        kind = attrs["kind"]
        if kind in ("size", "arithmetic"):
            return ((),)
        if kind == "fill":
            return (attrs["size"],)
        shape = inputs[0]
        if kind == "split":
            return _split(shape, attrs)
        if shape is None:
            if kind in ("view", "reshape"):
                return (tuple(None if dim == -1 else dim for dim in attrs["size"]),)
            return (None,)
        return (_KINDS[kind](shape, attrs),)

    def forward(self, node: Node, run: Run) -> tuple[Array, ...]:
        kind = node.attrs["kind"]
        if kind in ("fill", "arithmetic"):
            return (filled_array(node, [number(each) for each in run.inputs], run.sizes),)
        x = run.inputs[0]
        if kind == "size":
            import numpy as np

            axis = axis_of(node.attrs["axis"], x.ndim, "axis")
            return (np.asarray(x.shape[axis], np.int64),)
        if kind == "to":
            return (converted(x, node.attrs["dtype"]),)
        given = [number(each) for each in run.inputs[1:]]
        return tuple(move.values(x) for move in moves(node, x.shape, given, run.sizes))

    def bounds(self, node: Node, run: BallRun) -> tuple[Ball, ...]:
        import dlv.network.bounds.grains as grains

        kind = node.attrs["kind"]
        if kind in ("fill", "arithmetic", "size"):
            centres = [ball.centre for ball in run.inputs]
            return tuple(map(grains.exact, self.forward(node, Run(centres, {}, run.sizes))))
        ball = run.inputs[0]
        if kind == "to" and not ball.exact and _narrow(node.attrs["dtype"]):
            raise NoRule(node, f"rounding to {node.attrs['dtype']} has steps")
        if kind == "to":
            if not _narrow(node.attrs["dtype"]):
                return (ball,)
            return (grains.exact(converted(ball.centre, node.attrs["dtype"])),)
        given = [number(each.centre) for each in run.inputs[1:]]
        found = moves(node, ball.centre.shape, given, run.sizes)
        return tuple(grains.carried(ball, move.values, move.grids) for move in found)

    def adjoint(self, node: Node, form: Form) -> Passed | None:
        import numpy as np

        kind, a = node.attrs["kind"], form.a
        shape = form.run.inputs[0].centre.shape
        nothing: list[None] = [None] * (len(form.run.inputs) - 1)
        if len(form.output.centre) != shape[0]:
            return None
        if kind in _SAME_ORDER and form.output.centre.size == prod(shape):
            return [a.reshape(len(a), *shape[1:]), *nothing], np.zeros(len(a))
        if kind not in ("transpose", "permute"):
            return None
        order = list(range(a.ndim))
        axes = [axis_of(each, a.ndim, "axis") for each in node.attrs["axes"]]
        if kind == "transpose":
            one, other = axes
            order[one], order[other] = other, one
        else:
            order = [axes.index(place) for place in range(a.ndim)]
        if order[0]:
            return None
        return [a.transpose(order), *nothing], np.zeros(len(a))


def converted(x: Array, dtype: str | None) -> Array:
    """Another kind of number. Between floats nothing is rounded: the run has one precision."""
    if dtype is None or (x.dtype.kind == "f" and not _narrow(dtype)):
        return x
    if dtype == "bool":
        import numpy as np

        return np.asarray(x != 0)
    if dtype.startswith(("int", "uint")):
        return x.astype(dtype)
    # Of whole numbers; float16 and bfloat16 would be a rounding, which is the run's affair.
    return x.astype("float64" if dtype == "float64" else "float32")


def _narrow(dtype: str | None) -> bool:
    """Whether it holds whole numbers only."""
    return dtype is not None and dtype.startswith(("int", "uint", "bool"))


def _flatten(shape: Shape, attrs: Attrs) -> Shape:
    if not shape:
        return (1,)
    start, end = (axis_of(attrs[name], len(shape), name) for name in ("start", "end"))
    if start > end:
        raise ShapeError(
            "flatten starts after its end", seen=f"{start} and {end}", wanted="start <= end"
        )
    return (*shape[:start], dim_of(product(shape[start : end + 1])), *shape[end + 1 :])


def _view(shape: Shape, attrs: Attrs) -> Shape:
    return refill(shape, attrs["size"])


def _transpose(shape: Shape, attrs: Attrs) -> Shape:
    a, b = (axis_of(axis, len(shape), "axis") for axis in attrs["axes"])
    result = list(shape)
    result[a], result[b] = result[b], result[a]
    return tuple(result)


def _permute(shape: Shape, attrs: Attrs) -> Shape:
    axes = [axis_of(axis, len(shape), "axis") for axis in attrs["axes"]]
    if sorted(axes) != list(range(len(shape))):
        raise ShapeError(
            "permute must name every axis once", seen=text(shape), wanted=f"{len(shape)} axes"
        )
    return tuple(shape[axis] for axis in axes)


def _squeeze(shape: Shape, attrs: Attrs) -> Shape:
    axes = attrs["axis"]
    gone = range(len(shape)) if axes is None else [axis_of(a, len(shape), "axis") for a in axes]
    return tuple(dim for place, dim in enumerate(shape) if dim != 1 or place not in gone)


def _unsqueeze(shape: Shape, attrs: Attrs) -> Shape:
    place = axis_of(attrs["axis"], len(shape) + 1, "axis")
    return (*shape[:place], 1, *shape[place:])


def _select(shape: Shape, attrs: Attrs) -> Shape:
    place, index = axis_of(attrs["axis"], len(shape), "axis"), attrs["index"]
    length = shape[place]
    if isinstance(length, int) and not -length <= index < length:
        raise ShapeError(
            f"index {index} does not exist", seen=text(shape), wanted=f"below {length}"
        )
    return (*shape[:place], *shape[place + 1 :])


def _slice(shape: Shape, attrs: Attrs) -> Shape:
    place = axis_of(attrs["axis"], len(shape), "axis")
    start, end, step, length = attrs["start"], attrs["end"], attrs["step"], shape[place]
    cut: Dim = None
    if isinstance(length, int):
        cut = len(range(*slice(start, end, step).indices(length)))
    elif not start and step == 1 and (end is None or end == 2**63 - 1):
        cut = length
    return (*shape[:place], cut, *shape[place + 1 :])


def _expand(shape: Shape, attrs: Attrs) -> Shape:
    size = attrs["size"]
    new = len(size) - len(shape)
    result: list[Dim] = []
    for place, wanted in enumerate(size):
        have: Dim = shape[place - new] if place >= new else 1
        keep = wanted == -1
        if new < 0 or (keep and place < new) or not (keep or have == 1 or same(have, wanted)):
            raise ShapeError("cannot expand to this shape", seen=text(shape), wanted=text(size))
        result.append(have if keep else wanted)
    if new < 0:
        raise ShapeError("cannot expand to this shape", seen=text(shape), wanted=text(size))
    return tuple(result)


def _split(shape: Shape | None, attrs: Attrs) -> tuple[Shape | None, ...]:
    sizes = attrs["sizes"]
    if shape is None:
        return (None,) * len(sizes)
    place = axis_of(attrs["axis"], len(shape), "axis")
    if not same(shape[place], sum(sizes)):
        raise ShapeError(
            "the pieces do not add up to the axis",
            seen=text(shape),
            wanted=f"{sum(sizes)} on axis {place}",
        )
    return tuple((*shape[:place], size, *shape[place + 1 :]) for size in sizes)


def _unchanged(shape: Shape, attrs: Attrs) -> Shape:  # noqa: ARG001
    return shape


_KINDS: dict[str, Callable[[Shape, Attrs], Shape]] = {
    "flatten": _flatten,
    "view": _view,
    "reshape": _view,
    "transpose": _transpose,
    "permute": _permute,
    "squeeze": _squeeze,
    "unsqueeze": _unsqueeze,
    "select": _select,
    "slice": _slice,
    "expand": _expand,
    "contiguous": _unchanged,
    "to": _unchanged,
    # Which output is meant has been resolved before: the shape is that of the element.
    "getitem": _unchanged,
}


def _moved_axes(node: Node, port: int, first: Axes, shape: Shape) -> Axes | None:
    kind, attrs, rank = node.attrs["kind"], node.attrs, len(first)
    if kind in ("contiguous", "to", "getitem"):
        return first
    if kind in ("flatten", "view", "reshape", "squeeze", "unsqueeze"):
        return _regrouped_axes(first, shape)
    if kind in ("transpose", "permute"):
        order = list(range(rank))
        if kind == "transpose":
            a, b = (axis % rank for axis in attrs["axes"])
            order[a], order[b] = b, a
        else:
            order = [axis % rank for axis in attrs["axes"]]
        return tuple(first[place] for place in order)
    if kind == "select":
        place = attrs["axis"] % rank
        return (*first[:place], *first[place + 1 :])
    if kind in ("slice", "split"):
        place = attrs["axis"] % rank
        return (*first[:place], _stretch(node, port, first[place], shape), *first[place + 1 :])
    if kind == "expand":
        new = len(shape) - rank
        kept = [
            axis if axis_length(axis) == dim else (Part("x", dim),)
            for axis, dim in zip(first, shape[new:], strict=True)
        ]
        return (*[(Part("x", dim),) for dim in shape[:new]], *kept)
    return None


def _stretch(node: Node, port: int, axis: Axis, shape: Shape) -> Axis:
    """A stretch of an axis. What it is made of is told, if it holds whole entries of a product."""
    attrs = node.attrs
    size, total = shape[attrs["axis"] % len(shape)], axis_length(axis)
    split = attrs["kind"] == "split"
    which = port if split else f"{attrs['start']}:{attrs['end']}:{attrs['step']}"
    start: int | None = sum(attrs["sizes"][:port]) if split else None
    ends = () if split else (attrs["start"], attrs["end"], attrs["step"])
    if isinstance(total, int) and not split and all(isinstance(x, int | None) for x in ends):
        first, _, step = slice(*ends).indices(total)
        start = first if step == 1 else None
    if start is not None and isinstance(size, int) and isinstance(total, int):
        found = cut_axis(axis, start, start + size)
        if found is not None:
            outer = found[0]
            return (replace(outer, key=f"{outer.key}/{which}"), *found[1:])
    if len(axis) == 1:
        return (Part(f"{axis[0].key}/{which}", size, axis[0].fixed),)
    return (Part(f"{'*'.join(f'{part.key}{part.length}' for part in axis)}/{which}", size, True),)


def _regrouped_axes(first: Axes, shape: Shape) -> Axes | None:
    """Axes merged keep their factors; one that is split into what it is made of has them again."""
    groups = grouping(tuple(axis_length(axis) for axis in first), shape)
    if groups is None:
        return None
    found: list[Axis] = [()] * len(shape)
    for ours, theirs in groups:
        parts = [part for place in ours for part in first[place]]
        if not theirs:
            continue
        if len(theirs) == 1:
            found[theirs[0]] = tuple(parts) or (Part("1", 1),)
            continue
        left = [part for part in parts if part.length != 1]
        for place in theirs:
            taken: list[Part] = []
            while axis_length(tuple(taken)) != shape[place] and left:
                taken.append(left.pop(0))
            if axis_length(tuple(taken)) != shape[place]:
                left = [Part("", None)]
                break
            found[place] = tuple(taken) or (Part("1", 1),)
        if left:
            key = "*".join(part.key for part in parts)
            for place in theirs:
                found[place] = (Part(f"{key}.{place - theirs[0]}", shape[place]),)
    return tuple(found)


def _resized(size: tuple[Dim, ...], old: Shape, new: Shape) -> tuple[Dim, ...] | None:
    """The size of a view after its input grew: merged axes are multiplied out, of split ones
    the last follows (64 = 4 x 16 heads become 4 x 32)."""
    if None in (*size, *old):
        return _scaled(size, old, new)
    try:
        groups = grouping(old, refill(old, size))
    except ShapeError:
        return None
    if groups is None:
        return None
    result = list(size)
    for ours, theirs in groups:
        had, have = (dim_of(product(s[i] for i in ours)) for s in (old, new))
        if had == have or -1 in [size[j] for j in theirs]:
            continue
        if have is None:
            return None
        fixed = [j for j in theirs if isinstance(size[j], int) and size[j] != -1]
        if len(theirs) == 1:
            if fixed:
                result[fixed[0]] = have
        elif not fixed or not isinstance(have, int) or len(ours) > 1:
            return None
        else:
            rest = 1
            for j in theirs[:-1]:
                length = refill(old, size)[j]
                rest = rest * length if isinstance(length, int) else 0
            if rest == 0 or have % rest:
                return None
            result[theirs[-1]] = have // rest
    return tuple(result)


def _scaled(size: tuple[Dim, ...], old: Shape, new: Shape) -> tuple[Dim, ...] | None:
    """Of a view with lengths that are computed when it runs: the last written one follows."""
    before, after = (product("?" if dim is None else dim for dim in shape) for shape in (old, new))
    fixed = [j for j, dim in enumerate(size) if isinstance(dim, int) and dim != -1]
    if before is None or after is None or before.symbols != after.symbols or not fixed:
        return None
    place, length = fixed[-1], size[fixed[-1]]
    if -1 in size or not isinstance(length, int) or before.factor == 0:
        return None
    if length * after.factor % before.factor:
        return None
    return (*size[:place], length * after.factor // before.factor, *size[place + 1 :])
