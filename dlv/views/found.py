"""What `search` found, as a table and as JSON."""

from __future__ import annotations

from typing import Any

import dlv.metadata.versions as versions
from dlv.hub.searching import Found
from dlv.metadata.cards import Hit
from dlv.terminal.table import Bytes, Cell, Column, Items, Number, Table, Text, Time

METRICS = 2  # columns of the table


def table(found: Found, remote: str) -> Table:
    """A row per version, with the metrics that the first versions have."""
    metrics = list(dict.fromkeys(key for hit in found.hits for key in hit.metrics))[:METRICS]
    titles = ["version", "created", "task", *metrics, "size", "tags", "message"]
    columns = [Column(title, fixed=title in ("version", "created")) for title in titles]
    return Table(columns, [_row(hit, remote, metrics) for hit in found.hits])


def _row(hit: Hit, remote: str, metrics: list[str]) -> list[Cell]:
    values = [hit.metrics.get(name) for name in metrics]
    return [
        Text(f"{remote}:{hit.name}@{hit.number}", "bold"),
        Time(versions.time_of(hit.created)),
        hit.task,
        *(None if value is None else Number(value) for value in values),
        Bytes(hit.bytes),
        Items([Text(tag) for tag in hit.tags]),
        hit.message.split("\n")[0],
    ]


def document(found: Found, remote: str, url: str) -> dict[str, Any]:
    return {
        "remote": remote,
        "url": url,
        "count": found.count,
        "results": [_record(hit) for hit in found.hits],
    }


def _record(hit: Hit) -> dict[str, Any]:
    figures = {k: None if v is None else Number(v) for k, v in hit.metrics.items()}
    return {
        "version": f"{hit.name}@{hit.number}",
        "id": hit.id,
        "created": versions.time_of(hit.created),
        "author": hit.author,
        "message": hit.message,
        "task": hit.task,
        "license": hit.license,
        "tags": hit.tags,
        "bytes": hit.bytes,
        "parameters": hit.parameters,
        "metrics": figures,
    }
