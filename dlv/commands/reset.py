"""`dlv reset`: unstage files."""

from __future__ import annotations

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command
from dlv.terminal.table import Column, Table


@command(
    "reset",
    examples=["dlv reset", "dlv add . && dlv reset train.py"],
    exits={4: "a path is not staged"},
)
@argument("paths", nargs=-1, metavar="[PATH..]")
def run(call: Invocation, paths: tuple[str, ...]) -> None:
    """Unstage files, or everything without PATH.

    The files themselves do not change. Removals marked by dlv add --remove are unmarked too.
    """
    import dlv.versions.add as adding

    unstaged = adding.unstage(call.repository, call.directory, paths)
    table = Table(
        [Column("path", least=20), "role"], [[file.path, file.shown_role] for file in unstaged]
    )
    call.output.emit("reset", {"unstaged": table.records()}, table, ids=[f.path for f in unstaged])
    if not unstaged:
        call.output.message("nothing was staged")
