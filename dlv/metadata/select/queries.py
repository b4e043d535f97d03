"""Whole queries as SQL: what variables range over, columns, groups, set operations, order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dlv.dataclass import dataclass
from dlv.errors import UsageError
from dlv.metadata.schemas import NAN
from dlv.metadata.select import changes
from dlv.metadata.select import relations as r
from dlv.metadata.select.plan import variables, where
from dlv.metadata.select.scope import CHANGES, Expression, Range, Statement, joined
from dlv.metadata.select.values import column, possible, shown, value, version_shown

_MOST_SOURCES = 60  # SQLite joins 64 tables
_MOST_TERMS = 400  # and puts 500 together by `union` and its like


@dataclass(frozen=True)
class Written:
    """SQL, and of each of its columns the kind; versions that are keys are still to be shown."""

    sql: str
    kinds: tuple[str, ...]
    grounds: tuple[str, ...]  # of columns of versions: what tables they are in


def top(s: Statement, query: r.Query) -> Written:
    """As its rows are shown."""
    body = query.body
    if isinstance(body, r.Query) and not query.order:
        inner = top(s, body)
        return _limited(s, inner, query)
    if isinstance(body, r.Select) and not body.distinct:
        return _select(s, body, query, output=True)
    inner = _set(s, body, query if isinstance(body, r.Select) else None)
    kept = len(body.items) if isinstance(body, r.Select) else len(inner.kinds)
    columns = [
        _key_shown(f"c{place}", inner.grounds[place]) if kind == "version" else f"c{place}"
        for place, kind in enumerate(inner.kinds[:kept])
    ]
    order = _order_of_set(s, body, query, inner, kept)
    sql = f"SELECT {', '.join(columns)} FROM ({inner.sql}) ORDER BY {', '.join(order)}"
    return Written(sql + _limit(s, query), inner.kinds[:kept], inner.grounds[:kept])


def column_of(s: Statement, query: r.Query) -> tuple[str, str]:
    """(SQL, kind) of a query within another one: versions by their keys, in no order."""
    outer = dict(s.ranges)
    speaks_of = s.remembered(("variables", id(query)), lambda: variables(query))
    ranges = tuple((variable, outer.get(variable)) for variable in sorted(speaks_of))
    inner = s.remembered(("query", id(query), ranges), lambda: _within(s, query))
    s.ranges = outer
    return inner.sql, inner.kinds[0]


def _within(s: Statement, query: r.Query) -> Written:
    """What lies many queries deep is asked first: SQLite's parser stands few within each other."""
    s.heights.append(0)
    found = _inner(s, query)
    height = s.heights.pop() + 1
    if height > s.most_within and not s.remembered(
        ("variables", id(query)), lambda: variables(query)
    ):
        names = ", ".join(f"c{place}" for place in range(len(found.kinds)))
        with s.callable():
            rows = [*s.db.stream(found.sql, s.parameters)]
        table = s.made("row_list", names, rows)
        found, height = replace(found, sql=f"SELECT {names} FROM {table}"), 0
    s.heights[-1:] = [max(height, *s.heights[-1:])] if s.heights else []
    return found


def _inner(s: Statement, query: r.Query) -> Written:
    body = query.body
    if query.limit is None and query.offset is None:
        return _set(s, body)
    if isinstance(body, r.Select) and not body.distinct:
        return _select(s, body, query, output=False)
    inner = _set(s, body, query if isinstance(body, r.Select) else None)
    kept = len(body.items) if isinstance(body, r.Select) else len(inner.kinds)
    order = _order_of_set(s, body, query, inner, kept)
    columns = ", ".join(f"c{place}" for place in range(kept))
    sql = f"SELECT {columns} FROM ({inner.sql}) ORDER BY {', '.join(order)}"
    return Written(sql + _limit(s, query), inner.kinds[:kept], inner.grounds[:kept])


def _limited(s: Statement, inner: Written, query: r.Query) -> Written:
    limit = _limit(s, query)
    if not limit:
        return inner
    return Written(f"SELECT * FROM ({inner.sql}){limit}", inner.kinds, inner.grounds)


def _limit(s: Statement, query: r.Query) -> str:
    if query.limit is None and query.offset is None:
        return ""
    limit = "-1" if query.limit is None else s.bind(query.limit)
    return f" LIMIT {limit}" + ("" if query.offset is None else f" OFFSET {s.bind(query.offset)}")


# Sets: columns c0, c1, .. and versions by their keys


def _set(s: Statement, body: r.Body, ordered: r.Query | None = None) -> Written:
    """`ordered`: what a `distinct` is to be ordered by may be no column of it."""
    match body:
        case r.Query():
            return _within(s, body)
        case r.Select():
            return _select(s, body, ordered, output=False, as_set=True)
        case r.Combined():
            return _combined(s, body)


