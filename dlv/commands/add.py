"""`dlv add`: say what the next commit is to hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.errors import UsageError
from dlv.terminal.table import Bytes, Column, Table, Text

if TYPE_CHECKING:
    from dlv.metadata.facts import StagedFile

_ROLES = ["weights", "snapshot", "network", "config", "log", "data", "file"]
_MOST_SKIPPED = 10


@command(
    "add",
    examples=["dlv add .", "dlv add --no-optimizer .", "dlv add . && dlv add --remove ."],
    exits={
        4: "a path, or with --remove a tracked file, was not found",
        5: "a file is being written to",
        9: "a pickle, which could run any program; a file name that is not safe",
    },
)
@argument("paths", metavar="PATH..", nargs=-1)
@option("--as", "role", type=click.Choice(_ROLES), help="What the files are; else by content.")
@option("--network", metavar="FILE.py:FACTORY", help="Run FACTORY for its network (torch).")
@option(
    "--input-shape", "input_shapes", multiple=True, metavar="SHAPE", help="For it, as in 1,1,28,28."
)
@option("--type", "format", metavar="FORMAT", help="Their format, where it cannot be told.")
@option("--step", type=int, metavar="N", help="Training step; else from the file or its name.")
@option("--no-optimizer", is_flag=True, help="Leave out optimizer state (commit.optimizer).")
@option("--log-step", "step_column", metavar="COL", help="Column of a log that holds the step.")
@option("--log-time", "time_column", metavar="COL", help="Column of a log that holds the time.")
@option("--remove", is_flag=True, help="Take the files out of the next version.")
def run(
    call: Invocation,
    paths: tuple[str, ...],
    network: str | None,
    no_optimizer: bool,
    remove: bool,
    **given: Any,
) -> None:
    """Stage files for the next commit.

    PATH is a file, or a folder of which every file is looked at; what .dlvignore names is
    passed over. Checkpoints of one model with different steps become snapshots of one version.
    Nothing is copied until the commit, which refuses a file that changed meanwhile.

    --network takes the network from code: FACTORY is called without arguments and returns a
    torch module, which is traced with inputs of the shapes given, the batch first.
    """
    if not paths and network is None:
        raise UsageError("nothing was named", hint="dlv add . stages all of this folder")
    if remove:
        if network is not None:
            raise UsageError("--network and --remove exclude each other")
        _remove(call, paths)
        return
    if network is not None and call.output.interactive:
        call.output.message(f"running {network}, which takes some seconds")
    with call.progress("reading") as bar:
        import dlv.versions.add as adding

        added = adding.add(
            call.repository,
            call.directory,
            paths,
            adding.Request(
                network=network,
                optimizer="drop" if no_optimizer else call.config.get("commit.optimizer"),
                progress=bar.advance,
                **given,
            ),
        )
    shown = len(added.skipped) if call.verbose else _MOST_SKIPPED
    for path, why in added.skipped[:shown]:
        call.output.message(f"passed over {path}: {why}")
    if len(added.skipped) > shown:
        call.output.message(f"and {len(added.skipped) - shown} more; -v names them all")
    for warning in added.warnings:
        call.output.warn(warning)
    if not added.files:
        call.output.message("nothing was staged")
    _emit(call, added.files, added.skipped)


def _remove(call: Invocation, paths: tuple[str, ...]) -> None:
    import dlv.versions.add as adding

    removed = adding.remove(call.repository, call.directory, paths)
    for path in removed.back:
        call.output.message(f"no longer staged: {path}")
    _emit(call, removed.marks, [], removed.back)


def _emit(
    call: Invocation,
    files: list[StagedFile],
    skipped: list[tuple[str, str]],
    back: list[str] | None = None,
) -> None:
    gone = [file.role == "removed" for file in files]
    rows = Table(
        [Column("path", least=20), Column("role", fixed=True), "format", "step", "bytes"],
        [
            [file.path, Text(file.role, "red"), None, None, None]
            if left
            else [file.path, file.role, file.format, file.step, Bytes(file.bytes)]
            for file, left in zip(files, gone, strict=True)
        ],
    )
    document = {
        "staged": [
            {**record, "hash": file.hash or None}
            for record, file in zip(rows.records(), files, strict=True)
        ],
        "skipped": [{"path": path, "why": why} for path, why in skipped],
        "unstaged": back or [],
    }
    call.output.emit("add", document, rows, ids=[file.path for file in files])
