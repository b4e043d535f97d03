"""`dlv import`: what lies somewhere becomes a version, without staging."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.errors import UsageError, nearest

SOURCES = ("checkpoints", "mlflow", "tensorboard")


class _Source(click.Choice[str]):
    """Who names a file at once is told how to name what it is."""

    def convert(self, value: str, *_: object) -> str:
        if value in SOURCES:
            return value
        path = Path(value)
        store = path.suffix == ".db" or path.name == "mlruns" or (path / "meta.yaml").is_file()
        guess = "mlflow" if store else "tensorboard" if _has_events(path) else "checkpoints"
        there = path.exists() and not nearest(value, SOURCES)
        raise UsageError(
            f"`{value}` is not a source of versions",
            why="the word before the paths says what they are: " + ", ".join(SOURCES),
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
        2: "nothing that was named holds weights, or it is no MLflow store",
        4: "a file, an experiment or a run was not found",
        5: "two checkpoints of one step; the name is a tag",
        9: "a pickle, which could run any program; a file name that is not safe",
    },
)
@argument("source", metavar="checkpoints|mlflow|tensorboard", type=_Source(SOURCES))
@argument("files", metavar="PATH..", nargs=-1, required=True)
@option("--name", aliases=["--model_name"], metavar="NAME", help="Of the version.")
@option("-m", "--message", aliases=["--commit_msg"], metavar="TEXT", help="What this version is.")
@option("--no-optimizer", is_flag=True, help="Leave out optimizer state (commit.optimizer).")
@option("--experiment", multiple=True, metavar="NAME", help="mlflow: runs of this one only.")
@option("--run", "runs", multiple=True, metavar="ID", help="mlflow: this run only, by id or name.")
@option("--artifacts", multiple=True, metavar="DIR", help="mlflow: read artifacts here, too.")
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
    """Make versions of what other tools keep, without staging.

    `checkpoints FILE..`: one version, called --name, of checkpoint files or folders of them;
    each step becomes a snapshot, the last one is the version's own weights. `mlflow PATH`: a
    version of each run in mlruns/ or mlflow.db, called like its registered model or its
    experiment, with parameters, metrics, tags and artifacts; a store is believed only about
    artifacts in its own folder and in those of --artifacts. `tensorboard DIR`: a version of each
    run below DIR, with all curves, images and texts in its event files and with the
    hyperparameters; a run that has gone on becomes a child of the version it was. Doing it again
    with the same content makes nothing new. HEAD and what is staged stay as they are.
    """
    import dlv.views.imported as view

    _check(source, files, name, message, experiment + runs + artifacts)
    given: dict[str, Any] = {
        "author": call.author,
        "here": call.directory,
        "name": name,
        "optimizer": "drop" if no_optimizer else call.config.get("commit.optimizer"),
        "recheck": call.config.get("commit.recheck"),
        "jobs": call.jobs,
    }
    with call.progress("storing") as bar:
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
        what = "-m" if message is not None else f"{len(files)} paths"
        one = "store" if source == "mlflow" else "folder"
        raise UsageError(
            f"dlv import {source} does not take {what}",
            why=f"it takes one {one}, whose runs say what they are",
        )
    if source == "tensorboard" and chosen:
        raise UsageError("--experiment, --run and --artifacts belong to mlflow")
    if source == "checkpoints" and (name is None or chosen):
        what = "missing option `--name`" if name is None else "checkpoints have no runs"
        raise UsageError(what, hint="dlv import --help")
