"""Queries bound: every name in them is decided, or all that is wrong is told; `resolve` does it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from dlv.dql.bind import changes, conditions, constants, derivations, sources, values
from dlv.dql.bind.binder import Binder, Fault, Notes, Parse, ReadConfig, Reported, refuse
from dlv.dql.bind.bound import Bound, Evaluation
from dlv.dql.bind.things import ANY, LIST, VERSION, WORDS, Result, Scalar, Variable
from dlv.dql.words import ast, parser
from dlv.dql.words.diagnosis import SyntaxFault
from dlv.errors import nearest
from dlv.metadata.select import relations
from dlv.metadata.select.relations import (
    Combined,
    Item,
    Nodes,
    Order,
    Output,
    Query,
    Select,
    Source,
    Value,
)
from dlv.metadata.usage import KnownNames


def resolve(
    text: str,
    query: ast.Query,
    known: KnownNames,
    parameters: Mapping[str, Any] | None = None,
    *,
    defining: str | None = None,
    parse: Parse = parser.parse,
    config_file: ReadConfig | None = None,
) -> Bound:
    """The query of one statement; Faults with all that is wrong in it.

    `defining`: the name it is to be saved under. Its parameters may have no values then, and
    what comes back is not to be run. `parse` reads saved queries, `config_file` configurations.
    """
    notes = Notes()
    binder = Binder(
        *(text, known, parameters or {}, parse, bind_query, conditions.condition, notes),
        defining=defining,
        config_file=config_file,
    )
    asked: Query | Evaluation | None = None
    whole = False
    with binder.collecting():
        asked = _statement(binder, query)
        whole = True
    faults = [*notes.faults]
    if notes.missing and defining is None:
        faults.append(_missing(binder))
    refuse(faults)
    if not whole and not notes.missing:
        raise Reported
    evaluation = asked if isinstance(asked, Evaluation) else None
    selected = None if isinstance(asked, Evaluation) else asked
    return Bound(selected, tuple(notes.derivations), tuple(notes.warnings), evaluation)


def _statement(binder: Binder, query: ast.Query) -> Query | Evaluation | None:
    around: ast.Query | None = None  # what orders or limits, if only one does
    body: ast.Body = query
    while isinstance(body, ast.Query) and (around is None or _bare(body)):
        around = around if _bare(body) else body
        body = body.body
    if isinstance(body, ast.Derived) and around is None:
        derivations.derivation(binder, body, nested=False)
        return None
    if isinstance(body, ast.Evaluate):
        import dlv.dql.bind.evaluations as evaluations

        return evaluations.evaluation(binder, body, around or ast.Query(body, span=body.span))
    return bind_query(binder, query).query


def _bare(query: ast.Query) -> bool:
    return not query.order_by and query.limit is None and query.offset is None


def _missing(binder: Binder) -> Fault:
    """One fault for all parameters without values, where the first of them stands."""
    missing = sorted(binder.notes.missing.values(), key=lambda each: each[1].span.start)
    first, names = missing[0], [part.name for _, part in missing]
    listed = ", ".join(f"${name}" for name in names)
    inside, part = first
    return inside.fault(
        part.span,
        f"{listed} {'has no value' if len(names) == 1 else 'have no values'}",
        hint=" ".join(f"-P {name}=VALUE" for name in names),
    )


# Groups, and what may stand beside them

_LEAVES = (
    relations.Column,
    relations.Hyperparameter,
    relations.Metric,
    relations.MetricAt,
    relations.Whole,
    relations.Listed,
    relations.OfChange,
    relations.NodeCount,
    relations.OfNodes,
    relations.AnyNode,
    relations.EveryNode,
    relations.AnyOf,
    relations.Is,
    relations.Same,
    relations.Related,
)


def ungrouped(tree: Any, keys: Sequence[Value]) -> Iterator[Any]:
    """What in a tree has no one value in a group."""
    whole = {key.variable for key in keys if isinstance(key, relations.Whole)}
    for each in relations.own_parts(tree, keys):
        if isinstance(each, _LEAVES) and not variables(each) <= whole:
            yield each


def variables(tree: Any) -> set[str]:
    """The variables that a value or condition is about."""
    found: set[str] = set()
    for each in relations.own_parts(tree):
        if isinstance(each, (relations.Same, relations.Related)):
            found |= {side for side in (each.left, each.right) if isinstance(side, str)}
        elif isinstance(each, (*_LEAVES, Nodes)):
            found |= {name} if (name := getattr(each, "variable", None)) else set()
    return found


def check_grouped(
    binder: Binder, keys: Sequence[Value], columns: Sequence[tuple[ast.Part, Any]]
) -> None:
    """Columns beside aggregates: each is one of what is grouped by, or made of that."""
    for part, tree in columns:
        if next(ungrouped(tree, keys), None) is not None:
            said = binder.short(part)
            why = f"{said} has a value for each version, and"
            binder.note(
                part.span,
                f"{said} cannot be selected with aggregates",
                why=f"{why} a group has many" if keys else f"{why} all versions are one group",
                hint=f"group by {said}",
            )


def check_distinct(
    binder: Binder, items: Sequence[relations.Item], orders: Sequence[tuple[ast.Part, Value]]
) -> None:
    """With `distinct`, only what is seen can order the rows."""
    shown = [item.value for item in items]
    whole = {value.variable for value in shown if isinstance(value, relations.Whole)}
    for part, value in orders:
        if value not in shown and not variables(value) <= whole:
            binder.note(
                part.span,
                f"distinct rows cannot be ordered by {binder.short(part)}",
                why="it is not selected, and grouped rows may differ in it",
                hint=f"select {binder.short(part)} as well",
            )


# Any query

MOST_EXPANDED = 500  # saved queries within one statement


def bind_query(binder: Binder, part: ast.Query | ast.Saved) -> Result:
    """Any query, a saved one as if it stood there; Reported if something in it is wrong."""
    if isinstance(part, ast.Saved):
        binder, part = _opened(binder, part)
    limit = offset = None
    before = len(binder.notes.faults)
    with binder.collecting():
        limit = constants.whole(binder, part.limit, "limit")
        offset = constants.whole(binder, part.offset, "offset")
    if isinstance(part.body, ast.Select):
        result = _select(binder, part.body, part.order_by)
    elif isinstance(part.body, ast.Evaluate):
        raise binder.fault(
            ast.Span(part.body.span.start, part.body.span.start + len("evaluate")),
            "evaluate cannot be combined with other queries",
            why="its trials become versions only with `into`",
            hint='evaluate .. into "tuned", and then ask for the versions of that name',
        )
    else:
        result = _ordered(binder, part)
    if len(binder.notes.faults) > before:
        raise Reported
    return replace(result, query=replace(result.query, limit=limit, offset=offset))


def _opened(binder: Binder, part: ast.Saved) -> tuple[Binder, ast.Query]:
    """The text of a saved query and its tree; a fault if it is missing, or contains itself."""
    name = part.name
    if name in binder.saved or name == binder.defining:
        way = [*binder.saved, name] if name in binder.saved else [name, *binder.saved, name]
        raise binder.fault(
            part.span,
            f'the saved query "{name}" contains itself',
            why=" -> ".join(f'"{each}"' for each in way[way.index(name) :]),
        )
    text = binder.known.saved(name)
    if text is None:
        raise binder.fault(
            part.span,
            f'no saved query "{name}"',
            did_you_mean=nearest(name, binder.known.saved_names()),
            hint="dlv query --list; a new one: define NAME as select ..",
            missing=True,
        )
    binder.notes.expanded += 1
    if binder.notes.expanded > MOST_EXPANDED:
        raise binder.fault(part.span, f"more than {MOST_EXPANDED} saved queries within one query")
    try:
        statements = binder.parse(text)
    except SyntaxFault as fault:
        raise binder.fault(
            part.span,
            f'the saved query "{name}" cannot be read',
            why=fault.message,
            hint=f'define "{name}" as .. overwrites it',
        ) from None
    statement = statements[0] if len(statements) == 1 else None
    if isinstance(statement, ast.Define):
        statement = statement.query
    if not isinstance(statement, ast.Query):
        raise binder.fault(part.span, f'"{name}" is not one query')
    return binder.within_saved(name, text), statement


# select


def _select(binder: Binder, part: ast.Select, order_by: Sequence[ast.Order]) -> Result:
    before = len(binder.notes.faults)
    later = [part.where, part.group_by, part.having, tuple(order_by)]
    if part.sources:
        titles = [item.name for item in part.items if item.name is not None]
        parts = [*part.items, *later]
        binder, ranges = sources.declared(binder, part.sources, parts, titles)
    else:
        binder, ranges = sources.free(binder, part.items, later)
    columns = _columns(binder, part.items)
    for item, (column, kind) in zip(part.items, columns, strict=False):
        if item.name is not None and kind not in (VERSION, LIST):
            binder.scope.titles[item.name] = Scalar(column.value, kind)
    where = None
    if part.where is not None:
        where = conditions.noted(binder.within(clause="where", titles={}), part.where)
    groups = [_key(binder.within(clause="group by"), each, "group by") for each in part.group_by]
    having = None if part.having is None else conditions.noted(binder, part.having)
    order = _orders(binder, order_by)
    if len(binder.notes.faults) > before or None in groups or len(order) < len(order_by):
        raise Reported
    if not part.sources:
        sources.check_joined(binder, part)
    keys = tuple(key for key in groups if key is not None)
    items = tuple(column for column, _ in columns)
    _check_groups(binder, part, keys, items, having, order_by, order)
    if part.distinct:
        pairs = [(o.value, made.value) for o, made in zip(order_by, order, strict=True)]
        check_distinct(binder, items, pairs)
    select = Select(items, ranges, where, keys, having, part.distinct)
    whole = [item.value for item in items if isinstance(item.value, relations.Whole)]
    name = _user_name(binder, whole[0].variable) if whole else next(iter(binder.scope.variables))
    derived = any(
        each.derived
        for each in binder.scope.variables.values()
        if each.unique in {one.variable for one in whole}
    )
    return Result(
        Query(select, order),
        tuple(kind for _, kind in columns),
        tuple(item.title for item in items),
        name,
        derived,
    )


def _user_name(binder: Binder, unique: str) -> str:
    return next((v.name for v in binder.scope.variables.values() if v.unique == unique), unique)


def _columns(binder: Binder, items: Sequence[ast.Item]) -> list[tuple[Item, str]]:
    found: list[tuple[Item, str]] = []
    for item in items:
        if isinstance(item.value, ast.Star):
            for each in binder.scope.variables.values():
                if each.changes:
                    found += changes.columns(each)
                else:
                    found.append((Item(each.name, relations.Whole(each.unique)), VERSION))
            continue
        with binder.collecting():
            value, kind = values.shown(binder, item.value)
            found.append((Item(item.name or binder.said(item.value), value), kind))
    return found


def _key(binder: Binder, part: ast.Expression, clause: str) -> Value | None:
    """What groups: one value, or a version."""
    with binder.collecting():
        value, kind = values.shown(binder, part, column=False)
        if kind == LIST and isinstance(value, relations.Listed):
            raise binder.fault(
                part.span, f"{clause} takes single values, and {binder.short(part)} are several"
            )
        return value
    return None


def _orders(binder: Binder, order_by: Sequence[ast.Order]) -> tuple[Order, ...]:
    found = []
    for order in order_by:
        with binder.collecting():
            value, kind = values.shown(binder, order.value, column=False)
            _check_order(binder, order, value, kind)
            found.append(Order(value, order.descending, bool(order.nulls_first)))
    return tuple(found)


def _check_order(binder: Binder, order: ast.Order, value: Value, kind: str) -> None:
    said = binder.short(order.value)
    if kind == VERSION:
        raise binder.fault(
            order.value.span,
            f"`{said}` is a version, and order by requires values",
            hint=f"{said}.creation_time, {said}.number, {said}.id",
        )
    if isinstance(value, relations.Listed):
        raise binder.fault(
            order.value.span,
            f"{said} is a set, and order by requires single values",
            hint=f"{said}.count" if not isinstance(value.listed, str) else None,
        )


def _check_groups(
    binder: Binder,
    part: ast.Select,
    keys: Sequence[Value],
    items: Sequence[Item],
    having: Any,
    order_by: Sequence[ast.Order],
    order: Sequence[Order],
) -> None:
    trees = [item.value for item in items] + [each.value for each in order]
    if not keys and not relations.has_aggregate(*trees, having):
        if part.having is not None:
            binder.note(
                part.having.span,
                "`having` requires `group by`",
                hint="conditions on versions belong in `where`",
            )
        return
    columns: list[tuple[ast.Part, Any]] = []
    if len(items) == len(part.items):
        columns += [(w.value, made.value) for w, made in zip(part.items, items, strict=True)]
    else:
        columns += [(item, items[0].value) for item in part.items if item.value == ast.Star()]
    columns += [(w.value, made.value) for w, made in zip(order_by, order, strict=True)]
    if part.having is not None:
        columns.append((part.having, having))
    check_grouped(binder, keys, columns)


# Sets of rows, and what stands around other queries


def _body(binder: Binder, body: ast.Body) -> Result:
    if isinstance(body, ast.Query):
        return bind_query(binder, body)
    if isinstance(body, ast.SetOperation):
        return _combined(binder, body)
    if isinstance(body, ast.Derived):
        return _derived(binder, body)
    return bind_query(binder, ast.Query(body, span=body.span))


def _derived(binder: Binder, part: ast.Derived) -> Result:
    """A slice or construct whose networks are asked for like versions."""
    batch = derivations.derivation(binder, part, nested=True)
    unique = binder.new_variable(part.name)
    whole = relations.Whole(unique)
    select = Select((Item(part.name, whole),), (Source(unique, relations.Derived(batch)),))
    return Result(Query(select), (VERSION,), (part.name,), part.name, True)


def _combined(binder: Binder, body: ast.SetOperation) -> Result:
    """A chain of them is nested to the left, and is gone through without recursion."""
    chain = [body]
    while isinstance(chain[-1].left, ast.SetOperation):
        chain.append(chain[-1].left)
    parts = [chain[-1].left, *(each.right for each in reversed(chain))]
    results = binder.all(partial(_body, binder), parts)
    whole = results[0]
    for each, part, right in zip(reversed(chain), parts[1:], results[1:], strict=True):
        _check_columns(binder, each.operator, part, whole, right)
        combined = Combined(each.operator, _plain(whole.query), _plain(right.query))
        whole = replace(whole, query=Query(combined), derived=whole.derived or right.derived)
    return whole


def _plain(query: Query) -> relations.Body:
    """A query that says no more than its body."""
    return query.body if query == Query(query.body) else query


def _check_columns(
    binder: Binder, operator: str, part: ast.Part, left: Result, right: Result
) -> None:
    if len(left.kinds) != len(right.kinds):
        raise binder.fault(
            part.span,
            f"{operator} of {_count(left)} and {_count(right)}",
            why=f"{', '.join(left.titles)} next to {', '.join(right.titles)}",
        )
    for one, two, title in zip(left.kinds, right.kinds, left.titles, strict=True):
        if one != two and ANY not in (one, two):
            raise binder.fault(
                part.span, f"{operator} puts {WORDS[two]} under {title}, which is {WORDS[one]}"
            )


def _count(result: Result) -> str:
    return f"{len(result.kinds)} column" + ("" if len(result.kinds) == 1 else "s")


def _ordered(binder: Binder, part: ast.Query) -> Result:
    """`order by` behind a set operation or parentheses: it speaks of the columns."""
    result = _body(binder, part.body)
    limited = result.query.limit is not None or result.query.offset is not None
    if not part.order_by:
        again = limited and (part.limit is not None or part.offset is not None)
        return replace(result, query=Query(result.query)) if again else result
    placed = [_place(binder, result, order) for order in part.order_by]
    if all(place is not None for place in placed):
        orders = tuple(
            Order(Output(place), order.descending, bool(order.nulls_first))
            for place, order in zip(placed, part.order_by, strict=True)
            if place is not None
        )
        return (
            replace(result, query=Query(result.query.body, orders))
            if not limited
            else (replace(result, query=Query(result.query, orders)))
        )
    return _asked_again(binder, part, result)


def _place(binder: Binder, result: Result, order: ast.Order) -> int | None:
    said = binder.said(order.value)
    if said in result.titles:
        place = result.titles.index(said)
        return None if result.kinds[place] in (VERSION, LIST) else place
    return None


def _asked_again(binder: Binder, part: ast.Query, result: Result) -> Result:
    """Ordered by what the versions are: they become the source of another query."""
    binder = binder.inner()
    if result.kinds != (VERSION,) or _repeats(result.query):
        raise binder.fault(
            part.order_by[0].value.span,
            f"{binder.short(part.order_by[0].value)} is not a column of the result",
            why=f"it has {', '.join(result.titles)}",
            hint="combined rows are ordered by their columns",
        )
    name = result.titles[0] if result.titles[0].isidentifier() else result.name or sources.IMPLICIT
    unique = binder.new_variable(name)
    names = {name, result.name or name}
    variable = Variable(name, unique, result.derived)
    binder.scope.variables.update(dict.fromkeys(names, variable))
    order = _orders(binder, part.order_by)
    whole = relations.Whole(unique)
    select = Select((Item(result.titles[0], whole),), (Source(unique, result.query),))
    return replace(result, query=Query(select, order))


def _repeats(query: Query) -> bool:
    """Whether a version may come more than once, which it cannot as a source."""
    body: relations.Body = query
    while isinstance(body, Query):
        body = body.body
    if isinstance(body, Combined):
        return body.operator == "union all"
    return len(body.sources) > 1 and not body.distinct
