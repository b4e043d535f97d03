"""Conditions decided in Python: of one node, of a layer, of the configuration of a trial."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from dlv.metadata.schemas import is_nan
from dlv.metadata.select import relations as r
from dlv.metadata.select.functions import like_test
from dlv.network.patterns import compare

# The value of an attribute or setting, null where there is none; ElsewhereError of others.
Leaf: TypeAlias = Callable[[r.Value], Any]
Layer: TypeAlias = tuple[str, str | None, str, Mapping[str, Any]]  # what patterns look at
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


class ElsewhereError(Exception):
    """Something is asked of the version, not of what is at hand."""


def no_layer() -> Layer:
    raise ElsewhereError


def truth(test: r.Condition, leaf: Leaf, layer: Callable[[], Layer] = no_layer) -> bool | None:
    """With the three truth values of SQL. All parts are looked at, wherever they stand."""
    match test:
        case r.Truth(truth_value):
            return truth_value
        case r.All(parts):
            return _all([truth(part, leaf, layer) for part in parts])
        case r.Either(parts):
            return _any([truth(part, leaf, layer) for part in parts])
        case r.Not(part):
            return _not(truth(part, leaf, layer))
        case r.Fits(patterns):
            return any(pattern.fits(*layer()) for pattern in patterns)
        case r.Compare(sign, left, right):
            return compared(sign, left, right, value_of(left, leaf), value_of(right, leaf))
        case r.Like(value, pattern, folded, escape):
            text, wanted = value_of(value, leaf), value_of(pattern, leaf)
            if not isinstance(text, str) or not isinstance(wanted, str):
                return None
            return bool(like_test(wanted, escape, folded)(text))
        case r.Matches(value, selector):
            text = value_of(value, leaf)
            return text in selector if isinstance(text, str) else None
        case r.OneOf(value, options):
            one = value_of(value, leaf)
            return _any([compare("=", one, option.value) for option in options])
        case r.IsNull(value):
            return value_of(value, leaf) is None
        case r.IsNan(value):
            return is_nan(value_of(value, leaf))
    raise ElsewhereError


def value_of(value: r.Value, leaf: Leaf) -> Any:
    match value:
        case r.Constant(constant):
            return constant
        case r.Negative(inner):
            return arithmetic("-", 0, value_of(inner, leaf))
        case r.Arithmetic(operator, left, right):
            return arithmetic(operator, value_of(left, leaf), value_of(right, leaf))
        case r.Coalesce(values):
            known = (value_of(each, leaf) for each in values)
            return next((each for each in known if each is not None), None)
    return leaf(value)


def compared(
    sign: str, left: r.Value, right: r.Value, left_value: Any, right_value: Any
) -> bool | None:
    """`patterns.compare`, with the node's attribute on whichever side it stands."""
    if isinstance(right, r.NodeValue) and not isinstance(left, r.NodeValue):
        return compare(_FLIPPED.get(sign, sign), right_value, left_value)
    return compare(sign, left_value, right_value)


def arithmetic(operator: str, left: Any, right: Any) -> Any:
    """Return None if a side is not a number or the result is undefined."""
    for side in (left, right):
        if isinstance(side, bool) or not isinstance(side, (int, float)):
            return None
    try:
        match operator:
            case "+":
                return left + right
            case "-":
                return left - right
            case "*":
                return left * right
            case "/":
                return None if right == 0 else left / right
        return None if right == 0 else left % right
    except OverflowError:
        return None


def _not(part: bool | None) -> bool | None:
    return None if part is None else not part


def _all(parts: list[bool | None]) -> bool | None:
    return False if False in parts else None if None in parts else True


def _any(parts: list[bool | None]) -> bool | None:
    return True if True in parts else None if None in parts else False
