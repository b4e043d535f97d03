"""Values as SQL: attributes, hyperparameters, metrics, arithmetic, aggregates, NaN, deep trees."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from dlv.metadata import evaluations
from dlv.metadata.database import Database
from dlv.metadata.schemas import NAN, is_nan, known_number, stored_number
from dlv.metadata.select import nodes as select_nodes
from dlv.metadata.select import relations as r
from dlv.metadata.select.scope import Expression, Range, Statement, encoded
from dlv.metadata.select.truth import arithmetic
from dlv.metadata.versions import BASE_HASH

# Trees deeper than SQLite's parser stands: Python puts together what their leaves are. Its stack
# holds a hundred signs, and every parenthesis that is still open takes two or three.

_MOST = 8  # levels that are written as SQL
_LEAVES = 90  # SQLite hands a function 127 values at most

T = TypeVar("T")


def deep(tree: Any) -> bool:
    return _depth(tree, _MOST + 1) > _MOST and len(_operands(tree)) <= _LEAVES // 2


def _depth(tree: Any, most: int) -> int:
    parts = _operands(tree) if most else ()
    return 1 + max(_depth(part, most - 1) for part in parts) if parts else 0


def _operands(tree: Any) -> Sequence[Any]:
    match tree:
        case r.All(parts) | r.Either(parts):
            return parts
        case r.Not(part):
            return (part,)
        case r.Arithmetic(_, left, right):
            return (left, right)
        case r.Negative(value):
            return (value,)
    return ()


def folded(s: Statement, tree: T, leaf: Callable[[T], str]) -> str:
    """A call of a function that is this tree, with the SQL of its leaves."""
    leaves: list[str] = []

    def build(here: Any, room: int) -> Callable[[Sequence[Any]], Any]:
        parts = _operands(here)
        if not parts or room < len(parts):
            leaves.append(leaf(here))
            place = len(leaves) - 1
            return lambda given: known_number(given[place])
        built = [build(part, some) for part, some in zip(parts, _shares(parts, room), strict=True)]
        return lambda given: _combined(here, [each(given) for each in built])

    whole = build(tree, _LEAVES)
    called = s.function("dql_tree", lambda *given: encoded(whole(given)))
    return f"{called}({', '.join(leaves)})"


def reckon(operator: str, left: Any, right: Any) -> Any:
    """For SQL: what two numbers give, NaN among them."""
    return encoded(arithmetic(operator, known_number(left), known_number(right)))


def _shares(parts: Sequence[Any], room: int) -> list[int]:
    """How many leaves each may have: the largest what the others leave, as in a long chain."""
    sizes = [_leaf_count(part, room) for part in parts]
    largest = max(range(len(parts)), key=sizes.__getitem__)
    left = room - (sum(sizes) - sizes[largest])
    if left < 1:
        return [room // len(parts)] * len(parts)
    return [left if at == largest else size for at, size in enumerate(sizes)]


def _leaf_count(tree: Any, most: int) -> int:
    """Leaves, as far as it matters."""
    parts, found = _operands(tree), 0
    for part in parts:
        found += _leaf_count(part, most - found)
        if found >= most:
            break
    return found if parts else 1


def _combined(tree: Any, parts: Sequence[Any]) -> Any:
    match tree:
        case r.All():
            return 0 if 0 in parts else None if None in parts else 1
        case r.Either():
            return 1 if 1 in parts else None if None in parts else 0
        case r.Not():
            return None if parts[0] is None else 1 - parts[0]
        case r.Arithmetic(operator):
            return arithmetic(operator, *parts)
    return arithmetic("-", 0, *parts)


# Figures of series, those of saved evaluations among them

_FIGURES = frozenset({"last", "min", "max", "last_step", "min_step", "max_step", "n"})
_COLUMNS = "last, min, max, last_step, min_step, max_step, n"


def series(name: str) -> list[tuple[str, str]]:
    """(run, tag) as which it may be known: both can have slashes."""
    cuts = [at for at, sign in enumerate(name) if sign == "/"]
    return [("", name), *((name[:at], name[at + 1 :]) for at in cuts)]


def known_series(s: Statement, name: str) -> list[tuple[str, str]]:
    """Those of them of which there is any series."""
    key = "series", name
    if key not in s.cache:
        pairs = series(name)
        if len(pairs) > 1:
            pairs = [
                pair
                for pair in pairs
                if s.db.value("SELECT 1 FROM metric WHERE tag = ? LIMIT 1", pair[1:])
            ]
        s.cache[key] = pairs
    found: list[tuple[str, str]] = s.cache[key]
    return found


def figure(s: Statement, range_: Range, name: str, wanted: str) -> str:
    """Null where there is no such series; derived networks were never measured."""
    assert wanted in _FIGURES
    if range_.ground == "derived_":
        return "NULL"
    # Without the plus, the column's affinity would make the string "1" equal to 1.0.
    found = f"(SELECT +{wanted} FROM metric WHERE {_rows(s, range_, name)})"
    if (table := evaluated(s, name)) is not None:
        at = f"{table} WHERE version_id = {range_.alias}.id"
        found = (
            f"CASE WHEN EXISTS (SELECT 1 FROM {at})"
            f" THEN (SELECT +{wanted} FROM {at}) ELSE {found} END"
        )
    return found


def _rows(s: Statement, range_: Range, name: str) -> str:
    pairs = known_series(s, name)
    if not pairs:
        return "0"
    at = f"version_id = {range_.alias}.id"  # ids of derived networks are those of no version
    if len(pairs) == 1:
        run, tag = pairs[0]
        return f"{at} AND tag = {s.bind(tag)} AND run = {s.bind(run)}"
    either = " OR ".join(f"(tag = {s.bind(tag)} AND run = {s.bind(run)})" for run, tag in pairs)
    return f"{at} AND ({either}) ORDER BY run DESC, tag DESC LIMIT 1"


def evaluated(s: Statement, name: str) -> str | None:
    """A table of the figures of versions that were evaluated, if any was as to this metric."""
    found = {
        version: values[name] for version, values in evaluation_results(s).items() if name in values
    }
    if not found:
        return None
    key = "evaluated", name
    if key not in s.cache:
        rows = [
            (version, *[stored_number(value)] * 3, None, None, None, 1)
            for version, value in found.items()
        ]
        s.cache[key] = s.made("evaluated", f"version_id INTEGER PRIMARY KEY, {_COLUMNS}", rows)
    return str(s.cache[key])


def evaluation_results(s: Statement) -> dict[int, dict[str, float]]:
    """Results of evaluations by the row of a version and their full names."""
    return s.remembered("evaluations", lambda: _evaluations(s.db))


def _evaluations(db: Database) -> dict[int, dict[str, float]]:
    found = evaluations.results(db)
    keys: dict[str, int] = dict(db.rows("SELECT hash, id FROM version")) if found else {}
    return {keys[digest]: values for digest, values in found.items() if digest in keys}


# Values that may be NaN

_NO_NUMBER = b"n"  # what no value is
_TURNED = {">": "<", ">=": "<="}


def possible(value: r.Value) -> bool:
    """Whether it may be NaN."""
    match value:
        case r.Constant(constant):
            return is_nan(constant)
        case r.Metric(_, _, figure):
            return figure in ("last", "min", "max")
        case r.Negative(inner):
            return possible(inner)
        case r.Coalesce(values):
            return any(map(possible, values))
        case r.Case(whens, otherwise):
            return any(map(possible, (otherwise, *(value for _, value in whens))))
        case r.Aggregate("min" | "max" | "argmin" | "argmax", inner) if inner is not None:
            return possible(inner)
        case r.Applied(function, inner):
            return function in ("abs", "round") and possible(inner)
        case r.Aggregate(function):
            return function != "count"
    none = r.Column | r.NodeCount | r.OfNodes | r.ManyValue | r.Whole | r.Listed
    return not isinstance(value, none)


def compared(sign: str, left: str, right: str, odd: tuple[bool, bool], positive: bool) -> str:
    """SQL that compares two values of one kind; `odd`: which of them may be NaN.

    With NaN `!=` is true and all else false; null beside it is null. `positive`: null may as well
    be false.
    """
    if sign in _TURNED:
        sign, left, right, odd = _TURNED[sign], right, left, odd[::-1]
    plain = f"{left} {sign} {right}"
    if sign == "!=" and all(odd):
        return f"({plain} OR ({left} = {NAN} AND {right} = {NAN}))"
    if sign == "=" and all(odd):
        return f"({plain} AND NOT ({left} = {NAN} AND {right} = {NAN}))"
    if sign not in ("=", "!=") and odd[1]:
        if positive:
            return f"({plain} AND {right} < {NAN})"
        # A value that is not equal to itself is null, and then so is the whole expression.
        return f"({plain} AND ({right} < {NAN} OR {left} != {left}))"
    return f"({plain})"


def options(values: tuple[r.Constant, ...]) -> list[Any]:
    """The values that `in` compares with: NaN equals nothing, but it is not null."""
    return [_NO_NUMBER if possible(each) else each.value for each in values]


def none_of(column: str) -> str:
    """The same, of a column that a query gives."""
    return f"CASE WHEN {column} = {NAN} THEN x'{_NO_NUMBER.hex()}' ELSE {column} END"


# Values

# The number, text or blob that a hyperparameter is compared as.
TYPED = (
    f"CASE type WHEN 'float' THEN CASE txt WHEN 'NaN' THEN {NAN} ELSE num END WHEN 'str' THEN txt"
    " WHEN 'int' THEN CASE WHEN abs(num) < 9.2e18 THEN CAST(txt AS INTEGER) ELSE num END"
    " WHEN 'bool' THEN CASE WHEN num THEN x'01' ELSE x'00' END"
    " WHEN 'json' THEN CAST('j' || txt AS BLOB) END"
)
# The same for output: large integers keep their digits.
_SHOWN = (
    f"CASE WHEN type = 'int' AND abs(num) >= 9.2e18 THEN CAST('i' || txt AS BLOB) ELSE {TYPED} END"
)
_OF_NET = {"net": "structure", "n_nodes": "n_nodes", "n_params": "n_params", "depth": "depth"}


def value(s: Statement, tree: r.Value) -> Expression:
    found = _value(s, tree)
    return replace(found, grouped=True) if r.has_aggregate(tree) else found


def _value(s: Statement, tree: r.Value) -> Expression:
    match tree:
        case r.Constant(constant):
            return Expression(s.bind(constant), kind_of(constant))
        case r.Column(variable, name):
            return column(s.ranges[variable], name)
        case r.Hyperparameter():
            return Expression(hyperparameter(s, tree, TYPED), "any")
        case r.Metric(variable, name, wanted):
            return Expression(figure(s, s.ranges[variable], name, wanted), "number")
        case r.MetricAt(variable, name, step):
            return _metric_at(s, s.ranges[variable], name, step)
        case r.NodeCount(nodes):
            return Expression(select_nodes.count(s, nodes, s.ranges[nodes.variable].net), "number")
        case r.OfNodes(nodes, attribute):
            return select_nodes.shared(s, nodes, attribute, s.ranges[nodes.variable])
        case r.NodeValue(attribute):
            return s.nodes[-1](attribute)
        case r.Setting():
            raise AssertionError(tree)  # decided in Python alone
        case r.ManyValue():
            return Expression(s.many[-1], "text", column=True)
        case r.Whole(variable):
            return Expression(s.ranges[variable].key, "version", column=True)
        case r.Negative() | r.Arithmetic() if deep(tree):
            return Expression(folded(s, tree, lambda leaf: _number(s, leaf)), "number")
        case r.Negative(inner):
            minus = "dql_reckon('-', 0, {})" if possible(inner) else "(-{})"
            return Expression(minus.format(_number(s, inner)), "number")
        case r.Arithmetic():
            return Expression(_arithmetic(s, tree), "number")
        case r.Coalesce(values):
            return _coalesce(s, values)
        case r.Case():
            return _case(s, tree)
        case r.Aggregate():
            return _aggregate(s, tree)
        case r.Applied():
            return _applied(s, tree)
        case r.OneValue(query):
            selected, kind = s.column_of(query)
            return Expression(f"({selected})", kind)
        case r.Output(place):
            return Expression(f"c{place}", "any", column=True)
        case r.OfChange(variable, name):
            place = list(r.OF_CHANGES).index(name)
            sql = f"dql_change({s.ranges[variable].alias}.value, {place})"
            return Expression(sql, r.OF_CHANGES[name])
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
        if name == "n_params" and not range_.ground:
            sql = f"coalesce({sql}, {_of_tensors(range_)})"  # without a network: of its weights
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


def _of_tensors(range_: Range) -> str:
    columns = "name, dtype, shape, role, tied"
    tensors = f"SELECT tensors_id FROM version WHERE id = {range_.row}"
    return f"(SELECT dql_parameters({columns}) FROM tensor WHERE list_id = ({tensors}))"


def hyperparameter(s: Statement, tree: r.Hyperparameter, columns: str) -> str:
    row = s.ranges[tree.variable].row
    return (
        f"(SELECT {columns} FROM hyperparameter"
        f" WHERE version_id = {row} AND key = {s.bind(tree.key)})"
    )


def shown(s: Statement, tree: r.Value) -> Expression:
    """As a column of the output."""
    if isinstance(tree, r.Hyperparameter):
        return Expression(hyperparameter(s, tree, _SHOWN), "any")
    if isinstance(tree, r.Whole):
        return Expression(version_shown(s.ranges[tree.variable]), "version")
    return value(s, tree)


def version_shown(range_: Range) -> str:
    """A hash; of a derived network with its batch and its place there."""
    if not range_.ground:
        return range_.hash
    a = range_.alias
    return (
        f"CASE WHEN {a}.batch IS NULL THEN {a}.hash"
        f" ELSE {a}.hash || ':' || {a}.batch || ':' || {a}.place END"
    )


def _metric_at(s: Statement, range_: Range, name: str, step: int) -> Expression:
    if s.metric_at is None or range_.ground == "derived_":
        return Expression("NULL", "number")
    at = s.metric_at
    called = s.function("dql_at", lambda version: encoded(at(version, name, step)))
    version = range_.hash
    if range_.ground:
        version = f"CASE WHEN {range_.alias}.batch IS NULL THEN {range_.hash} END"
        previous = called
        called = s.function(
            "dql_at_any",
            lambda version: None if version is None else s.functions[previous](version),
        )
    return Expression(f"{called}({version})", "number")


def number(s: Statement, expression: Expression) -> str:
    """The value if it is a number, else null."""
    if expression.kind in ("number", "time"):
        return expression.sql
    if expression.kind == "node":
        return f"dql_number({expression.sql})"
    if expression.kind in ("text", "boolean", "null", "version", "list"):
        return "NULL"
    test = "CASE WHEN typeof({0}) IN ('integer', 'real') OR {0} = %s THEN {0} END"
    return s.once(test % NAN, expression)


def _number(s: Statement, tree: r.Value) -> str:
    return number(s, value(s, tree))


def node_number(written: str | None) -> int | float | None:
    """For SQL: the number that a node's attribute is."""
    found = None if written is None else json.loads(written)
    plain = isinstance(found, (int, float)) and not isinstance(found, bool)
    number: int | float | None = encoded(found) if plain else None
    return number


