"""CONV and DECONV: convolutions over any number of spatial axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import gcd, prod
from typing import TYPE_CHECKING, Any, ClassVar

from dlv.kinds import Array, Floats
from dlv.network.fields import Kind
from dlv.network.ops import linear
from dlv.network.ops.axes import Attrs, Part, PortAxes, axis_length, feature_axis, map_axes, renamed
from dlv.network.ops.axes import Axes as ValueAxes
from dlv.network.ops.axes import Axis as ValueAxis
from dlv.network.ops.op import (
    BIAS,
    CHANNELS,
    WEIGHT_AND_BIAS,
    Attribute,
    Node,
    Op,
    Run,
    Shapes,
    with_rank,
)
from dlv.network.ops.windows import (
    Axes,
    channels_back,
    channels_last,
    convolve,
    kernel_first,
    multiplicity,
    overlap,
    sliding,
    spread,
    spreading,
    sums,
)
from dlv.network.sizes import Dim, Shape, ShapeError, elements, text, transposed, window

if TYPE_CHECKING:
    from dlv.network.bounds import ball as balls
    from dlv.network.bounds.ball import Form, Passed


_WINDOWS = (
    Attribute("out", Kind.INT, minimum=1),
    Attribute("kernel", Kind.PER_AXIS, minimum=1),
    Attribute("stride", Kind.PER_AXIS, 1, minimum=1),
    Attribute("pad", Kind.PAIRS, 0, minimum=0),
    Attribute("dilation", Kind.PER_AXIS, 1, minimum=1),
    Attribute("groups", Kind.INT, 1, minimum=1),
    BIAS,
)
_LAYOUTS = ("kernel_last", "kernel_first")


def spatial(shape: Shape, axes: int, channels: str, label: str) -> tuple[Dim, Dim, Shape]:
    """Batch, channels and the spatial axes of a feature map."""
    with_rank(shape, axes + 2, label)
    if channels == "last":
        return shape[0], shape[-1], shape[1:-1]
    return shape[0], shape[1], shape[2:]


def feature_map(batch: Dim, depth: Dim, lengths: Shape, channels: str) -> Shape:
    return (batch, *lengths, depth) if channels == "last" else (batch, depth, *lengths)


def out_axis(node: Node, before: ValueAxis) -> ValueAxis:
    """The channels that a convolution makes; a depthwise one keeps apart what it got."""
    out, groups = node.attrs["out"], node.attrs["groups"]
    if groups > 1 and axis_length(before) == groups:
        return (*before, Part("m", out // groups))
    if groups > 1:
        return (Part("g", groups), Part("c", out // groups))
    return (Part("c", out),)


class Conv(Op):
    name = "CONV"
    attributes: ClassVar[tuple[Attribute, ...]] = (
        *_WINDOWS,
        # Depthwise: one filter bank per channel, kept as (*kernel, channels, multiplier); groups =
        # channels.
        Attribute("layout", Kind.TEXT, "kernel_last", choices=(*_LAYOUTS, "depthwise")),
        CHANNELS,
    )
    slots = WEIGHT_AND_BIAS
    makes_features = matrix = True

    def faults(self, node: Node) -> list[str]:
        out, groups = node.attrs["out"], node.attrs["groups"]
        return [f"groups {groups} does not divide out {out}"] if groups > 0 and out % groups else []

    def shape(self, node: Node, inputs: Shapes) -> tuple[Shape | None, ...]:
        if inputs[0] is None:
            return (None,)
        attrs = node.attrs
        batch, depth, lengths = spatial(inputs[0], len(attrs["kernel"]), attrs["channels"], node.op)
        if isinstance(depth, int) and depth % attrs["groups"]:
            raise ShapeError(
                f"groups {attrs['groups']} does not divide the channels",
                seen=text(inputs[0]),
                wanted=f"a multiple of {attrs['groups']} channels",
            )
        if attrs["layout"] == "depthwise" and isinstance(depth, int) and depth != attrs["groups"]:
            raise ShapeError(
                "a depthwise kernel has one group for each channel",
                seen=f"{attrs['groups']} groups, {text(inputs[0])}",
                wanted=f"{depth} groups",
            )
        return (feature_map(batch, attrs["out"], self._lengths(node, lengths), attrs["channels"]),)

    def _lengths(self, node: Node, lengths: Shape) -> Shape:
        attrs = node.attrs
        return tuple(
            window(length, kernel, stride, pad, dilation, False)
            for length, kernel, stride, pad, dilation in zip(
                lengths,
                attrs["kernel"],
                attrs["stride"],
                attrs["pad"],
                attrs["dilation"],
                strict=True,
            )
        )

    def parameter_shapes(self, node: Node, inputs: Shapes) -> Mapping[str, Shape | None]:
        attrs = node.attrs
        depth: Dim = None
        if inputs and inputs[0] is not None:
            depth = spatial(inputs[0], len(attrs["kernel"]), attrs["channels"], node.op)[1]
        weight = self._weight(node, depth)
        return {"weight": weight, "bias": (attrs["out"],)} if attrs["bias"] else {"weight": weight}

    def _weight(self, node: Node, depth: Dim) -> Shape:
        attrs = node.attrs
        each = depth // attrs["groups"] if isinstance(depth, int) else None
        if attrs["layout"] == "depthwise":
            return (*attrs["kernel"], attrs["groups"], attrs["out"] // attrs["groups"])
        if attrs["layout"] == "kernel_first":
            return (*attrs["kernel"], each, attrs["out"])
        return (attrs["out"], each, *attrs["kernel"])

    def output_axes(
        self, node: Node, port: int, inputs: PortAxes, shape: Shape
    ) -> ValueAxes | None:
        first = inputs[0] if inputs else None
        if first is None or len(first) != len(shape):
            return None
        channels = out_axis(node, first[feature_axis(node.attrs, len(shape))])
        return map_axes(node.attrs, first[0], channels, shape)

    def parameter_axes(
        self, node: Node, inputs: PortAxes, outputs: PortAxes
    ) -> dict[str, ValueAxes]:
        first = inputs[0] if inputs else None
        if first is None:
            return {}
        before, attrs = first[feature_axis(node.attrs, len(first))], node.attrs
        kernel: ValueAxes = tuple((Part(f"k{i}", size),) for i, size in enumerate(attrs["kernel"]))
        out = renamed(out_axis(node, before), "o.")
        if attrs["layout"] == "depthwise":
            many = (Part("o.m", attrs["out"] // attrs["groups"]),)
            return {"weight": (*kernel, renamed(before, "o."), many), "bias": (out,)}
        weight = self._weight_axes(node, before, out)
        if attrs["layout"] == "kernel_first":
            return {"weight": (*kernel, *weight[::-1]), "bias": (out,)}
        return {"weight": (*weight, *kernel), "bias": (out,)}

    def _weight_axes(
        self, node: Node, before: ValueAxis, out: ValueAxis
    ) -> tuple[ValueAxis, ValueAxis]:
        """Both axes of the weight beside the kernel's, as they stand before it."""
        groups, depth = node.attrs["groups"], axis_length(before)
        into = renamed(before, "i.")
        if groups > 1:
            each = (Part("i.c", depth // groups if isinstance(depth, int) else None),)
            into = each if depth == groups else _grouped(each, into, groups)
        return out, into

    def following(self, node: Node, old: Shape, new: Shape) -> dict[str, Any]:
        attrs = node.attrs
        if attrs["groups"] > 1 and len(old) == len(new):
            place = feature_axis(attrs, len(old))
            if attrs["groups"] == old[place] and isinstance(new[place], int):
                return {"groups": new[place], "out": attrs["out"] // attrs["groups"] * new[place]}
        return {}

    def adopted(self, node: Node, slot: str, shape: Shape) -> dict[str, Any]:
        if slot == "bias":
            return {"out": shape[0]}
        if node.attrs["layout"] == "depthwise":
            return {"kernel": shape[:-2]}
        if node.attrs["layout"] == "kernel_last":
            return {"out": shape[0], "kernel": shape[2:]}
        return {"out": shape[-1], "kernel": shape[:-2]}

    def habits(self, node: Node) -> Mapping[str, str]:
        first = node.attrs["layout"] != "kernel_last"  # of depthwise kernels too
        return dict.fromkeys((Conv.name, Deconv.name), "kernel_first" if first else "kernel_last")

    def fan_in(self, node: Node, shape: Sequence[int]) -> int:
        beside = {"kernel_last": slice(1, None), "kernel_first": slice(-1), "depthwise": slice(-2)}
        return prod(shape[beside[node.attrs["layout"]]])

    def comparable(
        self, node: Node, attrs: Attrs, inputs: PortAxes, outputs: PortAxes
    ) -> tuple[str | None, Attrs]:
        pairs = zip(attrs["kernel"], attrs["dilation"], strict=True)
        dilation = tuple(1 if kernel == 1 else each for kernel, each in pairs)
        return node.variant, {**attrs, "dilation": dilation}

    def flops(self, node: Node, inputs: Shapes, outputs: Shapes) -> int | None:
        shape, positions, attrs = inputs[0], elements(outputs[0]), node.attrs
        if shape is None or positions is None:
            return None
        depth = spatial(shape, len(attrs["kernel"]), attrs["channels"], node.op)[1]
        if not isinstance(depth, int):
            return None
        each: int = (depth // attrs["groups"]) * prod(attrs["kernel"])
        return 2 * positions * each

    def forward(self, node: Node, run: Run) -> tuple[Array, ...]:
        x = channels_last(run.inputs[0], node.attrs["channels"])
        with_rank(x.shape, len(node.attrs["kernel"]) + 2, node.op)
        return (channels_back(self._values(node, x, run.params), node.attrs["channels"]),)

    def _values(self, node: Node, x: Array, params: Mapping[str, Array]) -> Array:
        weight = kernel_first(node.attrs["layout"], params["weight"])
        axes = sliding(node.attrs, x.shape[1:-1])
        result = convolve(x, weight, axes, node.attrs["groups"])
        if "bias" in params:
            result += params["bias"]
        return result

    def bounds(self, node: Node, run: balls.BallRun) -> tuple[balls.Ball, ...]:
        norms, given = linear.norms_of(node, run), linear.batch_of(node, run.inputs[0])
        channels, groups = node.attrs["channels"], node.attrs["groups"]
        x = channels_last(given.centre, channels)
        with_rank(x.shape, len(node.attrs["kernel"]) + 2, node.op)
        axes = sliding(node.attrs, x.shape[1:-1])
        centre = self._values(node, x, run.params)
        squares = _by_group(x, groups)
        terms = x.shape[-1] // groups * prod(node.attrs["kernel"])
        reach = linear.Reach(
            terms=terms,
            places=prod(centre.shape[1:-1]),
            outputs=centre[:1].size,
            overlap=overlap(axes),
            patches=_norm(_times(squares, axes)),
            plain=_norm(squares),
        )
        bias = run.params.get("bias")
        radius = linear.radii(norms, run, reach, given.radius, bias)
        found: Floats | None = None
        if given.box is not None:
            import numpy as np

            moved = _by_group(channels_last(given.box, channels), groups)
            most = given.radius.reshape(-1, *(1 for _ in moved.shape[1:]))
            found = linear.box(
                norms,
                run,
                reach,
                _rows(kernel_first(node.attrs["layout"], run.params["weight"]), groups),
                bias,
                linear.root(sums(squares, axes, 1), terms),
                np.minimum(linear.root(sums(moved, axes, 1), terms), most),
            )
            found = channels_back(found, channels)
        return (linear.ball(channels_back(centre, channels), radius, found),)

    def adjoint(self, node: Node, form: Form) -> Passed | None:
        import numpy as np

        from dlv.network.bounds import ball as balls

        run, given = form.run, form.run.inputs[0]
        channels, groups = node.attrs["channels"], node.attrs["groups"]
        x = channels_last(given.centre, channels)
        axes = sliding(node.attrs, x.shape[1:-1])
        weight = kernel_first(node.attrs["layout"], run.params["weight"])
        terms, held = prod(weight.shape[:-1]), overlap(axes)
        patch = linear.root(sums(_by_group(x, groups), axes, 1), terms)
        outputs = form.output.centre[:1].size
        places = outputs // max(weight.shape[-1], 1)
        reach = linear.Reach(terms, places, outputs, held, balls.l2(patch), balls.l2(x))
        box = channels_last(balls.filled(given), channels)
        moved = linear.root(sums(_by_group(box, groups), axes, 1), terms)
        flat = weight.reshape(-1, weight.shape[-1])
        rows = balls.l2(flat.T).reshape(groups, -1)
        loss = linear.unread_form(node, form, reach, rows, patch, moved, channels)
        a = np.ascontiguousarray(channels_last(form.a, channels))
        back = channels_back(spread(a, weight, axes, groups), channels)
        most = weight.shape[-1] // groups * prod(weight.shape[:-2])
        return [back], loss + linear.backwards(node, form, most, held)

    def weight_by_group(self, node: Node, weight: Array) -> Array:
        kernel, groups = kernel_first(node.attrs["layout"], weight), node.attrs["groups"]
        split = kernel.reshape(-1, kernel.shape[-2], groups, kernel.shape[-1] // groups)
        return split.transpose(2, 3, 1, 0)

    def along_out(self, node: Node, weight: Array, scale: Array) -> Array:
        if node.attrs["layout"] == "depthwise":
            return scale.reshape(weight.shape[-2:])
        place = self._out_axis(node.attrs["layout"] == "kernel_first", weight.ndim)
        return scale.reshape([-1 if axis == place else 1 for axis in range(weight.ndim)])

    def _out_axis(self, last: bool, rank: int) -> int:
        return rank - 1 if last else 0

    def folds(self, node: Node) -> bool:
        return True

    def row_axis(self, node: Node) -> str:
        return "first" if node.attrs["layout"] == "kernel_last" else "last"

    def map_lengths(self, node: Node, shape: Shape | None) -> tuple[int, ...] | None:
        if shape is None:
            return None
        attrs = node.attrs
        lengths = spatial(shape, len(attrs["kernel"]), attrs["channels"], node.op)[2]
        known = tuple(n for n in lengths if isinstance(n, int))
        return known if len(known) == len(lengths) else None

    def most_windows(self, node: Node, shape: Shape | None) -> int | None:
        lengths = Conv.map_lengths(self, node, shape)
        return None if lengths is None else overlap(self._slid(node, lengths))

    def _slid(self, node: Node, lengths: Sequence[int]) -> Axes:
        """The windows of a node whose input has these lengths."""
        return sliding(node.attrs, lengths)

    def windows_anywhere(self, node: Node) -> int:
        attrs = node.attrs
        rows = zip(attrs["kernel"], attrs["stride"], attrs["dilation"], strict=True)
        return prod(-(-k * gcd(s, d) // s) for k, s, d in rows)


def _grouped(axis: ValueAxis, whole: ValueAxis, groups: int) -> ValueAxis:
    """Each group has its own stretch of what the whole layer reads, or makes."""
    return (replace(axis[0], groups=groups, whole=whole),)


def _by_group(x: Array, groups: int) -> Floats:
    """Squares summed over the channels of each group: (batch, *lengths, groups)."""
    import numpy as np

    split = x.reshape(*x.shape[:-1], groups, x.shape[-1] // groups)
    found: Floats = np.einsum("...c,...c->...", split, split)
    return found


def _times(squares: Floats, axes: Axes) -> Floats:
    """Each place as often as windows hold it."""
    for place, axis in enumerate(axes, 1):
        times = multiplicity(axis)
        if not (times == times[:1]).all() or times[0] != 1:
            shape = [-1 if each == place else 1 for each in range(squares.ndim)]
            squares = squares * times.reshape(shape)
    return squares


def _norm(squares: Floats) -> Floats:
    """The norm of each row."""
    terms = max(squares[:1].size, 1)
    return linear.root(squares.sum(axis=tuple(range(1, squares.ndim))), terms)


def _rows(weight: Array, groups: int) -> Floats:
    """Norms of a convolution's rows, (groups, out / groups)."""
    import numpy as np

    flat = weight.reshape(-1, weight.shape[-1])
    found = linear.root(np.einsum("ko,ko->o", flat, flat), len(flat))
    return found.reshape(groups, -1)


class Deconv(Conv):
    name = "DECONV"
    attributes = (
        *_WINDOWS,
        Attribute("layout", Kind.TEXT, "kernel_last", choices=_LAYOUTS),
        CHANNELS,
        Attribute("output_pad", Kind.PER_AXIS, 0, minimum=0),
    )

    def faults(self, node: Node) -> list[str]:
        attrs = node.attrs
        found = super().faults(node)
        for extra, stride, dilation in zip(
            attrs["output_pad"], attrs["stride"], attrs["dilation"], strict=True
        ):
            if extra >= max(stride, dilation):
                found.append(f"output_pad {extra} is not below stride {stride} or dilation")
        return found

    def _lengths(self, node: Node, lengths: Shape) -> Shape:
        attrs = node.attrs
        return tuple(
            transposed(length, kernel, stride, pad, dilation, extra)
            for length, kernel, stride, pad, dilation, extra in zip(
                lengths,
                attrs["kernel"],
                attrs["stride"],
                attrs["pad"],
                attrs["dilation"],
                attrs["output_pad"],
                strict=True,
            )
        )

    def _weight(self, node: Node, depth: Dim) -> Shape:
        attrs = node.attrs
        each = attrs["out"] // attrs["groups"]
        if attrs["layout"] == "kernel_first":
            return (*attrs["kernel"], each, depth)
        return (depth, each, *attrs["kernel"])

    def _weight_axes(
        self, node: Node, before: ValueAxis, out: ValueAxis
    ) -> tuple[ValueAxis, ValueAxis]:
        groups = node.attrs["groups"]
        into, each = renamed(before, "i."), (Part("o.c", node.attrs["out"] // groups),)
        grouped = groups > 1 and axis_length(before) != groups
        return into, _grouped(each, out, groups) if grouped else each

    transposed = True

    def following(self, node: Node, old: Shape, new: Shape) -> dict[str, Any]:
        return {}

    def adopted(self, node: Node, slot: str, shape: Shape) -> dict[str, Any]:
        return {}

    def flops(self, node: Node, inputs: Shapes, outputs: Shapes) -> int | None:
        # Every input element is multiplied with a whole kernel of its group.
        count = elements(inputs[0])
        if count is None:
            return None
        attrs = node.attrs
        each: int = (attrs["out"] // attrs["groups"]) * prod(attrs["kernel"])
        return 2 * count * each

    def _values(self, node: Node, x: Array, params: Mapping[str, Array]) -> Array:
        weight = kernel_first(node.attrs["layout"], params["weight"])
        axes = spreading(node.attrs, x.shape[1:-1])
        result = spread(x, weight, axes, node.attrs["groups"])
        if "bias" in params:
            result += params["bias"]
        return result

    def bounds(self, node: Node, run: balls.BallRun) -> tuple[balls.Ball, ...]:
        """The transpose of a convolution, and so of its norm; each output sums what windows say."""
        import numpy as np

        norms, given = linear.norms_of(node, run), linear.batch_of(node, run.inputs[0])
        attrs = node.attrs
        x = channels_last(given.centre, attrs["channels"])
        with_rank(x.shape, len(attrs["kernel"]) + 2, node.op)
        axes = spreading(attrs, x.shape[1:-1])
        centre = self._values(node, x, run.params)
        held, plain = overlap(axes), _norm(_by_group(x, attrs["groups"]))
        reach = linear.Reach(
            terms=x.shape[-1] // attrs["groups"] * held,
            places=prod(centre.shape[1:-1]),
            outputs=centre[:1].size,
            overlap=held,
            patches=plain * float(np.sqrt(held)),
            plain=plain,
        )
        radius = linear.radii(norms, run, reach, given.radius, run.params.get("bias"))
        return (linear.ball(channels_back(centre, attrs["channels"]), radius, None),)

    def adjoint(self, node: Node, form: Form) -> Passed | None:
        return None

    def _out_axis(self, last: bool, rank: int) -> int:
        return rank - 2 if last else 1

    def folds(self, node: Node) -> bool:
        return bool(node.attrs["groups"] == 1)

    def _slid(self, node: Node, lengths: Sequence[int]) -> Axes:
        return spreading(node.attrs, lengths)

    def map_lengths(self, node: Node, shape: Shape | None) -> tuple[int, ...] | None:
        lengths = super().map_lengths(node, shape)
        return None if lengths is None else tuple(a.length for a in self._slid(node, lengths))
