"""POOL, resizing and reductions; what runtimes round or count in different ways is written out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dlv.adapters.onnx.builder import Cannot
from dlv.adapters.onnx.call import Call, Reader, aten_source
from dlv.adapters.onnx.graph import MOST_NUMBERS, Graph, Item, Value, Writer, fractions
from dlv.adapters.onnx.rules.conv import (
    channels_first,
    channels_last,
    pads_attribute,
    read_pads,
    read_per_axis,
)
from dlv.adapters.onnx.rules.movement import calculate
from dlv.errors import UsageError
from dlv.network.graph import Node
from dlv.network.sizes import Dim, Shape, product, window


def _reduced_shape(shape: Shape | None, axes: Sequence[int], keep: bool) -> Shape | None:
    if shape is None:
        return None
    gone = {axis % len(shape) for axis in axes}
    if keep:
        return tuple(1 if place in gone else dim for place, dim in enumerate(shape))
    return tuple(dim for place, dim in enumerate(shape) if place not in gone)


def _reduction_reader(op: str, *before: float) -> Reader:
    def rule(call: Call) -> None:
        axes, keep = call.reduced_axes()
        if axes is None:
            axes = list(range(call.rank()))
        if call.shape(0) is not None:
            axes = [call.axis(axis, call.rank()) for axis in axes]
        x, shape = call.argument(0), _reduced_shape(call.shape(0), axes, keep)
        call.aten(op, x, *before, axes, keep, shape=shape, dtype=call.dtype())

    return rule


def _extreme_reader(op: str) -> Reader:
    def rule(call: Call) -> None:
        if call.flag("select_last_index", 0):
            raise Cannot("the last of equals")
        axis, keep = call.integer("axis", 0), call.flag("keepdims", 1)
        if call.shape(0) is not None:
            call.axis(axis, call.rank())
        x, shape = call.argument(0), _reduced_shape(call.shape(0), [axis], keep)
        call.aten(op, x, axis, keep, shape=shape, dtype="int64")

    return rule


def read_cumulative(call: Call) -> None:
    if call.flag("exclusive", 0) or call.flag("reverse", 0):
        raise Cannot("a special sum")
    axis = int(call.scalar(1))
    call.aten("cumsum.default", call.argument(0), axis, shape=call.shape(0), dtype=call.dtype())


def read_top(call: Call) -> None:
    """The first of what is sorted: of equal ones ONNX wants the earlier, torch's topk any."""
    if call.version < 10:
        raise Cannot("an old form")
    count, axis = int(call.scalar(1)), call.integer("axis", -1)
    if not call.flag("sorted", 1):
        raise Cannot("in any order")
    x, builder, largest = call.argument(0), call.builder, call.flag("largest", 1)
    source = aten_source("sort.stable", x, stable=True, dim=axis, descending=largest)
    made = call.call_node(source, call.shape(0))
    for place, value in enumerate(call.operator.outputs):
        if value:
            attrs = {"kind": "getitem", "index": place}
            item = builder.emit(f"{made}.{place}", "RESHAPE", attrs, [(made, 0)])
            cut = {"kind": "slice", "axis": axis, "start": 0, "end": count, "step": 1}
            first = builder.emit(f"{made}.{place}.first", "RESHAPE", cut, [(item, 0)])
            builder.bind(value, (first, 0), None, "int64" if place else call.dtype())


# From ONNX


def _pool_reader(variant: str) -> Reader:
    def rule(call: Call) -> None:
        call.only_output()
        kernel = call.integers("kernel_shape")
        stride = read_per_axis(call, "strides", len(kernel))
        dilation = read_per_axis(call, "dilations", len(kernel))
        pad = read_pads(call, kernel, stride, dilation)
        same = call.text("auto_pad", "NOTSET").startswith("SAME")
        if same and (call.flag("ceil_mode", 0) or any(step != 1 for step in dilation)):
            raise Cannot("runtimes disagree on the result")
        attrs = {
            "kernel": kernel,
            "stride": stride,
            "pad": pad,
            "dilation": dilation,
            "ceil": call.flag("ceil_mode", 0),
        }
        if variant == "AVG":
            # Without padding there is nothing to count or not to count.
            counted = call.flag("count_include_pad", 0)
            attrs["count_pad"] = counted or not any(map(any, pad))
        elif call.flag("storage_order", 0):
            raise Cannot("places are counted along columns")
        call.emit("POOL", attrs, (call.port(0),), variant=variant)

    return rule


