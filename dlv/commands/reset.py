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
    """Unstage files; without PATH, all of them.

    The files themselves stay as they are. Marks of dlv add --remove are taken back too.
    """
    import dlv.versions.add as adding

    unstaged = adding.unstage(call.repository, call.directory, paths)
    table = Table([Column("path", least=20), "role"], [[file.path, file.role] for file in unstaged])
    call.output.emit("reset", {"unstaged": table.records()}, table, ids=[f.path for f in unstaged])
    if not unstaged:
        call.output.message("nothing was staged")
