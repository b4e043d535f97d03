"""Broken events, a few here and a million in the slow run."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.events import fuzz_reading
from tests.events.event_files import Run, read_bytes, tensorboard_reads

ROOT = Path(__file__).resolve().parents[2]


def test_some_broken_events() -> None:
    found = fuzz_reading.fuzz(2_000, seed=0)
    assert found.runs == 2_000
    assert min(found.good, found.items, found.faults) > 100
    assert found.damaged > 3


@pytest.mark.parametrize("count", [60, pytest.param(3000, marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore")
def test_broken_events_are_points_where_they_are_for_tensorboard(
    tmp_path: Path, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL")
    good, compared = fuzz_reading.seeds(), 0
    for seed in range(count):
        chance = random.Random(seed)
        broken = (fuzz_reading.broken(chance, good) for _ in range(60))
        folder = tmp_path / str(seed)
        folder.mkdir()
        data = b"".join(fuzz_reading.frame(body) for body in broken if fuzz_reading.is_event(body))
        ours = read_bytes(folder, data)
        try:
            theirs = tensorboard_reads(folder)
        except Exception:  # it fails over one broken event in hundreds, in many ways
            continue
        compared += 1
        for tag in {*ours.series, *theirs.series}:
            if not classed_by_later_values(ours, theirs, tag):
                assert ours.plain().get(tag) == theirs.plain().get(tag), (seed, tag)
    assert compared > count / 2


def classed_by_later_values(ours: Run, theirs: Run, tag: str) -> bool:
    """Whether the first value of the tag says nothing about it: `test_what_differs_..` has more."""
    here, there = (
        run.series[tag].metadata if tag in run.series else None for run in (ours, theirs)
    )
    return (here is not None and not here.plugin) or (there is not None and not there.data_class)


@pytest.mark.slow
def test_a_million_broken_events_in_little_memory() -> None:
    command = [sys.executable, "-W", "error", "-m", "tests.events.fuzz_reading"]
    subprocess.run([*command, "--runs", "1000000", "--seed", "7"], cwd=ROOT, check=True)