def _global_pool_reader(variant: str) -> Reader:
    def rule(call: Call) -> None:
        axes = call.rank() - 2
        call.emit("POOL", {"size": [1] * axes}, (call.port(0),), variant=variant)

    return rule


def read_mean(call: Call) -> None:
    axes, keep = call.reduced_axes()
    call.emit("POOL", {"axis": axes, "keep": keep}, (call.port(0),), variant="MEAN")


def read_resize(call: Call) -> None:
    """Whole factors along the two last axes, as torch's upsampling has them."""
    scales = [float(scale) for scale in call.numbers(2)] if call.has(2) else []
    if call.version < 11 or len(scales) != 4 or scales[:2] != [1, 1] or call.has(3):
        raise Cannot("other factors")
    if any(scale != int(scale) or scale < 1 for scale in scales):
        raise Cannot("other factors")
    mode = call.text("mode", "nearest")
    places = call.text("coordinate_transformation_mode", "half_pixel")
    # What other modes than these ask for; exporters write all of it.
    call.idle("cubic_coeff_a", "extrapolation_value", "exclude_outside")
    if mode == "linear":
        call.idle("nearest_mode")
    if call.has(1):
        call.known(1)  # a part of the tensor, which a mode of its own takes
    options: list[bool] = []
    if mode == "nearest" and places == "asymmetric":
        if call.text("nearest_mode", "round_prefer_floor") != "floor":
            raise Cannot("another rounding")
        op = "upsample_nearest2d.vec"
    elif mode == "linear" and places in ("half_pixel", "pytorch_half_pixel", "align_corners"):
        op, options = "upsample_bilinear2d.vec", [places == "align_corners"]
    else:
        raise Cannot("another mode")
    shape = call.shape(0)
    if shape is not None:
        lengths = zip(shape[2:], scales[2:], strict=False)
        larger = (n * int(k) if isinstance(n, int) else None for n, k in lengths)
        shape = (*shape[:2], *larger)
    x, dtype = call.argument(0), call.dtype()
    call.aten(op, x, None, *options, scales[2:], shape=shape, dtype=dtype)


# To ONNX
Pads = Sequence[tuple[int, int]]


def write_pool(g: Graph, node: Node, inputs: Sequence[Item]) -> Value | list[Value]:
    attrs = node.attrs
    if node.variant == "MEAN":
        x = fractions(g, inputs[0])
        return g.reduce("ReduceMean", x, attrs["axis"], attrs["keep"])
    x = g.value(inputs[0])
    axes = len(attrs["kernel"] if attrs["size"] is None else attrs["size"])
    last = attrs["channels"] == "last"
    moved = channels_first(g, x, axes) if last else x
    if attrs["size"] is not None:
        made = adaptive(g, node.variant or "", moved, attrs["size"])
    else:
        made = _windows(g, node, moved)
    return [channels_last(g, each, axes) for each in made] if last else made


def _windows(g: Graph, node: Node, x: Value) -> list[Value]:
    attrs = node.attrs
    lengths = (x.shape or (None,) * (len(attrs["kernel"]) + 2))[2:]
    ceil, over, behind = False, False, [0] * len(lengths)
    if attrs["ceil"]:
        ceil, over, behind = _ceil_settings(attrs, lengths)
    pad = [(a, b + extra) for (a, b), extra in zip(attrs["pad"], behind, strict=True)]
    given: dict[str, Any] = {
        "kernel_shape": list(attrs["kernel"]),
        "strides": list(attrs["stride"]),
    }
    if any(each != 1 for each in attrs["dilation"]):
        given["dilations"] = list(attrs["dilation"])
    if ceil:
        given["ceil_mode"] = 1
    # Runtimes take no more padding than this.
    wide = any(max(pair) >= kernel for pair, kernel in zip(pad, attrs["kernel"], strict=True))
    none, whole = [(0, 0)] * len(pad), x
    if node.variant == "AVG":
        if wide:
            return [_separable_average(g, attrs, x)]
        counted = attrs["count_pad"] and any(map(any, attrs["pad"]))
        # A window that reaches beyond the padding is divided by what lies within.
        if over and counted:
            x = _pad(g, x, attrs["pad"], 0.0)
            pad = [(0, extra) for extra in behind]
        given["count_include_pad"] = int(attrs["count_pad"] and not over)
        made = [g.op("AveragePool", [x], {**given, "pads": pads_attribute(pad)}, shape=None)]
    elif wide:
        if 1 in g.ports:
            raise UsageError("positions in a pool padded by a whole window cannot be exported")
        x = _pad(g, x, pad, float("-inf"))
        made = _max_pool(g, x, {**given, "pads": pads_attribute(none)})
    else:
        made = _max_pool(g, x, {**given, "pads": pads_attribute(pad)})
    return (
        made if x is whole or not ceil else [_without_windows_in_padding(g, attrs, whole, made[0])]
    )


