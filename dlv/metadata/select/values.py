"""Values as SQL: attributes, hyperparameters, metrics, arithmetic, aggregates."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from dlv.metadata.nan import NAN
from dlv.metadata.select import nodes as select_nodes
from dlv.metadata.select import relations as r
from dlv.metadata.select.deep import deep, folded
from dlv.metadata.select.metrics import figure
from dlv.metadata.select.nan import possible
from dlv.metadata.select.scope import Expression, Range, Statement, encoded
from dlv.metadata.versions import BASE_HASH

# The number, text or blob that a hyperparameter is compared as.
_TYPED = (
    f"CASE type WHEN 'float' THEN CASE txt WHEN 'NaN' THEN {NAN} ELSE num END WHEN 'str' THEN txt"
    " WHEN 'int' THEN CASE WHEN abs(num) < 9.2e18 THEN CAST(txt AS INTEGER) ELSE num END"
    " WHEN 'bool' THEN CASE WHEN num THEN x'01' ELSE x'00' END"
    " WHEN 'json' THEN CAST('j' || txt AS BLOB) END"
)
# The same for output: large integers keep their digits.
_SHOWN = (
    f"CASE WHEN type = 'int' AND abs(num) >= 9.2e18 THEN CAST('i' || txt AS BLOB) ELSE {_TYPED} END"
)
_OF_NET = {"net": "structure", "n_nodes": "n_nodes", "n_params": "n_params", "depth": "depth"}


def aggregates(of: r.Value) -> bool:
    """Whether it is asked of a group of rows."""
    match of:
        case r.Aggregate():
            return True
        case r.Arithmetic(_, left, right):
            return aggregates(left) or aggregates(right)
        case r.Negative(inner):
            return aggregates(inner)
        case r.Coalesce(values):
            return any(map(aggregates, values))
    return False


def value(s: Statement, of: r.Value) -> Expression:
    found = _value(s, of)
    return replace(found, grouped=True) if aggregates(of) else found


def _value(s: Statement, of: r.Value) -> Expression:
    match of:
        case r.Constant(constant):
            return Expression(s.bind(constant), kind_of(constant))
        case r.Column(variable, name):
            return column(s.ranges[variable], name)
        case r.Hyperparameter():
            return Expression(hyperparameter(s, of, _TYPED), "any")
        case r.Metric(variable, name, wanted):
            return Expression(figure(s, s.ranges[variable], name, wanted), "number")
        case r.MetricAt(variable, name, step):
            return _at(s, s.ranges[variable], name, step)
        case r.NodeCount(nodes):
            return Expression(select_nodes.count(s, nodes, s.ranges[nodes.variable].net), "number")
        case r.NodeValue(attribute):
            return s.nodes[-1](attribute)
        case r.Setting():
            raise AssertionError(of)  # decided in Python alone
        case r.ManyValue():
            return Expression(s.many[-1], "text", column=True)
        case r.Whole(variable):
            return Expression(s.ranges[variable].key, "version", column=True)
        case r.Negative() | r.Arithmetic() if deep(of):
            return Expression(folded(s, of, lambda leaf: _number(s, leaf)), "number")
        case r.Negative(inner):
            minus = "dql_reckon('-', 0, {})" if possible(inner) else "(-{})"
            return Expression(minus.format(_number(s, inner)), "number")
        case r.Arithmetic():
            return Expression(_arithmetic(s, of), "number")
        case r.Coalesce(values):
            return _coalesce(s, values)
        case r.Aggregate(function, inner):
            return _aggregate(s, function, inner)
        case r.Output(place):
            return Expression(f"c{place}", "any", column=True)
        case r.Listed(what, variable):
            return Expression(_listed(s, what, s.ranges[variable]), "list")


def kind_of(constant: Any) -> str:
    if constant is None:
        return "null"
    if isinstance(constant, bool):
        return "boolean"
    if isinstance(constant, (int, float)):
        return "number"
    return "text" if isinstance(constant, str) else "any"


def column(range_: Range, name: str) -> Expression:
    alias = range_.alias
    if name in _OF_NET:
        sql = f"(SELECT {_OF_NET[name]} FROM {range_.ground}net WHERE id = {range_.net})"
        return Expression(sql, r.COLUMNS[name])
    if name == "id":
        return Expression(range_.hash, "text", column=True)
    if name == "source":
        if not range_.ground:
            return Expression("NULL", "text")
        sql = f"SELECT hash FROM main.version WHERE id = {range_.row}"
        return Expression(f"({sql} AND {alias}.batch IS NOT NULL)", "text")
    if name == "dirty":
        return Expression(f"CASE {alias}.dirty WHEN 1 THEN x'01' WHEN 0 THEN x'00' END", "boolean")
    return Expression(f"{alias}.{name}", r.COLUMNS[name], column=True)


def hyperparameter(s: Statement, of: r.Hyperparameter, columns: str) -> str:
    row = s.ranges[of.variable].row
    return (
        f"(SELECT {columns} FROM hyperparameter"
        f" WHERE version_id = {row} AND key = {s.bind(of.key)})"
    )


def shown(s: Statement, of: r.Value) -> Expression:
    """As a column of the output."""
    if isinstance(of, r.Hyperparameter):
        return Expression(hyperparameter(s, of, _SHOWN), "any")
    if isinstance(of, r.Whole):
        return Expression(version_shown(s.ranges[of.variable]), "version")
    return value(s, of)


def version_shown(range_: Range) -> str:
    """A hash; of a derived network with its batch and its place there."""
    if not range_.ground:
        return range_.hash
    a = range_.alias
    return (
        f"CASE WHEN {a}.batch IS NULL THEN {a}.hash"
        f" ELSE {a}.hash || ':' || {a}.batch || ':' || {a}.place END"
    )


def _at(s: Statement, range_: Range, name: str, step: int) -> Expression:
    if s.at is None or range_.ground == "derived_":
        return Expression("NULL", "number")
    at = s.at
    called = s.function("dql_at", lambda version: encoded(at(version, name, step)))
    version = range_.hash
    if range_.ground:
        version = f"CASE WHEN {range_.alias}.batch IS NULL THEN {range_.hash} END"
        known = called
        called = s.function(
            "dql_at_any",
            lambda version: None if version is None else s.functions[known](version),
        )
    return Expression(f"{called}({version})", "number")


def number(s: Statement, given: Expression) -> str:
    """The value if it is a number, else null."""
    if given.kind in ("number", "time"):
        return given.sql
    if given.kind == "node":
        return f"dql_number({given.sql})"
    if given.kind in ("text", "boolean", "null", "version", "list"):
        return "NULL"
    test = "CASE WHEN typeof({0}) IN ('integer', 'real') OR {0} = %s THEN {0} END"
    return s.once(test % NAN, given)


def _number(s: Statement, of: r.Value) -> str:
    return number(s, value(s, of))


def node_number(written: str | None) -> int | float | None:
    """For SQL: the number that a node's attribute is."""
    found = None if written is None else json.loads(written)
    plain = isinstance(found, (int, float)) and not isinstance(found, bool)
    number: int | float | None = encoded(found) if plain else None
    return number


