"""Which versions come from which: one step, so many, or all the way."""

from __future__ import annotations

from dlv.metadata.select import relations as r
from dlv.metadata.select.scope import Statement

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
