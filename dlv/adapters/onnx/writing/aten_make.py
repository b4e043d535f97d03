"""aten operations that make tensors: filled, counted, cut to triangles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dlv.adapters.onnx.graph import NARROW, Graph, Item, Value, dtype_of
from dlv.adapters.onnx.promotion import arithmetic
from dlv.adapters.onnx.recorded import Dtype, Rule, dtype_given, table
from dlv.adapters.onnx.rules.movement import converted, expand, filled, swap
from dlv.adapters.onnx.writing.aten_shape import Lengths, lengths_of
from dlv.errors import UsageError
from dlv.network.sizes import Dim

MADE: dict[str, Rule] = {}
_rule = table(MADE)


def plain(name: str | None, default: str) -> str:
    """A dtype to compute in."""
    name = name or default
    return "float32" if name in NARROW else name


@_rule("arange.default")
def arange_to(g: Graph, end: Item, dtype: Dtype | None = None) -> Value:
    return arange(g, 0, end, 1, dtype)


@_rule("arange")
def arange(g: Graph, start: Item, end: Item, step: Item = 1, dtype: Dtype | None = None) -> Value:
    items = (start, end, step)
    default = (
        "float32" if any(dtype_of(item) in ("float32", "float64") for item in items) else "int64"
    )
    wanted = plain(dtype_given(dtype), default)
    counted = wanted if wanted in ("int64", "int32", "float32", "float64") else default
    length: Dim = None
    numbers = [item for item in items if not isinstance(item, Value)]
    if len(numbers) == 3:
        length = max(0, math.ceil((numbers[1] - numbers[0]) / numbers[2]))
    elif start == 0 and step == 1 and isinstance(end, Value):
        length = end.symbol
    given = [g.value(item, counted) for item in items]
    return g.cast(g.op("Range", given, dtype=counted, shape=(length,)), wanted)


@_rule("linspace.default")
def linspace(g: Graph, start: Item, end: Item, steps: int, dtype: Dtype | None = None) -> Value:
    wanted = plain(dtype_given(dtype), "float32")
    places = arange(g, 0, steps, 1, Dtype("float64"))
    step = arithmetic(g, "Div", [arithmetic(g, "Sub", [end, start]), float(max(steps - 1, 1))])
    made = arithmetic(g, "Add", [arithmetic(g, "Mul", [places, g.cast(step, "float64")]), start])
    return g.cast(made, wanted)


@_rule("eye")
def eye(g: Graph, n: int | Value, m: Any = None, dtype: Dtype | None = None) -> Value:
    columns = arange(g, 0, n if m is None else m)
    rows = g.unsqueeze(arange(g, 0, n), 1)
    return g.cast(g.binary("Equal", rows, columns, "bool"), plain(dtype_given(dtype), "float32"))


@_rule("full")
def full(g: Graph, size: Lengths, fill_value: Item, dtype: Dtype | None = None) -> Value:
    return filled(g, size, fill_value, plain(dtype_given(dtype), dtype_of(fill_value)))


def _made(const: int, like: bool) -> Rule:
    def of_size(g: Graph, size: Lengths, dtype: Dtype | None = None) -> Value:
        return filled(g, size, const, plain(dtype_given(dtype), "float32"))

    def of_tensor(g: Graph, x: Item, dtype: Dtype | None = None) -> Value:
        return full_like(g, x, const, dtype)

    return of_tensor if like else of_size


for _name, _const in (("zeros", 0), ("ones", 1), ("empty", 0)):
    MADE[_name], MADE[f"{_name}_like"] = _made(_const, False), _made(_const, True)


@_rule("full_like")
def full_like(g: Graph, x: Item, fill_value: Item, dtype: Dtype | None = None) -> Value:
    value = g.value(x)
    wanted = plain(dtype_given(dtype), value.dtype)
    return filled(g, lengths_of(g, value), fill_value, wanted)


@_rule("new_full")
def new_full(
    g: Graph, x: Item, size: Lengths, fill_value: Item, dtype: Dtype | None = None
) -> Value:
    return filled(g, size, fill_value, plain(dtype_given(dtype), dtype_of(x)))


@_rule("new_zeros", "new_empty")
def new_zeros(g: Graph, x: Item, size: Lengths, dtype: Dtype | None = None) -> Value:
    return new_full(g, x, size, 0, dtype)


@_rule("new_ones")
def new_ones(g: Graph, x: Item, size: Lengths, dtype: Dtype | None = None) -> Value:
    return new_full(g, x, size, 1, dtype)


@_rule("scalar_tensor")
def scalar_tensor(g: Graph, s: Item, dtype: Dtype | None = None) -> Value:
    return converted(g, g.value(s), dtype_given(dtype) or "float32")


@_rule("one_hot")
def one_hot(g: Graph, x: Item, num_classes: int = -1) -> Value:
    if num_classes < 0:
        raise UsageError("one_hot is exported with a number of classes only")
    value = g.value(x, "int64")
    ends = g.constant([0, 1], "int64")
    shape = None if value.shape is None else (*value.shape, num_classes)
    return g.op("OneHot", [value, g.constant(num_classes, "int64"), ends], shape=shape)


def _triangle(upper: int) -> Rule:
    def rule(g: Graph, x: Item, diagonal: int = 0) -> Value:
        value = g.value(x)
        wide = g.cast(value, "int64") if value.dtype in ("bool", "int32", "uint8") else value
        made = g.op("Trilu", [wide, g.constant(diagonal, "int64")], {"upper": upper})
        return g.cast(made, value.dtype)

    return rule


MADE["tril"], MADE["triu"] = _triangle(0), _triangle(1)


@_rule("meshgrid")
def meshgrid(g: Graph, tensors: Sequence[Item], indexing: str = "ij") -> list[Value]:
    values = [g.value(each) for each in tensors]
    lengths = [g.length(each, 0) if each.rank else 1 for each in values]
    made = []
    for place, each in enumerate(values):
        flat = each if each.rank else g.unsqueeze(each, 0)
        around = [axis for axis in range(len(values)) if axis != place]
        made.append(expand(g, g.unsqueeze(flat, *around) if around else flat, lengths))
    if indexing == "xy" and len(made) > 1:
        made = [swap(g, each, 0, 1) for each in made]
    return made
