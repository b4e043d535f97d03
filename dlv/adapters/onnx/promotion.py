"""Arithmetic of mixed dtypes in an ONNX graph, by torch's rules of promotion."""

from __future__ import annotations

from collections.abc import Sequence

from dlv.adapters.onnx.graph import FLOATS, Graph, Item, Value, dtype_of

_SIGNED = ("int8", "int16", "int32", "int64")
_FLOATING = ("float16", "float32", "float64")


def category(dtype: str) -> int:
    """0 for truth values, 1 for whole numbers, 2 for fractions, 3 for complex numbers."""
    if dtype == "bool":
        return 0
    if dtype.startswith("complex"):
        return 3
    return 2 if dtype in FLOATS else 1


def common(a: str, b: str) -> str:
    """The dtype that two tensors of the same standing meet in."""
    if a == b:
        return a
    low, high = sorted((a, b), key=category)
    if category(low) != category(high):
        return high
    if low in _FLOATING:
        return max(low, high, key=_FLOATING.index)
    if low in _SIGNED and high in _SIGNED:
        return max(low, high, key=_SIGNED.index)
    if low.startswith("complex"):
        return "complex128"
    # An unsigned one beside a signed one of its width needs the next.
    widths = [int(dtype.removeprefix("u").removeprefix("int")) for dtype in (low, high)]
    if low.startswith("u") and high.startswith("u"):
        return f"uint{max(widths)}"
    unsigned = widths[0] if low.startswith("u") else widths[1]
    signed = widths[1] if low.startswith("u") else widths[0]
    return f"int{min(64, signed if signed > unsigned else 2 * unsigned)}"


def promoted(items: Sequence[Item]) -> str:
    """The dtype of a result: tensors outrank scalars, and those outrank plain numbers."""
    found: list[str | None] = [None, None, None]
    for item in items:
        plain = not isinstance(item, Value) or item.weak
        tier = 2 if plain else int(isinstance(item, Value) and item.shape == ())
        before = found[tier]
        dtype = dtype_of(item)
        found[tier] = dtype if before is None else common(before, dtype)
    result: str | None = None
    for each in found:
        if each is None:
            continue
        if result is None or category(each) > category(result):
            result = each if result is None else common(result, each)
    return result or "float32"


def together(
    g: Graph, items: Sequence[Item], *, fractions: bool = False, least: str | None = None
) -> list[Value]:
    """The items as tensors of one dtype; `fractions`: a floating one, whatever they are."""
    dtype = promoted(items)
    if fractions and category(dtype) < 2:
        dtype = "float32"
    if least is not None and category(dtype) < category(least):
        dtype = least
    return [g.value(item, dtype) for item in items]


def fractions(g: Graph, item: Item) -> Value:
    """One item as a tensor of a floating dtype."""
    return together(g, [item], fractions=True)[0]


_LOGICAL = {"Add": "Or", "Mul": "And"}


def arithmetic(g: Graph, kind: str, items: Sequence[Item]) -> Value:
    """Add, Mul, Sub, .. of two or more, one after the other."""
    values = together(g, items)
    result = values[0]
    for value in values[1:]:
        logical = result.dtype == "bool" and kind in _LOGICAL
        result = g.binary(_LOGICAL[kind] if logical else kind, result, value)
    return result
