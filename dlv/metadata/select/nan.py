"""Conditions on values that may be NaN, as SQL."""

from __future__ import annotations

from typing import Any

from dlv.metadata.nan import NAN, is_nan
from dlv.metadata.select import relations as r

_NO_NUMBER = b"n"  # what no value is
_TURNED = {">": "<", ">=": "<="}


def possible(value: r.Value) -> bool:
    """Whether it may be NaN."""
    match value:
        case r.Constant(constant):
            return is_nan(constant)
        case r.Metric(_, _, figure):
            return figure in ("last", "min", "max")
        case r.Negative(inner):
            return possible(inner)
        case r.Coalesce(values):
            return any(map(possible, values))
        case r.Aggregate("min" | "max", inner) if inner is not None:
            return possible(inner)
        case r.Aggregate(function):
            return function != "count"
    return not isinstance(value, r.Column | r.NodeCount | r.ManyValue | r.Whole | r.Listed)


def compared(sign: str, left: str, right: str, odd: tuple[bool, bool], positive: bool) -> str:
    """SQL that compares two values of one kind; `odd`: which of them may be NaN.

    With NaN `!=` is true and all else false; null beside it is null. `positive`: null may as well
    be false.
    """
    if sign in _TURNED:
        sign, left, right, odd = _TURNED[sign], right, left, odd[::-1]
    plain = f"{left} {sign} {right}"
    if sign == "!=" and all(odd):
        return f"({plain} OR ({left} = {NAN} AND {right} = {NAN}))"
    if sign == "=" and all(odd):
        return f"({plain} AND NOT ({left} = {NAN} AND {right} = {NAN}))"
    if sign not in ("=", "!=") and odd[1]:
        if positive:
            return f"({plain} AND {right} < {NAN})"
        # A value that is not equal to itself is null, and then so is the whole expression.
        return f"({plain} AND ({right} < {NAN} OR {left} != {left}))"
    return f"({plain})"


def options(values: tuple[r.Constant, ...]) -> list[Any]:
    """The values that `in` compares with: NaN equals nothing, but it is not null."""
    return [_NO_NUMBER if possible(each) else each.value for each in values]


def none_of(column: str) -> str:
    """The same, of a column that a query gives."""
    return f"CASE WHEN {column} = {NAN} THEN x'{_NO_NUMBER.hex()}' ELSE {column} END"
