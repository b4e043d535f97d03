"""Small numbers and shapes that an ONNX graph computes, worked out while it is read."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dlv.dataclass import dataclass

MOST_ELEMENTS = 1024
_MOST_DEPTH = 40

_FLOATS = {"float32": "f", "float16": "e", "float64": "d"}
_WHOLE = {
    **{f"int{bits}": (-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, (1 << bits) - 1) for bits in (8, 16, 32, 64)},
}


@dataclass(frozen=True)
class Literal:
    """A small tensor whose elements are known."""

    dtype: str
    shape: tuple[int, ...]
    values: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Length:
    """How long an axis of a value is at run time."""

    value: str
    axis: int
    symbol: str | None  # of the network's inputs, where it is one


@dataclass(frozen=True, eq=False)
class Formula:
    """Arithmetic on lengths."""

    operator: str
    left: Entry
    right: Entry
    depth: int


Entry = int | Length | Formula


@dataclass(frozen=True)
class Sizes:
    """A list of lengths (or one: `scalar`), of which at least one is known at run time only."""

    entries: tuple[Entry, ...]
    scalar: bool = False


Known = Literal | Sizes


def lengths(entries: Sequence[Entry], *, scalar: bool = False) -> Known:
    """Numbers where all are known."""
    if all(isinstance(entry, int) for entry in entries):
        return literal("int64", () if scalar else (len(entries),), entries)
    return Sizes(tuple(entries), scalar)


def _like(item: Known, entries: Sequence[Entry], *, scalar: bool = False) -> Known:
    """`lengths` in the dtype of numbers that were written down."""
    if isinstance(item, Literal) and all(isinstance(entry, int) for entry in entries):
        return literal(item.dtype, () if scalar else (len(entries),), entries)
    return lengths(entries, scalar=scalar)


def fold(kind: str, inputs: Sequence[Known | None], attrs: Mapping[str, Any]) -> Known | None:
    """What an operator gives for inputs that are known; None if this is not worked out."""
    if not inputs or any(item is None for item in inputs):
        return None
    given = [item for item in inputs if item is not None]
    try:
        if kind in _ELEMENTWISE:
            return _elementwise(kind, given)
        rule = _RULES.get(kind)
        return None if rule is None else rule(given, attrs)
    except (ArithmeticError, ValueError, LookupError, TypeError, struct.error):
        return None  # whatever is wrong with it, the operator stays as it is


def _entries(item: Known) -> tuple[Entry, ...]:
    if isinstance(item, Sizes):
        return item.entries
    if item.dtype not in ("int64", "int32") or len(item.shape) > 1:
        raise ValueError
    return item.values


def _scalar(item: Known) -> bool:
    return item.scalar if isinstance(item, Sizes) else not item.shape


def whole_numbers(item: Known) -> tuple[int, ...]:
    entries = _entries(item)
    if not all(isinstance(entry, int) for entry in entries):
        raise ValueError
    return tuple(entry for entry in entries if isinstance(entry, int))


def literal(dtype: str, shape: tuple[int, ...], values: Sequence[Any]) -> Literal:
    """The numbers as their dtype holds them."""
    if len(values) > MOST_ELEMENTS or math.prod(shape) != len(values):
        raise ValueError
    if dtype in _FLOATS:
        code = _FLOATS[dtype]
        made = [struct.unpack(f"<{code}", struct.pack(f"<{code}", value))[0] for value in values]
        return Literal(dtype, shape, tuple(made))
    if dtype == "bool":
        return Literal(dtype, shape, tuple(bool(value) for value in values))
    least, most = _WHOLE[dtype]
    made = [int(value) for value in values]
    if any(not least <= value <= most for value in made):
        raise OverflowError
    return Literal(dtype, shape, tuple(made))


def _quotient(a: Any, b: Any) -> Any:
    if isinstance(a, float):
        return a / b
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _power(a: Any, b: Any) -> Any:
    if isinstance(a, int) and (b < 0 or abs(a).bit_length() * b > 64):
        raise OverflowError
    return a**b


_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": _quotient,
    "Mod": operator.mod,
    "Pow": _power,
    "Min": min,
    "Max": max,
    "Neg": operator.neg,
    "Abs": abs,
    "Sqrt": math.sqrt,
    "Reciprocal": lambda a: 1 / a,
    "Floor": lambda a: float(math.floor(a)),
    "Ceil": lambda a: float(math.ceil(a)),
    "Equal": operator.eq,
    "Less": operator.lt,
    "LessOrEqual": operator.le,
    "Greater": operator.gt,
    "GreaterOrEqual": operator.ge,
    "And": lambda a, b: a and b,
    "Or": lambda a, b: a or b,
    "Not": operator.not_,
    "Where": lambda c, a, b: a if c else b,
}
_TRUTHS = {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"}
# What stands for an operator in formulas about lengths.
_ON_LENGTHS = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "floordiv"}


def _elementwise(kind: str, items: list[Known]) -> Known | None:
    if any(isinstance(item, Sizes) for item in items):
        return _on_lengths(kind, items)
    parts = [item for item in items if isinstance(item, Literal)]
    shape = max((part.shape for part in parts), key=lambda shape: (len(shape), shape))
    if any(len(part.shape) > 1 for part in parts) and any(p.shape != shape for p in parts):
        return None
    count = math.prod(shape)
    rows = zip(*(_stretched(part.values, count) for part in parts), strict=True)
    values = [_ELEMENTWISE[kind](*row) for row in rows]
    if any(value != value for part in parts for value in part.values):
        return None  # Python's min and max have no rule for NaN
    # Only a power is of two dtypes, and Where has its condition in front.
    like = parts[0] if kind == "Pow" else parts[-1]
    return literal("bool" if kind in _TRUTHS else like.dtype, shape, values)


def _stretched(values: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    if len(values) == count:
        return values
    if len(values) != 1:
        raise ValueError
    return values * count


def _on_lengths(kind: str, items: list[Known]) -> Known | None:
    if kind == "Where" and isinstance(items[0], Literal):
        truths = items[0].values
        left, right = _entries(items[1]), _entries(items[2])
        count = max(len(truths), len(left), len(right))
        rows = zip(*(_stretched(part, count) for part in (truths, left, right)), strict=True)
        scalar = not items[0].shape and _scalar(items[1]) and _scalar(items[2])
        return lengths([a if truth else b for truth, a, b in rows], scalar=scalar)
    if len(items) != 2 or kind not in (*_ON_LENGTHS, "Equal"):
        return None
    left, right = _entries(items[0]), _entries(items[1])
    count = max(len(left), len(right))
    scalar = _scalar(items[0]) and _scalar(items[1])
    pairs = list(zip(_stretched(left, count), _stretched(right, count), strict=True))
    if kind == "Equal":
        truths = tuple(_equal(a, b) for a, b in pairs)
        return Literal("bool", () if scalar else (count,), truths)
    return lengths([_combined(_ON_LENGTHS[kind], a, b) for a, b in pairs], scalar=scalar)


def _equal(a: Entry, b: Entry) -> bool:
    """Of a length only this is known: it is not negative."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    if (isinstance(a, int) and a < 0) or (isinstance(b, int) and b < 0):
        return False
    raise ValueError