def _separable_average(g: Graph, attrs: Mapping[str, Any], x: Value) -> Value:
    """Averages along one axis after the other."""
    rows = zip(attrs["kernel"], attrs["stride"], attrs["pad"], attrs["dilation"], strict=True)
    for axis, (kernel, stride, pad, dilation) in enumerate(rows, 2):
        length = (x.shape or (None,) * (axis + 1))[axis]
        if not isinstance(length, int):
            raise UsageError("a dilated average takes axes of fixed lengths")
        count = window(length, kernel, stride, pad, dilation, attrs["ceil"])
        assert isinstance(count, int)
        _check_size(count * max(kernel, length))
        taps = [
            [at * stride - pad[0] + tap * dilation for tap in range(kernel)] for at in range(count)
        ]
        inside = [[place for place in each if 0 <= place < length] for each in taps]
        within = [sum(place < length + pad[1] for place in each) for each in taps]
        counts = within if attrs["count_pad"] else [len(each) for each in inside]
        x = _weighted_sums(g, x, axis, length, inside, counts)
    return x


def _weighted_sums(
    g: Graph,
    x: Value,
    axis: int,
    length: int,
    windows: Sequence[Sequence[int]],
    counts: Sequence[int],
) -> Value:
    """Sums over windows of an axis, divided by the counts: a product with a matrix."""
    weights = [
        1 / max(count, 1) if at in each else 0.0
        for at in range(length)
        for each, count in zip(windows, counts, strict=True)
    ]
    order = [*(place for place in range(x.rank) if place != axis), axis]
    moved = g.transpose(x, order)
    made = g.op(
        "MatMul",
        [moved, g.constant(weights, x.dtype, (length, len(windows)))],
        shape=(*(moved.shape or ())[:-1], len(windows)),
    )
    return g.transpose(made, [order.index(place) for place in range(x.rank)])


def _without_windows_in_padding(
    g: Graph, attrs: Mapping[str, Any], x: Value, result: Value
) -> Value:
    """Without windows that begin in padding which the operator does not see as such."""
    for axis, (stride, (before, _)) in enumerate(
        zip(attrs["stride"], attrs["pad"], strict=True), 2
    ):
        length = g.length(x, axis)
        if isinstance(length, Value):
            reach = calculate(g, "add", [length, before + stride - 1])
            result = g.slice(
                replace(result, shape=result.shape or x.shape),
                axis,
                0,
                calculate(g, "floordiv", [reach, stride]),
            )
    return result


