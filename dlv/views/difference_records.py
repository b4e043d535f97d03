"""`diff` for programs: JSON, and CSV with one row per fact."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dlv.network.graph import plain
from dlv.network.likeness.comparison import Change, Layer, Pair
from dlv.terminal.output import Verbatim
from dlv.terminal.table import Cell, Column, Number, Table
from dlv.versions.diff import ABSENT, Diff, Row, Side
from dlv.versions.working_side import LABEL as WORKING
from dlv.views.differences import delta, kind_of, structure_rows
from dlv.views.values import count_cell, interval_cell, setting, shape
from dlv.weights.snapshots import Matrix

if TYPE_CHECKING:
    from dlv.versions.matrix_pairs import MatrixPair
    from dlv.weights.reading.interval_statistics import DifferenceBounds

_FIGURES = ("elements", "changed", "l2", "relative_l2", "max_abs", "nonfinite")


def _side(side: Side) -> dict[str, Any]:
    version = None if side.label == WORKING else side.version
    return {
        "id": version and version.id,
        "name": side.version.name,
        "number": version and version.number,
        "step": side.step,
        "created": version and version.created,
        "message": WORKING if version is None else version.message,
        "network": side.version.network,
    }


def document(diff: Diff) -> dict[str, Any]:
    """Entries of aligned things name the version they are about by its place among `versions`.

    `follows`: only the shape is another one, since other layers changed.
    """
    return {
        "versions": [_side(side) for side in diff.sides],
        "same": diff.same,
        "lineage": [
            {
                "version": place,
                "relation": other.relation.kind,
                "common": other.relation.common and other.relation.common.id,
                "steps": other.relation.steps,
            }
            for place, other in enumerate(diff.others, 1)
        ],
        "network": _structure(diff) if "structure" in diff.sections else None,
        "tensors": [
            {"version": place, **_matrix(pair)}
            for place, other in enumerate(diff.others, 1)
            for pair in other.matrices
            if pair.status != "unchanged"
        ],
        "params": _rows(diff.params, "key", lambda value: value),
        "metrics": _rows(diff.metrics, "name", _metric),
        "files": [
            {**record, "lines": [None if c is None else c._asdict() for c in row.lines]}
            for row, record in zip(
                [row for row in diff.files if row.differs],
                _rows(diff.files, "path", _file),
                strict=True,
            )
        ],
    }


def _structure(diff: Diff) -> dict[str, Any]:
    compared = [
        (place, other.structure)
        for place, other in enumerate(diff.others, 1)
        if other.structure is not None
    ]
    return {
        "compared": [place for place, _ in compared],
        "ends": [
            {"version": place, **_change(change)} for place, c in compared for change in c.ends
        ],
        "added": [{"version": place, **_layer(x)} for place, c in compared for x in c.added],
        "removed": [{"version": place, **_layer(x)} for place, c in compared for x in c.removed],
        "changed": [{"version": place, **_pair(x)} for place, c in compared for x in c.changed],
        "equal": [
            {
                "version": place,
                "equal": c.equal,
                "up_to": list(c.up_to),
                "only_old": list(c.only_old),
                "only_new": list(c.only_new),
            }
            for place, c in compared
        ],
        "renamed": [
            {"version": place, "old": pair.old.name, "new": pair.new.name}
            for place, c in compared
            for pair in c.pairs
            if pair.old.name != pair.new.name
        ],
    }


def _layer(layer: Layer) -> dict[str, Any]:
    node = layer.node
    return {
        "name": layer.name,
        "alias": layer.alias,
        "op": node.op,
        "variant": node.variant,
        "attrs": {name: plain(value) for name, value in node.attrs.items()},
        "out_shape": None if layer.shape is None else list(layer.shape),
        "after": list(layer.after),
    }


def _pair(pair: Pair) -> dict[str, Any]:
    return {
        "name": pair.old.name,
        "alias": pair.old.alias,
        "new_name": pair.new.name,
        "op": pair.new.node.op,
        "follows": pair.follows,
        "changes": [_change(change) for change in pair.changes],
    }


def _change(change: Change) -> dict[str, Any]:
    return {
        "what": change.what,
        "old": plain(change.old),
        "new": plain(change.new),
        "form": change.form,
    }


def _matrix(pair: MatrixPair) -> dict[str, Any]:
    apart = pair.difference
    return {
        "name": pair.name,
        "status": pair.status,
        "turned": pair.turned,
        "old": _held(pair.old),
        "new": _held(pair.new),
        "elements": None if apart is None else apart.elements,
        "changed": None if apart is None else apart.changed,
        "nonfinite": None if apart is None else apart.nonfinite,
        "l2": None if apart is None else apart.l2,
        "relative_l2": None if apart is None else apart.relative_l2,
        "max_abs": None if apart is None else apart.max_abs,
        **({} if pair.reading is None else {"approximation": _approximation(pair)}),
    }


def _approximation(pair: MatrixPair) -> dict[str, Any]:
    """Intervals as [low, high]; null where the figures beside are exact."""
    assert pair.reading is not None
    held, known = pair.bounds, None
    if held is not None:
        known = {
            "elements": held.elements,
            "changed": [held.changed.low, held.changed.high],
            "nonfinite": held.nonfinite,
            "l2": [held.l2.low, held.l2.high],
            "relative_l2": held.relative_l2 and [held.relative_l2.low, held.relative_l2.high],
            "max_abs": [held.max_abs.low, held.max_abs.high],
        }
    return {**pair.reading.as_json(), "bounds": known}


def _intervals(held: DifferenceBounds) -> dict[str, Cell]:
    return {
        "elements": held.elements,
        "changed": count_cell(held.changed),
        "l2": interval_cell(held.l2),
        "relative_l2": interval_cell(held.relative_l2),
        "max_abs": interval_cell(held.max_abs),
        "nonfinite": held.nonfinite,
    }


def _held(matrix: Matrix | None) -> dict[str, Any] | None:
    return None if matrix is None else asdict(matrix)


def _rows(rows: list[Row], name: str, value: Any) -> list[dict[str, Any]]:
    return [
        {
            name: row.name,
            "present": [item is not ABSENT for item in row.values],
            "values": [None if item is ABSENT else value(item) for item in row.values],
        }
        for row in rows
        if row.differs
    ]


def _metric(value: Any) -> dict[str, Any]:
    return {name: item for name, item in asdict(value).items() if name not in ("hash", "tag")}


def _file(value: Any) -> dict[str, Any]:
    return {"bytes": value.bytes, "mode": value.mode, "role": value.role, "hash": value.blake3}


def csv(diff: Diff, everything: bool) -> Verbatim:
    """section, name, what, and a column for each version; figures stand under the later one."""
    rows = [
        *_structure_lines(diff, everything),
        *_matrix_lines(diff, everything),
        *_value_lines(diff, everything),
    ]
    labels = [Column(side.label) for side in diff.sides]
    return Verbatim(Table(["section", "name", "what", *labels], rows).csv())


def _structure_lines(diff: Diff, everything: bool) -> Iterator[list[Cell]]:
    for row in structure_rows(diff, everything)[0]:
        yield ["network", row.layer, row.what, *row.values]


def _matrix_lines(diff: Diff, everything: bool) -> Iterator[list[Cell]]:
    for place, other in enumerate(diff.others, 1):
        for pair in other.matrices:
            if pair.status == "unchanged" and not everything:
                continue

            facts: dict[str, tuple[Cell, Cell]] = {
                "status": (None, pair.status),
                "shape": (_shape(pair.old), _shape(pair.new)),
                "dtype": (_dtype(pair.old), _dtype(pair.new)),
            }
            if pair.difference is not None:
                figures = asdict(pair.difference)
                facts |= {what: (None, figures[what]) for what in _FIGURES}
            if pair.bounds is not None:
                facts |= {what: (None, cell) for what, cell in _intervals(pair.bounds).items()}
            for what, (old, new) in facts.items():
                cells: list[Cell] = [None] * len(diff.sides)
                cells[0], cells[place] = old, new
                yield ["tensors", pair.name, what, *cells]


def _shape(matrix: Matrix | None) -> str | None:
    return None if matrix is None else shape(matrix.shape)


def _dtype(matrix: Matrix | None) -> str | None:
    return None if matrix is None else matrix.dtype


def _value_lines(diff: Diff, everything: bool) -> Iterator[list[Cell]]:
    for section, rows in (("params", diff.params), ("metrics", diff.metrics)):
        for row in rows:
            if row.differs or everything:
                yield [section, row.name, "value", *(_plain(value) for value in row.values)]
                change = (
                    delta(row.values) if section == "metrics" and len(row.values) == 2 else None
                )
                if change is not None:
                    yield [section, row.name, "change", None, Number(change)]
    for row in diff.files:
        if row.differs or everything:
            sizes = [None if value is ABSENT else value.bytes for value in row.values]
            yield ["files", row.name, "bytes", *sizes]
            if len(row.values) == 2:
                yield ["files", row.name, "status", None, kind_of(row)]


def _plain(value: Any) -> Cell:
    if value is ABSENT:
        return None
    return value.last if hasattr(value, "last") else setting(value)
