"""Conditions as SQL, with the three truth values of SQL."""

from __future__ import annotations

import json
from typing import Any

from dlv.metadata.schemas import NAN, known_number
from dlv.metadata.select import nodes as select_nodes
from dlv.metadata.select import relations as r
from dlv.metadata.select.functions import like_test, pieces_of_like, selector_test
from dlv.metadata.select.layers import prefix_range
from dlv.metadata.select.scope import FALSE, TRUE, Expression, Statement, joined
from dlv.metadata.select.truth import compared
from dlv.metadata.select.values import compared as numbers_compared
from dlv.metadata.select.values import deep, folded, none_of, options, possible, value
from dlv.metadata.versions import BASE_HASH
from dlv.network.patterns import compare
from dlv.network.selector import Fixed, Selector, Wildcard

_OPPOSITE = {"ancestor_of": "derived_from", "parent_of": "child_of"}


def related(statement: Statement, condition: r.Related) -> str:
    """Never null. The left side is looked for among what the right one leads to, or back."""
    relation, left, right, within = (
        condition.relation,
        condition.left,
        condition.right,
        condition.within,
    )
    if relation in _OPPOSITE:
        relation, left, right = _OPPOSITE[relation], right, left
    if relation == "sibling_of":
        return _sibling(statement, left, right, within or 1)
    most = 1 if relation == "child_of" else within
    below, above = _row(statement, left), _row(statement, right)
    # A line upwards is short, and what comes from one version may be many.
    if isinstance(right, r.Fixed) and not isinstance(left, r.Fixed):
        return f"{below} IN ({_line(statement, above, most, up=False)})"
    return f"{above} IN ({_line(statement, below, most, up=True)})"


def _row(statement: Statement, side: str | r.Fixed) -> str:
    if isinstance(side, r.Fixed):
        return f"(SELECT id FROM version WHERE hash = {statement.bind(side.id)})"
    return statement.ranges[side].row


def _line(statement: Statement, start: str, most: int | None, *, up: bool) -> str:
    """Rows of the versions above or below one, which itself is none of them."""
    near, far = ("derived", "base") if up else ("base", "derived")
    if most == 1:
        return (
            f"SELECT {far} FROM parent WHERE {near} = {start}"
            f" AND {far} IS NOT NULL AND {far} != {start}"
        )
    line = statement.name("line")
    if most is None:
        return (
            f"WITH RECURSIVE {line}(id) AS (SELECT {far} FROM parent WHERE {near} = {start}"
            f" UNION SELECT {far} FROM {line} JOIN parent ON {near} = {line}.id)"
            f" SELECT id FROM {line} WHERE id IS NOT NULL AND id != {start}"
        )
    return (
        f"WITH RECURSIVE {line}(id, steps) AS"
        f" (SELECT {far}, 1 FROM parent WHERE {near} = {start}"
        f" UNION SELECT {far}, steps + 1 FROM {line} JOIN parent ON {near} = {line}.id"
        f" WHERE steps < {statement.bind(most)})"
        f" SELECT id FROM {line} WHERE id IS NOT NULL AND id != {start}"
    )


def _sibling(statement: Statement, left: str | r.Fixed, right: str | r.Fixed, most: int) -> str:
    """Of parents that are not here, too: those are known by their hashes."""
    first, second = _row(statement, left), _row(statement, right)
    if isinstance(left, r.Fixed):
        first, second = second, first
    below = statement.name("below")
    # From the right one up, and from there down as many steps at most.
    return (
        f"({first} != {second} AND {first} IN (WITH RECURSIVE"
        f" {below}up(id, hash, steps) AS"
        f" (SELECT base, base_hash, 1 FROM parent WHERE derived = {second}"
        f" UNION SELECT p.base, p.base_hash, steps + 1 FROM {below}up"
        f" JOIN parent AS p ON p.derived = {below}up.id WHERE steps < {statement.bind(most)}),"
        f" {below}(id, steps) AS"
        f" (SELECT p.derived, 1 FROM {below}up JOIN parent AS p ON p.base = {below}up.id"
        f" UNION SELECT p.derived, 1 FROM {below}up JOIN parent AS p"
        f" ON p.base_hash = {below}up.hash"
        f" UNION SELECT p.derived, steps + 1 FROM {below} JOIN parent AS p ON p.base = {below}.id"
        f" WHERE steps < {statement.bind(most)})"
        f" SELECT id FROM {below}))"
    )


_MOST_RUNS = 4  # of `%` that GLOB may have to try


