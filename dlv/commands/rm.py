"""`dlv rm`: remove versions."""

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
        4: "no such version or checkpoint",
        5: "a version is tagged, is the delta base of a tagged one, or is already removed",
    },
)
@argument("refs", nargs=-1, required=True, metavar="REF..", complete="reference")
@option("--checkpoints", "steps", metavar="STEPS", help="Remove only these: 100,300-500.")
@option("--all-versions", is_flag=True, help="Remove all versions of the models.")
@option("--dry-run", is_flag=True, help="Show what would be removed.")
@option("-f", "--force", is_flag=True, help="Remove tagged versions and their tags, too.")
def run(call: Invocation, refs: tuple[str, ...], dry_run: bool, **given: Any) -> None:
    """Remove versions, or some of their checkpoints.

    Removed versions are hidden but still stored: dlv undo restores them, until dlv gc deletes
    them after the grace period.
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
    only = Line("frees", Bytes(done.reclaimable), "after dlv gc")
    call.output.emit("rm", document, table, only)
    verb = "would be deleted" if dry_run else "deleted"
    for tag in done.tags:
        call.output.message(f"tag {tag} {verb}")
    if done.kept:
        call.output.message(f"kept (derived from a removed version): {', '.join(done.kept)}")
    if done.head:
        call.output.warn("HEAD points to a removed version; to pick another: dlv checkout REF")
    if not dry_run:
        call.output.hint("to restore: dlv undo")
