"""`dlv import`: import checkpoints, MLflow stores and TensorBoard logs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.errors import UsageError, nearest

SOURCES = ("checkpoints", "mlflow", "tensorboard", "bundle")


class _Source(click.Choice[str]):
    """The source; given a path instead, the error suggests the source that fits it."""

    def convert(self, value: str, *_: object) -> str:
        if value in SOURCES:
            return value
        path = Path(value)
        store = path.suffix == ".db" or path.name == "mlruns" or (path / "meta.yaml").is_file()
        guess = "mlflow" if store else "tensorboard" if _has_events(path) else "checkpoints"
        guess = "bundle" if path.suffix == ".bundle" else guess
        there = path.exists() and not nearest(value, SOURCES)
        raise UsageError(
            f"unknown source `{value}`: use {', '.join(SOURCES[:-1])} or {SOURCES[-1]}",
            hint=f"dlv import {guess} {value}{' --name NAME' if guess == 'checkpoints' else ''}"
            if there
            else None,
            did_you_mean=nearest(value, SOURCES),
        )


def _has_events(path: Path) -> bool:
    return path.is_dir() and any(path.glob("**/*tfevents*"))


@command(
    "import",
    examples=[
        "dlv checkout HEAD --to old && dlv import checkpoints old --name old",
        "dlv checkout HEAD --to a && dlv import checkpoints a/*.safetensors --name a -m 'Old runs'",
    ],
    exits={
        4: "no such file, experiment or run",
        5: "two checkpoints of one step, or the name is a tag",
        9: "a pickle that could execute code, or an unsafe file name",
    },
)
@argument("source", metavar="checkpoints|mlflow|tensorboard|bundle", type=_Source(SOURCES))
@argument("files", metavar="PATH..", nargs=-1, required=True)
@option("--name", aliases=["--model_name"], metavar="NAME", help="Model to import to.")
@option("-m", "--message", aliases=["--commit_msg"], metavar="TEXT", help="Commit message.")
@option("--no-optimizer", is_flag=True, help="Skip optimizer state (config: commit.optimizer).")
@option("--experiment", multiple=True, metavar="NAME", help="mlflow: import only this experiment.")
@option(
    "--run", "runs", multiple=True, metavar="ID", help="mlflow: import only this run (id or name)."
)
@option("--artifacts", multiple=True, metavar="DIR", help="mlflow: also read artifacts below DIR.")
def run(
    call: Invocation,
    source: str,
    files: tuple[str, ...],
    name: str | None,
    message: str | None,
    no_optimizer: bool,
    experiment: tuple[str, ...],
    runs: tuple[str, ...],
    artifacts: tuple[str, ...],
) -> None:
    """Import checkpoints, MLflow or TensorBoard runs.

    `checkpoints` makes one version of checkpoint files or folders; the last step becomes the
    default checkpoint. `mlflow` makes a version of each run in mlruns/ or mlflow.db, with
    parameters, metrics, tags and artifacts. `tensorboard` makes a version of each run below DIR.
    `bundle` reads versions from a file that dlv export wrote.
    HEAD and staged files do not change, and importing the same again makes nothing new.
    """
    import dlv.views.imported as view

    if source == "bundle":
        _bundle(call, files, name)
        return
    _check(source, files, name, message, experiment + runs + artifacts)
    given: dict[str, Any] = {
        "author": call.author,
        "here": call.directory,
        "name": name,
        "optimizer": "drop" if no_optimizer else call.config.get("commit.optimizer"),
        "recheck": call.config.get("commit.recheck"),
        "jobs": call.jobs,
    }
    with call.progress("Storing") as bar:
        given["progress"] = bar.advance
        if source == "mlflow":
            import dlv.intake.mlflow as intake_mlflow

            chosen = intake_mlflow.Request(
                files[0], experiments=experiment, runs=runs, **given, artifacts=artifacts
            )
            found = intake_mlflow.import_mlflow(call.repository, chosen)
            view.remarks(call.output, found.skipped, found.warnings, everything=call.verbose)
            view.runs(call.output, found)
            return
        if source == "tensorboard":
            import dlv.intake.tensorboard as intake_tensorboard

            del given["optimizer"]
            found = intake_tensorboard.import_tensorboard(
                call.repository, intake_tensorboard.Request(files[0], **given)
            )
            view.remarks(call.output, found.skipped, found.warnings, everything=call.verbose)
            view.runs(call.output, found)
            return
        import dlv.intake.checkpoints as intake

        request = intake.Request(files, message=message, total=bar.expect, **given)
        made = intake.import_checkpoints(call.repository, request)
    view.remarks(call.output, made.skipped, made.warnings, everything=call.verbose)
    view.checkpoints(call.output, made)


def _check(
    source: str, files: tuple[str, ...], name: str | None, message: str | None, chosen: Any
) -> None:
    """What goes with one source only."""
    if source != "checkpoints" and (len(files) != 1 or message is not None):
        what = "a message" if message is not None else f"{len(files)} paths"
        one = "store" if source == "mlflow" else "folder"
        raise UsageError(f"dlv import {source} takes one {one}, not {what}")
    if source == "tensorboard" and chosen:
        raise UsageError("--experiment, --run and --artifacts require dlv import mlflow")
    if source == "checkpoints" and (name is None or chosen):
        what = (
            "missing option `--name`" if name is None else "--experiment and --run require mlflow"
        )
        raise UsageError(what, hint=f"dlv import checkpoints {shlex.join(files)} --name NAME")


def _bundle(call: Invocation, files: tuple[str, ...], name: str | None) -> None:
    import dlv.hub.bundles as bundles
    from dlv.terminal.table import Cell, Column, Id, Table, Text

    rows: list[list[Cell]] = []
    records: list[dict[str, Any]] = []
    ids: list[str] = []
    for path in files:
        with call.progress("Importing") as bar:
            place = Path(call.directory, path)
            done = bundles.read(
                *(call.repository, place, call.author),
                name=name,
                progress=bar.advance,
                total=bar.expect,
            )
        for version in done.versions:
            rows.append([Text(version.label, "bold"), Id(version.id)])
            ids.append(version.id)
            record = {"id": version.id, "name": version.name, "number": version.number}
            records.append({**record, "new": True, "steps": [], "raw": 0})
    columns = [Column("version", fixed=True), Column("id")]
    call.output.emit(
        "import", {"versions": records, "metrics": [], "skipped": []}, Table(columns, rows), ids=ids
    )
    if not rows:
        call.output.message("already up to date")
