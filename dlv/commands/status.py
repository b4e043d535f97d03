"""`dlv status`: staged, changed and untracked files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dlv.commands.shared.invocation import Invocation, is_data_set, open_weights
from dlv.commands.shared.options import command, option
from dlv.terminal.output import Block, Verbatim
from dlv.terminal.table import Column, Table, escape

if TYPE_CHECKING:
    from dlv.metadata.versions import Version
    from dlv.versions.status import Status

# group -> (title, hint, color)
GROUPS = {
    "staged": ("Staged for commit", "to unstage: dlv reset PATH", "green"),
    "changed": (
        "Changed, not staged",
        "to stage: dlv add PATH or dlv commit -a; to discard: dlv checkout HEAD PATH",
        "red",
    ),
    "untracked": ("Untracked weights", "to stage: dlv add PATH", "red"),
    "unfinished": ("Left by an interrupted dlv", "to delete: dlv gc", "yellow"),
}
_LETTERS = {"missing": " D", "in the way": " T", "unreadable": " !"}


class Row(NamedTuple):
    group: str
    path: str
    what: str
    code: str  # as in git status --short


@command(
    "status",
    examples=["dlv status", "dlv status --short", "dlv status --exit-code || echo changed"],
    exits={1: "there are changes, with --exit-code"},
)
@option("-s", "--short", is_flag=True, help="Show one line per file, as git status --short.")
@option("--exit-code", is_flag=True, help="Exit with 1 if there are changes.")
def run(call: Invocation, short: bool, exit_code: bool) -> int | None:
    """Show staged, changed and untracked files.

    Changed files differ from HEAD. Untracked files are weights that are in no version of HEAD's
    history. .dlvignore hides files.
    """
    import dlv.hub.names as names
    import dlv.versions.status as status

    found = status.status(call.repository, open_weights, is_data_set)
    unpublished = names.unpublished(call.repository, call.config)
    here = call.directory.resolve()
    rows = [
        row._replace(path=os.path.relpath(call.repository.root / row.path, here))
        for row in _rows(found)
    ]
    for folder in found.unreadable:
        call.output.warn(f"cannot read {folder}: permission denied")
    blocks: list[Block]
    if call.output.format in ("csv", "md", "jsonl"):
        titles = [Column("state"), Column("path"), Column("what")]
        blocks = [Table(titles, [[row.group, row.path, row.what] for row in rows])]
    elif short:
        blocks = [Verbatim([f"{row.code} {escape(row.path)}" for row in rows])]
    else:
        lines = [*_head(call, found), *_unpublished(call, unpublished), *_groups(call, rows)]
        blocks = [Verbatim(lines)]
    document = {**_document(found), "unpublished": None}
    if unpublished is not None:
        document["unpublished"] = [{"version": v.label, "id": v.id} for v in unpublished[1]]
    call.output.emit("status", document, *blocks, ids=[row.path for row in rows])
    return 1 if exit_code and not found.clean else None


def _head(call: Invocation, status: Status) -> Iterator[str]:
    if status.head is None:
        yield "No commits yet"
    else:
        label = call.output.paint(escape(status.head.label), "bold")
        message = escape(status.head.message.partition("\n")[0])
        yield f"HEAD is {label} ({status.head.id[:7]}) {message}"
    if status.next is not None:
        name, kind = status.next
        yield f"Next commit: {call.output.paint(escape(name), 'bold')}, a {escape(kind)} of HEAD"
    if status.clean:
        yield "Nothing to commit, working directory clean"


def _unpublished(call: Invocation, found: tuple[str, list[Version]] | None) -> Iterator[str]:
    if found is not None and found[1]:
        remote, missing = found
        many = "1 version is" if len(missing) == 1 else f"{len(missing)} versions are"
        hint = call.output.paint("(to publish: dlv publish)", "dim")
        yield f"{many} not on {escape(remote)}  {hint}"


def _groups(call: Invocation, rows: list[Row]) -> Iterator[str]:
    paint = call.output.paint
    for group, (title, hint, color) in GROUPS.items():
        found = [row for row in rows if row.group == group]
        if not found:
            continue
        yield ""
        yield f"{title}:  {paint(f'({hint})', 'dim')}"
        room = max(len(row.what) for row in found)
        for row in found:
            yield paint(f"  {escape(row.what):<{room}}  {escape(row.path)}", color)


def _rows(status: Status) -> Iterator[Row]:
    for change in status.staged:
        file = change.file
        if file.role == "removed":
            yield Row("staged", file.path, "removed", "D ")
            continue
        step = "" if file.step is None else f", step {file.step}"
        if change.problem is None:
            yield Row("staged", file.path, f"{file.shown_role}{step}", "A ")
        else:
            missing = "missing" in change.problem
            yield Row("staged", file.path, change.problem, "AD" if missing else "AM")
    for modified in status.modified:
        what = {"in the way": "not a file"}.get(modified.why, modified.why)
        yield Row("changed", modified.item.path, what, _LETTERS.get(modified.why, " M"))
    for untracked in status.untracked:
        yield Row("untracked", untracked.path, "weights", "??")
    for part in status.parts:
        yield Row("unfinished", part.path, "temporary file", "??")


def _document(status: Status) -> dict[str, object]:
    return {
        "head": None
        if status.head is None
        else {"id": status.head.id, "name": status.head.name, "number": status.head.number},
        "next": None if status.next is None else {"name": status.next[0], "kind": status.next[1]},
        "staged": [
            {
                "path": change.file.path,
                "role": change.file.shown_role,
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
        "unreadable": status.unreadable,
    }
