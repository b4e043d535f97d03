"""Bound queries rewritten so that they are easier to ask, with the same answer.

Binding already inserts saved queries, computes constants and keeps the nodes that `where` chose.
Making SQL splits conjunctions, finds layers and prefixes, and chooses the order. Neither is
repeated here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dlv.dql.bind.bound import Bound
from dlv.metadata.schemas import is_nan
from dlv.metadata.select.relations import (
    All,
    Compare,
    Condition,
    Constant,
    Either,
    IsNan,
    IsNull,
    NodeValue,
    Not,
    OneOf,
    Query,
    Select,
    Source,
    Truth,
    Whole,
    Within,
    conjuncts,
    map_tree,
    rename_variable,
    walk_tree,
)
from dlv.metadata.select.values import possible
from dlv.network.patterns import OPERATORS


def push_into_subqueries(query: Query) -> Query:
    """Queries inside become conditions of the one around them.

    The planner sees all conditions at once then, and may begin with any of them.
    """
    return map_tree(query, _merged)


def _merged(part: Any) -> Any:
    if not isinstance(part, Select):
        return part
    for place, source in enumerate(part.sources):
        inner = _plain(source.rows_from)
        if inner is not None:
            part = _without(part, place, inner)
    plain = {source.variable for source in part.sources if source.rows_from is None}
    if part.where is None:
        return part
    found: list[Condition] = []
    opened = False
    for each in conjuncts(part.where):
        asked = _opened(each, plain)
        opened = opened or asked is not None
        found += [each] if asked is None else asked
    return replace(part, where=_all(found)) if opened else part


def _plain(query: Any) -> Select | None:
    """A query that gives each version of one range, under conditions, once."""
    if not isinstance(query, Query) or query.limit is not None or query.offset is not None:
        return None
    body = query.body
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
    source = Source(variable, below.rows_from)
    sources = (*part.sources[:place], source, *part.sources[place + 1 :])
    if inner.where is None:
        return replace(part, sources=sources)
    asked = rename_variable(inner.where, below.variable, variable)
    where = asked if part.where is None else _all([*conjuncts(part.where), *conjuncts(asked)])
    return replace(part, sources=sources, where=where)


def _opened(part: Condition, plain: set[str]) -> list[Condition] | None:
    """`m in (select p where ..)` of a version of the catalogue is what is asked of p."""
    if not isinstance(part, Within) or not isinstance(part.value, Whole):
        return None
    inner = _plain(part.query)
    if inner is None or inner.sources[0].rows_from is not None or part.value.variable not in plain:
        return None
    if inner.where is None:
        return []
    asked = rename_variable(inner.where, inner.sources[0].variable, part.value.variable)
    return conjuncts(asked)


def _all(parts: list[Condition]) -> Condition | None:
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else All(tuple(parts))


_CONTRARY = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def push_not_down(query: Query) -> Query:
    """`not` stands before single tests, and goes into comparisons.

    Exact with three truth values. In tests of nodes a comparison asks all entries of a list at
    once, so that its contrary is another one: there `not` stays where it is. So it does where a
    value may be NaN, which is neither less than a number nor not.
    """
    return map_tree(query, lambda x: _denied(x.part) or x if isinstance(x, Not) else x)


def _denied(part: Condition) -> Condition | None:
    """The contrary; None if it can only be said with `not`."""
    if isinstance(part, Not):
        return part.part
    if isinstance(part, (All, Either)):
        # The other word joins what is denied one by one.
        denied = tuple(_denied(each) or Not(each) for each in part.parts)
        return Either(denied) if isinstance(part, All) else All(denied)
    if isinstance(part, Compare) and not any(
        isinstance(each, NodeValue) for each in walk_tree(part)
    ):
        if part.operator not in ("=", "!=") and (possible(part.left) or possible(part.right)):
            return None
        return Compare(_CONTRARY[part.operator], part.left, part.right)
    return None


def fold_constants(query: Query) -> Query:
    """Conditions are decided that can be before any version is looked at."""
    return map_tree(query, _folded)


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


Rule = Callable[[Query], Query]

RULES: tuple[Rule, ...] = (fold_constants, push_not_down, push_into_subqueries)


def rewrite(bound: Bound) -> tuple[Bound, list[str]]:
    """The same after all rules, and the names of those that changed something."""
    fired = []
    for rule in RULES:
        made = applied(rule, bound)
        if made is not bound:
            fired.append(rule.__name__)
            bound = made
    return bound, fired


def applied(rule: Rule, bound: Bound) -> Bound:
    """One rule on all queries of a statement; the same object if it changes none."""
    query = None if bound.query is None else rule(bound.query)
    derivations = tuple(
        work if (source := rule(work.source)) is work.source else replace(work, source=source)
        for work in bound.derivations
    )
    same = all(new is old for new, old in zip(derivations, bound.derivations, strict=True))
    trained = bound.evaluation
    if trained is not None and (source := rule(trained.source)) is not trained.source:
        trained = replace(trained, source=source)
    if query is bound.query and same and trained is bound.evaluation:
        return bound
    return replace(bound, query=query, derivations=derivations, evaluation=trained)
