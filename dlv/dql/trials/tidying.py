"""Checkpoints that nobody needs any more when a run is over."""

from __future__ import annotations

import shutil

import dlv.training.checkpoints as checkpoints
from dlv.repository.handle import Repository
from dlv.training.ledger.ledger import Ledger
from dlv.training.ledger.results import RunView
from dlv.training.trial_files import TrialFiles


def discard(repository: Repository, ledger: Ledger, view: RunView, *, committed: bool) -> None:
    """Of what was stopped all go; of what was kept all but the last ones, once it is a version.

    What another run works on keeps its own.
    """
    if view.state == "running":
        return
    for trial in view.trials:
        runs = ledger.store.memberships(trial.trial)
        folder = TrialFiles(repository.trials_folder / trial.trial).checkpoints
        if any(row["state"] == "running" for row in runs):
            continue
        if trial.kept and committed:
            checkpoints.thin(folder)
        elif trial.verdict == "stopped" and all(row["stopped"] for row in runs):
            shutil.rmtree(folder, ignore_errors=True)
