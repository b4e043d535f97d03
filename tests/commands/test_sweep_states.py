"""`dlv trials` of a sweep that runs, is interrupted, killed and resumed: real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.commands.conftest import SCHEMAS
from tests.dql import trying

Dlv = Callable[..., Any]
ROOT = Path(__file__).resolve().parents[2]
TEXT = (
    'evaluate m from m where m = "lenet@2" with config = "base.toml"'
    ' vary config.base_lr in [0.1, 0.3] keep top(1, m["loss"], 15) on local(workers = 1)'
)
SECONDS = 60.0


@pytest.fixture
def slowly(filled: Path) -> Path:
    """A repository with a trainer that takes a while for each step."""
    pause = "        __import__('time').sleep(0.1)\n        for name in weights:\n"
    trainer = trying.TRAINER.replace("        for name in weights:\n", pause)
    (filled / "own_trainer.py").write_text(trainer)
    (filled / "base.toml").write_text(trying.CONFIG)
    return filled


@pytest.fixture
def started(slowly: Path) -> Iterator[subprocess.Popen[str]]:
    process = start(slowly)
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


def start(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dlv", "query", "--json", TEXT],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "HOME": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def states(dlv: Dlv) -> dict[str, Any]:
    """The sweep as a document; what is printed for people and pipes says the same."""
    document: dict[str, Any] = dlv("trials", "latest", json=True).document
    jsonschema.validate(document, json.loads((SCHEMAS / "trials.json").read_text()))
    (sweep,) = dlv("trials", json=True).document["sweeps"]
    printed = dlv("trials").stdout.split("\t")
    rows = [line.split("\t") for line in dlv("trials", "latest").stdout.splitlines()]
    texts = [printed[1], *(row[6] for row in rows)]
    records = [sweep["state"], *(trial["state"] for trial in document["trials"])]
    if texts == records and document["state"] == sweep["state"]:
        return document
    return states(dlv)  # it went on between two looks


def until(dlv: Dlv, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    ends = time.monotonic() + SECONDS
    while True:
        if dlv("trials", json=True).document["sweeps"]:
            document = states(dlv)
            if condition(document):
                return document
        assert time.monotonic() < ends, document
        time.sleep(0.05)


def logged(document: dict[str, Any]) -> bool:
    return any(trial["state"] == "running" and trial["step"] for trial in document["trials"])


@pytest.mark.usefixtures("slowly")
@pytest.mark.parametrize("how", ["Ctrl-C", "twice", "killed", "all killed"])
def test_states_are_true(dlv: Dlv, slowly: Path, started: subprocess.Popen[str], how: str) -> None:
    running = until(dlv, logged)
    assert (running["state"], running["at_work"]) == ("running", 1)
    workers = children(started.pid)
    assert workers
    if how in ("Ctrl-C", "twice"):
        started.send_signal(signal.SIGINT)
        if how == "twice":
            time.sleep(0.3)
            started.send_signal(signal.SIGINT)
        out, err = started.communicate(timeout=SECONDS)
        assert (started.returncode, out) == (130, "")
        assert "resume" in err
    else:
        started.kill()
        for pid in workers if how == "all killed" else ():
            os.kill(pid, signal.SIGKILL)
        started.communicate()
    stopped = until(dlv, lambda document: document["at_work"] == 0)
    assert stopped["state"] == "interrupted"
    assert {trial["state"] for trial in stopped["trials"]} <= {"ready", "waiting"}
    plan = dlv("query", TEXT, "--dry-run", json=True).document
    assert plan["state"] == "interrupted"
    assert plan["plan"]["to_train"] + plan["plan"]["waiting"] == 2
    begins = {trial["id"]: trial["begin"] for trial in plan["trials"]}
    assert max(begins.values()) >= 5
    before = len((slowly / "steps.txt").read_text().splitlines())
    resumed = start(slowly)
    until(dlv, lambda document: document["state"] == "running")
    out, _ = resumed.communicate(timeout=SECONDS)
    assert resumed.returncode == 0
    assert json.loads(out)["state"] == "over"
    assert states(dlv)["state"] == "over"
    steps = [line.split() for line in (slowly / "steps.txt").read_text().splitlines()[before:]]
    for trial, begin in begins.items():
        done = [int(step) for name, step in steps if name == trial]
        assert done == list(range(begin + 1, begin + 1 + len(done)))


def test_a_sweep_that_starts_up_is_running(dlv: Dlv, started: subprocess.Popen[str]) -> None:
    """Before any worker has taken a trial."""
    seen = []

    def look(document: dict[str, Any]) -> bool:
        seen.append((document["state"], document["at_work"]))
        return bool(document["at_work"])

    until(dlv, look)
    assert {state for state, _ in seen} == {"running"}


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]