def write(s: Statement, condition: r.Condition, positive: bool = False) -> str:
    """`positive`: null may as well be false, as where nothing but truth counts."""
    if isinstance(condition, r.All | r.Either | r.Not) and deep(condition):
        return folded(s, condition, lambda leaf: write(s, leaf))
    match condition:
        case r.Truth(truth):
            return "NULL" if truth is None else str(int(truth))
        case r.All(parts):
            return joined([write(s, part, positive) for part in parts] or ["1"], "AND")
        case r.Either(parts):
            return joined([write(s, part, positive) for part in parts] or ["0"], "OR")
        case r.Not(part):
            return _negated(s, part)
        case r.Compare():
            return _compare(s, condition, positive)
        case r.Like():
            return _like(s, condition)
        case r.Matches(left, wanted):
            called = s.function("dql_matches", selector_test(wanted))
            return f"{called}({_text(value(s, left))})"
        case r.OneOf(left, among):
            return _one_of(s, left, among)
        case r.Within(left, query):
            inner, kind = s.column_of(query)
            if possible(left) and kind in ("number", "any"):
                inner = f"SELECT {none_of('c0')} FROM ({inner})"
            return f"({value(s, left).bare} IN ({inner}))"
        case r.IsNull(left):
            return _is_null(s, left)
        case r.IsNan(left):
            return _is_nan(s, left)
        case r.Same(left_name, right_name):
            return f"({s.ranges[left_name].key} = {s.ranges[right_name].key})"
        case r.Is(variable, ids):
            return f"({s.ranges[variable].hash} IN {s.values(ids)})"
        case r.Related():
            return f"({related(s, condition)})"
        case r.Exists(query):
            inner, _ = s.column_of(query)
            return f"EXISTS ({inner})"
        case r.AnyNode(nodes, test):
            return select_nodes.any_node(s, nodes, test, s.ranges[nodes.variable].net)
        case r.EveryNode(nodes, every):
            return select_nodes.every_node(s, nodes, every, s.ranges[nodes.variable].net)
        case r.Fits():
            return select_nodes.fits(s, condition)
        case r.AnyOf(variable, name, test):
            return _any_of(s, variable, name, test)


def _negated(s: Statement, part: r.Condition) -> str:
    """Two `not`s are none: SQLite stands few that are within each other."""
    if isinstance(part, r.Not):
        return write(s, part.part)
    if isinstance(part, r.All | r.Either):
        word, none = ("OR", "0") if isinstance(part, r.All) else ("AND", "1")
        return joined([_negated(s, each) for each in part.parts] or [none], word)
    return f"NOT {write(s, part)}"


def _compare(s: Statement, c: r.Compare, positive: bool) -> str:
    if positive and c.operator == "=" and (found := _same_structure(s, c)):
        return found
    left, right = value(s, c.left), value(s, c.right)
    if "null" in (left.kind, right.kind):
        return "NULL"
    if "node" in (left.kind, right.kind):
        return _compare_node(s, c, left, right)
    first, second = (_plain_kind(each) for each in (left, right))
    odd = possible(c.left), possible(c.right)
    if "any" not in (first, second):
        if first == second:
            return numbers_compared(c.operator, left.sql, right.sql, odd, positive)
        never = {"=": "0", "!=": "1"}.get(c.operator, "NULL")
        return f"CASE WHEN {left.bare} IS NOT NULL AND {right.bare} IS NOT NULL THEN {never} END"
    if c.operator in ("=", "!="):
        return numbers_compared(c.operator, left.bare, right.bare, odd, positive)
    return _ordered(s, c.operator, left, right)


def _plain_kind(expression: Expression) -> str:
    return {"time": "number", "version": "number"}.get(expression.kind, expression.kind)


def _ordered(s: Statement, operator: str, left: Expression, right: Expression) -> str:
    """Null between values of two kinds; lists have no order at all."""
    a, b = "{0}", "{1}"
    kind = (
        "CASE typeof({0}) WHEN 'integer' THEN 1 WHEN 'real' THEN 1 WHEN 'text' THEN 2"
        " ELSE CASE length({0}) WHEN 0 THEN 1 ELSE 3 END END"
    )
    return s.once(
        f"CASE WHEN {kind.format(a)} = {kind.format(b)}"
        f" AND (typeof({a}) != 'blob' OR {a} = {NAN} OR length({a}) = 1 AND length({b}) = 1)"
        f" THEN {a} {operator} {b} AND {a} != {NAN} AND {b} != {NAN} END",
        left,
        right,
    )


def _same_structure(s: Statement, c: r.Compare) -> str | None:
    """`m.net = n.net` so that one of them leads to the other."""
    sides = (c.left, c.right)
    ranges = [
        s.ranges[side.variable]
        for side in sides
        if isinstance(side, r.Column) and side.name == "net"
    ]
    if len(ranges) != 2 or any(range_.ground for range_ in ranges):
        return None
    first, second = ranges
    return (
        f"({second.net} IN (SELECT other.id FROM net AS one JOIN net AS other USING (structure)"
        f" WHERE one.id = {first.net}))"
    )


