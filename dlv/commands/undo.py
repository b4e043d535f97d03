"""`dlv undo`: take operations back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.errors import UsageError
from dlv.terminal.table import Column, Table, Text, Time

if TYPE_CHECKING:
    import dlv.repository.undo as undo
    from dlv.metadata.facts import Operation


@command(
    "undo",
    examples=["dlv undo --list", "dlv undo --dry-run", "dlv tag try && dlv undo"],
    exits={
        4: "no such operation, or not as many",
        5: "already undone, or a tag prevents it",
        9: "the operation cannot be undone",
    },
)
@argument("count", metavar="[N]", required=False, type=click.IntRange(min=1))
@option("--list", "-l", "listed", is_flag=True, help="List operations, newest first.")
@option(
    "--op", "number", type=int, metavar="ID", help="Undo this operation; if it is an undo, redo."
)
@option("--dry-run", is_flag=True, help="Show what would be undone.")
def run(
    call: Invocation, count: int | None, listed: bool, number: int | None, dry_run: bool
) -> None:
    """Undo the last operation, or the last N.

    Commits, tags, removals, checkouts and copies can be undone. Files in the working directory do
    not change: a commit's files are staged again, and a checkout only moves HEAD. Evaluations are
    kept unless you name one by --op. To redo, undo the undo by its number.
    """
    if sum((count is not None, listed, number is not None)) > 1:
        raise UsageError("N, --list and --op cannot be combined", hint="dlv undo --list")
    if listed:
        _list(call)
        return
    import dlv.repository.undo as undo

    done = undo.undo(
        call.repository, call.author, count=count or 1, operation=number, dry_run=dry_run
    )
    head = _label(call, done[-1].head) if done else None
    records = [
        _record(item.operation)
        | {
            "undone": not dry_run,
            "again": item.again,
            "staged": item.staged,
            "not_staged": item.gone,
            "unstaged": item.unstaged,
        }
        for item in done
    ]
    document = {"operations": records, "head": head, "dry_run": dry_run}
    table = Table(
        [Column("operation", key="id"), "what", Column("verb", fixed=True), "on"],
        [
            [
                _id(item.operation),
                _said(item, dry_run),
                Text(item.origin.verb, "bold"),
                item.origin.summary,
            ]
            for item in done
        ],
    )
    call.output.emit("undo", document, table, ids=[str(item.operation.id) for item in done])
    if not done:
        call.output.message("nothing to undo")
    if number is None:
        oldest = min((item.operation.id for item in done), default=0)
        for entry in undo.skipped_evaluations(call.repository, oldest)[:1]:
            call.output.message(f"evaluation kept; to undo it too: dlv undo --op {entry.id}")
    for item in done:
        _tell(call, item, dry_run)


def _label(call: Invocation, head: str | None) -> str | None:
    import dlv.repository.undo as undo

    return None if head is None else undo.label(call.repository, head)


def _id(operation: Operation) -> Text:
    return Text(str(operation.id), "yellow")


def _said(item: undo.Undone, dry_run: bool) -> str:
    word = "done again" if item.again else "undone"
    return f"would be {word}" if dry_run else word


def _tell(call: Invocation, item: undo.Undone, dry_run: bool) -> None:
    say = call.output.message
    would = "would be " if dry_run else ""
    if item.moved:
        say(f"HEAD {'would be' if dry_run else 'is'} {_label(call, item.head) or 'nothing'} now")
    if item.staged:
        say(f"{would}staged again: {', '.join(item.staged)}")
    if item.unstaged:
        say(f"{would}no longer staged: {', '.join(item.unstaged)}")
    for path in item.gone:
        call.output.warn(f"{path} is not staged again: the file is gone")
    if item.moved and item.origin.verb in ("checkout", "copy"):
        say("the files in the working directory stay as they are")


def _list(call: Invocation) -> None:
    import dlv.repository.undo as undo

    found = undo.operations(call.repository)
    table = Table(
        ["operation", Column("age", fixed=True), Column("verb", fixed=True), "on", "state"],
        [
            [
                _id(operation),
                Time(operation.created),
                Text(operation.verb, "bold"),
                operation.summary,
                Text("undone", "dim") if operation.undone else None,
            ]
            for operation in found
        ],
    )
    records = [_record(operation) for operation in found]
    ids = [str(operation.id) for operation in found]
    call.output.emit("undo", {"operations": records}, table, ids=ids)
    if not found:
        call.output.message("no operations yet")


def _record(operation: Operation) -> dict[str, Any]:
    return {
        "id": operation.id,
        "created": operation.created,
        "verb": operation.verb,
        "summary": operation.summary,
        "undone": operation.undone,
        "undoes": operation.undoes,
    }
