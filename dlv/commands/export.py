"""`dlv export`: a version's weights or network as one file."""

from __future__ import annotations

from pathlib import Path

import click

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.terminal.output import Line
from dlv.terminal.table import Bytes, Id

_FORMATS = {
    **{name: name for name in ("safetensors", "npz", "pt", "gguf", "onnx", "keras", "json")},
    "torch": "pt",
}


@command(
    "export",
    examples=["dlv export HEAD weights.npz", "dlv export HEAD net.json && cat net.json"],
    exits={
        2: "the ending of OUT says no format; a format that cannot hold a dtype or a layer",
        4: "no such version, layer or matrix; the version has no weights or no network",
        5: "OUT exists; -f overwrites it",
    },
)
@argument("reference", metavar="REF", complete="reference")
@argument("out", metavar="OUT")
@option("--format", "format_", type=click.Choice(list(_FORMATS)), help="Else by OUT's ending.")
@option("--layer", multiple=True, metavar="PATTERN", complete="layer", help="Only these layers.")
@option(
    "--matrices",
    aliases=["--tensors"],
    multiple=True,
    metavar="PATTERN",
    help="Only these matrices, as in `conv*.weight`.",
)
@option("--all", "everything", is_flag=True, help="Also the state of an optimizer.")
@option("-f", "--force", is_flag=True, help="Overwrite OUT.")
def run(
    call: Invocation,
    reference: str,
    out: str,
    format_: str | None,
    layer: tuple[str, ...],
    matrices: tuple[str, ...],
    everything: bool,
    force: bool,
) -> None:
    """Write the weights of a version, or its network, to one file.

    Formats of weights are safetensors, npz, pt (torch) and gguf; onnx and keras hold a network with
    its weights, to be run elsewhere; json is the network in its plain form. REF/STEP takes that
    snapshot. If the file that was added had this format, and all of it is wanted, OUT becomes
    the same file byte for byte.
    """
    with call.progress("writing") as bar:
        import dlv.versions.transfer as transfer

        made = transfer.export(
            call.repository,
            transfer.Request(
                reference=reference,
                out=Path(call.directory, out),
                format=None if format_ is None else _FORMATS[format_],
                layers=layer,
                matrices=matrices,
                everything=everything,
                force=force,
                jobs=call.jobs,
                progress=bar.advance,
                total=bar.expect,
            ),
        )
    for note in made.notes:
        call.output.warn(note)
    if made.left_out:
        call.output.message(
            f"{_count(made.left_out)} of the optimizer left out; --all exports everything"
        )
    written = {
        "path": made.path,
        "format": made.format,
        "bytes": made.bytes,
        "hash": made.hash,
        "tensors": made.tensors,
        "original": made.original,
    }
    what = "network" if made.format == "json" else _count(made.tensors)
    if made.original:
        what = f"{what}, the same file as was added"
    call.output.emit(
        "export",
        {"version": made.version.id, "written": [written], "left_out": made.left_out},
        Line(made.path, Bytes(made.bytes), Id(made.hash), what),
        ids=[made.path],
    )


def _count(tensors: int) -> str:
    return f"{tensors} tensor{'' if tensors == 1 else 's'}"
