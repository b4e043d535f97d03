"""The results of `pull` and `clone`, as tables and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlv.terminal.output import Line, Output
from dlv.terminal.table import Bytes, Cell, Column, Id, Table, Text

if TYPE_CHECKING:
    from dlv.hub.pull import Pulled
    from dlv.hub.remotes import Remote


def emit_pulled(
    output: Output, command: str, remote: Remote, done: Pulled, *, dry_run: bool, **more: Any
) -> None:
    """Print the new versions and what was fetched."""
    labels = {version.id: version.label for version in done.versions}
    origins = {key: f"{ref.name}@{ref.number}" for key, ref in done.origins.items()}
    shown = list(origins) if dry_run else list(labels)
    rows: list[list[Cell]] = [
        [Text(labels.get(key, origins[key]), "bold"), Id(key), f"{remote.name}:{origins[key]}"]
        for key in shown
    ]
    document = {
        "remote": remote.name,
        "url": remote.url,
        **more,
        "versions": [
            {"version": labels.get(key), "id": key, "origin": origins[key]} for key in shown
        ],
        "known": done.known,
        "bytes": done.bytes,
        "bytes_received": remote.store.traffic.received,
        "requests": remote.store.traffic.requests,
        "dry_run": dry_run,
    }
    parts: list[Any] = []
    if rows:
        columns = [Column("version", fixed=True), Column("id"), Column("from", least=12)]
        parts = [
            Table(columns, rows),
            Line("would fetch" if dry_run else "fetched", Bytes(done.bytes)),
        ]
    if done.completed:
        document["completed"] = [version.id for version in done.completed]
    output.emit(command, document, *parts, ids=shown)
    if done.hidden:
        gone = ", ".join(version.label for version in done.hidden)
        output.message(f"removed here: {gone}; to restore: dlv undo --list")
    if done.completed:
        names = ", ".join(version.label for version in done.completed)
        output.message(f"fetched the missing weights of {names}")
    elif not rows:
        output.message("already up to date")