def _combined(word: str, a: Entry, b: Entry) -> Entry:
    if isinstance(a, int) and isinstance(b, int):
        return int(_quotient(a, b) if word == "floordiv" else getattr(operator, word)(a, b))
    if (word in ("mul", "floordiv") and b == 1) or (word in ("add", "sub") and b == 0):
        return a
    if (word == "mul" and a == 1) or (word == "add" and a == 0):
        return b
    depth = 1 + max(item.depth if isinstance(item, Formula) else 0 for item in (a, b))
    if depth > _MOST_DEPTH:
        raise OverflowError
    return Formula(word, a, b, depth)


def _gather(items: list[Known], attrs: Mapping[str, Any]) -> Known | None:
    if attrs.get("axis", 0) not in (0, -1):
        return None
    places = whole_numbers(items[1])
    if isinstance(items[0], Literal) and items[0].dtype not in ("int64", "int32"):
        if len(items[0].shape) != 1:
            return None
        values = [items[0].values[place] for place in places]
        return literal(items[0].dtype, () if _scalar(items[1]) else (len(values),), values)
    if _scalar(items[0]):
        return None
    entries = _entries(items[0])
    if any(not -len(entries) <= place < len(entries) for place in places):
        return None
    return _like(items[0], [entries[place] for place in places], scalar=_scalar(items[1]))


def _concat(items: list[Known], attrs: Mapping[str, Any]) -> Known | None:
    if any(_scalar(item) for item in items) or attrs.get("axis") not in (0, -1):
        return None
    entries = [entry for item in items for entry in _entries(item)]
    return _like(items[0], entries) if len(entries) <= MOST_ELEMENTS else None


