"""What differs between two versions, one change in each row: settings, metrics and layers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from dlv.metadata.select import relations as r
from dlv.metadata.select.scope import Range, Statement, encoded
from dlv.metadata.select.values import TYPED, evaluation_results

_KINDS = frozenset({"hyperparameter", "metric", "layer"})


def table(s: Statement, changes: r.Changes, kinds: frozenset[str]) -> str:
    """SQL of a table with a row for each change of these kinds between the versions at hand."""
    before, after = s.ranges[changes.left], s.ranges[changes.right]
    grounds = before.ground, after.ground

    def listed(*ends: int | None) -> str:
        # Each change is a text: SQLite's own JSON has no infinity, and no blobs.
        found = _changes(s, grounds, ends, kinds)
        return json.dumps([json.dumps(change, default=_blob) for change in found])

    key = "changes", grounds, kinds
    called = s.remembered(key, lambda: s.function("dql_changes", listed))
    return f"json_each({called}({_end(before)}, {_end(after)}))"


def asked_kinds(where: r.Condition | None, variable: str) -> frozenset[str]:
    """The kinds of changes that can fulfil a condition, as far as that is plain to see."""
    found = _KINDS
    for each in r.conjuncts(where):
        match each:
            case r.Compare("=", r.OfChange(about, "kind"), r.Constant(kind)) if about == variable:
                found &= {str(kind)}
    return found


def _blob(value: bytes) -> dict[str, str]:
    return {"blob": value.hex()}


def _end(range_: Range) -> str:
    """The row of the settings, of the metrics, and of the network."""
    measured = range_.row
    if range_.ground:  # a derived network was never measured
        measured = f"CASE WHEN {range_.alias}.batch IS NULL THEN {range_.alias}.id END"
    return f"{range_.row}, {measured}, {range_.net}"


def _changes(
    s: Statement, grounds: tuple[str, str], ends: tuple[int | None, ...], kinds: frozenset[str]
) -> Iterator[tuple[str, str, Any, Any]]:
    settings, measured, nets = ends[::3], ends[1::3], ends[2::3]
    if "hyperparameter" in kinds and settings[0] != settings[1]:
        yield from _differing("hyperparameter", *(_settings(s, row) for row in settings))
    if "metric" in kinds and measured[0] != measured[1]:
        yield from _differing("metric", *(_last_values(s, row) for row in measured))
    if "layer" in kinds and (grounds[0], nets[0]) != (grounds[1], nets[1]):
        yield from _differing("layer", *_other_layers(s, grounds, nets))


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


def _other_layers(
    s: Statement, grounds: tuple[str, str], nets: Sequence[int | None]
) -> Iterator[dict[str, Any]]:
    """Layers of each network that the other one has not, with operations and attributes by name."""
    sides = [_layer_ids(s, ground, net) for ground, net in zip(grounds, nets, strict=True)]
    same = sides[0] & sides[1]
    for side in sides:
        values: dict[str, Any] = {}
        for layer in sorted(side - same):
            values |= s.remembered(("layer", layer), partial(_layer, s, *layer))
        yield values


def _layer_ids(s: Statement, ground: str, net: int | None) -> set[tuple[str, int]]:
    sql = "SELECT layer_id FROM {}node WHERE net_id = ?"
    grounds = ("", "derived_") if ground == "any_" else (ground,)
    return {(each, row[0]) for each in grounds for row in s.db.rows(sql.format(each), (net,))}


def _layer(s: Statement, ground: str, layer: int) -> dict[str, Any]:
    """The operation under the layer's name, its attributes under `name.attribute`."""
    sql = f"SELECT name, op, variant, attrs FROM {ground}layer WHERE id = ?"
    ((name, op, variant, attrs),) = s.db.rows(sql, (layer,))
    own = json.loads(attrs) | ({"variant": variant} if variant else {})
    return {name: op} | {f"{name}.{key}": encoded(value) for key, value in own.items()}