def _combined(s: Statement, body: r.Combined) -> Written:
    operands: list[tuple[str, Written]] = []
    rest: r.Body = body
    while isinstance(rest, r.Combined):
        operands.append((rest.operator, _operand(s, rest.right)))
        rest = rest.left
    sql, terms = _operand(s, rest), 1
    together = sql.sql
    for operator, written in reversed(operands):
        if terms == _MOST_TERMS:
            together, terms = f"SELECT * FROM ({together})", 1
        together = f"{together} {operator.upper()} {written.sql}"
        terms += 1
    every = [sql, *(written for _, written in operands)]
    kinds = tuple(_common(column) for column in zip(*(each.kinds for each in every), strict=True))
    grounds = tuple(_mixed(set(g)) for g in zip(*(each.grounds for each in every), strict=True))
    return Written(together, kinds, grounds)


def _operand(s: Statement, body: r.Body) -> Written:
    written = _set(s, body)
    if isinstance(body, r.Select) and body.having is None:
        return written
    return Written(f"SELECT * FROM ({written.sql})", written.kinds, written.grounds)


def _common(kinds: Sequence[str]) -> str:
    found = set(kinds) - {"null"}
    return found.pop() if len(found) == 1 else "any" if found else "null"


def _mixed(grounds: set[str]) -> str:
    return grounds.pop() if len(grounds) == 1 else "any_"


def _key_shown(key: str, ground: str) -> str:
    table = f"{ground}version"
    shown_as = version_shown(Range("", table, ground))
    return f"(SELECT {shown_as} FROM {table} WHERE id = {key})"


def _order_of_set(
    s: Statement, body: r.Body, query: r.Query, inner: Written, width: int
) -> list[str]:
    found = []
    extra = width
    for order in query.order:
        if isinstance(order.value, r.Output):
            at = order.value.place
        elif (place := _place(body, order.value)) is not None:
            at = place
        else:
            at, extra = extra, extra + 1
        if inner.kinds[at] == "version":
            found += _newest_key(f"c{at}", inner.grounds[at], order)
        else:
            kind = inner.kinds[at]
            found += _ranked(s, Expression(f"c{at}", kind), order, kind in ("number", "any"))
    places = list(range(width))
    if isinstance(body, r.Select):  # versions before what stands beside them
        places = sorted(places, key=lambda at: inner.kinds[at] != "version")
    for at in places:
        if inner.kinds[at] == "version":
            found += _newest_key(f"c{at}", inner.grounds[at])
        else:
            found += _last(s, Expression(f"c{at}", inner.kinds[at]))
    return found


def _place(body: r.Body, wanted: r.Value) -> int | None:
    items = body.items if isinstance(body, r.Select) else ()
    return next((at for at, item in enumerate(items) if item.value == wanted), None)


def _newest_key(key: str, ground: str, order: r.Order | None = None) -> list[str]:
    table = f"{ground}version"
    late, early = ("", " DESC") if order and order.descending else (" DESC", "")
    return [
        f"(SELECT creation_time FROM {table} WHERE id = {key}){late}",
        f"(SELECT hash FROM {table} WHERE id = {key}){early}",
    ]


def _ranked(s: Statement, expression: Expression, order: r.Order, odd: bool) -> list[str]:
    """By a value; whichever way, NaN stands behind all others, so that it is never the best."""
    way = " DESC" if order.descending else ""
    nulls = f" NULLS {'FIRST' if order.nulls_first else 'LAST'}"
    found = [f"{_key(expression)}{way}{nulls}"]
    if expression.kind == "any":
        found.insert(0, f"{_rank(s, expression)}{way}{nulls}")
    if odd and (expression.kind == "any" or order.descending):  # behind numbers it is anyway
        found.insert(0, f"({expression.sql} = {NAN}){nulls}")
    return found


def _last(s: Statement, expression: Expression, odd: bool = True) -> list[str]:
    return _ranked(s, expression, r.Order(r.Constant(None)), odd)


# One select


def grounds(s: Statement, source: r.Query | r.Derived | r.Changes | None) -> str:
    """What tables the versions are in that a variable stands for."""
    match source:
        case None:
            return ""
        case r.Derived():
            return "derived_"
        case r.Changes():
            return CHANGES
    return _grounds_of_body(s, source.body)


def _grounds_of_body(s: Statement, body: r.Body) -> str:
    match body:
        case r.Query():
            return _grounds_of_body(s, body.body)
        case r.Combined():
            return _mixed({_grounds_of_body(s, body.left), _grounds_of_body(s, body.right)})
    item = body.items[0].value
    if not isinstance(item, r.Whole):
        return ""
    for source in body.sources:
        if source.variable == item.variable:
            return grounds(s, source.rows_from)
    return s.ranges[item.variable].ground


