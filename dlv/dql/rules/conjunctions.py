"""split_conjunctions: what is joined by one word stands in one list, each of it once.

The planner chooses among the parts of that list where to begin.
"""

from __future__ import annotations

from typing import Any

from dlv.dql.trees import changed
from dlv.metadata.relations import All, Condition, Either, Query


def split_conjunctions(query: Query) -> Query:
    return changed(query, _split)


def _split(part: Any) -> Any:
    if not isinstance(part, (All, Either)):
        return part
    kind = type(part)
    found: list[Condition] = []
    for each in part.parts:
        inner = each.parts if isinstance(each, kind) else (each,)
        found += [one for one in inner if one not in found] if len(part.parts) < 100 else inner
    if tuple(found) == part.parts:
        return part
    return found[0] if len(found) == 1 else kind(tuple(found))
