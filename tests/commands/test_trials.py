"""`dlv trials`: runs, trials of a run, one trial; ending a run. Without anybody at work."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlv.metadata.trials import Trials
from dlv.training.ledger.ledger import Claim, Ledger, NewTrial
from dlv.training.ledger.settling import Budget
from dlv.training.workers.owners import Owner

Dlv = Callable[..., Any]
MODES = ["pipe", "tty", "json"]
RUN, OTHER = "ab" * 32, "ac" * 32
TOP = {"rule": "top", "k": 1, "metric": "loss", "direction": "min", "step": 20}
NOBODY = Owner(1, -1.0, "nowhere at all -", "w0")
DAY = 86400.0
NOW = 1781524800.0  # DLV_NOW


def trial(number: int, **varied: Any) -> NewTrial:
    config = '{"log_every":10,"steps":40,"trainer":"bowl:train"}'
    return NewTrial(f"{number:x}" * 64, number, "e" * 64, config, 0, "lenet", varied)


class Book:
    """A ledger whose clock is set by the test."""

    def __init__(self, path: Path) -> None:
        self.now = NOW - DAY
        self.ledger = Ledger(Trials(path), clock=lambda: self.now)

    def train(self, losses: list[float], *, end: str = "ready", error: str | None = None) -> None:
        claim = self.ledger.claim(NOBODY)
        assert isinstance(claim, Claim)
        for place, loss in enumerate(losses, 1):
            self.now += 1
            step = claim.step + 10 * place
            self.ledger.log(claim, step, {"loss": loss, "accuracy": 1 - loss / 4}, 1.0)
        self.ledger.finish(claim, end, error)


@pytest.fixture
def book(dlv: Dlv, workspace: Path) -> Book:
    """Three trials, of which one goes on behind the first rule, one is stopped, one failed."""
    dlv("init")
    made = Book(workspace / ".dlv" / "trials.db")
    made.ledger.open_run(
        *(RUN, 'evaluate m from "q"\nwith config = "c.toml"', {"k": 1}, [TOP], Budget(hours=2)),
        [trial(1, base_lr=0.1), trial(2, base_lr=0.01, optimizer="sgd"), trial(3, base_lr=99.0)],
        steps=40,
    )
    made.train([2.0, 1.0])
    made.train([2.5, 1.5])
    made.train([math.nan], end="failed", error='Traceback\n  File "x.py"\nValueError: full moon')
    made.train([0.5])
    return made


def test_no_runs(dlv: Dlv, workspace: Path) -> None:
    dlv("init")
    result = dlv("trials", tty=True)
    assert (result.code, result.stdout) == (0, "")
    assert "no sweeps" in result.stderr
    assert dlv("trials", json=True).document["sweeps"] == []
    assert not (workspace / ".dlv" / "trials.db").exists()
    assert dlv("trials", "latest").code == 4


@pytest.mark.parametrize("mode", MODES)
def test_runs(dlv: Dlv, snapshot: Dlv, book: Book, mode: str) -> None:
    book.now += 60
    book.ledger.open_run(OTHER, "evaluate n", {}, [], Budget(), [trial(4)], steps=40)
    snapshot(dlv("trials", tty=mode == "tty", json=mode == "json"))


def test_ids_of_runs(dlv: Dlv, book: Book) -> None:
    assert dlv("trials", "-q").stdout == f"{RUN}\n"


@pytest.mark.parametrize("mode", MODES)
def test_trials_of_a_run(dlv: Dlv, snapshot: Dlv, book: Book, mode: str) -> None:
    snapshot(dlv("trials", "latest", tty=mode == "tty", json=mode == "json"))


@pytest.mark.parametrize("mode", MODES)
def test_a_trial(dlv: Dlv, snapshot: Dlv, book: Book, mode: str) -> None:
    snapshot(dlv("trials", RUN[:6], "3", tty=mode == "tty", json=mode == "json"))


def test_a_trial_by_its_id(dlv: Dlv, book: Book) -> None:
    for word in ("2", "#2", "2222", "2" * 64):
        found = dlv("trials", "latest", word, json=True).document["trial"]
        assert (found["ordinal"], found["verdict"], found["step"]) == (2, "stopped", 20)
        assert found["logs"]["loss"] == {"steps": [10, 20], "values": [2.5, 1.5]}


@pytest.mark.parametrize(("started", "state"), [(0.0, "running"), (1.0, "interrupted")])
def test_a_run_whose_worker_was_killed_is_interrupted(
    dlv: Dlv, book: Book, started: float, state: str
) -> None:
    """Though its lease has not ended yet."""
    here = Owner.here("w0")
    book.now = time.time()
    assert isinstance(book.ledger.claim(replace(here, started=here.started + started)), Claim)
    assert dlv("trials").stdout.split("\t")[1] == state
    assert dlv("trials", json=True).document["sweeps"][0]["at_work"] == (state == "running")


def test_a_run_is_ended(dlv: Dlv, book: Book) -> None:
    document = dlv("trials", RUN, "--stop", json=True).document
    assert (document["state"], document["why"]) == ("stopped", "stopped by the user")
    assert book.ledger.stopped(RUN)
    assert dlv("trials", RUN, "--stop", json=True).document["state"] == "stopped"  # again


def test_a_run_that_is_over_is_not_stopped(dlv: Dlv, book: Book) -> None:
    book.train([0.25])
    assert not isinstance(book.ledger.claim(NOBODY), Claim)
    assert dlv("trials", RUN, "--stop", json=True).document["state"] == "over"


def test_a_sweep_is_deleted(dlv: Dlv, workspace: Path, book: Book) -> None:
    """With trials and checkpoints that no other sweep has."""
    book.ledger.open_run(OTHER, "evaluate n", {}, [], Budget(), [trial(2), trial(4)], steps=40)
    folders = {}
    for number in (1, 2, 3, 4):
        folder = workspace / ".dlv" / "trials" / (f"{number:x}" * 64) / "checkpoint"
        folder.mkdir(parents=True)
        (folder / "20-1.ckpt").write_bytes(bytes(100 * number))
        folders[number] = folder.parent
    assert dlv("trials", RUN, json=True).document["checkpoint_bytes"] == 600
    assert dlv("trials", RUN, "--delete").code == 9  # nobody can be asked
    assert "checkpoints: 600 B" in dlv("trials", RUN, tty=True).stdout
    here = Owner.here("w0")
    book.now = time.time()
    claim = book.ledger.claim(here, [RUN])
    assert isinstance(claim, Claim)
    refused = dlv("trials", RUN, "--delete", "-y")
    assert (refused.code, "--stop" in refused.stderr) == (5, True)
    book.ledger.finish(claim, "released")
    document = dlv("trials", RUN, "--delete", "-y", json=True).document
    assert document["deleted"] == {"sweep": RUN, "trials": ["1" * 64, "3" * 64]}
    assert [number for number, folder in folders.items() if folder.exists()] == [2, 4]
    (sweep,) = dlv("trials", json=True).document["sweeps"]
    assert (sweep["id"], sweep["total"]) == (OTHER, 2)
    assert dlv("trials", RUN, "--delete", "-y").code == 4


REFUSED: dict[str, tuple[list[str], int]] = {
    "no such run": (["ffff"], 4),
    "too short": (["ab"], 4),
    "no such trial": (["latest", "7"], 4),
    "stop of nothing": (["--stop"], 2),
    "stop of a trial": (["latest", "1", "--stop"], 2),
    "delete of nothing": (["--delete"], 2),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("mode", ["pipe", "json"])
def test_refused(dlv: Dlv, snapshot: Dlv, book: Book, name: str, mode: str) -> None:
    words, code = REFUSED[name]
    result = dlv("trials", *words, json=mode == "json")
    assert (result.code, result.stdout) == (code, "")
    snapshot(result)


def test_a_beginning_that_fits_two_runs(dlv: Dlv, book: Book) -> None:
    for name in ("ac" * 2 + "1" * 60, "ac" * 2 + "2" * 60):
        book.ledger.open_run(name, "evaluate n", {}, [], Budget(), [], steps=40)
    assert dlv("trials", "acac").code == 4
    assert dlv("trials", "acac1").code == 0


def test_completion_offers_runs(dlv: Dlv, book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_DLV_COMPLETE", "bash_complete"), ("COMP_LINE", "dlv trials ")):
        monkeypatch.setenv(name, value)
    assert dlv().stdout.split() == ["plain,latest", f"plain,{RUN[:12]}"]


def test_outside_a_repository(dlv: Dlv, workspace: Path) -> None:
    assert dlv("trials").code == 3
