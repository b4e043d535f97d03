"""A few hundred inputs of every target in each test run; `make fuzz` takes as many as one likes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from dlv.errors import Damaged
from tests.fuzz.mutations import json_changed
from tests.fuzz.run import fuzz, outcome
from tests.fuzz.targets import TARGETS, Target

RUNS = {"keras": 30, "pt2": 30}
# Lines that are no pattern are none, and of a damaged log the part before the damage counts.
NEVER_REFUSED = {"ignore", "events"}


@pytest.mark.parametrize("name", TARGETS)
def test_only_typed_errors(name: str) -> None:
    found = fuzz(name, RUNS.get(name, 80), seed=1)
    assert not found["faults"], "\n".join(found["faults"].values())
    refused = set(found["counts"]) - {"read"}
    assert bool(refused) is (name not in NEVER_REFUSED)


@pytest.mark.parametrize("name", TARGETS)
def test_something_to_begin_from_is_read(name: str) -> None:
    target = TARGETS[name]
    assert "read" in {outcome(target, data)[0] for data in target.seeds()}


def test_faults_are_seen() -> None:
    def broken(data: bytes) -> None:
        raise Damaged("x") if data == b"good" else KeyError("format")

    kind, told = outcome(Target(lambda: [b"good"], broken), b"bad")
    assert kind == "fault"
    assert "KeyError" in told
    assert outcome(Target(lambda: [b"good"], broken), b"good") == ("damage", "")


def test_changed_trees_leave_the_first_as_it_was() -> None:
    first = {"a": [1, {"b": "c"}], "d": {"e": [True, None]}}
    kept = repr(first)
    lot = random.Random(3)
    changed = {repr(json_changed(lot, first)) for _ in range(300)}
    assert repr(first) == kept
    assert len(changed) > 100


def test_guided_by_coverage(tmp_path: Path) -> None:
    pytest.importorskip("atheris")
    line = [sys.executable, "-m", "tests.fuzz.guided", "manifest", "-runs=200", "-seed=1"]
    done = subprocess.run(
        line,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Done 200 runs" in done.stderr
