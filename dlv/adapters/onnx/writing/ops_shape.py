"""RESHAPE as ONNX operators, and arithmetic on lengths: worked out here where they are known."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dlv.adapters.onnx.graph import FLOATS, NARROW, Graph, Item, Value
from dlv.adapters.onnx.writing.source import Dtype, arguments, dialect
from dlv.adapters.onnx.writing.types import together
from dlv.errors import UsageError
from dlv.network.graph import Node
from dlv.network.sizes import axis_of

LAST = 2**63 - 1
MOST_PIECES = 10_000

Lengths = list[int | Value]


def reshape(g: Graph, node: Node, inputs: Sequence[Item]) -> Item | Sequence[Item]:
    kind = node.attrs["kind"]
    if kind == "fill":
        return _fill(g, node, inputs)
    if kind == "arithmetic":
        return _arithmetic(g, node, inputs)
    if kind == "getitem":
        return inputs[0]  # the port was looked up already
    if kind == "size":
        return g.length(g.value(inputs[0]), node.attrs["axis"])
    return _KINDS[kind](g, node, g.value(inputs[0]), inputs)


def sizes(g: Graph, node: Node, inputs: Sequence[Item], first: int) -> Lengths:
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
            result.append(_length(come[place]))
        elif dim is None:
            raise UsageError(f"its size {size} leaves open what nothing tells")
        else:
            result.append(g.symbol(dim) if isinstance(dim, str) else dim)
    return result


def _recorded(g: Graph, node: Node, inputs: Sequence[Item], first: int) -> Lengths | None:
    """The lengths as the recorded call has them, if it has a list of them."""
    args, kwargs = arguments(g, node, inputs)
    lists = [item for item in (*args, *kwargs.values()) if isinstance(item, list)]
    if len(lists) != 1 or len(inputs) <= first:
        return None
    return [_length(item) for item in lists[0]]


def _length(item: Any) -> int | Value:
    if isinstance(item, (int, Value)) and not isinstance(item, bool):
        return item
    raise UsageError(f"{item!r} is no length")


def _view(g: Graph, node: Node, x: Value, inputs: Sequence[Item]) -> Value:
    return g.reshape(x, sizes(g, node, inputs, 1))


def _flatten(g: Graph, node: Node, x: Value, inputs: Sequence[Item]) -> Value:  # noqa: ARG001
    return flatten(g, x, node.attrs["start"], node.attrs["end"])


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


def _transpose(g: Graph, node: Node, x: Value, inputs: Sequence[Item]) -> Value:  # noqa: ARG001
    return swap(g, x, *node.attrs["axes"])


def swap(g: Graph, x: Value, first: int, second: int) -> Value:
    order = list(range(x.rank))
    a, b = axis_of(first, x.rank, "axis"), axis_of(second, x.rank, "axis")
    order[a], order[b] = b, a
    return g.transpose(x, order)


def _permute(g: Graph, node: Node, x: Value, inputs: Sequence[Item]) -> Value:  # noqa: ARG001
    return g.transpose(x, [axis_of(axis, x.rank, "axis") for axis in node.attrs["axes"]])


def _squeeze(g: Graph, node: Node, x: Value, inputs: Sequence[Item]) -> Value:  # noqa: ARG001
    return squeeze(g, x, node.attrs["axis"])


def squeeze(g: Graph, x: Value, axes: Sequence[int] | None) -> Value:
    """Without axes of length 1; one of another length stays, as torch has it."""
    rank = x.rank
    named = range(rank) if axes is None else [axis_of(axis, rank, "axis") for axis in axes]
    gone = [axis for axis in named if (x.shape or ())[axis] == 1]
    return g.squeeze(x, *gone) if gone else x


def _unsqueeze(g: Graph, node: Node, x: Value, inputs: Sequence[Item]) -> Value:  # noqa: ARG001
    return g.unsqueeze(x, node.attrs["axis"])


def _select(g: Graph, node: Node, x: Value, inputs: Sequence[Item]) -> Value:
    index: Item = node.attrs["index"]
    if len(inputs) > 1:
        index = inputs[1]
    return select(g, x, node.attrs["axis"], index)


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
    begin = 0 if start is None else _length(start)
    return g.slice(x, axis, begin, LAST if end is None else _length(end), step)


def _expand(g: Graph, node: Node, x: Value, inputs: Sequence[Item]) -> Value:
    return expand(g, x, sizes(g, node, inputs, 1))


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


def _split(g: Graph, node: Node, x: Value, inputs: Sequence[Item]) -> list[Value]:  # noqa: ARG001
    return split(g, x, node.attrs["axis"], node.attrs["sizes"])


def split(g: Graph, x: Value, axis: int, lengths: Sequence[int]) -> list[Value]:
    axis = axis_of(axis, x.rank, "axis")
    if len(lengths) > MOST_PIECES:
        raise UsageError(f"{len(lengths)} pieces are too many", why=f"the limit is {MOST_PIECES}")
    shape = x.shape or ()
    pieces = [(x.dtype, (*shape[:axis], length, *shape[axis + 1 :])) for length in lengths]
    return g.ops("Split", [x, g.ints(*lengths)], pieces, {"axis": axis})


def _same(g: Graph, node: Node, x: Value, inputs: Sequence[Item]) -> Value:  # noqa: ARG001
    return x


def _to(g: Graph, node: Node, x: Value, inputs: Sequence[Item]) -> Value:  # noqa: ARG001
    return converted(g, x, node.attrs["dtype"])


def converted(g: Graph, x: Value, dtype: str | None) -> Value:
    if dtype is None:
        return x
    if dtype in NARROW and x.dtype in FLOATS:
        # Rounded to it, then computed with as all the rest.
        return g.computed(g.cast(x, dtype))
    return g.cast(x, "float32" if dtype in NARROW else dtype)


_KINDS: Mapping[str, Callable[[Graph, Node, Value, Sequence[Item]], Value | list[Value]]] = {
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
    "split": _split,
    "contiguous": _same,
    "to": _to,
}


def _fill(g: Graph, node: Node, inputs: Sequence[Item]) -> Value:
    dtype = "float32"
    if dialect(node) == "aten":
        _, kwargs = arguments(g, node, inputs)
        given = kwargs.get("dtype")
        dtype = given.name if isinstance(given, Dtype) else dtype
    return filled(g, sizes(g, node, inputs, 0), node.attrs["const"], dtype)


def filled(g: Graph, lengths: Sequence[int | Value], const: Item, dtype: str) -> Value:
    """A tensor of one number everywhere."""
    dtype = "float32" if dtype in NARROW else dtype
    made = expand(g, g.value(const, dtype), lengths)
    if const == 0:
        g.zeros.add(made.id)
    return made


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


def _arithmetic(g: Graph, node: Node, inputs: Sequence[Item]) -> Item:
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
    return number(g, name, given)


def number(g: Graph, name: str, given: Sequence[Item]) -> Value:
    """Arithmetic on lengths at run time; they are lists of one."""
    values = [
        item if isinstance(item, Value) and item.weak else g.reshape(g.value(item), [1])
        for item in given
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
