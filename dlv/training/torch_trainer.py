"""The built-in trainer: a network as a module of torch, trained by gradient descent."""

from __future__ import annotations

from dlv.training.checkpoints import Checkpoint
from dlv.training.interface import Log
from dlv.training.trial_files import Trial


def train(trial: Trial, steps: int, checkpoint: Checkpoint, log: Log) -> None:
    """Train to `steps`; bit for bit the same in one go and in several."""
    raise NotImplementedError
