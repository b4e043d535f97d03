"""push_into_subqueries: queries inside become conditions of the one around them.

The planner sees all conditions at once then, and may begin with any of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dlv.dql.bind.trees import changed, renamed
from dlv.metadata.select.relations import All, Condition, Query, Select, Source, Whole, Within


def push_into_subqueries(query: Query) -> Query:
    return changed(query, _merged)


def _merged(part: Any) -> Any:
    if not isinstance(part, Select):
        return part
    for place, source in enumerate(part.sources):
        inner = _plain(source.of)
        if inner is not None:
            part = _without(part, place, inner)
    plain = {source.variable for source in part.sources if source.of is None}
    if part.where is None:
        return part
    found: list[Condition] = []
    opened = False
    for each in _parts(part.where):
        asked = _opened(each, plain)
        opened = opened or asked is not None
        found += [each] if asked is None else asked
    return replace(part, where=_all(found)) if opened else part


def _plain(of: Any) -> Select | None:
    """A query that gives each version of one range, under conditions, once."""
    if not isinstance(of, Query) or of.limit is not None or of.offset is not None:
        return None
    body = of.body
    if isinstance(body, Query):
        return _plain(body)
    if not isinstance(body, Select) or body.group_by or body.having is not None:
        return None
    one = len(body.sources) == 1 and len(body.items) == 1
    return body if one and body.items[0].value == Whole(body.sources[0].variable) else None


def _without(part: Select, place: int, inner: Select) -> Select:
    """The same without the query between a variable and what it ranges over."""
    variable = part.sources[place].variable
    below = inner.sources[0]
    source = Source(variable, below.of)
    sources = (*part.sources[:place], source, *part.sources[place + 1 :])
    if inner.where is None:
        return replace(part, sources=sources)
    asked = renamed(inner.where, below.variable, variable)
    where = asked if part.where is None else _all([*_parts(part.where), *_parts(asked)])
    return replace(part, sources=sources, where=where)


def _opened(part: Condition, plain: set[str]) -> list[Condition] | None:
    """`m in (select p where ..)` of a version of the catalogue is what is asked of p."""
    if not isinstance(part, Within) or not isinstance(part.value, Whole):
        return None
    inner = _plain(part.query)
    if inner is None or inner.sources[0].of is not None or part.value.variable not in plain:
        return None
    if inner.where is None:
        return []
    asked = renamed(inner.where, inner.sources[0].variable, part.value.variable)
    return _parts(asked)


def _parts(condition: Condition) -> list[Condition]:
    """What all has to hold, however it is put together."""
    found: list[Condition] = []
    waiting = [condition]
    while waiting:
        part = waiting.pop()
        if isinstance(part, All):
            waiting += part.parts[::-1]
        else:
            found.append(part)
    return found


def _all(parts: list[Condition]) -> Condition | None:
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else All(tuple(parts))
