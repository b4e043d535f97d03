"""Logs of all writers there are: dlv reads in them what TensorBoard's own loader reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import tensorboard as of_torch

from tests.events import foreign_logs
from tests.events.event_files import read_run, tensorboard_reads

tensorboardx = pytest.importorskip("tensorboardX")


def by_torch(root: Path) -> None:
    random = np.random.default_rng(5)
    with of_torch.SummaryWriter(str(root)) as writer:
        _all_calls(writer, random)
        for step in range(300):
            writer.add_scalar("new", random.random(), step, new_style=True)
            writer.add_scalar("double", random.random(), step, double_precision=True)
        writer.add_audio("audio", random.random((1, 400)), 2)
        writer.add_graph(torch.nn.Linear(3, 2), torch.rand(1, 3))
        writer.add_tensor("tensor", torch.arange(6).reshape(2, 3), 1)


def by_tensorboardx(root: Path) -> None:
    with tensorboardx.SummaryWriter(str(root)) as writer:
        _all_calls(writer, np.random.default_rng(6))


def _all_calls(writer: Any, random: np.random.Generator) -> None:
    for step in range(300):
        writer.add_scalar("loss/train", random.random(), step, walltime=1.0 + step)
        writer.add_scalars("both", {"a": random.random(), "b": -random.random()}, step)
        if step % 50 == 0:
            limits, counts = [0.0, 0.5, 1e308], [0.0, 5.0, 1.0]
            writer.add_histogram("weights", random.normal(size=200), step)
            writer.add_histogram_raw("raw", -1.0, 1.0, 6, 2.0, 3.0, limits, counts, step)
    writer.add_image("image", random.random((3, 8, 6)).astype("f4"), 1)
    writer.add_images("images", random.random((2, 3, 8, 6)).astype("f4"), 1)
    writer.add_image_with_boxes("boxes", random.random((3, 20, 20)), np.array([[1.0, 2, 9, 12]]))
    writer.add_text("text", "a *word*, ünïcode", 3)
    writer.add_pr_curve("pr", random.integers(0, 2, 50), random.random(50), 4)
    writer.add_pr_curve_raw("pr_raw", *random.random((6, 9)), global_step=1, num_thresholds=9)
    writer.add_mesh("mesh", torch.rand(1, 5, 3), colors=torch.ones(1, 5, 3, dtype=torch.uint8))
    writer.add_custom_scalars({"all": {"x": ["Multiline", ["loss/.*"]]}})
    writer.add_hparams({"lr": 0.1, "name": "x", "on": True}, {"best": 0.5})
    writer.add_embedding(torch.rand(4, 3), global_step=1)


@pytest.mark.parametrize("write", [by_torch, by_tensorboardx, *foreign_logs.SMALL])
@pytest.mark.filterwarnings("ignore")
def test_dlv_reads_what_tensorboard_reads(write: Callable[[Path], None], tmp_path: Path) -> None:
    write(tmp_path / "log")
    folders = sorted({path.parent for path in (tmp_path / "log").rglob("*tfevents*")})
    assert folders
    for folder in folders:
        ours = read_run(sorted(folder.glob("*tfevents*")))
        assert ours.plain() == tensorboard_reads(folder).plain()
