"""`dlv status`: what a commit would take, what changed, what nobody keeps yet."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from dlv.commands.shared.invocation import Invocation, is_data_set, open_weights
from dlv.commands.shared.options import command, option
from dlv.terminal.output import Block, Line
from dlv.terminal.table import Column, Id, Table, Text

if TYPE_CHECKING:
    from dlv.versions.status import Status

_COMMIT = "dlv commit -m MESSAGE"


@command(
    "status",
    examples=["dlv status", "dlv status --exit-code || echo changed"],
    exits={1: "there are changes, with --exit-code"},
)
@option("--exit-code", is_flag=True, help="Exit 1 if there is anything to commit.")
def run(call: Invocation, exit_code: bool) -> int | None:
    """Show what is staged, modified and untracked.

    Modified are files of HEAD, the version that the folder comes from. Untracked are weight
    files that are in no version of its line. .dlvignore hides files. Unfinished is what a killed
    command has left beside the files that it wrote: dlv gc removes it.
    """
    import dlv.versions.status as status

    found = status.status(call.repository, open_weights, is_data_set)
    here = call.directory.resolve()

    def near(path: str) -> str:
        return os.path.relpath(call.repository.root / path, here)

    rows = _rows(found)
    table = Table(
        [
            Column("state", fixed=True),
            Column("path", least=12),
            Column("what", least=12),
            Column("next", fixed=True),
        ],
        [
            [Text(state, style), near(path), what, following.format(shlex.quote(near(path)))]
            for state, style, path, what, following in rows
        ],
    )
    call.output.emit(
        "status", _document(found), *_head(found), table, ids=[near(row[2]) for row in rows]
    )
    return 1 if exit_code and not found.clean else None


def _head(status: Status) -> list[Block]:
    lines: list[Block] = []
    if status.head is None:
        lines.append(Line("HEAD", Text("none", "dim"), "nothing was committed yet"))
    else:
        what = status.head.message.partition("\n")[0]
        lines.append(Line("HEAD", Text(status.head.label, "bold"), Id(status.head.id), what))
    if status.next is not None:
        lines.append(Line("next", Text(status.next[0], "bold"), f"a {status.next[1]} of HEAD"))
    if status.clean:
        lines.append("nothing to commit")
    return lines


def _rows(status: Status) -> list[tuple[str, str, str, str, str]]:
    """state, style, path, what, next command with {} for the path."""
    rows: list[tuple[str, str, str, str, str]] = []
    for change in status.staged:
        file = change.file
        if file.role == "removed":
            rows.append(("staged", "green", file.path, "removed", _COMMIT))
            continue
        step = "" if file.step is None else f", step {file.step}"
        what = change.problem or f"{file.role}{step}"
        following = _COMMIT
        if change.problem:
            import dlv.versions.add as adding

            gone = change.problem.startswith("gone")
            following = "dlv add --remove {}" if gone else adding.again(file, "{}")
        rows.append(("staged", "green", file.path, what, following))
    for modified in status.modified:
        item, following = modified.item, "dlv checkout HEAD {}"
        if modified.why == "changed":
            following = "dlv add {}"
        what = {"in the way": "no file any more"}.get(modified.why, modified.why)
        rows.append(("modified", "red", item.path, what, following))
    for untracked in status.untracked:
        rows.append(("untracked", "yellow", untracked.path, "weights", "dlv add {}"))
    for part in status.parts:
        rows.append(("unfinished", "yellow", part.path, "left by a killed dlv", "dlv gc"))
    return rows


def _document(status: Status) -> dict[str, object]:
    return {
        "head": None
        if status.head is None
        else {"id": status.head.id, "name": status.head.name, "number": status.head.number},
        "next": None if status.next is None else {"name": status.next[0], "kind": status.next[1]},
        "staged": [
            {
                "path": change.file.path,
                "role": change.file.role,
                "format": change.file.format or None,
                "step": change.file.step,
                "bytes": change.file.bytes,
                "problem": change.problem,
            }
            for change in status.staged
        ],
        "modified": [
            {"path": m.item.path, "role": m.item.role, "why": m.why, "bytes": m.item.bytes}
            for m in status.modified
        ],
        "untracked": [{"path": u.path, "bytes": u.bytes} for u in status.untracked],
        "unfinished": [{"path": part.path, "bytes": part.bytes} for part in status.parts],
    }
