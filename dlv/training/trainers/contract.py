"""The trainer that a configuration names: whether it exists, its version, and how it is called.

A trainer of the user's own in Python is `package.module:function`:

    def train(net, config, steps, ckpt, log): ...

`net.weights(name)`, `net.data`, `config["base_lr"]`, `ckpt.step`, `ckpt.state`, and
`log(step, metrics, state) -> bool`.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import dlv.own_code as own_code
from dlv.canonical import hash_bytes
from dlv.errors import NotFound, UsageError, nearest
from dlv.training.config import TRAINER, Config
from dlv.training.trainers.interface import Log, Readers, TrainFunction

if TYPE_CHECKING:
    from dlv.training.checkpoints import Checkpoint
    from dlv.training.trial_files import Trial


# Another number where dlv's own trainer would come to other results than before.
TORCH_TRAINER = 1


def trainer(config: Config, readers: Readers, directory: Path = Path()) -> TrainFunction:
    """What trains as a configuration says; UsageError if it is not there."""
    if config.trainer == TRAINER:
        import dlv.training.trainers.torch_trainer as torch_trainer

        return torch_trainer.train
    if isinstance(config.trainer, list):
        import dlv.training.trainers.process as process

        return process.trainer(config.trainer, readers, directory)
    return function_trainer(config.trainer, directory)


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
                "config.input_data is required",
                why="the trainer torch reads .npz, .csv, folders, python:module:function",
                hint='with config.input_data = "digits.npz"',
            )
    elif isinstance(config.trainer, list):
        import dlv.training.trainers.process as process

        process.check(config.trainer, directory)
    else:
        function_trainer(config.trainer, directory)


def version(config: Config, directory: Path = Path()) -> str:
    """What the trainer is, for the trial's id: other code may come to other results."""
    if config.trainer == TRAINER:
        return f"{TORCH_TRAINER}, torch {importlib.metadata.version('torch')}"
    if isinstance(config.trainer, list):
        import dlv.training.trainers.process as process

        return process.version(config.trainer, directory)
    return function_version(config.trainer, directory)


def function_trainer(name: str, directory: Path) -> TrainFunction:
    """Import the module, from this directory first; UsageError if the function is not there."""
    function = _own_function(name, directory)

    def train(trial: Trial, steps: int, checkpoint: Checkpoint, log: Log) -> None:
        if checkpoint.step >= steps:
            return
        with own_code.importing(directory):  # it may import more while it runs
            function(trial, trial.config, steps, checkpoint, log)

    return train


def function_version(name: str, directory: Path) -> str:
    """The hash of the module's code; where it has none, what it calls its version."""
    module_name, _, function = name.partition(":")
    file = getattr(_own_module(module_name, directory), "__file__", None)
    if file is None:
        return name
    return f"{function} {hash_bytes(Path(file).read_bytes())}"


def _own_function(name: str, directory: Path) -> Any:
    module_name, _, function_name = name.partition(":")
    if not function_name:
        raise UsageError(
            f"no trainer `{name}`",
            why="it is torch, package.module:function, or a list of words: a program",
            did_you_mean=nearest(name, ["torch"]),
        )
    module = _own_module(module_name, directory)
    found = getattr(module, function_name, None)
    if not callable(found):
        known = [each for each in vars(module) if callable(vars(module)[each])]
        raise NotFound(
            f"the trainer {module_name} has no function `{function_name}`",
            did_you_mean=nearest(function_name, known),
        )
    try:
        inspect.signature(found).bind(None, None, 1, None, None)
    except TypeError as error:
        raise UsageError(
            f"the trainer {name} cannot be called",
            why=str(error),
            hint="def train(net, config, steps, ckpt, log)",
        ) from error
    except ValueError:  # some that are not written in Python tell nothing
        pass
    return found


def _own_module(name: str, directory: Path) -> ModuleType:
    return own_code.module(
        name, directory, about=", of which config.trainer is", called="the trainer "
    )
