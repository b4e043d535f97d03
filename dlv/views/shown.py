"""How `show` lays out a version and a matrix: for people and pipes, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dlv.metadata.metrics import Summary
from dlv.terminal.output import Block, Fields, Heading
from dlv.terminal.table import Bytes, Cell, Column, Count, Id, Items, Number, Table, Text, Time
from dlv.versions.history import Parent
from dlv.versions.show import Shown, ShownMatrix
from dlv.views.values import setting, shape


def version(shown: Shown) -> Iterator[Block]:
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
        "snapshot": None if shown.snapshot is None else f"step {shown.snapshot.step}",
        "tags": Items(found.tags) if found.tags else None,
        "parents": Items([_parent(p) for p in shown.parents]) if shown.parents else None,
        "author": found.author,
        "created": Time(found.created),
        "framework": found.framework,
        "lossy": found.scheme,
        "network": None if network is None else f"{network['nodes']} nodes",
        "parameters": Count(shown.parameters) if shown.raw else None,
        "snapshots": len(kept) or None,
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
            [m.name, _number(m.last), _number(m.min), m.min_step, _number(m.max), m.max_step]
            for m in summaries
        ],
    )


def _number(value: float | None) -> Cell:
    return None if value is None else Number(value)


def matrix(found: ShownMatrix) -> dict[str, Cell]:
    """How a matrix is stored."""
    held, links = found.matrix, found.chain
    return {
        "matrix": Text(held.name, "bold"),
        "hash": Id(held.hash),
        "dtype": held.dtype,
        "shape": shape(held.shape),
        "role": held.role,
        "layout": str(links[0].layout.get("id")),
        "base": Id(links[1].matrix) if len(links) > 1 else None,
        "depth": len(links) - 1,
        "size": None if held.nbytes is None else Bytes(held.nbytes),
        "stored": Bytes(found.stored),
    }


def document(shown: Shown) -> dict[str, Any]:
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
            "scheme": found.scheme,
            "tags": found.tags,
            "parents": [
                {"version": parent.label, "id": parent.id, "kind": parent.kind}
                for parent in shown.parents
            ],
            "network": shown.network,
            "parameters": shown.parameters,
            "snapshot": None if shown.snapshot is None else shown.snapshot.step,
            "snapshots": [
                {"step": row.step, "own": row.own, "removed": row.removed}
                for row in shown.snapshots
            ],
            "raw": shown.raw,
            "stored": shown.stored,
            "metrics": [
                {
                    "name": m.name,
                    "n": m.n,
                    "last": m.last,
                    "last_step": m.last_step,
                    "min": m.min,
                    "min_step": m.min_step,
                    "max": m.max,
                    "max_step": m.max_step,
                }
                for m in shown.metrics
            ],
            "hyperparameters": manifest.hyperparameters,
            "files": [
                {"path": e.path, "role": e.role, "bytes": e.bytes, "blake3": e.blake3}
                for e in manifest.files
            ],
            "environment": manifest.environment,
        }
    }
