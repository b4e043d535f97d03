"""`dlv mv`: rename a model."""

from __future__ import annotations

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command
from dlv.terminal.table import Column, Id, Table, Text


@command(
    "mv",
    examples=["dlv mv lenet lenet-small"],
    exits={4: "no such model", 5: "a model or tag of the new name exists"},
)
@argument("old", complete="name")
@argument("new")
def run(call: Invocation, old: str, new: str) -> None:
    """Rename a model.

    All its versions keep their numbers, ids, tags and files. To rename it back: dlv undo.
    """
    import dlv.versions.rename as renaming

    done = renaming.rename(call.repository, old, new, call.author)
    table = Table(
        [Column("version", fixed=True), "id"],
        [[Text(version.label, "bold"), Id(version.id)] for version in done.versions],
    )
    call.output.emit("mv", {"old": done.old, "new": done.new, "versions": table.records()}, table)
