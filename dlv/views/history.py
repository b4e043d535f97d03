"""How `list` and `log` lay out a version: as cells and as JSON."""

from __future__ import annotations

from typing import Any

from dlv.metadata.metrics import Summary
from dlv.terminal.table import Cell, Id, Items, Number, Text, Time, full
from dlv.versions.conditions import Key
from dlv.versions.history import Entry


def filled(cell: Cell) -> bool:
    return cell is not None and not (isinstance(cell, Items) and not cell.values)


def cell(entry: Entry, name: str, key: Key | None) -> Cell:
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
        "metrics": Items([_last(s) for s in entry.metrics.values()]),
        "tags": Items(version.tags),
        "network": None if version.network is None else Id(version.network),
        "message": version.message.partition("\n")[0],
    }
    return special[name] if name in special else getattr(version, name)


def _last(summary: Summary) -> str:
    return f"{summary.name}={full(summary.last)}"


def record(entry: Entry) -> dict[str, Any]:
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
        "scheme": version.scheme,
        "network": version.network,
        "parents": [
            {"version": parent.label, "id": parent.id, "kind": parent.kind}
            for parent in entry.parents
        ],
    }


def figures(entry: Entry) -> dict[str, Any]:
    """What `list` adds to the record: metrics and hyperparameters."""
    return {
        "metrics": {
            name: {"last": s.last, "min": s.min, "max": s.max, "n": s.n}
            for name, s in entry.metrics.items()
        },
        "hyperparameters": entry.parameters,
    }
