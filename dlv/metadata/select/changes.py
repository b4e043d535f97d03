"""What differs between two versions, one change in each row: settings, metrics and layers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from dlv.metadata.select import relations as r
from dlv.metadata.select.scope import Range, Statement, encoded
from dlv.metadata.select.values import TYPED, evaluation_results


def table(s: Statement, changes: r.Changes) -> str:
    """SQL of a table with a row for each change between the two versions at hand."""
    before, after = s.ranges[changes.left], s.ranges[changes.right]
    grounds = before.ground, after.ground

    def listed(*ends: int | None) -> str:
        # Each change is a text: SQLite's own JSON has no infinity, and no blobs.
        return json.dumps([json.dumps(each, default=_blob) for each in _changes(s, grounds, ends)])

    called = s.remembered(("changes", grounds), lambda: s.function("dql_changes", listed))
    return f"json_each({called}({_end(before)}, {_end(after)}))"


def _blob(value: bytes) -> dict[str, str]:
    return {"blob": value.hex()}


def _end(range_: Range) -> str:
    """The row of the settings, of the metrics, and of the network."""
    measured = range_.row
    if range_.ground:  # a derived network was never measured
        measured = f"CASE WHEN {range_.alias}.batch IS NULL THEN {range_.alias}.id END"
    return f"{range_.row}, {measured}, {range_.net}"


def _changes(
    s: Statement, grounds: tuple[str, str], ends: tuple[int | None, ...]
) -> Iterator[tuple[str, str, Any, Any]]:
    settings, measured, nets = ends[::3], ends[1::3], ends[2::3]
    if settings[0] != settings[1]:
        yield from _differing("hyperparameter", *(_settings(s, row) for row in settings))
    if measured[0] != measured[1]:
        yield from _differing("metric", *(_last_values(s, row) for row in measured))
    if (grounds[0], nets[0]) != (grounds[1], nets[1]):
        layers = (_layers(s, ground, net) for ground, net in zip(grounds, nets, strict=True))
        yield from _differing("layer", *layers)


def _differing(
    kind: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[tuple[str, str, Any, Any]]:
    """Every name whose values are not equal; a value that is not there is null."""
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old != new:
            yield kind, name, old, new


def _settings(s: Statement, row: int | None) -> dict[str, Any]:
    return dict(s.db.rows(f"SELECT key, {TYPED} FROM hyperparameter WHERE version_id = ?", (row,)))


def _last_values(s: Statement, row: int | None) -> dict[str, Any]:
    sql = "SELECT run, tag, last FROM metric WHERE version_id = ?"
    logged = {f"{run}/{tag}" if run else tag: last for run, tag, last in s.db.rows(sql, (row,))}
    results = evaluation_results(s).get(row or 0, {})
    return logged | {name: encoded(value) for name, value in results.items()}


def _layers(s: Statement, ground: str, net: int | None) -> dict[str, Any]:
    """The operation of each layer under its name, its attributes under `name.attribute`."""
    found: dict[str, Any] = {}
    grounds = ("", "derived_") if ground == "any_" else (ground,)
    for each in grounds:
        for name, op, variant, attrs in s.db.rows(
            f"SELECT name, op, variant, attrs FROM {each}node"
            f" JOIN {each}layer ON {each}layer.id = layer_id WHERE net_id = ? ORDER BY pos",
            (net,),
        ):
            own = json.loads(attrs) | ({"variant": variant} if variant else {})
            found[name] = op
            found |= {f"{name}.{key}": encoded(value) for key, value in own.items()}
    return found