def _arithmetic(s: Statement, tree: r.Arithmetic) -> str:
    """What may be NaN is reckoned by Python: SQLite would make a null of it."""
    left, right = _number(s, tree.left), _number(s, tree.right)
    if possible(tree.left) or possible(tree.right):
        return f"dql_reckon('{tree.operator}', {left}, {right})"
    match tree.operator:
        case "/":
            return f"(CAST({left} AS REAL) / nullif({right}, 0))"
        case "%":
            return f"dql_modulo({left}, {right})"
    return f"({left} {tree.operator} {right})"


def _coalesce(s: Statement, values: tuple[r.Value, ...]) -> Expression:
    parts = [value(s, each) for each in values]
    kind = _common(parts)
    if len(parts) == 1:
        return Expression(parts[0].bare, kind)
    return Expression(f"coalesce({', '.join(part.bare for part in parts)})", kind)


def _common(parts: Sequence[Expression]) -> str:
    """The kind of what may be any of these."""
    kinds = {part.kind for part in parts} - {"null"}
    return kinds.pop() if len(kinds) == 1 else "any" if kinds else "null"


def _case(s: Statement, tree: r.Case) -> Expression:
    tests = [s.condition(test, True) for test, _ in tree.whens]
    *parts, otherwise = (value(s, v) for v in (*(v for _, v in tree.whens), tree.otherwise))
    whens = " ".join(f"WHEN {t} THEN {p.bare}" for t, p in zip(tests, parts, strict=True))
    return Expression(f"(CASE {whens} ELSE {otherwise.bare} END)", _common([*parts, otherwise]))


