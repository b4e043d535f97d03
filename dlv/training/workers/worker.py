"""A worker: takes one slice of a trial after the other until it is let go."""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import dlv.disk.durable as durable
from dlv.errors import DlvError
from dlv.metadata.trials import Trials
from dlv.training.ledger.ledger import RENEW, Claim, Ledger
from dlv.training.ledger.settling import Budget
from dlv.training.trainers.interface import Readers
from dlv.training.workers.crew import BEAT, HUNG, READY
from dlv.training.workers.owners import Owner
from dlv.training.workers.slices import Slice

PAUSES = (0.02, 0.5)  # between questions for work while others have it all: first, longest
OUTPUT = "output.txt"


class Lifeline:
    """The read end of a pipe that nobody writes to: it ends when the driver lets go or dies."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._cut = False

    def cut(self, patience: float = 0.0) -> bool:
        """Whether it has ended; waits for that up to `patience` seconds."""
        ends = time.monotonic() + patience
        while not self._cut:
            left = max(0.0, ends - time.monotonic())
            if not select.select([self._descriptor], [], [], left)[0]:
                return False
            self._cut = not os.read(self._descriptor, 4096)
        return True


class Voice:
    """Tells the driver that the worker lives; it does not matter whether somebody listens."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.set_blocking(descriptor, False)

    def ready(self) -> None:
        self._say(READY)

    def beat(self) -> None:
        self._say(BEAT)

    def _say(self, word: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._descriptor, word)


def private(descriptor: int, flags: int) -> int:
    """A copy of a standard stream for the worker alone; trainers find the null device there."""
    kept = os.dup(descriptor)
    null = os.open(os.devnull, flags)
    os.dup2(null, descriptor)
    os.close(null)
    return kept


class Shared:
    """A ledger for two threads: its store has one connection."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._turn = threading.Lock()

    def claim(self, owner: Owner, runs: Sequence[str] | None) -> Claim | object:
        with self._turn:
            return self._ledger.claim(owner, runs)

    def renew(self, claim: Claim) -> bool:
        with self._turn:
            return self._ledger.renew(claim)

    def log(
        self, claim: Claim, step: int, metrics: Mapping[str, float], wall: float, repeated: int = 0
    ) -> bool:
        with self._turn:
            return self._ledger.log(claim, step, metrics, wall, repeated)

    def finish(self, claim: Claim, state: str, error: str | None = None) -> None:
        with self._turn:
            self._ledger.finish(claim, state, error)

    def patience(self, claim: Claim) -> float | None:
        with self._turn:
            return patience_of(self._ledger.store, claim)


def patience_of(store: Trials, claim: Claim) -> float | None:
    """After how many seconds of silence every run of the claim gives the trial up."""
    rows = [store.run(run) for run in claim.runs]
    budgets = [Budget.of(json.loads(row["budget"])) for row in rows if row is not None]
    limits = [budget.trial_seconds for budget in budgets]
    return max((limit for limit in limits if limit), default=None) if all(limits) else None


def silence_text(seconds: float, patience: float) -> str:
    """Why a trial was given up."""
    return f"no log for {seconds:.0f} s; trial_seconds is {patience:g}"


def work(
    store: Trials,
    root: Path,
    readers: Readers,
    *,
    owner: Owner,
    runs: Sequence[str] | None,
    stop: Callable[[float], bool],
    beat: Callable[[], None] = lambda: None,
) -> int:
    """Train what there is to train, in the folder of trials `root`; how many slices it were.

    `stop(patience)`: whether to end, after waiting so many seconds for it; asked between slices
    and at each log. `beat` is called while a trial is trained, however long a step takes.
    """
    ledger, done, pause = Shared(Ledger(store)), 0, PAUSES[0]
    while not stop(0.0):
        claim = ledger.claim(owner, runs)
        if not isinstance(claim, Claim):
            # Also when all is over: the driver may have more, and lets go if not.
            beat()
            stop(pause)
            pause = min(pause * 1.5, PAUSES[1])
            continue
        pause = PAUSES[0]
        piece = Slice(claim, ledger, readers, lambda: stop(0.0))
        with kept_alive(piece, ledger, beat), printing_to(root / claim.trial / OUTPUT):
            piece.run(root / claim.trial)
        beat()
        done += 1
    return done


@contextmanager
def kept_alive(
    piece: Slice, ledger: Shared, beat: Callable[[], None], every: float = RENEW
) -> Iterator[None]:
    """Renew the lease meanwhile; give the trial up, and the process, if it says nothing."""
    patience = ledger.patience(piece.claim)
    over = threading.Event()
    every = every if patience is None else min(every, patience / 4)

    def watch() -> None:
        while not over.wait(every):
            # The ledger may be busy, or the disk full: the next time it may work again.
            with contextlib.suppress(DlvError, OSError):
                piece.lost |= not ledger.renew(piece.claim)
            beat()
            silence = time.monotonic() - piece.heard
            if patience is not None and silence > patience and not over.is_set():
                with contextlib.suppress(Exception):
                    ledger.finish(piece.claim, "failed", silence_text(silence, patience))
                os._exit(HUNG)

    thread = threading.Thread(target=watch, name="lease", daemon=True)
    piece.heard = time.monotonic()
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def printing_to(path: Path) -> Iterator[None]:
    """What is printed meanwhile, also by libraries and programs, goes behind what is there."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    try:
        file = os.open(path, flags, 0o666)
    except OSError as error:
        raise durable.storage_error("write", path, error) from error
    kept = [(stream, os.dup(stream.fileno())) for stream in (sys.stdout, sys.stderr)]
    for stream, _ in kept:
        stream.flush()
        os.dup2(file, stream.fileno())
    os.close(file)
    try:
        yield
    finally:
        for stream, descriptor in kept:
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
            os.dup2(descriptor, stream.fileno())
            os.close(descriptor)
