"""`dlv add`: stage files for the next commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.errors import UsageError
from dlv.terminal.table import Bytes, Column, Table, Text

if TYPE_CHECKING:
    from dlv.metadata.facts import StagedFile

_ROLES = ["weights", "checkpoint", "network", "config", "log", "data", "file"]
_MOST_SKIPPED = 10


@command(
    "add",
    examples=["dlv add .", "dlv add --no-optimizer .", "dlv add . && dlv add --remove ."],
    exits={
        4: "no such file or directory, or with --remove no such tracked file",
        5: "a file is being written",
        9: "a pickle that could execute code, or an unsafe file name",
    },
)
@argument("paths", metavar="PATH..", nargs=-1)
@option("--as", "role", type=click.Choice(_ROLES), help="Role of the files [default: by content].")
@option(
    "--factory",
    "network",
    metavar="FILE.py:FACTORY",
    help="Trace the torch module that FACTORY returns.",
)
@option(
    "--input-shape",
    "input_shapes",
    multiple=True,
    metavar="SHAPE",
    help="Input of --factory, such as 1,1,28,28.",
)
@option("--file-format", "format", metavar="FORMAT", help="Format, if it cannot be detected.")
@option("--step", type=int, metavar="N", help="Training step [default: from the file or its name].")
@option("--no-optimizer", is_flag=True, help="Skip optimizer state (config: commit.optimizer).")
@option("--log-step", "step_column", metavar="COL", help="Column of a log with the step.")
@option("--log-time", "time_column", metavar="COL", help="Column of a log with the time.")
@option("--remove", is_flag=True, help="Remove the files from the next version.")
def run(
    call: Invocation,
    paths: tuple[str, ...],
    network: str | None,
    no_optimizer: bool,
    remove: bool,
    **given: Any,
) -> None:
    """Stage files for the next commit.

    PATH is a file, or a folder that is searched; files that .dlvignore names are skipped.
    Checkpoints of one model at different steps go into one version. Nothing is copied until the
    commit, which refuses files that changed after they were staged.
    """
    if not paths and network is None:
        raise UsageError("no paths given", hint="to stage everything: dlv add .")
    if remove:
        if network is not None:
            raise UsageError("--factory and --remove cannot be combined")
        _remove(call, paths)
        return
    if network is not None and call.output.interactive:
        call.output.message(f"Tracing {network} (may take a few seconds)")
    with call.progress("Reading files") as bar:
        import dlv.versions.add as adding

        given["role"] = "snapshot" if given["role"] == "checkpoint" else given["role"]
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
        call.output.warn(f"skipped {path}: {why}")
    if len(added.skipped) > shown:
        call.output.message(f"and {len(added.skipped) - shown} more; to list all: dlv add -v")
    for warning in added.warnings:
        call.output.warn(warning)
    if not added.files:
        call.output.message("nothing staged")
    _emit(call, added.files, added.skipped)
    if added.files:
        call.next_step("to commit: dlv commit -m MESSAGE")


def _remove(call: Invocation, paths: tuple[str, ...]) -> None:
    import dlv.versions.add as adding

    removed = adding.remove(call.repository, call.directory, paths)
    for path in removed.back:
        call.output.message(f"unstaged: {path}")
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
            else [file.path, file.shown_role, file.format, file.step, Bytes(file.bytes)]
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