def _applied(s: Statement, tree: r.Applied) -> Expression:
    given = value(s, tree.value)
    match tree.function:
        case "lower" | "upper":
            return Expression(f"dql_{tree.function}({given.bare})", "text")
        case "length":
            return Expression(f"dql_length({given.bare})", "number")
        case "round":
            return Expression(f"dql_round({given.bare}, {tree.digits})", "number")
    return Expression(f"dql_{tree.function}({given.bare})", "number")


def _aggregate(s: Statement, tree: r.Aggregate) -> Expression:
    function, inner = tree.function, tree.value
    if inner is None:
        return Expression("count(*)", "number")
    if tree.by is not None:
        # A version is known by its hash: that is what is shown, and it says which is first.
        given, by = shown(s, inner), value(s, tree.by)
        return Expression(f"dql_{function}({given.bare}, {by.bare})", given.kind)
    given = value(s, inner)
    if function == "count":
        return Expression(f"count({'DISTINCT ' * tree.distinct}{given.sql})", "number")
    if function in ("min", "max"):
        own = "dql_" if possible(inner) else ""
        return Expression(f"{own}{function}({given.sql})", given.kind)
    return Expression(f"dql_{function}({number(s, given)})", "number")


def _listed(s: Statement, listed: Any, range_: Range) -> str:
    if not isinstance(listed, str):
        return select_nodes.names(s, listed, range_)
    if listed == "tag":
        inner = f"SELECT name AS x FROM tag WHERE version_id = {range_.row} ORDER BY name"
    else:
        inner = f"SELECT {BASE_HASH} AS x FROM parent WHERE derived = {range_.row} ORDER BY pos"
    return f"(SELECT json_group_array(x) FROM ({inner}))"
