"""A run of trials on this machine: worker processes, watched until it is over."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dlv.errors import DlvError, StorageError
from dlv.metadata.trials import Trials
from dlv.processors import physical, usable
from dlv.training.ledger.ledger import Claim, LeaseLost, Ledger
from dlv.training.ledger.progress import News, Progress, Watch, worker_ended
from dlv.training.ledger.results import RunView
from dlv.training.workers.crew import SILENCE, Crew, Ended
from dlv.training.workers.owners import Owner

LOOK = (0.05, 5.0)  # seconds between two looks at a run: least, and most if it is large
QUIET = 1.0  # seconds after which it is looked at though no worker says anything
SHARE = 0.02  # of the time that goes into looking: workers want the processors
GRACE = 10.0  # seconds for workers to end when nobody wants what they do any more
FAULTS = 10  # workers that end one after the other without a step of training between them
LEAVING = "each trial ends at its next log; Ctrl-C again: at once"


class Interrupted(DlvError):
    """Ctrl-C: what was trained is kept."""

    exit_code = 130
    kind = "interrupted"

    def __init__(self, run: str) -> None:
        super().__init__(
            "interrupted",
            why="finished work is kept",
            hint=f"to resume, run the same command; progress: dlv trials {run[:7]}",
        )


def train(
    store: Trials,
    run: str,
    *,
    workers: int | None = None,
    gpus: int = 0,
    progress: Callable[[Progress], None],
    command: Sequence[str],
    more: Callable[[], None] | None = None,
    environ: Mapping[str, str] = os.environ,
    silence: float = SILENCE,
) -> None:
    """Train the trials of a run until it is over.

    `command` starts a worker (see `worker_command`). `more` is called when a growing run has no
    trial left to train: it adds some, or says that there are no more. Ctrl-C lets the workers
    come to their next log, a second one ends them at once: Interrupted.
    """
    count = workers or _room(Ledger(store).run(run))
    driver = _Driver(
        store, run, Crew(command, count, gpus=gpus, environ=environ, silence=silence), progress
    )
    try:
        driver.drive(more)
    except KeyboardInterrupt:
        driver.leave()
        raise Interrupted(run) from None
    finally:
        driver.crew.kill()


def worker_command(start: Path, run: str) -> list[str]:
    """How a worker is started for the repository around `start`."""
    # -P: names of files where the user is must not shadow modules.
    return [sys.executable, "-P", "-m", "dlv", "-C", str(start), "worker", run]


def worker_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Where a worker finds dlv, if it is not installed."""
    home = str(Path(__file__).resolve().parents[3])
    if Path(home).name in ("site-packages", "dist-packages"):
        return dict(environ)
    known = environ.get("PYTHONPATH")
    return {**environ, "PYTHONPATH": os.pathsep.join([*([known] if known else []), home])}


def no_storage(why: str) -> StorageError:
    return StorageError(
        "the trials cannot continue", why=why, hint="then resume with the same command"
    )


def settle(ledger: Ledger, run: str) -> None:
    """Verdicts are given where a trial is claimed: there may be none left to train."""
    claim = ledger.claim(Owner.here("driver"), [run])
    if isinstance(claim, Claim):
        ledger.finish(claim, "released")


