from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dlv.training.trial_files import TrialFiles
from tests.conformance.trainer import TrainerSuite
from tests.training import small

pytest.importorskip("torch")


class TestSgd(TrainerSuite):
    readers = small.READERS

    def created(self, folder: Path, **config: Any) -> TrialFiles:
        data = small.saved(folder / "blobs.npz", *small.blobs())
        given = {"input_data": data, "base_lr": 0.1, "batch_size": 16, **config}
        return small.created(folder, small.mlp(), small.mlp_weights(), given)


class TestAdamWithImages(TrainerSuite):
    """Batch normalisation, dropout, augmentation, a schedule, rates of layers."""

    readers = small.READERS

    def created(self, folder: Path, **config: Any) -> TrialFiles:
        data = small.saved(folder / "pictures.npz", *small.pictures())
        given = {
            "input_data": data,
            "base_lr": 0.01,
            "batch_size": 12,
            "optimizer": "adamw",
            "weight_decay": 0.01,
            "clip_norm": 1.0,
            "schedule": {"kind": "cosine", "warmup": 3},
            "augment": {"shift": 1, "flip": True, "noise": 0.1},
            "net": {"conv*": {"lr_mult": 0.5}, "fc": {"weight_decay": 0.1}},
            **config,
        }
        return small.created(folder, small.cnn(), small.cnn_weights(), given)
