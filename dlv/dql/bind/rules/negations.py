"""push_not_down: `not` stands before single tests, and goes into comparisons.

Exact with three truth values. In tests of nodes a comparison asks all entries of a list at once,
so that its contrary is another one: there `not` stays where it is. So it does where a value may be
NaN, which is neither less than a number nor not.
"""

from __future__ import annotations

from typing import Any

from dlv.dql.bind.trees import changed, parts
from dlv.metadata.select.nan import possible
from dlv.metadata.select.relations import (
    All,
    Compare,
    Condition,
    Either,
    NodeValue,
    Not,
    Query,
)

_CONTRARY = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def push_not_down(query: Query) -> Query:
    return changed(query, _pushed)


def _pushed(part: Any) -> Any:
    return _denied(part.part) or part if isinstance(part, Not) else part


def _denied(part: Condition) -> Condition | None:
    """The contrary; None if it can only be said with `not`."""
    if isinstance(part, Not):
        return part.part
    if isinstance(part, (All, Either)):
        # The other word joins what is denied one by one.
        denied = tuple(_denied(each) or Not(each) for each in part.parts)
        return Either(denied) if isinstance(part, All) else All(denied)
    if isinstance(part, Compare) and not any(isinstance(each, NodeValue) for each in parts(part)):
        if part.operator not in ("=", "!=") and (possible(part.left) or possible(part.right)):
            return None
        return Compare(_CONTRARY[part.operator], part.left, part.right)
    return None
