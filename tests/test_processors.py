"""How many threads are used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import dlv.processors as processors


@pytest.mark.parametrize(("load", "expected"), [(0.0, 4), (1.4, 3), (3.6, 1), (90.0, 1)])
def test_busy_ones_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, load: float, expected: int
) -> None:
    monkeypatch.setattr(processors, "usable", lambda: {0, 1, 2, 3})
    monkeypatch.setattr(processors, "physical", len)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0, 0))
    assert processors.free() == expected


def test_threads_of_one_core_count_once(tmp_path: Path) -> None:
    for each, siblings in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        (tmp_path / str(each)).write_text(siblings + "\n")
    told = str(tmp_path / "{}")
    assert processors.physical({0, 1, 2, 3}, told) == 2
    assert processors.physical({0, 2}, told) == 1
    assert processors.physical({0, 9}, told) == 2  # nothing is told: each counts


def test_what_the_user_says_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in processors.VARIABLES:
        monkeypatch.setenv(name, "7")
    processors.bound_threads(os.environ)
    assert {os.environ[name] for name in processors.VARIABLES} == {"7"}
    monkeypatch.delenv(processors.VARIABLES[0])
    count = processors.bound_threads(os.environ)
    assert os.environ[processors.VARIABLES[0]] == str(count)


def test_numpy_is_not_there_yet() -> None:
    code = "import sys, dlv.commands.eval, dlv.processors; print('numpy' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "False\n"
