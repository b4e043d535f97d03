"""Which trainer a configuration names: whether it is there, what it is, and how it is called."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dlv.errors import UsageError
from dlv.training.config import TRAINER, Config
from dlv.training.trainers.interface import Log as Log
from dlv.training.trainers.interface import Readers as Readers
from dlv.training.trainers.interface import TrainFunction as TrainFunction

if TYPE_CHECKING:
    from dlv.training.checkpoints import Checkpoint
    from dlv.training.trial_files import Trial

# Another number where dlv's own trainer would come to other results than before.
TORCH_TRAINER = 1


def trainer(config: Config, readers: Readers, directory: Path = Path()) -> TrainFunction:
    """What trains as a configuration says; UsageError if it is not there."""
    if config.trainer == TRAINER:
        import dlv.training.trainers.torch_trainer as torch_trainer

        found: TrainFunction = torch_trainer.train
        return found
    if isinstance(config.trainer, list):
        import dlv.training.trainers.process as process

        made: TrainFunction = process.trainer(config.trainer, readers, directory)
        return made
    import dlv.training.trainers.python_trainer as python_trainer

    own: TrainFunction = python_trainer.trainer(config.trainer, directory)
    return own


def run(trial: Trial, steps: int, checkpoint: Checkpoint, log: Log, readers: Readers) -> None:
    """Train a slice: from the checkpoint to `steps`, or until `log` says to stop."""
    where = trial.config.input_data
    if where is not None and readers.rows is not None:
        import dlv.training.trainers.rows as rows

        trial = replace(trial, opening=partial(rows.opened, trial, readers.rows))
    trainer(trial.config, readers, trial.directory)(trial, steps, checkpoint, log)


def check(config: Config, directory: Path = Path()) -> None:
    """Whatever can be said of the trainer before anything starts; own code is imported."""
    if config.trainer == TRAINER:
        if importlib.util.find_spec("torch") is None:
            raise UsageError(
                "the trainer torch needs the package `torch`", hint="pip install 'dlv[torch]'"
            )
        if config.input_data is None:
            raise UsageError(
                "config.input_data says nothing: which data is it trained on?",
                why="the trainer torch reads .npz, .csv, folders, python:module:function",
                hint='with config.input_data = "digits.npz"',
            )
    elif isinstance(config.trainer, list):
        import dlv.training.trainers.process as process

        process.check(config.trainer, directory)
    else:
        import dlv.training.trainers.python_trainer as python_trainer

        python_trainer.trainer(config.trainer, directory)


def version(config: Config, directory: Path = Path()) -> str:
    """What the trainer is, for the trial's id: other code may come to other results."""
    if config.trainer == TRAINER:
        return f"{TORCH_TRAINER}, torch {importlib.metadata.version('torch')}"
    if isinstance(config.trainer, list):
        import dlv.training.trainers.process as process

        return str(process.version(config.trainer, directory))
    import dlv.training.trainers.python_trainer as python_trainer

    return str(python_trainer.version(config.trainer, directory))
