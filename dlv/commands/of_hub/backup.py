"""`dlv hub backup` and `dlv hub restore`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from dlv.commands.shared.hub_place import EXITS, completed, hub_options, opened_hub, store_option
from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.terminal.output import Line
from dlv.terminal.table import Bytes, Column, Table, Text, Time

if TYPE_CHECKING:
    from dlv.hub.server.upkeep.backup import Backup

_ADD = "dlv hub user add ada --data ./hub"
_BACKUP = f"{_ADD} && dlv hub backup ./backup --data ./hub"


@command(
    "backup",
    examples=[_BACKUP, "dlv hub backup ./backup --keep 14 --data ./hub",
              "dlv hub backup ./backup --list"],
    exits={**EXITS, 5: "another backup to this folder is running",
           6: "the hub lacks some objects; the rest was saved"},
)  # fmt: skip
@argument("folder", metavar="DIR")
@option("--database-only", is_flag=True, help="Copy no objects, such as those in a bucket.")
@option("--keep", type=click.IntRange(1), metavar="N", help="Delete all but the newest N backups.")
@option("--list", "listing", is_flag=True, help="List the backups in DIR.")
@store_option
@hub_options
def run(
    call: Invocation,
    folder: str,
    database_only: bool,
    keep: int | None,
    listing: bool,
    store: str | None,
    data: str | None,
    database: str | None,
) -> int | None:
    """Add a backup of a hub to a folder.

    The hub may be in use. Everything that it acknowledged before the backup began is in it. DIR
    can hold many backups; an object that is already there is not copied again.
    """
    place = call.directory / folder
    if listing:
        import dlv.hub.server.upkeep.backup as copies

        found = copies.backups(place)
        _emit(call, found, 0, 0, 0)
        if not found:
            call.output.message(f"no backups in {folder}")
        return None
    with opened_hub(call, data, database, store, create=False) as hub:
        import dlv.hub.server.upkeep.backup as backups
        import dlv.hub.server.upkeep.checking as checking

        total = None if database_only else checking.total_bytes(hub)
        with call.progress("Copying objects", total) as bar:
            made = backups.back_up(
                hub, place, database_only=database_only, keep=keep, progress=bar.advance
            )
    _emit(call, [made.backup], made.copied, made.copied_bytes, made.deleted)
    if made.damaged:
        call.output.warn(f"the hub lacks {len(made.damaged)} objects; the rest was saved")
        call.output.hint(completed("dlv hub check --full", data, database, store))
        return 6
    return None


def _emit(
    call: Invocation, backups: Sequence[Backup], copied: int, copied_bytes: int, deleted: int
) -> None:
    table = Table(
        [Column("backup", fixed=True), "time", "objects", "bytes"],
        [
            [Text(each.name, "bold"), Time(each.time),
             each.objects if each.has_objects else "database only", Bytes(each.bytes)]
            for each in backups
        ],
    )  # fmt: skip
    keys = ("name", "time", "objects", "bytes", "has_objects", "audit", "damaged")
    document: dict[str, Any] = {
        "backups": [{key: getattr(each, key) for key in keys} for each in backups],
        "copied": copied,
        "copied_bytes": copied_bytes,
        "deleted": deleted,
    }
    call.output.emit("hub-backup", document, table, ids=[each.name for each in backups])
    if copied:
        call.output.message(f"copied {copied} new objects, {copied_bytes:,} bytes")


@command(
    "restore",
    examples=[f"{_BACKUP} && dlv hub restore ./backup --data ./restored",
              "dlv hub restore ./backup --store ./objects --data ./copy"],
    exits={**EXITS, 4: "no such backup", 5: "the hub is not empty",
           6: "the backup is corrupt, or lacks objects"},
)  # fmt: skip
@argument("folder", metavar="DIR")
@option("--at", metavar="BACKUP", help="Restore this backup [default: the newest].")
@option("--database-only", is_flag=True, help="Copy no objects; they are in the store.")
@store_option
@hub_options
def restore(
    call: Invocation,
    folder: str,
    at: str | None,
    database_only: bool,
    store: str | None,
    data: str | None,
    database: str | None,
) -> int | None:
    """Fill an empty hub from a backup.

    A backup of SQLite can be restored into PostgreSQL, and the other way round. After an
    interruption, the same command continues.
    """
    with opened_hub(call, data, database, store, create=True) as hub:
        import dlv.hub.server.upkeep.backup as backups

        with call.progress("Copying objects") as bar:
            done = backups.restore(
                hub,
                call.directory / folder,
                at=at,
                database_only=database_only,
                progress=bar.advance,
            )
    counts = dict(sorted(done.rows.items()))
    document = {
        "backup": done.backup.name,
        "time": done.backup.time,
        "rows": counts,
        "copied": done.copied,
        "copied_bytes": done.copied_bytes,
        "damaged": done.damaged,
    }
    words = f"{counts.get('repository', 0)} repositories, {counts.get('ref', 0)} refs"
    line = Line("restored", Text(done.backup.name, "bold"), words, f"{done.copied} objects")
    call.output.emit("hub-restore", document, line, ids=[done.backup.name])
    if done.damaged:
        call.output.warn(f"the backup lacks {len(done.damaged)} objects")
        call.output.hint(completed("dlv hub check", data, database, store))
        return 6
    return None