def _reshaped(items: list[Known], attrs: Mapping[str, Any]) -> Known | None:
    """Unsqueeze and Squeeze of a scalar or a list, Reshape to one of them."""
    entries = items[0]
    if isinstance(entries, Literal) and len(entries.values) != 1:
        return None
    if isinstance(entries, Sizes) and len(entries.entries) != 1:
        return None
    sizes: Sequence[int] | None = attrs.get("axes")
    if len(items) > 1:
        sizes = whole_numbers(items[1])
    if attrs["kind"] == "Unsqueeze":
        rank = (0 if _scalar(entries) else 1) + len(sizes or ())
    elif attrs["kind"] == "Squeeze":
        axes = len(entries.shape) if isinstance(entries, Literal) else 1 - entries.scalar
        rank = 0 if sizes is None else axes - len(sizes)
    else:
        if sizes is None or any(size not in (1, -1) for size in sizes):
            return None
        rank = len(sizes)
    if isinstance(entries, Literal):
        return Literal(entries.dtype, (1,) * rank, entries.values)
    return Sizes(entries.entries, scalar=not rank) if rank < 2 else None


def _slice(items: list[Known], attrs: Mapping[str, Any]) -> Known | None:
    if _scalar(items[0]):
        return None
    if len(items) == 1:
        parts = [attrs["starts"], attrs["ends"], attrs.get("axes", [0]), [1]]
    else:
        parts = [list(whole_numbers(item)) for item in items[1:]]
        parts += [[0], [1]][len(parts) - 2 :]
    (start,), (end,), (axis,), (step,) = parts
    if axis not in (0, -1) or not step:
        return None
    return _like(items[0], _entries(items[0])[start:end:step])


def _cast(items: list[Known], attrs: Mapping[str, Any]) -> Known | None:
    dtype, item = attrs["dtype"], items[0]
    if isinstance(item, Sizes):
        return item if dtype in ("int64", "int32") else None
    return literal(dtype, item.shape, item.values)


def _constant_of_shape(items: list[Known], attrs: Mapping[str, Any]) -> Known | None:
    shape = whole_numbers(items[0])
    dtype, value = attrs["filler"]
    if len(shape) > 1 or math.prod(shape) > MOST_ELEMENTS or any(size < 0 for size in shape):
        return None
    return literal(dtype, shape, [value] * math.prod(shape))


def _range(items: list[Known], attrs: Mapping[str, Any]) -> Known | None:  # noqa: ARG001
    if any(isinstance(item, Sizes) or not item.dtype.startswith("int") for item in items):
        return None
    values = range(*(whole_numbers(item)[0] for item in items))
    return _like(items[0], values) if len(values) <= MOST_ELEMENTS else None


def _reduced(items: list[Known], attrs: Mapping[str, Any]) -> Known | None:
    """ReduceProd of a list of lengths: the number of elements."""
    if _scalar(items[0]) or not _entries(items[0]) or len(items) > 2:
        return None
    total: Entry = 1
    for entry in _entries(items[0]):
        total = _combined("mul", total, entry)
    return _like(items[0], [total], scalar=not attrs.get("keepdims", 1))


_RULES: dict[str, Callable[[list[Known], Mapping[str, Any]], Known | None]] = {
    "Identity": lambda given, attrs: given[0],  # noqa: ARG005
    "Gather": _gather,
    "Concat": _concat,
    "Unsqueeze": _reshaped,
    "Squeeze": _reshaped,
    "Reshape": _reshaped,
    "Slice": _slice,
    "Cast": _cast,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "ReduceProd": _reduced,
}
FOLDED = frozenset(_RULES) | frozenset(_ELEMENTWISE)
# The attributes that are read there; one of another name says something that is not worked out.
FOLDED_BY: dict[str, tuple[str, ...]] = {
    "Shape": ("start", "end"),
    "Gather": ("axis",),
    "Concat": ("axis",),
    "Unsqueeze": ("axes",),
    "Squeeze": ("axes",),
    "Slice": ("starts", "ends", "axes"),
    "Cast": ("to", "saturate", "round_mode"),  # the last two only matter for floats of 8 bits
    "ConstantOfShape": ("value",),
    "ReduceProd": ("axes", "keepdims"),
}
