"""An event file of torch, and the points that TensorBoard reads in them.

TensorBoard's accumulator is asked, not dlv, so the expectation is not of our own making.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch.utils import tensorboard as of_torch

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.events.event_files import as_json, tensorboard_reads

VERSION = 1


def make(folder: Path) -> None:
    random = np.random.default_rng(0)
    log = folder / "torch"
    with of_torch.SummaryWriter(str(log)) as writer:
        for step in range(150):
            writer.add_scalar("loss/train", random.random(), step, walltime=1.7e9 + step / 8)
            writer.add_scalar(
                "double", random.random(), step, walltime=1.7e9, double_precision=True
            )
        writer.add_histogram("weights", random.normal(size=30), 1, walltime=1.7e9)
        writer.add_image("image", random.random((1, 2, 3)).astype("f4"), 1, walltime=1.7e9)
        writer.add_audio("sound", random.random((1, 9)), 1, walltime=1.7e9)
        writer.add_text("text", "a *word*, ünïcode", 3, walltime=1.7e9)
        writer.add_pr_curve("pr", np.array([0, 1, 1]), random.random(3), 1, num_thresholds=5)
        writer.add_graph(torch.nn.ReLU(), torch.zeros(1))
    expected = {"torch": as_json(tensorboard_reads(log))}
    (path,) = log.iterdir()
    path.rename(folder / "torch.tfevents")
    log.rmdir()
    (folder / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")
