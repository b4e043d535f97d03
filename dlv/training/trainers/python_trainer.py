"""A trainer of the user's own in Python: `package.module:function`, by the contract of dlv.

    def train(net, config, steps, ckpt, log): ...

`net.weights(name)`, `net.data`, `config["base_lr"]`, `ckpt.step`, `ckpt.state`, and
`log(step, metrics, state) -> bool`.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import dlv.own_code as own_code
from dlv.canonical import hash_bytes
from dlv.errors import NotFound, UsageError, nearest
from dlv.training.checkpoints import Checkpoint
from dlv.training.trainers.interface import Log, TrainFunction
from dlv.training.trial_files import Trial


def trainer(name: str, directory: Path) -> TrainFunction:
    """Import the module, from this directory first; UsageError if the function is not there."""
    function = _function(name, directory)

    def train(trial: Trial, steps: int, checkpoint: Checkpoint, log: Log) -> None:
        if checkpoint.step >= steps:
            return
        with own_code.importing(directory):  # it may import more while it runs
            function(trial, trial.config, steps, checkpoint, log)

    return train


def version(name: str, directory: Path) -> str:
    """The hash of the module's code; where it has none, what it calls its version."""
    module_name, _, function = name.partition(":")
    file = getattr(_module(module_name, directory), "__file__", None)
    if file is None:
        return name
    return f"{function} {hash_bytes(Path(file).read_bytes())}"


def _function(name: str, directory: Path) -> Any:
    module_name, _, function_name = name.partition(":")
    if not function_name:
        raise UsageError(
            f"there is no trainer `{name}`",
            why="it is torch, package.module:function, or a list of words: a program",
            did_you_mean=nearest(name, ["torch"]),
        )
    module = _module(module_name, directory)
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


def _module(name: str, directory: Path) -> ModuleType:
    return own_code.module(
        name, directory, about=", of which config.trainer is", called="the trainer "
    )
