"""What `evaluate` would train: the ledger's own verdicts, given in a copy of it.

Trials of earlier sweeps are reused, and a rule may stop some of them at once: only the ledger knows
which. Nothing in the repository changes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import dlv.training.checkpoints as checkpoints
import dlv.training.trial_files as trial_files
import dlv.training.workers.pool as pool
from dlv.dataclass import dataclass
from dlv.dql.outcome import TrainingPlan
from dlv.metadata.trials import Trials as Store
from dlv.repository.handle import Repository
from dlv.training.ledger.ledger import Ledger
from dlv.training.ledger.results import RunView, TrialView
from dlv.training.trial_files import TrialFiles

UNFINISHED = ("ready", "running", "stale", "waiting")


@dataclass(frozen=True)
class Foreseen:
    """`condition`: the state of the sweep as it is now, None if it is new. `view`, `results`: the
    sweep and its trials by rank once it begins. `begins`: the steps from which unfinished trials
    would be trained."""

    condition: str | None
    view: RunView
    results: Sequence[TrialView]
    begins: Mapping[str, int]

    def plan(self, suggested: int, most_steps: int) -> TrainingPlan:
        """The trials counted. `suggested`: those that a sampler would add, of so many steps."""
        unfinished = [trial for trial in self.results if trial.trial in self.begins]
        waiting = sum(trial.condition == "waiting" for trial in unfinished)
        left = sum(trial.steps - self.begins[trial.trial] for trial in unfinished)
        return TrainingPlan(
            finished=len(self.results) - len(unfinished),
            to_train=len(unfinished) - waiting + suggested,
            waiting=waiting,
            steps=left + suggested * most_steps,
        )


def foresee(
    repository: Repository,
    run: str,
    begin: Callable[[Ledger], object],
    lost: Callable[[TrialView], bool],
) -> Foreseen:
    """What a sweep would do. `begin` opens it in the ledger that it is given; `lost` says of a
    finished trial that its result is wanted and cannot be read."""
    condition = None
    with _copied(repository) as (store, original):
        if original is not None and original.run(run) is not None:
            condition = Ledger(original).run(run).condition
        ledger = Ledger(store)
        begin(ledger)
        pool.settle(ledger, run)
        view, results = ledger.run(run), ledger.result(run)
    begins = {}
    for trial in results:
        files = TrialFiles(repository.trials_folder / trial.trial)
        unfinished = view.state == "running" and trial.condition in UNFINISHED
        if unfinished or lost(trial):
            begins[trial.trial] = min(trial.step, checkpoints.last_step(files.checkpoints))
    return Foreseen(condition, view, results, begins)


@contextmanager
def _copied(repository: Repository) -> Iterator[tuple[Store, Store | None]]:
    """A copy of the ledger, and the ledger itself, if there is one."""
    with tempfile.TemporaryDirectory(prefix="dlv-") as folder:
        path = Path(folder) / "trials.db"
        if not repository.trials_path.exists():
            with Store(path) as store:
                yield store, None
            return
        with trial_files.open_store(repository) as original:
            original.copy(path)
            with Store(path) as store:
                yield store, original