def _compare_node(s: Statement, c: r.Compare, left: Expression, right: Expression) -> str:
    """Of a node's attribute: what patterns mean by it, lists and all."""

    def test(first: Any, second: Any) -> int | None:
        found = compared(
            c.operator,
            c.left,
            c.right,
            _attribute(first) if left.kind == "node" else _decoded(first),
            _attribute(second) if right.kind == "node" else _decoded(second),
        )
        return None if found is None else int(found)

    return f"{s.function('dql_compare', test)}({left.bare}, {right.bare})"


def _attribute(written: Any) -> Any:
    return None if written is None else json.loads(written)


def _decoded(value: Any) -> Any:
    if isinstance(value, bytes):
        if value in (TRUE, FALSE):
            return value == TRUE
        return known_number(value) if not value else json.loads(value[1:])
    return value


def _text(expression: Expression) -> str:
    """What a text test is about: of a node's attribute the text itself."""
    if expression.kind == "node":
        return f"json_extract({expression.sql}, '$')"
    return expression.sql


def _like(s: Statement, c: r.Like) -> str:
    found = value(s, c.value)
    sql = _text(found)
    if not isinstance(c.pattern, r.Constant):
        wanted = _text(value(s, c.pattern))
        return f"dql_like({sql}, {wanted}, {s.bind(c.escape)}, {int(c.folded)})"
    pattern = c.pattern.value
    if not isinstance(pattern, str):
        return "NULL"
    if not c.folded and found.kind == "text":
        pieces = pieces_of_like(pattern, c.escape)
        if sum(piece == Wildcard(True) for piece in pieces) <= _MOST_RUNS:
            return _glob(s, found, pattern, tuple(pieces))
    return f"{s.function('dql_like', like_test(pattern, c.escape, c.folded))}({sql})"


def _glob(s: Statement, expression: Expression, pattern: str, pieces: tuple[Any, ...]) -> str:
    """A range that an index knows, then GLOB: SQLite's LIKE takes a for A, which no index does."""
    wanted = Selector(pattern, pieces, {})
    if not pieces or wanted.literal is not None:
        return f"({expression.sql} = {s.bind(wanted.prefix)})"
    written = "".join(
        "".join(f"[{sign}]" if sign in "*?[" else sign for sign in piece.text)
        if isinstance(piece, Fixed)
        else ("*" if piece == Wildcard(True) else "?")
        for piece in pieces
    )
    glob = f"{expression.sql} GLOB {s.bind(written)}"
    if not wanted.prefix or not expression.column:
        return f"({glob})"
    low, high = prefix_range(wanted.prefix)
    above = f"{expression.sql} >= {s.bind(low)}"
    below = f" AND {expression.sql} < {s.bind(high)}" if high else ""
    return f"({above}{below} AND {glob})"


def _one_of(s: Statement, left: r.Value, among: tuple[r.Constant, ...]) -> str:
    found = value(s, left)
    if not among:
        return "0"
    if found.kind == "null":
        return "NULL"
    wanted = options(among)
    if found.kind == "node":

        def test(written: Any) -> int | None:
            same = [compare("=", _attribute(written), option) for option in wanted]
            return 1 if True in same else None if None in same else 0

        return f"{s.function('dql_one_of', test)}({found.sql})"
    kinds = {value(s, option).kind for option in among}
    sql = found.sql if kinds <= {_plain_kind(found), "null"} else found.bare
    return f"({sql} IN {s.values(wanted)})"


def _is_null(s: Statement, left: r.Value) -> str:
    if isinstance(left, r.Hyperparameter):
        row = s.ranges[left.variable].row
        return (
            f"NOT EXISTS (SELECT 1 FROM hyperparameter WHERE version_id = {row}"
            f" AND key = {s.bind(left.key)} AND type != 'null')"
        )
    found = value(s, left)
    if found.kind == "node":
        return f"ifnull({found.sql}, 'null') = 'null'"
    return f"({found.sql} IS NULL)"


def _is_nan(s: Statement, left: r.Value) -> str:
    found = value(s, left)
    if found.kind == "node":
        return f"(ifnull({found.sql}, 'null') = 'NaN')"
    return f"({found.sql} IS {NAN})"


def _any_of(s: Statement, variable: str, name: str, test: r.Condition) -> str:
    row = s.ranges[variable].row
    alias = s.name("t")
    if name == "tag":
        rows = f"tag AS {alias} WHERE {alias}.version_id = {row}"
    else:
        rows = f"(SELECT {BASE_HASH} AS name FROM parent WHERE derived = {row}) AS {alias} WHERE 1"
    with s.value_at_hand(f"{alias}.name"):
        inner = s.condition(test, True)
    return f"EXISTS (SELECT 1 FROM {rows} AND {inner})"
