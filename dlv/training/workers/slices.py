"""One slice of a trial: from its newest checkpoint to the step that its claim names."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import dlv.training.checkpoints as checkpoints
import dlv.training.trainers.contract as contract
from dlv.dataclass import dataclass
from dlv.errors import DlvError, StorageError, UsageError
from dlv.training.checkpoints import MOST_METRICS, Checkpoint
from dlv.training.ledger.ledger import Claim, LeaseLost
from dlv.training.trainers.interface import FILES, Readers, State
from dlv.training.trial_files import Trial, TrialFiles

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
            raise UsageError(
                f"the trainer logged the step {step!r}", why="it is not a whole number"
            )
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


HERE = Path(__file__).resolve().parents[1]


class Claims(Protocol):
    """What a slice needs of the ledger, near or far."""

    def log(
        self, claim: Claim, step: int, metrics: Mapping[str, float], wall: float, repeated: int = 0
    ) -> bool: ...
    def finish(self, claim: Claim, state: str, error: str | None = None) -> None: ...


@dataclass
class Slice:
    """`heard`: when it was begun or last logged, by the monotonic clock. `reached`: the step that
    its checkpoint, and later its last log, is of."""

    claim: Claim
    claims: Claims
    readers: Readers
    stop: Callable[[], bool]
    heard: float = 0.0
    reached: int = 0
    lost: bool = False  # set from outside, too: the lease was not renewed

    def run(self, folder: Path) -> str | None:
        """Train, and tell the ledger how it ended; None: the trial is somebody else's now.

        Where the disk is full no trial is at fault: StorageError goes on to the caller.
        """
        self.heard = time.monotonic()
        error = None
        try:
            state = self._train(folder)
        except LeaseLost:
            return None
        except StorageError:
            with suppress(Exception):
                self.claims.finish(self.claim, "released")
            raise
        except MemoryError as problem:
            state, error = "failed", f"{traced(problem)}\nout of memory"
        except DlvError as problem:
            state, error = "failed", one_line(problem)
        # Code of the user's own may call sys.exit, too.
        except BaseException as problem:
            state, error = "failed", traced(problem)
        try:
            if not self.lost:
                self.claims.finish(self.claim, state, error)
        except LeaseLost:
            self.lost = True
        return None if self.lost else state

    def _train(self, folder: Path) -> str:
        trial = TrialFiles(folder).load()
        trial = replace(trial.with_(log_every=self.claim.log_every), token=self.claim.token)
        begun = checkpoints.resumed(trial.checkpoints) or Checkpoint()
        self.reached = begun.step
        log = Recorder(trial, begun, self.claim.target, self._row, self._idle)
        if not log.replay():
            if self.stop():
                return "released"
            contract.run(trial, self.claim.target, begun, log, self.readers)
        if log.diverged:
            return "diverged"
        if log.step < self.claim.target and not log.stopped:
            raise DlvError(
                f"the trainer returned at step {log.step}",
                why=f"it should have reached {self.claim.target}",
            )
        return "ready"

    def _row(self, step: int, metrics: Mapping[str, float]) -> bool:
        """One row of the ledger; True: stop here."""
        if self.lost:
            raise LeaseLost
        now = time.monotonic()
        wall, self.heard = now - self.heard, now
        repeated = max(0, min(step, self.claim.step) - self.reached)
        if step <= self.claim.step and not repeated:  # the ledger has it
            return False
        self.reached = max(self.reached, step)
        return self.claims.log(self.claim, step, metrics, wall, repeated) or self.stop()

    def _idle(self) -> bool:
        """Asked while a program of the user's own says nothing: whether to go on."""
        if self.lost:
            raise LeaseLost
        return False


def traced(error: BaseException) -> str:
    """What went wrong and where, without the frames of dlv that lead there."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None and _own(frames):
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(error), error, frames)).strip()
    words = str(error).split("\n")
    if len(words) < 2:
        return text
    # Its last line is what tables show.
    return f"{text}\n{type(error).__name__}: {' '.join(' '.join(words).split())}"


def _own(frames: object) -> bool:
    code = frames.tb_frame.f_code  # type: ignore[attr-defined]
    return HERE in Path(code.co_filename).resolve().parents


def one_line(error: DlvError) -> str:
    """In one line, as tables show it."""
    return ": ".join(filter(None, (error.message, error.why))).replace("\n", " ")