def _arithmetic(s: Statement, of: r.Arithmetic) -> str:
    """What may be NaN is reckoned by Python: SQLite would make a null of it."""
    left, right = _number(s, of.left), _number(s, of.right)
    if possible(of.left) or possible(of.right):
        return f"dql_reckon('{of.operator}', {left}, {right})"
    match of.operator:
        case "/":
            return f"(CAST({left} AS REAL) / nullif({right}, 0))"
        case "%":
            return f"dql_modulo({left}, {right})"
    return f"({left} {of.operator} {right})"


def _coalesce(s: Statement, values: tuple[r.Value, ...]) -> Expression:
    parts = [value(s, each) for each in values]
    kinds = {part.kind for part in parts} - {"null"}
    kind = kinds.pop() if len(kinds) == 1 else "any" if kinds else "null"
    if len(parts) == 1:
        return Expression(parts[0].bare, kind)
    return Expression(f"coalesce({', '.join(part.bare for part in parts)})", kind)


def _aggregate(s: Statement, function: str, inner: r.Value | None) -> Expression:
    if inner is None:
        return Expression("count(*)", "number")
    given = value(s, inner)
    if function == "count":
        return Expression(f"count({given.sql})", "number")
    if function in ("min", "max"):
        own = "dql_" if possible(inner) else ""
        return Expression(f"{own}{function}({given.sql})", given.kind)
    return Expression(f"dql_{function}({number(s, given)})", "number")


def _listed(s: Statement, what: Any, range_: Range) -> str:
    if not isinstance(what, str):
        return select_nodes.names(s, what, range_)
    if what == "tag":
        inner = f"SELECT name AS x FROM tag WHERE version_id = {range_.row} ORDER BY name"
    else:
        inner = f"SELECT {BASE_HASH} AS x FROM parent WHERE derived = {range_.row} ORDER BY pos"
    return f"(SELECT json_group_array(x) FROM ({inner}))"
