"""`dlv rm`: hide versions."""

from __future__ import annotations

from typing import Any

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.terminal.output import Line
from dlv.terminal.table import Bytes, Cell, Column, Id, Items, Table, Text


@command(
    "rm",
    examples=["dlv rm lenet@1", "dlv rm lenet@2 --dry-run"],
    exits={
        4: "no such version or snapshot",
        5: "a version is tagged, or a tagged one is stored as a delta to it; removed already",
    },
)
@argument("refs", nargs=-1, required=True, metavar="REF..", complete="reference")
@option("--snapshots", "steps", metavar="STEPS", help="Only snapshots: 100,300-500.")
@option("--all-versions", is_flag=True, help="Remove all versions of the models named.")
@option("--dry-run", is_flag=True, help="Only say what would be removed.")
@option("-f", "--force", is_flag=True, help="Also what is tagged; the tags are deleted.")
def run(call: Invocation, refs: tuple[str, ...], dry_run: bool, **given: Any) -> None:
    """Remove versions, or some of their snapshots.

    They are hidden. Their bytes stay, so dlv undo brings them back.
    """
    import dlv.versions.remove as remove

    steps = given["steps"]
    done = remove.remove(call.repository, refs, call.author, dry_run=dry_run, **given)
    rows: list[dict[str, Any]] = []
    for removal in done.removals:
        rows.append(
            {
                "version": removal.version.label,
                "id": removal.version.id,
                "steps": None if removal.snapshots is None else [r.step for r in removal.snapshots],
            }
        )
    columns = [Column("version", fixed=True), Column("id")]
    columns += [Column("steps")] if steps else []
    cells: list[list[Cell]] = [[Text(row["version"], "bold"), Id(row["id"])] for row in rows]
    if steps:
        cells = [[*line, Items(row["steps"])] for line, row in zip(cells, rows, strict=True)]
    table = Table(columns, cells)
    document = {
        "removed": rows,
        "tags": done.tags,
        "reclaimable": done.reclaimable,
        "dry_run": dry_run,
    }
    only = Line("held by no other version", Bytes(done.reclaimable))
    call.output.emit("rm", document, table, only)
    verb = "would be deleted" if dry_run else "deleted"
    for tag in done.tags:
        call.output.message(f"tag {tag} {verb}")
    if done.kept:
        call.output.message(f"made from what is removed, but not removed: {', '.join(done.kept)}")
    if done.head:
        call.output.warn("HEAD is a removed version now; dlv checkout REF changes that")
    if not dry_run:
        call.output.hint("dlv undo brings it back")
