"""`dlv stats`: disk usage of versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.terminal.output import Block, Fields
from dlv.terminal.table import Bytes, Cell, Column, Id, Number, Table, Text

if TYPE_CHECKING:
    import dlv.versions.reachable as reachable
    import dlv.versions.stats as stats

_COUNTED = {"version": "checkpoints", "tensor": "contents", "codec": "objects", "layout": "objects"}


@command(
    "stats", examples=["dlv stats", "dlv stats lenet@1 lenet@2 --by tensor", "dlv stats --by codec"]
)
@argument("refs", nargs=-1, metavar="[REF]..", complete="reference")
@option(
    "--by",
    type=click.Choice(["version", "tensor", "codec", "layout"]),
    default="version",
    help="Group by this [default: version].",
)
def run(call: Invocation, refs: tuple[str, ...], by: str) -> None:
    """Show disk usage.

    raw is the size of the tensors, stored what they take in packs without their delta bases,
    ratio raw / stored. freed is what gc would free if this version alone were removed, and needed
    all that is read to restore it. The totals count every byte once.
    """
    import dlv.versions.stats as stats

    found = stats.stats(call.repository, refs, by)
    for note in found.notes:
        call.output.warn(note)
    rows = [_cells(row, by) for row in found.rows]
    columns = [Column(by, key="name", fixed=True)]
    columns += [Column("id")] if by == "version" else []
    columns += [Column(_COUNTED[by], key="count"), Column("raw"), Column("stored"), Column("ratio")]
    columns += [Column("freed"), Column("needed")] if by == "version" else []
    table = Table(columns, rows)
    body: list[Block] = [table, ""] if found.rows else []
    body.append(Fields(_totals(found.totals)))
    document: dict[str, Any] = {
        "by": by,
        "rows": table.records(),
        "totals": _document(found.totals),
    }
    call.output.emit("stats", document, *body)


def _cells(row: stats.Row, by: str) -> list[Cell]:
    cells: list[Cell] = [Text(row.name, "bold")]
    cells += [Id(row.id or "")] if by == "version" else []
    cells += [row.count, Bytes(row.raw), Bytes(round(row.stored)), _ratio(row.ratio)]
    return cells + (_share(row.share) if by == "version" else [])


def _share(share: reachable.Share | None) -> list[Cell]:
    return [None, None] if share is None else [Bytes(share.freed), Bytes(share.needed)]


def _ratio(value: float | None) -> Cell:
    return None if value is None else Number(round(value, 3), 3, "x")


def _totals(totals: stats.Totals) -> dict[str, Cell]:
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


def _document(totals: stats.Totals) -> dict[str, Cell]:
    return {
        "files" if name == "files.git" else name: cell for name, cell in _totals(totals).items()
    }
