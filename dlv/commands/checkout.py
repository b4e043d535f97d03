"""`dlv checkout`: restore the files of a version, bit for bit."""

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
        "dlv checkout HEAD --to restored --file-format npz",
        "dlv checkout lenet@1 --planes 2 --to roughly",
    ],
    exits={
        4: "no such version, checkpoint or file",
        5: "uncommitted changes would be overwritten",
        9: "an unsafe file name",
    },
)
@argument("reference", metavar="REF", complete="reference")
@argument("paths", metavar="[PATH..]", nargs=-1)
@option("--to", metavar="DIR", help="Write to DIR instead of the project.")
@option("--file-format", "format_", type=click.Choice(list(_FORMATS)), help="Convert the weights.")
@option(
    "--planes",
    type=click.IntRange(1),
    metavar="K",
    help="Write approximate weights from K byte planes.",
)
@option("--no-weights", is_flag=True, help="Skip weights.")
@option("-f", "--force", is_flag=True, help="Overwrite uncommitted changes.")
def run(
    call: Invocation, to: str | None, format_: str | None, no_weights: bool, **given: Any
) -> None:
    """Restore the files of a version.

    REF/STEP restores the weights of one checkpoint, PATH only these files; origin:lenet@2 is
    pulled first. Every hash is verified
    before a file is replaced, and on an error nothing changes. Without PATH and --to, HEAD moves
    to REF, and unchanged files that REF does not have are removed. With --planes the weights are
    approximate and their files are named like w.2-planes.npz.
    """
    if call.names_remote([given["reference"]]):
        given["reference"] = _pulled(call, given["reference"])
    with call.progress("Writing files") as bar:
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
            call.output.warn(f"approximate weights for {name}, from {read}")
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


def _pulled(call: Invocation, reference: str) -> str:
    """Pull a version and return its id here, with the step that the reference names."""
    import dlv.hub.pull as pulling
    import dlv.hub.remotes as remotes
    import dlv.repository.revisions as revisions

    mirror, plain = call.look_at(reference)
    wanted = revisions.resolve(mirror.database, plain)
    name = reference.partition(":")[0]
    with call.progress("Pulling") as bar:
        opened = remotes.open_remote(
            call.repository, name, call.config.remotes()[name], call.environ
        )
        request = pulling.Request(
            [wanted.version.label], call.author, progress=bar.advance, total=bar.expect
        )
        pulling.pull(call.repository, opened, request)
    step = "" if wanted.snapshot is None else f"/{wanted.snapshot.step}"
    return wanted.version.id + step
