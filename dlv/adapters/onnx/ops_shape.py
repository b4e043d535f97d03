"""ONNX operators that pool, join, cut and turn tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dlv.adapters.onnx.builder import Cannot
from dlv.adapters.onnx.call import Arguments, Call
from dlv.adapters.onnx.ops import Rule, pads, per_axis
from dlv.adapters.onnx.tensors import Stored, dtype_of
from dlv.adapters.onnx.values import Entry, Length, Literal
from dlv.dtypes import ITEM_BYTES
from dlv.network.graph import Port
from dlv.network.sizes import Dim, Shape

_LARGEST = (1 << 63) - 1


def _pool(variant: str) -> Rule:
    def rule(call: Call) -> None:
        call.only_output()
        kernel = call.integers("kernel_shape")
        stride = per_axis(call, "strides", len(kernel))
        dilation = per_axis(call, "dilations", len(kernel))
        pad = pads(call, kernel, stride, dilation)
        same = call.text("auto_pad", "NOTSET").startswith("SAME")
        if same and (call.flag("ceil_mode", 0) or any(step != 1 for step in dilation)):
            raise Cannot("runtimes do not agree on what comes out")
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
        call.put("POOL", attrs, (call.port(0),), variant=variant)

    return rule


def _global_pool(variant: str) -> Rule:
    def rule(call: Call) -> None:
        axes = call.rank() - 2
        call.put("POOL", {"size": [1] * axes}, (call.port(0),), variant=variant)

    return rule


def reduced_axes(call: Call) -> tuple[list[int] | None, bool]:
    """Axes of a reduction (None: all), and whether they stay with length 1."""
    axes = call.axes()
    noop = call.flag("noop_with_empty_axes", 0)
    if not axes:
        if noop:
            raise Cannot("a reduction over nothing")
        axes = None
    return axes, call.flag("keepdims", 1)


def _mean(call: Call) -> None:
    axes, keep = reduced_axes(call)
    call.put("POOL", {"axis": axes, "keep": keep}, (call.port(0),), variant="MEAN")


def _concat(call: Call) -> None:
    axis, places = call.integer("axis", 1), range(len(call.operator.inputs))
    held = [call.held(place) for place in places]
    if not any(item is not None and item.trainable for item in held):
        return call.put("CONCAT", {"axis": axis}, [call.port(place) for place in places])
    given = Arguments(call)
    parts = [given.tensor(value) for value in call.operator.inputs]
    args = [{"l": parts}, {"c": axis}]
    source = {"dialect": "aten", "op": "aten.cat.default", "args": args, "kwargs": {}}
    return call.put_raw(source, given)


def size_list(call: Call, entries: Sequence[Entry]) -> tuple[list[Dim], list[Port]]:
    """Lengths as attributes have them: numbers, symbols, None for what comes in at a port."""
    size: list[Dim] = []
    ports: list[Port] = []
    for entry in entries:
        if isinstance(entry, int):
            size.append(entry)
        elif isinstance(entry, Length) and entry.symbol is not None:
            size.append(entry.symbol)
        else:
            size.append(None)
            ports.append(call.builder.number(entry))
    return size, ports


def _length(call: Call, place: int, axis: int) -> Entry:
    shape = call.shape(place)
    dim = None if shape is None else shape[axis]
    if isinstance(dim, int):
        return dim
    return Length(call.value(place), axis, dim if dim in call.builder.symbols else None)


def _reshape(call: Call) -> None:
    x = call.port(0)
    if call.version < 5:
        entries: list[Entry] = list(call.integers("shape"))
    else:
        entries = list(call.entries(1))
    shape = call.shape(0)
    if not call.flag("allowzero", 0):
        zeros = [place for place, entry in enumerate(entries) if entry == 0]
        behind = len(zeros)
        whole = bool(entries) and entries == [0] * behind + [-1]
        if whole and (shape is None or len(shape) > behind):
            attrs = {"kind": "flatten", "start": behind, "end": -1}
            return call.put("RESHAPE", attrs, (x,))
        for place in zeros:
            if shape is not None and place >= len(shape):
                raise Cannot("a length of an axis that is not there")
            entries[place] = _length(call, 0, place)
    open_places = [place for place, entry in enumerate(entries) if not isinstance(entry, int)]
    if len(open_places) == 1 and -1 not in entries and 0 not in entries:
        entries[open_places[0]] = -1
    size, ports = size_list(call, entries)
    return call.put("RESHAPE", {"kind": "view", "size": size}, (x, *ports))


def _flatten(call: Call) -> None:
    x, axis, shape = call.port(0), call.integer("axis", 1), call.shape(0)
    if shape is not None:
        axis = call.axis(axis, len(shape)) if axis < 0 else axis
        if axis > len(shape):
            raise Cannot("an axis that is not there")
    if axis == 0:
        return call.put("RESHAPE", {"kind": "view", "size": [1, -1]}, (x,))
    if axis < 0 or (shape is not None and axis >= len(shape)):
        if shape is None or axis < 0:
            raise Cannot("the rank is not known")
        flat = x if axis == 1 else _flat(call, x, axis)
        return call.put("RESHAPE", {"kind": "unsqueeze", "axis": 1}, (flat,))
    if axis > 1:
        x = _flat(call, x, axis)
    return call.put("RESHAPE", {"kind": "flatten", "start": 1, "end": -1}, (x,))


def _flat(call: Call, x: Port, axis: int) -> Port:
    return call.before("RESHAPE", {"kind": "flatten", "start": 0, "end": axis - 1}, (x,))


def _transpose(call: Call) -> None:
    held = call.held(0)
    turned = call.integers("perm", [1, 0]) == [1, 0]
    if held is not None and len(held.stored.shape) == 2 and turned:
        call.builder.states[call.outputs[0]] = replace(held, flipped=not held.flipped)
        return None
    x = call.port(0)
    axes = call.integers("perm", []) or list(range(call.rank()))[::-1]
    moved = [place for place, axis in enumerate(axes) if place != axis]
    if len(moved) == 2:
        return call.put("RESHAPE", {"kind": "transpose", "axes": moved}, (x,))
    return call.put("RESHAPE", {"kind": "permute", "axes": axes}, (x,))


def _squeeze(call: Call) -> None:
    attrs = {"kind": "squeeze", "axis": call.axes()}
    call.put("RESHAPE", attrs, (call.port(0),))


def _unsqueeze(call: Call) -> None:
    axes, x = call.axes(), call.port(0)
    if not axes:
        raise Cannot("no axes")
    if len(axes) > 1:
        rank = call.rank() + len(axes)
        axes = sorted(call.axis(axis, rank) for axis in axes)
    for axis in axes[:-1]:
        x = call.before("RESHAPE", {"kind": "unsqueeze", "axis": axis}, (x,))
    call.put("RESHAPE", {"kind": "unsqueeze", "axis": axes[-1]}, (x,))


def _slice(call: Call) -> None:
    x, version = call.port(0), call.version
    if version < 10:
        starts: list[Entry] = list(call.integers("starts"))
        ends: list[Entry] = list(call.integers("ends"))
        axes, steps = call.integers("axes", range(len(starts))), [1] * len(starts)
    else:
        starts, ends = list(call.entries(1)), list(call.entries(2))
        axes = call.whole(3) if call.has(3) else list(range(len(starts)))
        steps = call.whole(4) if call.has(4) else [1] * len(starts)
    cuts = list(zip(axes, starts, ends, steps, strict=False))
    if not cuts or len({len(axes), len(starts), len(ends), len(steps)}) > 1:
        raise Cannot("starts and ends do not go together")
    for place, (axis, start, end, step) in enumerate(cuts):
        if not isinstance(start, int) or not isinstance(end, int):
            if len(cuts) > 1:
                raise Cannot("several cuts at lengths known at run time")
            return _slice_at(call, axis, start, end, step)
        attrs = {
            "kind": "slice",
            "axis": axis,
            "start": start,
            "end": None if end >= _LARGEST else end,
            "step": step,
        }
        if place < len(cuts) - 1:
            x = call.before("RESHAPE", attrs, (x,))
        else:
            call.put("RESHAPE", attrs, (x,))
    return None


def _slice_at(call: Call, axis: int, start: Entry, end: Entry, step: int) -> None:
    given = Arguments(call)
    args = [given.tensor(call.value(0)), {"c": axis}]
    for entry in (start, end):
        args.append(
            {"c": entry} if isinstance(entry, int) else given.at(call.builder.number(entry))
        )
    args.append({"c": step})
    source = {"dialect": "aten", "op": "aten.slice.Tensor", "args": args, "kwargs": {}}
    shape = call.shape(0)
    if shape is not None:
        place = call.axis(axis, len(shape))
        shape = (*shape[:place], None, *shape[place + 1 :])
    call.put_raw(source, given, shape, call.dtype())


def _split(call: Call) -> None:
    x, axis, shape = call.port(0), call.integer("axis", 0), call.shape(0)
    outputs = call.operator.outputs
    sizes = call.axes("split", 1)
    if call.integer("num_outputs", len(outputs)) != len(outputs):
        raise Cannot("other pieces than outputs")
    if sizes is None:
        if shape is None:
            raise Cannot("the length is not known")
        length = shape[call.axis(axis, len(shape))]
        if not isinstance(length, int):
            raise Cannot("the length is not known")
        each = -(-length // len(outputs))
        sizes = [each] * (len(outputs) - 1)
        sizes.append(length - sum(sizes))
    if len(sizes) != len(outputs):
        raise Cannot("other pieces than outputs")
    attrs = {"kind": "split", "axis": axis, "sizes": sizes}
    made = call.builder.emit(call.label(), "RESHAPE", attrs, (x,))
    dtype = call.dtype()
    for place, value in enumerate(outputs):
        if value:
            call.builder.bind(value, (made, place), dtype=dtype)


def _gather(call: Call) -> None:
    table, axis = call.held(0), call.integer("axis", 0)
    if table is not None and table.trainable and not table.flipped:
        shape = table.stored.shape
        if axis or len(shape) != 2:
            raise Cannot("no table of rows")
        size = {"rows": shape[0], "out": shape[1]}
        params, dtype = {"weight": call.weight(0)}, table.stored.dtype
        return call.put("EMBED", size, (call.port(1),), params=params, dtype=dtype)
    places = call.known(1)
    if not isinstance(places, Literal) or places.shape not in ((), (1,)):
        raise Cannot("places known at run time")
    [index], x = call.whole(1), call.port(0)
    if not places.shape:
        return call.put("RESHAPE", {"kind": "select", "axis": axis, "index": index}, (x,))
    end = None if index == -1 else index + 1
    attrs: dict[str, Any] = {"kind": "slice", "axis": axis, "start": index, "end": end}
    return call.put("RESHAPE", attrs, (x,))


def _expand(call: Call) -> None:
    x, entries = call.port(0), list(call.entries(1))
    have = list(call.shape(0) or ())
    if call.shape(0) is None:
        raise Cannot("the rank is not known")
    entries = [1] * (len(have) - len(entries)) + entries
    new = len(entries) - len(have)
    for place in range(new, len(entries)):
        entry, dim = entries[place], have[place - new]
        symbol = entry.symbol if isinstance(entry, Length) else None
        if entry == 1 or (symbol is not None and symbol == dim):
            entries[place] = -1
        elif isinstance(entry, int) and isinstance(dim, int) and dim not in (1, entry):
            raise Cannot("lengths that do not go together")
    size, ports = size_list(call, entries)
    call.put("RESHAPE", {"kind": "expand", "size": size}, (x, *ports))


def _cast(call: Call) -> None:
    dtype = dtype_of(call.integer("to"), "a Cast")
    if dtype.startswith("float8"):
        raise Cannot("what is too large for eight bits")
    call.idle("saturate", "round_mode")  # of eight bits
    if dtype not in ITEM_BYTES:
        raise Cannot(f"a cast to {dtype}")
    call.put("RESHAPE", {"kind": "to", "dtype": dtype}, (call.port(0),), dtype=dtype)


def _cast_like(call: Call) -> None:
    dtype = call.dtype(1)
    if dtype is None or dtype not in ITEM_BYTES or dtype.startswith("float8"):
        raise Cannot(f"a cast to {dtype}")
    call.idle("saturate", "round_mode")
    call.put("RESHAPE", {"kind": "to", "dtype": dtype}, (call.port(0),), dtype=dtype)


def _fill(call: Call) -> None:
    value = call.given("value")
    number: float = 0.0
    if value is not None:
        values = value.values(1) if isinstance(value, Stored) else None
        if not values or value.dtype != "float32":
            raise Cannot("a filling that is no float32")
        number = float(values[0])
    size, ports = size_list(call, call.entries(0))
    call.put("RESHAPE", {"kind": "fill", "size": size, "const": number}, ports, dtype="float32")


def _shape_of_pad(call: Call, pad: Sequence[int]) -> Shape | None:
    shape = call.shape(0)
    if shape is None or len(pad) != 2 * len(shape):
        return None
    ends = zip(shape, pad[: len(shape)], pad[len(shape) :], strict=True)
    return tuple(
        n + a + b if isinstance(n, int) else n if a == b == 0 else None for n, a, b in ends
    )


def _pad(call: Call) -> None:
    """A constant around the tensor."""
    if call.text("mode", "constant") != "constant" or call.has(3):
        raise Cannot("another mode")
    if call.version < 11:
        pad, value = call.integers("pads"), call.decimal("value", 0.0)
    else:
        pad, value = call.whole(1), float(call.scalar(2)) if call.has(2) else 0.0
    axes = len(pad) // 2
    # torch begins with the last axis, and leaves out the first ones where nothing is added.
    turned = [side for at in reversed(range(axes)) for side in (pad[at], pad[axes + at])]
    while turned[-2:] == [0, 0]:
        del turned[-2:]
    given = Arguments(call)
    args = [
        given.tensor(call.value(0)),
        {"l": [{"c": side} for side in turned]},
        {"c": value},
    ]
    source = {"dialect": "aten", "op": "aten.constant_pad_nd.default", "args": args, "kwargs": {}}
    call.put_raw(source, given, _shape_of_pad(call, pad), call.dtype())


SHAPES: dict[str, Rule] = {
    "MaxPool": _pool("MAX"),
    "AveragePool": _pool("AVG"),
    "GlobalMaxPool": _global_pool("MAX"),
    "GlobalAveragePool": _global_pool("AVG"),
    "ReduceMean": _mean,
    "Concat": _concat,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Transpose": _transpose,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Slice": _slice,
    "Split": _split,
    "Gather": _gather,
    "Expand": _expand,
    "Cast": _cast,
    "CastLike": _cast_like,
    "ConstantOfShape": _fill,
    "Pad": _pad,
}
