"""How `list`, `log`, `show` and `commit` lay versions out: as cells and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dlv.metadata.metrics import Summary
from dlv.terminal.output import Block, Fields, Heading, Line
from dlv.terminal.table import (
    Bytes,
    Cell,
    Column,
    Count,
    Id,
    Items,
    Number,
    Table,
    Text,
    Time,
    full,
    human_bytes,
)
from dlv.views.values import number_cell, setting, shape

if TYPE_CHECKING:
    from dlv.versions.commit import Committed
    from dlv.versions.conditions import Key
    from dlv.versions.history import Entry, Parent
    from dlv.versions.show import Shown, ShownMatrix


# Entries of `list` and `log`


def entry_cell(entry: Entry, name: str, key: Key | None) -> Cell:
    version = entry.version
    if key is not None:
        value = entry.value(key)
        if isinstance(value, (list, dict)):
            return str(value)
        return Number(value) if isinstance(value, float) else value
    special: dict[str, Cell] = {
        "version": Text(version.label, "bold" if entry.head else ""),
        "id": Id(version.id),
        "created": Time(version.created),
        "parents": Items([parent.label or Id(parent.id) for parent in entry.parents]),
        "metrics": Items([f"{s.name}={full(s.last)}" for s in entry.metrics.values()]),
        "tags": Items(version.tags),
        "network": None if version.network is None else Id(version.network),
        "message": version.message.partition("\n")[0],
    }
    return special[name] if name in special else getattr(version, name)


def entry_record(entry: Entry) -> dict[str, Any]:
    version = entry.version
    return {
        "version": version.label,
        "id": version.id,
        "name": version.name,
        "number": version.number,
        "created": version.created,
        "author": version.author,
        "message": version.message,
        "state": version.state,
        "head": entry.head,
        "tags": version.tags,
        "framework": version.framework,
        "quantized": version.scheme,
        "network": version.network,
        "parents": _parent_records(entry.parents),
    }


def log_document(entries: Sequence[Entry], published: set[str] | None) -> dict[str, Any]:
    """The JSON of `log`; `published`: the versions that the default remote has, if there is one."""
    return {
        "versions": [
            {
                **entry_record(entry),
                "published": None if published is None else entry.version.id in published,
            }
            for entry in entries
        ]
    }


def _parent_records(parents: Sequence[Parent]) -> list[dict[str, Any]]:
    return [{"version": parent.label, "id": parent.id, "kind": parent.kind} for parent in parents]


def entry_figures(entry: Entry) -> dict[str, Any]:
    """What `list` adds to the record: metrics and hyperparameters."""
    return {
        "metrics": {
            name: {"last": s.last, "min": s.min, "max": s.max, "points": s.n}
            for name, s in entry.metrics.items()
        },
        "hyperparameters": entry.parameters,
    }


# `show`

_FIGURES = ("last", "last_step", "min", "min_step", "max", "max_step")


def shown_blocks(shown: Shown) -> Iterator[Block]:
    """Header, message, metrics, hyperparameters, files."""
    yield Fields({name: cell for name, cell in _header(shown).items() if cell is not None})
    yield ""
    for line in shown.version.message.rstrip("\n").split("\n"):
        yield f"    {line}".rstrip()
    if shown.metrics:
        yield from ("", Heading("Metrics"), _metrics(shown.metrics))
    values = shown.manifest.hyperparameters
    if values:
        yield from ("", Heading("Hyperparameters"))
        yield Fields({key: setting(value) for key, value in sorted(values.items())})
    if shown.manifest.files:
        yield from ("", Heading("Files"))
        yield Table(
            [Column("path", fixed=True), "role", "size"],
            [[entry.path, entry.role, Bytes(entry.bytes)] for entry in shown.manifest.files],
        )


def _header(shown: Shown) -> dict[str, Cell]:
    found, network = shown.version, shown.network
    kept = [row for row in shown.snapshots if not row.removed]
    steps: list[Cell] = [row.step for row in kept if row.step is not None]
    return {
        "version": Text(found.label, "bold"),
        "id": Id(found.id),
        "head": True if shown.head else None,
        "state": None if found.state == "live" else Text(found.state, "red"),
        "checkpoint": None if shown.snapshot is None else f"step {shown.snapshot.step}",
        "tags": Items(found.tags) if found.tags else None,
        "parents": Items([_parent(p) for p in shown.parents]) if shown.parents else None,
        "author": found.author,
        "created": Time(found.created),
        "framework": found.framework,
        "quantized": found.scheme,
        "network": None if network is None else f"{network['nodes']} layers",
        "parameters": Count(shown.parameters) if shown.raw else None,
        "checkpoints": len(kept) or None,
        "steps": Items(steps) if steps else None,
        "size": Bytes(shown.raw) if shown.raw else None,
        "stored": Bytes(shown.stored) if shown.raw else None,
    }


def _parent(parent: Parent) -> Cell:
    name = parent.label or Id(parent.id)
    return name if parent.kind == "commit" else f"{parent.label or parent.id} ({parent.kind})"


def _metrics(summaries: list[Summary]) -> Table:
    return Table(
        [Column("metric", fixed=True), "last", "min", "at step", "max", "at step"],
        [
            [
                m.name,
                number_cell(m.last),
                number_cell(m.min),
                m.min_step,
                number_cell(m.max),
                m.max_step,
            ]
            for m in summaries
        ],
    )


def stored_matrix(matrix: ShownMatrix) -> dict[str, Cell]:
    """How a matrix is stored."""
    held, links = matrix.matrix, matrix.chain
    return {
        "tensor": Text(held.name, "bold"),
        "hash": Id(held.hash),
        "dtype": held.dtype,
        "shape": shape(held.shape),
        "role": held.role,
        "layout": str(links[0].layout.get("id")),
        "base": Id(links[1].matrix) if len(links) > 1 else None,
        "depth": len(links) - 1,
        "size": None if held.nbytes is None else Bytes(held.nbytes),
        "stored": Bytes(matrix.stored),
    }


def shown_document(shown: Shown) -> dict[str, Any]:
    """The JSON of `version`."""
    found, manifest = shown.version, shown.manifest
    return {
        "version": {
            "version": found.label,
            "id": found.id,
            "name": found.name,
            "number": found.number,
            "state": found.state,
            "head": shown.head,
            "created": found.created,
            "author": found.author,
            "message": found.message,
            "framework": found.framework,
            "quantized": found.scheme,
            "tags": found.tags,
            "parents": _parent_records(shown.parents),
            "network": shown.network,
            "parameters": shown.parameters,
            "checkpoint": None if shown.snapshot is None else shown.snapshot.step,
            "checkpoints": [
                {"step": row.step, "default": row.own, "removed": row.removed}
                for row in shown.snapshots
            ],
            "raw": shown.raw,
            "stored": shown.stored,
            "metrics": [
                {"name": m.name, "points": m.n}
                | {figure: getattr(m, figure) for figure in _FIGURES}
                for m in shown.metrics
            ],
            "hyperparameters": manifest.hyperparameters,
            "files": [
                {"path": e.path, "role": e.role, "bytes": e.bytes, "hash": e.blake3}
                for e in manifest.files
            ],
            "environment": manifest.environment,
        }
    }


# `commit`


def committed(
    committed: Committed, saved: int | None, bounds: str | None = None, *, terminal: bool
) -> tuple[dict[str, Any], Line]:
    """JSON and the one line; `saved` are bytes of packs that storing it anew has freed,
    `bounds` names the record made for it.
    """
    document = {
        "id": committed.id,
        "name": committed.name,
        "number": committed.number,
        "parents": list(committed.parents),
        "raw": committed.raw,
        "stored": committed.stored,
        "new": committed.new,
        "reused": committed.reused,
        "files": committed.files._asdict(),
        "checkpoints": committed.snapshots,
        "seconds": committed.seconds,
        "quantized": committed.scheme,
        "rounded": committed.rounded,
        "saved": saved,
        "bounds": bounds,
    }
    label = Text(f"{committed.name}@{committed.number}", "bold")
    if not terminal:
        line = Line(
            label,
            Id(committed.id),
            committed.matrices,
            committed.new,
            Bytes(committed.raw),
            Bytes(committed.stored),
        )
    else:
        noun = "tensor" if committed.matrices == 1 else "tensors"
        held = (
            f"{committed.matrices} {noun}, {committed.new} new"
            if committed.matrices
            else "no weights"
        )
        sizes = f"{human_bytes(committed.raw)} stored as {human_bytes(committed.stored)}"
        line = Line(label, Id(committed.id), held, sizes if committed.raw else "weights as before")
        if not committed.matrices:
            line = Line(label, Id(committed.id), held)
        if saved:
            return document, Line(*line.cells, f"{human_bytes(saved)} saved")
    return document, line
