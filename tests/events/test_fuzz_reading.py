"""Broken events, a few here and a million in the slow run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.events import fuzz_reading

ROOT = Path(__file__).resolve().parents[2]


def test_some_broken_events() -> None:
    found = fuzz_reading.fuzz(2_000, seed=0)
    assert found.runs == 2_000
    assert min(found.good, found.items, found.faults) > 100
    assert found.damaged > 3


@pytest.mark.slow
def test_a_million_broken_events_in_little_memory() -> None:
    command = [sys.executable, "-W", "error", "-m", "tests.events.fuzz_reading"]
    subprocess.run([*command, "--runs", "1000000", "--seed", "7"], cwd=ROOT, check=True)
