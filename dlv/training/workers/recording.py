"""The `log` that a trainer calls during one slice: the checkpoint first, then the ledger's row."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import dlv.training.checkpoints as checkpoints
from dlv.errors import UsageError
from dlv.training.checkpoints import MOST_METRICS, Checkpoint
from dlv.training.trainers.interface import State
from dlv.training.trial_files import Trial

# step, metrics -> whether the trial is to stop
Row = Callable[[int, Mapping[str, float]], bool]


class Recorder:
    """Called by the trainer as `log(step, metrics, state)`; True: it is to return now.

    `diverged` is set once a metric is not finite and that was not allowed; the row is kept.
    `idle` says whether the trial is to stop though it logs nothing; programs are asked so.
    """

    def __init__(
        self,
        trial: Trial,
        begun: Checkpoint,
        steps: int,
        row: Row,
        idle: Callable[[], bool] = lambda: False,
    ) -> None:
        self.idle = idle
        self.step = begun.step
        self.stopped = False
        self.diverged = False
        self._trial = trial
        self._steps = steps
        self._row = row
        self._metrics = {step: dict(row) for step, row in begun.metrics.items()}

    def replay(self) -> bool:
        """Tell the ledger again what the checkpoint says was logged: it may have lost the last.

        True: stop before anything is trained.
        """
        for step in sorted(self._metrics):
            self.stopped |= self._row(step, self._metrics[step])
            self._look(self._metrics[step])
        return self.stopped or self.diverged

    def __call__(self, step: int, metrics: Mapping[str, float], state: State | None = None) -> bool:
        """Without a state the trial cannot be resumed from this step; its row counts."""
        if self.stopped or self.diverged:
            return True
        self._check(step, metrics)
        row = {str(name): float(value) for name, value in metrics.items()}
        self._metrics[step] = row
        while len(self._metrics) > MOST_METRICS:
            del self._metrics[min(self._metrics)]
        if state is not None:
            arrays, values, files = _taken_apart(state)
            made = Checkpoint(step, arrays, values, self._metrics, files)
            checkpoints.save(self._trial.checkpoints, made, self._trial.token)
        self.step = step
        self.stopped = self._row(step, row)
        self._look(row)
        return self.stopped or self.diverged

    def _look(self, row: Mapping[str, float]) -> None:
        finite = all(math.isfinite(value) for value in row.values())
        self.diverged |= not finite and not self._trial.config["allow_nan"]

    def _check(self, step: int, metrics: Mapping[str, float]) -> None:
        every = self._trial.config.log_every
        if isinstance(step, bool) or not isinstance(step, int):
            raise UsageError(f"the trainer logged the step {step!r}", why="it is no whole number")
        if step <= self.step or step > self._steps:
            raise UsageError(
                f"the trainer logged step {step}",
                why=f"the slice goes from {self.step} to {self._steps}",
            )
        if step % every and step != self._steps:
            raise UsageError(
                f"the trainer logged step {step}",
                why=f"it logs at multiples of {every}, and at {self._steps}",
            )
        for name, value in metrics.items():
            plain = isinstance(value, (int, float, np.integer, np.floating))
            if not plain or isinstance(value, bool):
                raise UsageError(
                    f"the trainer logged {name} = {value!r}"[:200], why="metrics are numbers"
                )


def _taken_apart(state: State) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    arrays, values = {}, {}
    files: dict[str, str] = {}
    for name, value in state.items():
        if name == FILES:
            files = dict(value)
        elif isinstance(value, (np.ndarray, np.generic)):
            arrays[str(name)] = np.asarray(value)
        else:
            values[str(name)] = value
    return arrays, values, files


# The key of a state under which stand files that belong to it, with their hashes.
FILES = "\0files"
