"""fold_constants: conditions that are decided before any version is looked at."""

from __future__ import annotations

from typing import Any

from dlv.dql.bind.trees import changed
from dlv.metadata.nan import is_nan
from dlv.metadata.select.relations import (
    All,
    Compare,
    Condition,
    Constant,
    Either,
    IsNan,
    IsNull,
    Not,
    OneOf,
    Query,
    Truth,
)
from dlv.network.patterns import OPERATORS


def fold_constants(query: Query) -> Query:
    return changed(query, _folded)


def _folded(part: Any) -> Any:
    match part:
        case Compare(sign, Constant(left), Constant(right)):
            found = _compared(sign, left, right)
            return part if found is NotImplemented else Truth(found)
        case OneOf(Constant(value), options):
            answers = [_compared("=", value, option.value) for option in options]
            if NotImplemented in answers:
                return part
            if True in answers:
                return Truth(True)
            return Truth(None if value is None or None in answers else False)
        case IsNull(Constant(value)):
            return Truth(value is None)
        case IsNan(Constant(value)):
            return Truth(is_nan(value))
        case Not(Truth(value)):
            return Truth(None if value is None else not value)
        case All():
            return _joined(part, False)
        case Either():
            return _joined(part, True)
    return part


def _compared(sign: str, left: Any, right: Any) -> Any:
    """NotImplemented of lists, which are compared where they are kept."""
    if left is None or right is None:
        return None
    if isinstance(left, tuple) or isinstance(right, tuple):
        return NotImplemented
    if _kind(left) is not _kind(right):
        return {"=": False, "!=": True}.get(sign)
    return bool(OPERATORS[sign](left, right))


def _kind(value: Any) -> type:
    return float if type(value) is int else type(value)


def _joined(whole: All | Either, decisive: bool) -> Condition:
    """A part that decides stands for all of them; one that changes nothing goes."""
    parts = whole.parts
    if Truth(decisive) in parts:
        return Truth(decisive)
    left = tuple(part for part in parts if part != Truth(not decisive))
    if len(left) == len(parts) > 1:
        return whole
    if not left:
        return Truth(not decisive)
    return left[0] if len(left) == 1 else type(whole)(left)
