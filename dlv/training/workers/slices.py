"""One slice of a trial: from its newest checkpoint to the step that its claim names."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import dlv.training.checkpoints as checkpoints
import dlv.training.trainers.contract as contract
from dlv.errors import DlvError, StorageError
from dlv.training.checkpoints import Checkpoint
from dlv.training.ledger.claims import Claim, LeaseLost
from dlv.training.trainers.interface import Readers
from dlv.training.trial_files import TrialFiles
from dlv.training.workers.recording import Recorder

HERE = Path(__file__).resolve().parents[1]


class Claims(Protocol):
    """What a slice needs of the ledger, near or far."""

    def log(self, claim: Claim, step: int, metrics: Mapping[str, float], wall: float) -> bool: ...
    def finish(self, claim: Claim, state: str, error: str | None = None) -> None: ...


@dataclass
class Slice:
    """`heard`: when it was begun or last logged, by the monotonic clock."""

    claim: Claim
    claims: Claims
    readers: Readers
    stop: Callable[[], bool]
    heard: float = 0.0
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
                why=f"it was to go to {self.claim.target}, and was not told to stop",
            )
        return "ready"

    def _row(self, step: int, metrics: Mapping[str, float]) -> bool:
        """One row of the ledger; True: stop here."""
        if self.lost:
            raise LeaseLost
        now = time.monotonic()
        wall, self.heard = now - self.heard, now
        if step <= self.claim.step:  # the ledger has it
            return False
        return self.claims.log(self.claim, step, metrics, wall) or self.stop()

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
