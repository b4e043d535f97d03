"""`dlv copy`: begin a new model with the files of another one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dlv.commands.invocation import Invocation
from dlv.commands.options import argument, command, option
from dlv.lazy import lazy
from dlv.table import Bytes, Column, Id, Table

if TYPE_CHECKING:
    import dlv.checkout as checkout
    import dlv.staging as staging
else:
    checkout = lazy("dlv.checkout")
    staging = lazy("dlv.staging")


@command(
    "copy",
    examples=["dlv copy HEAD lenet-small", "dlv copy HEAD alexnet --no-weights"],
    exits={
        4: "the version was not found",
        5: "NAME is taken, or a file whose content is in no version is in the way; -f",
        9: "a file name that is not safe to write",
    },
)
@argument("reference", metavar="REF", complete="reference")
@argument("name", metavar="NAME")
@argument("directory", metavar="[DIR]", required=False)
@option("--no-weights", is_flag=True, help="Only the other files.")
@option("-f", "--force", is_flag=True, help="Even if NAME or a file is there already.")
def run(
    call: Invocation,
    reference: str,
    name: str,
    directory: str | None,
    no_weights: bool,
    force: bool,
) -> None:
    """Begin a new model with the files of a version.

    The files of REF are written into the project's folder, or into DIR. The next commit then
    makes NAME@1 and keeps REF as its parent.
    """
    with call.progress("writing") as bar:
        made = checkout.copy(
            call.repository,
            checkout.Request(
                reference=reference,
                author=call.author,
                here=call.directory,
                opened=lambda kind, path: staging.open_weights(path, kind),
                to=None if directory is None else Path(directory),
                weights=not no_weights,
                force=force,
                name=name,
                progress=bar.advance,
                total=bar.expect,
            ),
        )
    for note in made.notes:
        call.output.warn(note)
    if made.unchanged:
        count = len(made.unchanged)
        call.output.message(f"{count} file{' is' if count == 1 else 's are'} right already")
    call.output.message(f"the next commit is of `{name}`, a copy of {made.version.label}")
    call.output.hint("change what is to differ, then dlv add PATH.. and dlv commit -m MESSAGE")
    call.output.emit(
        "copy",
        {
            "name": name,
            "parent": made.version.id,
            "folder": str(made.folder.resolve()),
            "written": [{"path": w.path, "bytes": w.bytes, "hash": w.hash} for w in made.written],
            "unchanged": made.unchanged,
        },
        Table(
            [Column("path", least=20), "bytes", "hash"],
            [[w.path, Bytes(w.bytes), Id(w.hash)] for w in made.written],
        ),
        ids=[w.path for w in made.written],
    )
