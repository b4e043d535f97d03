"""RESHAPE: cut, turned, repeated and converted tensors; padding too.

Lengths of axes stand in attributes and at ports; arithmetic on them is here as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dlv.adapters.onnx.builder import Cannot
from dlv.adapters.onnx.call import Call, Reader
from dlv.adapters.onnx.graph import (
    FLOATS,
    NARROW,
    Graph,
    Item,
    Type,
    Value,
    Writer,
    arguments,
    dialect,
    together,
)
from dlv.adapters.onnx.rules.dense import read_embed
from dlv.adapters.onnx.tensors import Stored, dtype_of
from dlv.adapters.onnx.values import Entry, Length, Literal
from dlv.dtypes import ITEM_BYTES
from dlv.errors import UsageError
from dlv.network.graph import Node, Port
from dlv.network.sizes import Dim, Shape, axis_of

Lengths = list[int | Value]
# Lengths, from ONNX


def read_size(call: Call, entries: Sequence[Entry]) -> tuple[list[Dim], list[Port]]:
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


def length_of_axis(call: Call, place: int, axis: int) -> Entry:
    shape = call.shape(place)
    dim = None if shape is None else shape[axis]
    if isinstance(dim, int):
        return dim
    return Length(call.value(place), axis, dim if dim in call.builder.symbols else None)


def read_range(call: Call) -> None:
    """Whole numbers up to a length known at run time."""
    args: list[dict[str, Any]] = []
    for place in range(3):
        entries = call.entries(place)
        if len(entries) != 1:
            raise Cannot("no number")
        args.append(call.length_argument(entries[0]))
    dtype = {"dtype": {"dtype": "int64"}}
    call.aten("arange.start_step", *args, shape=(None,), dtype="int64", keywords=dtype)


# Lengths, to ONNX


def written_lengths(g: Graph, node: Node, inputs: Sequence[Item], first: int) -> Lengths:
    """The lengths of `size`: what is open comes in at the ports from `first` on."""
    size = list(node.attrs["size"])
    open_ = [place for place, dim in enumerate(size) if not isinstance(dim, int)]
    if not open_:
        return size
    unknown = [place for place in open_ if size[place] is None]
    ports = len(inputs) - first
    if dialect(node) == "aten":
        recorded = _recorded(g, node, inputs, first)
        if recorded is not None and len(recorded) == len(size):
            return recorded
    filled: Sequence[int] = ()
    if ports == len(open_):
        filled = open_
    elif ports == len(unknown):
        filled = unknown
    elif ports:
        raise UsageError(f"{ports} lengths come in, {len(open_)} are open in {size}")
    elif len(unknown) == 1 and -1 not in size and node.attrs["kind"] != "fill":
        size[unknown[0]] = -1
    result: Lengths = []
    come = {place: inputs[first + index] for index, place in enumerate(filled)}
    for place, dim in enumerate(size):
        if place in come:
            result.append(checked_length(come[place]))
        elif dim is None:
            raise UsageError(f"its size {size} has unknown lengths")
        else:
            result.append(g.symbol(dim) if isinstance(dim, str) else dim)
    return result


def _recorded(g: Graph, node: Node, inputs: Sequence[Item], first: int) -> Lengths | None:
    """The lengths as the recorded call has them, if it has a list of them."""
    args, kwargs = arguments(g, node, inputs)
    lists = [item for item in (*args, *kwargs.values()) if isinstance(item, list)]
    if len(lists) != 1 or len(inputs) <= first:
        return None
    return [checked_length(item) for item in lists[0]]


def checked_length(item: Any) -> int | Value:
    if isinstance(item, (int, Value)) and not isinstance(item, bool):
        return item
    raise UsageError(f"{item!r} is not a length")


_NAMES = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "sym_max": "Max", "sym_min": "Min",
    "mod": "Mod", "eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater",
    "ge": "GreaterOrEqual", "neg": "Neg", "abs": "Abs", "floor": "Floor", "ceil": "Ceil",
    "trunc": "Floor", "round": "Round", "sqrt": "Sqrt",
}  # fmt: skip
_PLAIN: Mapping[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "truediv": lambda a, b: a / b,
    "mod": lambda a, b: a % b,
    "neg": lambda a: -a,
    "sym_max": max,
    "sym_min": min,
    "sym_float": float,
    "sym_int": int,
    "abs": abs,
    "floor": math.floor,
    "ceil": math.ceil,
    "sqrt": math.sqrt,
}
_COMPARISONS = frozenset(("eq", "lt", "le", "gt", "ge"))
_WHOLE_RESULTS = frozenset(("floor", "ceil", "trunc", "round", "sym_int"))


def write_arithmetic(g: Graph, node: Node, inputs: Sequence[Item]) -> Item:
    given = list(inputs)
    if dialect(node) == "aten":
        given, _ = arguments(g, node, inputs)
    name = node.attrs["operator"].rpartition(".")[2]
    if name in _PLAIN and not any(isinstance(item, Value) for item in given):
        try:
            worked_out: Item = _PLAIN[name](*given)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise UsageError(f"{name} of {given} has no result") from error
        return worked_out
    return calculate(g, name, given)


def calculate(g: Graph, name: str, operands: Sequence[Item]) -> Value:
    """Arithmetic on lengths at run time; they are lists of one."""
    values = [
        item if isinstance(item, Value) and item.weak else g.reshape(g.value(item), [1])
        for item in operands
    ]
    if name in ("truediv", "sym_float", "sqrt"):
        values = [g.cast(value, "float32") for value in values]
    values = together(g, [_plain(value) for value in values])
    first = values[0]
    if name == "truediv":
        made = g.op("Div", values)
    elif name == "floordiv":
        # Division rounds to zero, the remainder is the divisor's: so this is exact.
        rest = g.op("Mod", values, {"fmod": 0})
        made = g.op("Div", [g.op("Sub", [first, rest]), values[1]])
    elif name in ("sym_float", "sym_int"):
        made = g.cast(first, "float32" if name == "sym_float" else "int64")
    elif name in _NAMES:
        dtype = "bool" if name in _COMPARISONS else None
        made = g.op(_NAMES[name], values, dtype=dtype)
    else:
        raise UsageError(f"arithmetic on lengths with {name} cannot be exported")
    if name in _WHOLE_RESULTS:
        made = g.cast(made, "int64")
    return Value(made.id, made.dtype, (1,), weak=True)


def _plain(value: Value) -> Value:
    return Value(value.id, value.dtype, (1,))


# From ONNX
_LARGEST = (1 << 63) - 1


def read_reshape(call: Call) -> None:
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
            return call.emit("RESHAPE", attrs, (x,))
        for place in zeros:
            if shape is not None and place >= len(shape):
                raise Cannot("a length of an axis that is not there")
            entries[place] = length_of_axis(call, 0, place)
    open_places = [place for place, entry in enumerate(entries) if not isinstance(entry, int)]
    if len(open_places) == 1 and -1 not in entries and 0 not in entries:
        entries[open_places[0]] = -1
    size, ports = read_size(call, entries)
    return call.emit("RESHAPE", {"kind": "view", "size": size}, (x, *ports))


def read_flatten(call: Call) -> None:
    x, axis, shape = call.port(0), call.integer("axis", 1), call.shape(0)
    if shape is not None:
        axis = call.axis(axis, len(shape)) if axis < 0 else axis
        if axis > len(shape):
            raise Cannot("an axis that is not there")
    if axis == 0:
        return call.emit("RESHAPE", {"kind": "view", "size": [1, -1]}, (x,))
    if axis < 0 or (shape is not None and axis >= len(shape)):
        if shape is None or axis < 0:
            raise Cannot("the rank is unknown")
        flat = x if axis == 1 else _flat(call, x, axis)
        return call.emit("RESHAPE", {"kind": "unsqueeze", "axis": 1}, (flat,))
    if axis > 1:
        x = _flat(call, x, axis)
    return call.emit("RESHAPE", {"kind": "flatten", "start": 1, "end": -1}, (x,))


def _flat(call: Call, x: Port, axis: int) -> Port:
    return call.before("RESHAPE", {"kind": "flatten", "start": 0, "end": axis - 1}, (x,))


def read_transpose(call: Call) -> None:
    held = call.held(0)
    turned = call.integers("perm", [1, 0]) == [1, 0]
    if held is not None and len(held.stored.shape) == 2 and turned:
        call.builder.states[call.outputs[0]] = replace(held, flipped=not held.flipped)
        return None
    x = call.port(0)
    axes = call.integers("perm", []) or list(range(call.rank()))[::-1]
    moved = [place for place, axis in enumerate(axes) if place != axis]
    if len(moved) == 2:
        return call.emit("RESHAPE", {"kind": "transpose", "axes": moved}, (x,))
    return call.emit("RESHAPE", {"kind": "permute", "axes": axes}, (x,))


def read_unsqueeze(call: Call) -> None:
    axes, x = call.axes(), call.port(0)
    if not axes:
        raise Cannot("no axes")
    if len(axes) > 1:
        rank = call.rank() + len(axes)
        axes = sorted(call.axis(axis, rank) for axis in axes)
    for axis in axes[:-1]:
        x = call.before("RESHAPE", {"kind": "unsqueeze", "axis": axis}, (x,))
    call.emit("RESHAPE", {"kind": "unsqueeze", "axis": axes[-1]}, (x,))


def read_slice(call: Call) -> None:
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
        raise Cannot("starts and ends do not match")
    for place, (axis, start, end, step) in enumerate(cuts):
        if not isinstance(start, int) or not isinstance(end, int):
            if len(cuts) > 1:
                raise Cannot("several cuts at lengths known at run time")
            return _read_slice_at(call, axis, start, end, step)
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
            call.emit("RESHAPE", attrs, (x,))
    return None


def _read_slice_at(call: Call, axis: int, start: Entry, end: Entry, step: int) -> None:
    x, ends = call.argument(0), [call.length_argument(entry) for entry in (start, end)]
    shape = call.shape(0)
    if shape is not None:
        place = call.axis(axis, len(shape))
        shape = (*shape[:place], None, *shape[place + 1 :])
    call.aten("slice.Tensor", x, axis, *ends, step, shape=shape, dtype=call.dtype())


def read_split(call: Call) -> None:
    x, axis, shape = call.port(0), call.integer("axis", 0), call.shape(0)
    outputs = call.operator.outputs
    sizes = call.axes("split", 1)
    if call.integer("num_outputs", len(outputs)) != len(outputs):
        raise Cannot("other pieces than outputs")
    if sizes is None:
        if shape is None:
            raise Cannot("the length is unknown")
        length = shape[call.axis(axis, len(shape))]
        if not isinstance(length, int):
            raise Cannot("the length is unknown")
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


def read_gather(call: Call) -> None:
    table, axis = call.held(0), call.integer("axis", 0)
    if table is not None and table.trainable and not table.flipped:
        return read_embed(call, table)
    places = call.known(1)
    if not isinstance(places, Literal) or places.shape not in ((), (1,)):
        raise Cannot("places known at run time")
    [index], x = call.whole(1), call.port(0)
    if not places.shape:
        return call.emit("RESHAPE", {"kind": "select", "axis": axis, "index": index}, (x,))
    end = None if index == -1 else index + 1
    attrs: dict[str, Any] = {"kind": "slice", "axis": axis, "start": index, "end": end}
    return call.emit("RESHAPE", attrs, (x,))


def read_pick(call: Call) -> None:
    """Gather of places that are written down; torch does not count them from the end."""
    axis, places = call.integer("axis", 0), call.whole(1)
    if call.builder.shape(call.value(1)) != (len(places),) or any(at < 0 for at in places):
        raise Cannot("places of another form")
    shape = call.shape(0)
    if shape is not None:
        at = call.axis(axis, len(shape))
        shape = (*shape[:at], len(places), *shape[at + 1 :])
    x, rows = call.argument(0), call.argument(1)
    call.aten("index_select.default", x, axis, rows, shape=shape, dtype=call.dtype())


def read_expand(call: Call) -> None:
    x, entries = call.port(0), list(call.entries(1))
    have = list(call.shape(0) or ())
    if call.shape(0) is None:
        raise Cannot("the rank is unknown")
    entries = [1] * (len(have) - len(entries)) + entries
    new = len(entries) - len(have)
    for place in range(new, len(entries)):
        entry, dim = entries[place], have[place - new]
        symbol = entry.symbol if isinstance(entry, Length) else None
        if entry == 1 or (symbol is not None and symbol == dim):
            entries[place] = -1
        elif isinstance(entry, int) and isinstance(dim, int) and dim not in (1, entry):
            raise Cannot("lengths that do not match")
    size, ports = read_size(call, entries)
    call.emit("RESHAPE", {"kind": "expand", "size": size}, (x, *ports))


def read_tile(call: Call) -> None:
    repeats, x, have = call.whole(1), call.argument(0), call.shape(0)
    shape: Shape | None = None
    if have is not None and len(have) == len(repeats):
        pairs = zip(have, repeats, strict=True)
        shape = tuple(n * k if isinstance(n, int) else n if k == 1 else None for n, k in pairs)
    call.aten("repeat.default", x, repeats, shape=shape, dtype=call.dtype())


def read_triangle(call: Call) -> None:
    op = "triu.default" if call.flag("upper", 1) else "tril.default"
    diagonal = int(call.scalar(1)) if call.has(1) else 0
    call.aten(op, call.argument(0), diagonal, shape=call.shape(0), dtype=call.dtype())


def read_cast(call: Call) -> None:
    dtype = dtype_of(call.integer("to"), "a Cast")
    if dtype.startswith("float8"):
        raise Cannot("what is too large for eight bits")
    call.idle("saturate", "round_mode")  # of eight bits
    if dtype not in ITEM_BYTES:
        raise Cannot(f"a cast to {dtype}")
    call.emit("RESHAPE", {"kind": "to", "dtype": dtype}, (call.port(0),), dtype=dtype)


def read_cast_like(call: Call) -> None:
    dtype = call.dtype(1)
    if dtype is None or dtype not in ITEM_BYTES or dtype.startswith("float8"):
        raise Cannot(f"a cast to {dtype}")
    call.idle("saturate", "round_mode")
    call.emit("RESHAPE", {"kind": "to", "dtype": dtype}, (call.port(0),), dtype=dtype)


def read_fill(call: Call) -> None:
    value = call.attribute("value")
    number: float = 0.0
    if value is not None:
        values = value.values(1) if isinstance(value, Stored) else None
        if not values or value.dtype != "float32":
            raise Cannot("a filling that is not a float32")
        number = float(values[0])
    size, ports = read_size(call, call.entries(0))
    call.emit("RESHAPE", {"kind": "fill", "size": size, "const": number}, ports, dtype="float32")


def read_pad(call: Call) -> None:
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
    x, shape = call.argument(0), _shape_of_pad(call, pad)
    call.aten("constant_pad_nd.default", x, turned, value, shape=shape, dtype=call.dtype())


def _shape_of_pad(call: Call, pad: Sequence[int]) -> Shape | None:
    shape = call.shape(0)
    if shape is None or len(pad) != 2 * len(shape):
        return None
    ends = zip(shape, pad[: len(shape)], pad[len(shape) :], strict=True)
    return tuple(
        n + a + b if isinstance(n, int) else n if a == b == 0 else None for n, a, b in ends
    )


# To ONNX
LAST = 2**63 - 1
MOST_PIECES = 10_000


def write_reshape(g: Graph, node: Node, inputs: Sequence[Item]) -> Item | Sequence[Item]:
    kind = node.attrs["kind"]
    if kind == "fill":
        return _fill(g, node, inputs)
    if kind == "arithmetic":
        return write_arithmetic(g, node, inputs)
    if kind == "getitem":
        return inputs[0]  # the port was looked up already
    if kind == "size":
        return g.length(g.value(inputs[0]), node.attrs["axis"])
    x, attrs = g.value(inputs[0]), node.attrs
    if kind in ("view", "reshape"):
        return g.reshape(x, written_lengths(g, node, inputs, 1))
    if kind == "expand":
        return expand(g, x, written_lengths(g, node, inputs, 1))
    if kind == "select":
        return select(g, x, attrs["axis"], inputs[1] if len(inputs) > 1 else attrs["index"])
    if kind == "slice":
        return _slice(g, node, x, inputs)
    return _KINDS[kind](g, x, attrs)


def flatten(g: Graph, x: Value, start: int, end: int) -> Value:
    rank = x.rank
    if not rank:
        return g.reshape(x, [1])
    start, end = axis_of(start, rank, "start"), axis_of(end, rank, "end")
    if start == end:
        return x
    if (start, end) == (1, rank - 1):
        dims = (x.shape or ())[1:]
        whole = all(isinstance(dim, int) for dim in dims)
        width = math.prod(dim for dim in dims if isinstance(dim, int)) if whole else None
        return g.op("Flatten", [x], {"axis": 1}, shape=((x.shape or ())[0], width))
    kept = [g.length(x, axis) for axis in range(rank) if axis < start or axis > end]
    return g.reshape(x, [*kept[:start], -1, *kept[start:]])


def swap(g: Graph, x: Value, first: int, second: int) -> Value:
    order = list(range(x.rank))
    a, b = axis_of(first, x.rank, "axis"), axis_of(second, x.rank, "axis")
    order[a], order[b] = b, a
    return g.transpose(x, order)


def permute(g: Graph, x: Value, axes: Sequence[int]) -> Value:
    return g.transpose(x, [axis_of(axis, x.rank, "axis") for axis in axes])


def squeeze(g: Graph, x: Value, axes: Sequence[int] | None) -> Value:
    """Without axes of length 1; one of another length stays, as torch has it."""
    rank = x.rank
    named = range(rank) if axes is None else [axis_of(axis, rank, "axis") for axis in axes]
    gone = [axis for axis in named if (x.shape or ())[axis] == 1]
    return g.squeeze(x, *gone) if gone else x


def select(g: Graph, x: Value, axis: int, index: Item) -> Value:
    axis = axis_of(axis, x.rank, "axis")
    shape = (*(x.shape or ())[:axis], *(x.shape or ())[axis + 1 :])
    return g.op("Gather", [x, g.value(index, "int64")], {"axis": axis}, shape=shape)


def _slice(g: Graph, node: Node, x: Value, inputs: Sequence[Item]) -> Value:
    attrs = node.attrs
    start, end = attrs["start"], attrs["end"]
    if len(inputs) > 1:
        if dialect(node) != "aten":
            raise UsageError("lengths come in that its attributes have no place for")
        args, kwargs = arguments(g, node, inputs)
        start = args[2] if len(args) > 2 else kwargs.get("start")
        end = args[3] if len(args) > 3 else kwargs.get("end")
    return cut(g, x, attrs["axis"], start, end, attrs["step"])


def cut(
    g: Graph, x: Value, axis: int, start: Item | None, end: Item | None, step: int = 1
) -> Value:
    if not start and end in (None, LAST) and step == 1:
        return x
    begin = 0 if start is None else checked_length(start)
    return g.slice(x, axis, begin, LAST if end is None else checked_length(end), step)


def expand(g: Graph, x: Value, lengths: Sequence[int | Value]) -> Value:
    """Broadcast to these lengths; -1 leaves an axis as it is."""
    have = x.shape
    new = len(lengths) - x.rank
    wanted: Lengths = []
    shape = []
    for place, length in enumerate(lengths):
        old = (have or ())[place - new] if place >= new else 1
        symbol = length.symbol if isinstance(length, Value) else None
        same = (length in (-1, old)) if isinstance(length, int) else symbol == old and symbol
        wanted.append(1 if same else length)
        shape.append(old if same else symbol if isinstance(length, Value) else length)
    if new == 0 and all(length == 1 for length in wanted):
        return x
    return g.op("Expand", [x, g.vector(wanted)], shape=tuple(shape))


def split(g: Graph, x: Value, axis: int, lengths: Sequence[int]) -> list[Value]:
    axis = axis_of(axis, x.rank, "axis")
    if len(lengths) > MOST_PIECES:
        raise UsageError(f"{len(lengths)} pieces are too many", why=f"the limit is {MOST_PIECES}")
    shape = x.shape or ()
    pieces = [(x.dtype, (*shape[:axis], length, *shape[axis + 1 :])) for length in lengths]
    return g.ops("Split", [x, g.ints(*lengths)], pieces, {"axis": axis})


def converted(g: Graph, x: Value, dtype: str | None) -> Value:
    if dtype is None:
        return x
    if dtype in NARROW and x.dtype in FLOATS:
        # Rounded to it, then computed with as all the rest.
        return g.computed(g.cast(x, dtype))
    return g.cast(x, "float32" if dtype in NARROW else dtype)


# Kinds that take nothing but the tensor and their attributes.
_KINDS: Mapping[str, Callable[[Graph, Value, Mapping[str, Any]], Value | list[Value]]] = {
    "flatten": lambda g, x, attrs: flatten(g, x, attrs["start"], attrs["end"]),
    "transpose": lambda g, x, attrs: swap(g, x, *attrs["axes"]),
    "permute": lambda g, x, attrs: permute(g, x, attrs["axes"]),
    "squeeze": lambda g, x, attrs: squeeze(g, x, attrs["axis"]),
    "unsqueeze": lambda g, x, attrs: g.unsqueeze(x, attrs["axis"]),
    "split": lambda g, x, attrs: split(g, x, attrs["axis"], attrs["sizes"]),
    "contiguous": lambda g, x, attrs: x,  # noqa: ARG005
    "to": lambda g, x, attrs: converted(g, x, attrs["dtype"]),
}


def _fill(g: Graph, node: Node, inputs: Sequence[Item]) -> Value:
    dtype = "float32"
    if dialect(node) == "aten":
        _, kwargs = arguments(g, node, inputs)
        given = kwargs.get("dtype")
        dtype = given.dtype if isinstance(given, Type) else dtype
    return filled(g, written_lengths(g, node, inputs, 0), node.attrs["const"], dtype)


def filled(g: Graph, lengths: Sequence[int | Value], const: Item, dtype: str) -> Value:
    """A tensor of one number everywhere."""
    dtype = "float32" if dtype in NARROW else dtype
    made = expand(g, g.value(const, dtype), lengths)
    if const == 0:
        g.zeros.add(made.id)
    return made


READERS: dict[str, Reader] = {
    "Reshape": read_reshape,
    "Flatten": read_flatten,
    "Transpose": read_transpose,
    "Squeeze": lambda call: call.emit(
        "RESHAPE", {"kind": "squeeze", "axis": call.axes()}, (call.port(0),)
    ),
    "Unsqueeze": read_unsqueeze,
    "Slice": read_slice,
    "Split": read_split,
    "Gather": read_gather,
    "Expand": read_expand,
    "Tile": read_tile,
    "Trilu": read_triangle,
    "Cast": read_cast,
    "CastLike": read_cast_like,
    "ConstantOfShape": read_fill,
    "Pad": read_pad,
    "Range": read_range,
}
# Tried after the rule of the vocabulary found that it does not apply.
SECOND: dict[str, Reader] = {"Gather": read_pick}
WRITERS: dict[str, Writer] = {"RESHAPE": write_reshape}
