"""`dlv import`: what lies somewhere becomes a version, without staging."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dlv.commands.invocation import Invocation
from dlv.commands.options import argument, command, option
from dlv.lazy import lazy
from dlv.output import Line
from dlv.table import Bytes, Id, Text, human_bytes

if TYPE_CHECKING:
    import dlv.intake as intake
else:
    intake = lazy("dlv.intake")


@command(
    "import",
    examples=[
        "dlv checkout HEAD --to old && dlv import checkpoints old --name old",
        "dlv checkout HEAD --to a && dlv import checkpoints a/*.safetensors --name a -m 'Old runs'",
    ],
    exits={
        2: "nothing that was named holds weights",
        4: "a file was not found",
        5: "two checkpoints of one step; the name is a tag",
        9: "a pickle, which could run any program; a file name that is not safe",
    },
)
@argument("source", metavar="checkpoints", type=click.Choice(["checkpoints"]))
@argument("files", metavar="FILE..", nargs=-1, required=True)
@option("--name", aliases=["--model_name"], metavar="NAME", required=True, help="Of the version.")
@option("-m", "--message", aliases=["--commit_msg"], metavar="TEXT", help="What this version is.")
@option("--no-optimizer", is_flag=True, help="Leave out optimizer state (commit.optimizer).")
def run(
    call: Invocation,
    source: str,  # noqa: ARG001 (so far there is one)
    files: tuple[str, ...],
    name: str,
    message: str | None,
    no_optimizer: bool,
) -> None:
    """Make one version of checkpoint files, without staging.

    FILE is a checkpoint or a folder of them; each step becomes a snapshot, the last one is the
    version's own weights. Doing it again with the same content makes nothing new. HEAD and
    what is staged stay as they are.
    """
    with call.progress("storing") as bar:
        made = intake.import_checkpoints(
            call.repository,
            intake.Request(
                files=files,
                name=name,
                author=call.author,
                here=call.directory,
                message=message,
                optimizer="drop" if no_optimizer else call.config.get("commit.optimizer"),
                recheck=call.config.get("commit.recheck"),
                jobs=call.jobs,
                progress=bar.advance,
                total=bar.expect,
            ),
        )
    for path, why in made.skipped:
        call.output.message(f"passed over {path}: {why}")
    for warning in made.warnings:
        call.output.warn(warning)
    if not made.new:
        call.output.message(f"nothing new: {made.label} has this very content")
    version = {
        "id": made.id,
        "name": made.name,
        "number": made.number,
        "new": made.new,
        "steps": made.steps,
        "raw": made.raw,
        "stored": made.stored,
        "seconds": made.seconds,
    }
    label, count = Text(made.label, "bold"), len(made.steps)
    if call.output.terminal:
        held = f"{count} snapshot{'' if count == 1 else 's'}"
        sizes = f"{human_bytes(made.raw)} -> {human_bytes(made.stored)}"
        line = Line(label, Id(made.id), held, *([sizes] if made.new else []))
    else:
        line = Line(label, Id(made.id), count, Bytes(made.raw), Bytes(made.stored))
    call.output.emit(
        "import",
        {
            "versions": [version],
            "series": [],
            "skipped": [{"path": path, "why": why} for path, why in made.skipped],
        },
        line,
        ids=[made.id],
    )