class _Driver:
    def __init__(
        self, store: Trials, run: str, crew: Crew, progress: Callable[[Progress], None]
    ) -> None:
        self.crew = crew
        self._ledger = Ledger(store)
        self._run = run
        self._watch = Watch(self._ledger, run)
        self._progress = progress
        self._faults = 0
        self._seen: object = None  # how far all was when a worker ended last

    def drive(self, more: Callable[[], None] | None) -> None:
        self._show(self._ledger.run(self._run))
        settle(self._ledger, self._run)
        while True:
            begun = time.monotonic()
            view = self._ledger.run(self._run)
            if view.state != "running":
                break
            if more is not None and view.growing and view.idle:
                more()
                settle(self._ledger, self._run)
                continue
            notes = [self._replaced(view, ended) for ended in self.crew.look()]
            most = _open(view)
            notes += [News("worker", text, {}) for text in self.crew.fill(most)]
            if not most and not self.crew.workers:
                # The last of them ended itself with its trial: nobody asks for another.
                settle(self._ledger, self._run)
            self._show(view, notes)
            self._wait(time.monotonic() - begun)
        # Others may have done what was left before it was seen that a worker is gone.
        notes = [worker_ended(ended) for ended in self.crew.look()]
        self._dismiss()
        self._show(self._ledger.run(self._run), notes)

    def _show(self, view: RunView, notes: Sequence[News] = ()) -> None:
        workers = len(self.crew.workers)
        self._progress(self._watch.look(view, time.monotonic(), workers=workers, notes=notes))

    def _wait(self, spent: float) -> None:
        """Till a worker says something, but not all the time."""
        time.sleep(max(LOOK[0], min(spent / SHARE, LOOK[1])))
        pipes = [w.process.stdout for w in self.crew.workers.values() if w.process.stdout]
        select.select(pipes, [], [], QUIET)

    def _replaced(self, view: RunView, ended: Ended) -> News:
        if not ended.ready:
            if not any(worker.ready for worker in self.crew.workers.values()):
                raise DlvError("a worker cannot begin", why=ended.reason)
            self.crew.close(ended.worker)
            return News("worker", f"worker {ended.worker} cannot begin: {ended.reason}", {})
        if ended.code == StorageError.exit_code:
            raise no_storage(ended.reason)
        # A trial that kills its workers is failed by the ledger. If there is none, nobody is.
        seen = [(trial.state, trial.step, trial.attempts) for trial in view.trials]
        self._faults = self._faults + 1 if seen == self._seen else 1
        self._seen = seen
        if self._faults > FAULTS:
            raise DlvError(
                f"{FAULTS} workers ended one after the other",
                why=f"the last one {ended.how}" if ended.code < 0 else ended.reason,
                hint=f"to see their state: dlv trials {self._run[:7]}",
            )
        return worker_ended(ended)

    def _dismiss(self) -> None:
        """The run is over: nobody waits for what a worker may still be at."""
        self.crew.release()
        ends = time.monotonic() + GRACE
        while self.crew.workers and time.monotonic() < ends:
            self.crew.look()
            time.sleep(0.01)
        self.crew.kill()

    def leave(self) -> None:
        """Let the workers come to their next log; at once, if they are interrupted again."""
        self.crew.release()
        try:
            self._show(self._ledger.run(self._run), [News("note", LEAVING, {})])
            while self.crew.workers:
                self.crew.look()
                time.sleep(0.05)
        except KeyboardInterrupt:
            killed = {worker.pid for worker in self.crew.workers.values()}
            self.crew.kill()
            self._release(killed)

    def _release(self, killed: set[int]) -> None:
        """That they were killed is no fault of their trials."""
        for trial in self._ledger.run(self._run).trials:
            if trial.owner is None or trial.owner["pid"] not in killed:
                continue
            row = self._ledger.store.trial(trial.trial)
            if row is not None and Owner(**trial.owner).host == Owner.here("driver").host:
                claim = Claim(trial.trial, row["token"], row["step"], 0, 0, ())
                with contextlib.suppress(LeaseLost):
                    self._ledger.finish(claim, "released")


def _room(view: RunView) -> int:
    """As many workers as the machine has processors for."""
    threads = max((int(trial.config.get("threads") or 1) for trial in view.trials), default=1)
    return max(1, physical(usable()) // threads)


def _open(view: RunView) -> int:
    """How many trials may be trained at once."""
    going = [
        t for t in view.trials if t.verdict is None and t.state in ("ready", "running", "stale")
    ]
    return sum(trial.step < trial.target for trial in going)
