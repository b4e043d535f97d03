"""What `dlv remote` shows of remotes, of their aliases, and of what gc deletes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dlv.terminal.output import Output
from dlv.terminal.table import Cell, Column, Table, Text

if TYPE_CHECKING:
    from dlv.hub.deletion import Collected
    from dlv.hub.service import Alias


def emit_remotes(
    output: Output, known: Mapping[str, str], probe: dict[str, Any] | None = None
) -> None:
    """Print remotes and their addresses."""
    rows: list[list[Cell]] = [[Text(name, "bold"), url] for name, url in sorted(known.items())]
    table = Table([Column("remote", fixed=True), Column("url", least=20)], rows)
    output.emit("remote", _document(known, probe), table, ids=sorted(known))


def _document(known: Mapping[str, str], probe: dict[str, Any] | None = None) -> dict[str, Any]:
    remotes = [{"name": name, "url": url} for name, url in sorted(known.items())]
    return {"remotes": remotes, "probe": probe}


def emit_aliases(output: Output, name: str, url: str, aliases: Sequence[Alias]) -> None:
    """Print aliases of versions on a hub."""
    labels = [f"{name}:{each.model}@{each.alias}" for each in aliases]
    rows: list[list[Cell]] = [
        [Text(label, "bold"), f"{each.model}@{each.number}"]
        for label, each in zip(labels, aliases, strict=True)
    ]
    records = [{"model": a.model, "alias": a.alias, "number": a.number} for a in aliases]
    table = Table([Column("alias", fixed=True), Column("version")], rows)
    output.emit("remote", {**_document({name: url}), "aliases": records}, table, ids=labels)
    if not aliases:
        output.message("no aliases")


def emit_collected(output: Output, name: str, url: str, done: Collected) -> None:
    """Print what gc has deleted on a remote, and what it will delete later."""
    table = Table(
        [Column("object", least=20), Column("state", fixed=True)],
        [[key, "deleted"] for key in done.deleted] + [[key, "listed"] for key in done.listed],
    )
    document = {"deleted": done.deleted, "listed": done.listed, "until": done.until}
    ids = [*done.deleted, *done.listed]
    output.emit("remote", {**_document({name: url}), "gc": document}, table, ids=ids)
    if done.leases:
        output.warn("nothing was deleted, because a publish is running; try again later")
    if done.until is not None:
        output.message(
            f"{len(done.listed)} objects ({done.bytes:,} bytes) are not needed;"
            f" dlv remote gc deletes them from {done.until[:19]} on"
        )
    elif not done.deleted:
        output.message("nothing to delete")
