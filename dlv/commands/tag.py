"""`dlv tag`: names for versions."""

from __future__ import annotations

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.errors import UsageError
from dlv.terminal.output import Line
from dlv.terminal.table import Cell, Column, Id, Table, Text


@command(
    "tag",
    examples=[
        "dlv tag good",
        "dlv tag paper-final lenet@2",
        "dlv tag",
        "dlv tag keep lenet@1 && dlv tag keep lenet@2 --move && dlv tag --delete keep",
    ],
    exits={4: "no such version or tag", 5: "the tag exists, or is a model name"},
)
@argument("name", required=False, complete="tag")
@argument("reference", metavar="[REF]", required=False, complete="reference")
@option("--move", is_flag=True, help="Move an existing tag.")
@option("--delete", "-d", is_flag=True, help="Delete the tag; keep the version.")
@option("--list", "-l", "listed", is_flag=True, help="List tags, as without NAME.")
def run(
    call: Invocation,
    name: str | None,
    reference: str | None,
    move: bool,
    delete: bool,
    listed: bool,
) -> None:
    """Name a version, list tags, or delete one.

    REF is HEAD by default. A tag can be used wherever a version is expected. It does not move
    when new versions are committed.
    """
    if listed and (name is not None or move or delete):
        raise UsageError("--list cannot be used with NAME", hint="dlv tag --list")
    if delete and (name is None or reference is not None or move):
        raise UsageError("--delete requires one NAME", hint="dlv tag --delete NAME")
    if name is None:
        if move:
            raise UsageError("--move requires a NAME", hint="dlv tag NAME REF --move")
        _list(call)
        return

    import dlv.repository.revisions as revisions

    if delete:
        done = revisions.delete_tag(call.repository, name, call.author)
    else:
        done = revisions.set_tag(call.repository, name, reference or "HEAD", call.author, move=move)
    record: dict[str, Cell] = {"tag": name}
    record["version"] = None if done.version is None else done.version.label
    record["id"] = None if done.version is None else Id(done.version.id)
    record["before"] = None if done.before is None else done.before.label
    cells: list[Cell] = [Text(name, "bold")]
    if done.version is None:
        cells.append("deleted")
    else:
        cells += [done.version.label, Id(done.version.id)]
    if done.before is not None and done.changed:
        cells.append(Text(f"was {done.before.label}", "dim"))
    ids = [v.id for v in (done.version or done.before,) if v is not None]
    call.output.emit("tag", {"tags": [record]}, Line(*cells), ids=ids)
    if not done.changed:
        call.output.message(f"tag {name} already points to {record['version']}")


def _list(call: Invocation) -> None:
    import dlv.repository.revisions as revisions

    found = revisions.tags(call.repository)
    table = Table(
        [Column("tag", fixed=True), Column("version", fixed=True), "id", "message"],
        [
            [Text(name, "bold"), version.label, Id(version.id), version.message.partition("\n")[0]]
            for name, version in found
        ],
    )
    call.output.emit("tag", {"tags": table.records()}, table)
    if not found:
        call.output.message("no tags yet")
