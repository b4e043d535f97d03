"""`dlv checkout`: files of a version, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dlv.commands.shared.invocation import Invocation, open_weights, say_files
from dlv.commands.shared.options import argument, command, option
from dlv.terminal.table import Bytes, Column, Id, Table

_FORMATS = {"safetensors": "safetensors", "npz": "npz", "pt": "pt", "torch": "pt"}


@command(
    "checkout",
    examples=[
        "dlv checkout HEAD",
        "dlv checkout HEAD --to restored --format npz",
        "dlv checkout lenet@1 --planes 2 --to roughly",
    ],
    exits={
        2: "a format that cannot hold a matrix's dtype; wrong usage",
        4: "the version, its step or file was not found",
        5: "files whose content is in no version would be overwritten; -f does it",
        9: "a file name that is not safe to write",
    },
)
@argument("reference", metavar="REF", complete="reference")
@argument("paths", metavar="[PATH..]", nargs=-1)
@option("--to", metavar="DIR", help="Write there instead of into the project's folder.")
@option("--format", "format_", type=click.Choice(list(_FORMATS)), help="Write weights as this.")
@option(
    "--planes",
    type=click.IntRange(1),
    metavar="K",
    help="Approximate weights, from the first K planes; with --to.",
)
@option("--no-weights", is_flag=True, help="Only the other files.")
@option("-f", "--force", is_flag=True, help="Overwrite files whose content is kept nowhere.")
def run(
    call: Invocation, to: str | None, format_: str | None, no_weights: bool, **given: Any
) -> None:
    """Write files of a version as they were added.

    REF/STEP writes the weights of that snapshot, PATH only these files. Every hash is checked
    before a file takes its place, and on an error nothing is changed. HEAD follows when all of
    REF goes to the project's folder. Files that the previous HEAD has and REF does not are then
    removed, unless you changed them. With --planes the weights are approximate, in files whose
    names say so, as w.2-planes.npz.
    """
    with call.progress("writing") as bar:
        import dlv.versions.checkout as checkouts

        found = checkouts.checkout(
            call.repository,
            checkouts.Request(
                author=call.author,
                here=call.directory,
                opened=open_weights,
                to=None if to is None else Path(to),
                format=None if format_ is None else _FORMATS[format_],
                weights=not no_weights,
                jobs=call.jobs,
                progress=bar.advance,
                total=bar.expect,
                **given,
            ),
        )
    for note in found.notes:
        call.output.warn(note)
    if found.reading is not None:
        import dlv.views.values as values

        read = values.planes_read(found.reading)
        if found.reading.exact:
            call.output.message(f"the weights are exact: {read}")
        else:
            name = found.version.label
            call.output.warn(f"these are not the weights of {name} but near them, from {read}")
    say_files(call, found)
    if found.head:
        call.output.message(f"HEAD is now at {found.version.label}")
    call.output.emit(
        "checkout",
        {
            "version": found.version.id,
            "folder": str(found.folder.resolve()),
            "written": [{"path": w.path, "bytes": w.bytes, "hash": w.hash} for w in found.written],
            "unchanged": found.unchanged,
            "removed": found.removed,
            "kept": found.kept,
            "head": found.head,
            **({} if found.reading is None else {"approximation": found.reading.as_json()}),
        },
        Table(
            [Column("path", least=20), "bytes", "hash"],
            [[w.path, Bytes(w.bytes), Id(w.hash)] for w in found.written],
        ),
        ids=[w.path for w in found.written],
    )
