"""Figures of series as SQL, those of saved evaluations among them."""

from __future__ import annotations

from typing import Any

from dlv.canonical import NON_FINITE, float_of
from dlv.metadata import facts
from dlv.metadata.database import Database
from dlv.metadata.nan import stored
from dlv.metadata.select.scope import Range, Statement

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
    found = f"(SELECT {wanted} FROM metric WHERE {_rows(s, range_, name)})"
    if (table := evaluated(s, name)) is not None:
        at = f"{table} WHERE version_id = {range_.alias}.id"
        found = (
            f"CASE WHEN EXISTS (SELECT 1 FROM {at})"
            f" THEN (SELECT {wanted} FROM {at}) ELSE {found} END"
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
    if "evaluations" not in s.cache:
        s.cache["evaluations"] = evaluations(s.db)
    found = {
        version: values[name]
        for version, values in s.cache["evaluations"].items()
        if name in values
    }
    if not found:
        return None
    key = "evaluated", name
    if key not in s.cache:
        rows = [_merged(s, version, name, value) for version, value in found.items()]
        s.cache[key] = s.made(
            "evaluated", f"version_id INTEGER PRIMARY KEY, {_COLUMNS}", [row for row in rows if row]
        )
    return str(s.cache[key])


def _merged(s: Statement, version: int, name: str, value: float) -> tuple[Any, ...]:
    """The newest evaluation counts for more than how training ended."""
    last = stored(value)
    pairs = known_series(s, name)
    for run, tag in sorted(pairs, reverse=True):
        row = s.db.row(
            f"SELECT {_COLUMNS} FROM metric WHERE version_id = ? AND tag = ? AND run = ?",
            (version, tag, run),
        )
        if row is not None:
            return version, last, *row[1:]
    return version, last, last, last, None, None, None, 1


def evaluations(db: Database) -> dict[int, dict[str, float]]:
    """Per row of a version: each metric as the newest evaluation of its own weights gave it."""
    found: dict[int, dict[str, float]] = {}
    for digest in sorted(facts.evaluated(db)):
        row = db.row(
            "SELECT version.id, step FROM version LEFT JOIN snapshot"
            " ON snapshot.version_id = version.id AND own WHERE hash = ?",
            (digest,),
        )
        if row is None:
            continue
        for data in facts.evaluations(db, digest):
            if data["step"] in (None, row[1]):
                for name, value in data["metrics"].items():
                    if isinstance(value, (int, float)) or value in NON_FINITE:
                        found.setdefault(row[0], {})[name] = float_of(value)
    return found
