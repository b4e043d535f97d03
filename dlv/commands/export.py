"""`dlv export`: write the weights or network of a version to one file."""

from __future__ import annotations

from pathlib import Path

import click

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.errors import UsageError
from dlv.terminal.output import Line
from dlv.terminal.table import Bytes, Id

_FORMATS = {
    **{name: name for name in ("safetensors", "npz", "pt", "gguf", "onnx", "keras", "json")},
    "bundle": "bundle",
    "torch": "pt",
}


@command(
    "export",
    examples=[
        "dlv export HEAD weights.npz",
        "dlv export HEAD net.json && cat net.json",
        "dlv export lenet lenet-wide all.bundle",
    ],
    exits={
        4: "no such version, layer or tensor, or no weights or network",
        5: "the output file exists",
    },
)
@argument("words", nargs=-1, metavar="[REF].. [FILE]", complete="reference")
@option("-o", "--output", "out", metavar="FILE", help="Write FILE.")
@option(
    "--file-format",
    "format_",
    type=click.Choice(list(_FORMATS)),
    help="Format [default: by extension].",
)
@option(
    "--layer", multiple=True, metavar="PATTERN", complete="layer", help="Write only these layers."
)
@option(
    "--tensor",
    "matrices",
    aliases=["--tensors"],
    multiple=True,
    metavar="PATTERN",
    help="Write only these, such as conv*.weight.",
)
@option("--all", "everything", is_flag=True, help="Include optimizer state.")
@option("-f", "--force", is_flag=True, help="Overwrite FILE.")
def run(
    call: Invocation,
    words: tuple[str, ...],
    out: str | None,
    format_: str | None,
    layer: tuple[str, ...],
    matrices: tuple[str, ...],
    everything: bool,
    force: bool,
) -> None:
    """Write weights or a network to one file.

    REF is a version or a checkpoint such as lenet@2/1000 [default: HEAD]. Formats of weights are
    safetensors, npz, pt and gguf; onnx and keras files hold the network, too, and json only the
    network. If the committed file has the same format and nothing is left out, FILE is identical
    to it. A bundle holds whole versions and their ancestors, for dlv import bundle.
    """
    if format_ == "bundle" or (out or " ".join(words[-1:])).endswith(".bundle"):
        _bundle(call, words, out, force=force)
        return
    reference, out = _words(words, out)
    with call.progress("Writing files") as bar:
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
            f"skipped {_count(made.left_out)} of the optimizer; to include them: dlv export --all"
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
        what = f"{what}, identical to the committed file"
    call.output.emit(
        "export",
        {"version": made.version.id, "written": [written], "left_out": made.left_out},
        Line(made.path, Bytes(made.bytes), Id(made.hash), what),
        ids=[made.path],
    )


def _bundle(call: Invocation, words: tuple[str, ...], out: str | None, *, force: bool) -> None:
    import dlv.hub.bundles as bundles

    references, path = (words, out) if out is not None else (words[:-1], words[-1] if words else "")
    if not path:
        raise UsageError("a file to write is required", hint="dlv export lenet all.bundle")
    place = Path(call.directory, path)
    with call.progress("Writing") as bar:
        done = bundles.write(
            *(call.repository, references, place, call.author),
            force=force,
            progress=bar.advance,
            total=bar.expect,
        )
    import dlv.upkeep.check as check

    size, digest = place.stat().st_size, check.hash_file(place, lambda _: None)
    last = done.sent[-1].version
    record = {"path": path, "format": "bundle", "bytes": size, "hash": digest, "tensors": 0}
    call.output.emit(
        "export",
        {"version": last.id, "written": [{**record, "original": False}], "left_out": 0},
        Line(path, Bytes(size), Id(digest), ", ".join(sent.version.label for sent in done.sent)),
        ids=[path],
    )


def _words(words: tuple[str, ...], out: str | None) -> tuple[str, str]:
    """Tell REF and FILE apart: with -o, or if there is one word only, the other has a default."""
    left = [*words, *([out] if out is not None else [])]
    if len(left) > 2 or not left or (out is not None and len(words) > 1):
        raise UsageError("export requires one FILE", hint="dlv export HEAD weights.safetensors")
    return ("HEAD", left[0]) if len(left) == 1 else (left[0], left[1])


def _count(tensors: int) -> str:
    return f"{tensors} tensor{'' if tensors == 1 else 's'}"
