"""What `stats` prints: a row for each group, and the totals of the repository."""

from __future__ import annotations

from typing import Any

from dlv.terminal.output import Block, Fields
from dlv.terminal.table import Bytes, Cell, Column, Id, Number, Table, Text
from dlv.versions.reachable import Share
from dlv.versions.stats import Row, Statistics, Totals

_COUNTED = {"version": "checkpoints", "tensor": "contents", "codec": "objects", "layout": "objects"}


def blocks(found: Statistics, by: str) -> list[Block]:
    body: list[Block] = [_table(found, by), ""] if found.rows else []
    return [*body, Fields(_totals(found.totals))]


def document(found: Statistics, by: str) -> dict[str, Any]:
    return {"by": by, "rows": _table(found, by).records(), "totals": _document(found.totals)}


def _table(found: Statistics, by: str) -> Table:
    columns = [Column(by, key="name", fixed=True)]
    columns += [Column("id")] if by == "version" else []
    columns += [Column(_COUNTED[by], key="count"), Column("raw"), Column("stored"), Column("ratio")]
    columns += [Column("freed"), Column("needed")] if by == "version" else []
    return Table(columns, [_cells(row, by) for row in found.rows])


def _cells(row: Row, by: str) -> list[Cell]:
    cells: list[Cell] = [Text(row.name, "bold")]
    cells += [Id(row.id or "")] if by == "version" else []
    cells += [row.count, Bytes(row.raw), Bytes(round(row.stored)), _ratio(row.ratio)]
    return cells + (_share(row.share) if by == "version" else [])


def _share(share: Share | None) -> list[Cell]:
    return [None, None] if share is None else [Bytes(share.freed), Bytes(share.needed)]


def _ratio(value: float | None) -> Cell:
    return None if value is None else Number(round(value, 3), 3, "x")


def _totals(totals: Totals) -> dict[str, Cell]:
    freed, needed = _share(totals.share)
    return {
        "versions": totals.versions,
        "raw": Bytes(totals.raw),
        "stored": Bytes(totals.stored),
        "ratio": _ratio(totals.ratio),
        **({} if totals.share is None else {"freed": freed, "needed": needed}),
        "packs": Bytes(totals.packs),
        "files.git": Bytes(totals.files),
        "database": Bytes(totals.database),
        "other": Bytes(totals.other),
    }


def _document(totals: Totals) -> dict[str, Cell]:
    return {
        "files" if name == "files.git" else name: cell for name, cell in _totals(totals).items()
    }
