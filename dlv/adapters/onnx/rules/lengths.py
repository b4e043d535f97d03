"""Lengths of axes in attributes and at ports, and arithmetic on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dlv.adapters.onnx.builder import Cannot
from dlv.adapters.onnx.call import Call, Reader
from dlv.adapters.onnx.graph import Graph, Item, Value, arguments, dialect, together
from dlv.adapters.onnx.values import Entry, Length
from dlv.errors import UsageError
from dlv.network.graph import Node, Port
from dlv.network.sizes import Dim

Lengths = list[int | Value]
# From ONNX


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


# To ONNX


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
    return [checked_length(item) for item in lists[0]]


def checked_length(item: Any) -> int | Value:
    if isinstance(item, (int, Value)) and not isinstance(item, bool):
        return item
    raise UsageError(f"{item!r} is no length")


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


READERS: dict[str, Reader] = {"Range": read_range}