def _ranges(s: Statement, select: r.Select) -> tuple[list[str], dict[str, list[str]]]:
    """Tables, and by variable what it ranges over."""
    if len(select.sources) > _MOST_SOURCES:
        raise UsageError(
            f"the query joins {len(select.sources)} variables",
            why=f"at most {_MOST_SOURCES} can be",
        )
    tables = []
    conditions: dict[str, list[str]] = {}
    for source in select.sources:
        inner = s.column_of(source.rows_from)[0] if isinstance(source.rows_from, r.Query) else None
        ground = grounds(s, source.rows_from)
        range_ = Range(source.variable, s.name("v"), ground)
        s.ranges[source.variable] = range_
        between = source.rows_from if isinstance(source.rows_from, r.Changes) else None
        table = range_.table
        if between is not None:
            kinds = changes.asked_kinds(select.where, source.variable)
            table = changes.table(s, between, kinds)
        tables.append(f"{table} AS {range_.alias}")
        own = conditions.setdefault(source.variable, [])
        if inner is not None:
            own.append(f"{range_.alias}.id IN ({inner})")
        if isinstance(source.rows_from, r.Derived):
            own.append(f"{range_.alias}.batch = {s.bind(source.rows_from.batch)}")
    return tables, conditions


def _select(
    s: Statement, select: r.Select, query: r.Query | None, *, output: bool, as_set: bool = False
) -> Written:
    """`output`: versions and values as they are shown. `as_set`: no order, nor any limit."""
    tables, own = _ranges(s, select)
    conditions = where(s, select, own)
    whole = r.has_aggregate(select.items) or select.having
    columns = [shown(s, item.value) if output else value(s, item.value) for item in select.items]
    written = [each.sql for each in columns]
    kinds = [each.kind for each in columns]
    grouped = [value(s, each).sql for each in select.group_by]
    having = None if select.having is None else s.condition(select.having, True)
    if as_set and select.distinct and query is not None:
        extra = [
            order.value
            for order in query.order
            if not isinstance(order.value, r.Output) and _place(select, order.value) is None
        ]
        if extra:  # of equal rows the first one tells where they stand
            more = [value(s, each) for each in extra]
            if not grouped and not whole:
                grouped = list(written)
                written += [f"min({each.sql})" for each in more]
            else:
                written += [each.sql for each in more]
            kinds += [each.kind for each in more]
    if not output:
        written = [f"{sql} AS c{place}" for place, sql in enumerate(written)]
    lone = having is not None and not grouped
    if lone:
        written.append(f"{having} AS fulfilled")
    sql = (
        f"SELECT {'DISTINCT ' if select.distinct else ''}{', '.join(written)}"
        f" FROM {', '.join(tables)} WHERE {joined(conditions, 'AND')}"
    )
    if grouped:
        sql += f" GROUP BY {', '.join(grouped)}"
        if having is not None:
            sql += f" HAVING {having}"
    if lone:
        kept = ", ".join(f"c{place}" for place in range(len(kinds)))
        sql = f"SELECT {kept if not output else '*'} FROM ({sql}) WHERE fulfilled"
    elif not as_set and query is not None and not (whole and not grouped):
        sql += f" ORDER BY {', '.join(_order(s, select, query))}"
    if not as_set and query is not None:
        sql += _limit(s, query)
    return Written(sql, tuple(kinds), tuple(_ground(s, item.value) for item in select.items))


def _ground(s: Statement, value: r.Value) -> str:
    return s.ranges[value.variable].ground if isinstance(value, r.Whole) else ""


def _order(s: Statement, select: r.Select, query: r.Query) -> list[str]:
    """What was asked for, and then what makes it the same each time."""
    found = []
    for order in query.order:
        of = order.value
        if isinstance(of, r.Output):
            of = select.items[of.place].value
        if isinstance(of, r.Whole):
            found += _newest(s.ranges[of.variable], order)
        else:
            given = value(s, of)
            found += _ranked(s, given, order, possible(of))
    if select.group_by:
        for each in select.group_by:
            if isinstance(each, r.Whole):
                found += _newest(s.ranges[each.variable])
            else:
                found += _last(s, value(s, each), possible(each))
        return found
    first = [item.value.variable for item in select.items if isinstance(item.value, r.Whole)]
    every = dict.fromkeys([*first, *(source.variable for source in select.sources)])
    for variable in every:
        range_ = s.ranges.get(variable)
        if range_ is not None:
            if range_.ground == CHANGES:
                found.append(f"{range_.alias}.key")
            else:
                found += [range_.hash] if query.order else _newest(range_)
    return found


def _rank(s: Statement, expression: Expression) -> str:
    """Truth values stand before numbers and texts, lists behind them."""
    rank = (
        "CASE WHEN typeof({0}) != 'blob' THEN CASE WHEN {0} IS NOT NULL THEN 0 END"
        " WHEN length({0}) = 1 THEN -1 ELSE 2 END"
    )
    return s.once(rank, expression)


def _key(expression: Expression) -> str:
    """To order by a number would be to order by a column's place."""
    return f"abs({expression.sql})" if expression.sql.isdigit() else expression.sql


def _newest(range_: Range, order: r.Order | None = None) -> list[str]:
    time = column(range_, "creation_time").sql
    if order and order.descending:
        return [time, f"{range_.hash} DESC"]
    return [f"{time} DESC", range_.hash]
