"""Conditions on the attributes of one node, with the three truth values of SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from dlv.metadata.nan import is_nan
from dlv.metadata.select.functions import like_test
from dlv.metadata.select.layers import arithmetic
from dlv.metadata.select.relations import (
    All,
    Arithmetic,
    Coalesce,
    Compare,
    Condition,
    Constant,
    Either,
    Fits,
    IsNan,
    IsNull,
    Like,
    Matches,
    Negative,
    NodeValue,
    Not,
    OneOf,
    Truth,
    Value,
)
from dlv.network.patterns import compare

Attribute = Callable[[str], Any]
Layer: TypeAlias = tuple[str, str | None, str, Mapping[str, Any]]

_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


class _ElsewhereError(Exception):
    """Something is asked of the version, not of its nodes."""


def holds(test: Condition, attribute: Attribute, layer: Callable[[], Layer]) -> bool:
    """Whether the node is so. A part that is about more than the node alone counts as fulfilled."""
    if isinstance(test, All):
        return all(holds(part, attribute, layer) for part in test.parts)
    try:
        return _truth(test, attribute, layer) is True
    except _ElsewhereError:
        return True


def _truth(test: Condition, attribute: Attribute, layer: Callable[[], Layer]) -> bool | None:
    match test:
        case Truth():
            return test.value
        case All():
            return _all([_truth(part, attribute, layer) for part in test.parts])
        case Either():
            parts = [_truth(part, attribute, layer) for part in test.parts]
            return _not(_all([_not(part) for part in parts]))
        case Not():
            return _not(_truth(test.part, attribute, layer))
        case Fits():
            return any(pattern.fits(*layer()) for pattern in test.patterns)
        case Compare():
            left, right = value(test.left, attribute), value(test.right, attribute)
            return _compared(test.operator, left, right)
        case Like():
            text, wanted = value(test.value, attribute), value(test.pattern, attribute)
            if not isinstance(text, str) or not isinstance(wanted, str):
                return None
            return bool(like_test(wanted, test.escape, test.folded)(text))
        case Matches():
            text = value(test.value, attribute)
            return text in test.selector if isinstance(text, str) else None
        case OneOf():
            found = value(test.value, attribute)
            parts = [_compared("=", found, option.value) for option in test.options]
            return _not(_all([_not(part) for part in parts]))
        case IsNull():
            return value(test.value, attribute) is None
        case IsNan():
            return is_nan(value(test.value, attribute))
        case _:
            raise _ElsewhereError


def value(what: Value, attribute: Attribute) -> Any:
    match what:
        case Constant():
            return what.value
        case NodeValue():
            return attribute(what.attribute)
        case Negative():
            return arithmetic("-", 0, value(what.value, attribute))
        case Coalesce():
            values = (value(each, attribute) for each in what.values)
            return next((each for each in values if each is not None), None)
        case Arithmetic():
            left, right = (value(side, attribute) for side in (what.left, what.right))
            return arithmetic(what.operator, left, right)
        case _:
            raise _ElsewhereError


def _compared(sign: str, left: Any, right: Any) -> bool | None:
    if isinstance(right, (list, tuple)) and not isinstance(left, (list, tuple)):
        return compare(_TURNED.get(sign, sign), right, left)
    return compare(sign, left, right)


def _all(parts: list[bool | None]) -> bool | None:
    if False in parts:
        return False
    return None if None in parts else True


def _not(part: bool | None) -> bool | None:
    return None if part is None else not part