def _ceil_settings(attrs: Mapping[str, Any], lengths: Shape) -> tuple[bool, bool, list[int]]:
    """Whether to ask for rounding up, whether a window reaches beyond the padding, and, instead
    of asking, how much further the padding is to reach.

    Older runtimes keep a window that begins behind the input: where one would, and the
    lengths are known, nothing is left to them.
    """
    none, extra, unclear = [0] * len(lengths), [], False
    for length, kernel, stride, pad, dilation in zip(
        lengths, attrs["kernel"], attrs["stride"], attrs["pad"], attrs["dilation"], strict=True
    ):
        if not isinstance(length, int):
            return True, True, none
        reach = dilation * (kernel - 1) + 1
        room = length + sum(pad)
        count = window(length, kernel, stride, pad, dilation, True)
        assert isinstance(count, int)
        unclear = unclear or count != -(-(room - reach) // stride) + 1
        extra.append(max(0, (count - 1) * stride + reach - room))
    return not unclear, any(extra), extra if unclear else none


def _pad(g: Graph, x: Value, pad: Pads, value: float) -> Value:
    shape: list[Dim] = list(x.shape or (None,) * (len(pad) + 2))
    for axis, pair in enumerate(pad, 2):
        length = shape[axis]
        shape[axis] = length + sum(pair) if isinstance(length, int) else None
    amounts = g.ints(*pads_attribute([(0, 0), (0, 0), *pad]))
    return g.op("Pad", [x, amounts, g.constant(value, x.dtype)], shape=tuple(shape))


def _max_pool(g: Graph, x: Value, attrs: dict[str, Any]) -> list[Value]:
    """The largest values and, where they are asked for, their places on the plane."""
    if 1 not in g.ports:
        return [g.op("MaxPool", [x], attrs, shape=None)]
    made, places = g.ops("MaxPool", [x], [(x.dtype, None), ("int64", None)], attrs)
    # ONNX counts through the whole tensor, the vocabulary through one map.
    plane = product((x.shape or (None,))[2:])
    if plane is not None and not plane.symbols:
        size: Value = g.constant(plane.factor, "int64")
    else:
        lengths = g.op("Shape", [x], {"start": 2}, dtype="int64", shape=None)
        size = g.reduce("ReduceProd", lengths, None, False)
    return [made, g.op("Mod", [places, size])]


def adaptive(g: Graph, variant: str, x: Value, size: Sequence[int | None]) -> list[Value]:
    """A pool into so many windows along each axis; None: as many as the axis is long."""
    largest = variant == "MAX"
    lengths = (x.shape or (None,) * (len(size) + 2))[2:]
    places = largest and 1 in g.ports
    if all(wanted == 1 for wanted in size) and not places:
        kind = "GlobalMaxPool" if largest else "GlobalAveragePool"
        return [g.op(kind, [x], shape=None)]
    kernel = []
    for length, wanted in zip(lengths, size, strict=True):
        if wanted is None:
            kernel.append(1)
        elif isinstance(length, int) and length % wanted == 0:
            kernel.append(length // wanted)
        else:
            break
    else:
        given: dict[str, Any] = {"kernel_shape": kernel, "strides": kernel}
        if largest:
            return _max_pool(g, x, given)
        return [g.op("AveragePool", [x], given, shape=None)]
    if places:
        raise UsageError("positions in an adaptive pool of unequal windows cannot be exported")
    for axis, (length, wanted) in enumerate(zip(lengths, size, strict=True), 2):
        if wanted == 1:
            x = g.reduce("ReduceMax" if largest else "ReduceMean", x, [axis], True)
        elif wanted is not None and wanted != length:
            x = _unequal_windows(g, largest, x, axis, length, wanted)
    return [x]


def _unequal_windows(
    g: Graph, largest: bool, x: Value, axis: int, length: Dim, wanted: int
) -> Value:
    """One axis cut into windows of lengths that differ by one, and may overlap."""
    if not isinstance(length, int):
        raise UsageError(
            f"an adaptive pool to {wanted} takes an axis of a fixed length",
            why=f"axis {axis} is {length or 'of unknown length'}",
            hint="import the network with numbers for the sizes of the image",
        )
    _check_size(length * wanted)
    windows = [
        range(place * length // wanted, -(-(place + 1) * length // wanted))
        for place in range(wanted)
    ]
    if largest:
        # Short windows look at their last element twice.
        most = max(map(len, windows))
        picked = [window[min(at, len(window) - 1)] for window in windows for at in range(most)]
        rows = g.constant(picked, "int64", (wanted, most))
        shape = (*(x.shape or ())[:axis], wanted, most, *(x.shape or ())[axis + 1 :])
        cut = g.op("Gather", [x, rows], {"axis": axis}, shape=shape)
        return g.reduce("ReduceMax", cut, [axis + 1], False)
    return _weighted_sums(g, x, axis, length, windows, [len(each) for each in windows])


def _check_size(numbers: int) -> None:
    if numbers > MOST_NUMBERS:
        raise UsageError(f"a pool of {numbers} single steps is too large to be written out")


READERS: dict[str, Reader] = {
    "MaxPool": _pool_reader("MAX"),
    "AveragePool": _pool_reader("AVG"),
    "GlobalMaxPool": _global_pool_reader("MAX"),
    "GlobalAveragePool": _global_pool_reader("AVG"),
    "ReduceMean": read_mean,
    "Resize": read_resize,
    "ReduceSum": _reduction_reader("sum.dim_IntList"),
    "ReduceMax": _reduction_reader("amax.default"),
    "ReduceMin": _reduction_reader("amin.default"),
    "ReduceL2": _reduction_reader("linalg_vector_norm.default", 2),
    "ReduceLogSumExp": _reduction_reader("logsumexp.default"),
    "ArgMax": _extreme_reader("argmax.default"),
    "ArgMin": _extreme_reader("argmin.default"),
    "CumSum": read_cumulative,
    "TopK": read_top,
}
WRITERS: dict[str, Writer] = {"POOL": write_pool}
