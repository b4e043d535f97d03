"""The parts of a worker: its lifeline, its voice, its output, its lease."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import dlv.training.workers.worker as worker
from dlv.errors import Conflict
from dlv.training.ledger.ledger import Claim, Ledger
from dlv.training.ledger.settling import Budget
from dlv.training.trainers.interface import Readers
from dlv.training.workers.owners import Owner
from dlv.training.workers.slices import Slice
from tests.training.pooled import Place

CLAIM = Claim("t" * 64, 1, 0, 10, 10, ("r",))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "here")


def test_a_lifeline_is_cut_by_the_end_of_the_other_side() -> None:
    reading, writing = os.pipe()
    lifeline = worker.Lifeline(reading)
    assert not lifeline.cut()
    assert not lifeline.cut(0.01)
    os.write(writing, b"x")  # is no end
    assert not lifeline.cut(0.01)
    timer = threading.Timer(0.05, os.close, [writing])
    timer.start()
    assert lifeline.cut(60.0)  # waits no longer than it must
    os.close(reading)
    assert lifeline.cut()


def test_a_voice_that_nobody_hears_is_no_trouble() -> None:
    reading, writing = os.pipe()
    voice = worker.Voice(writing)
    voice.ready()
    voice.beat()
    assert os.read(reading, 100) == b"readybeat"
    for _ in range(100_000):  # more than a pipe holds
        voice.beat()
    os.close(reading)
    voice.beat()
    os.close(writing)


def test_standard_streams_of_a_worker_are_its_own() -> None:
    script = """
import os, sys
from dlv.training.workers.worker import private
mine = private(0, os.O_RDONLY), private(1, os.O_WRONLY)
assert sys.stdin.read() == ""
print("nobody sees this", flush=True)
os.write(mine[1], os.read(mine[0], 100))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], input=b"told", capture_output=True, check=True
    )
    assert done.stdout == b"told"


def test_printed_text_goes_to_the_file_and_only_meanwhile(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "output.txt"
    with capfd.disabled():
        script = f"""
import os, subprocess, sys
from pathlib import Path
from dlv.training.workers.worker import printing_to
print("before")
for text in ("one", "two"):
    with printing_to(Path({str(path)!r})):
        print(text)
        print("wrong", file=sys.stderr)
        subprocess.run(["echo", "program"])
print("after")
"""
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )
    assert done.stdout.split() == ["before", "after"]
    assert sorted(path.read_text().split()) == sorted(["one", "two"] + ["wrong", "program"] * 2)


class Counted:
    """A ledger for a lease, which holds for some renewals."""

    def __init__(self, holds: list[bool | Exception], patience: float | None = None) -> None:
        self.holds = holds
        self.patience_seconds = patience
        self.calls = 0
        self.asked = threading.Event()

    def patience(self, _: Claim) -> float | None:
        return self.patience_seconds

    def renew(self, _: Claim) -> bool:
        self.calls += 1
        if self.calls > len(self.holds):  # all answers have been heard
            self.asked.set()
        found = self.holds[min(self.calls, len(self.holds)) - 1]
        if isinstance(found, Exception):
            raise found
        return found


def piece() -> Slice:
    return Slice(CLAIM, None, Readers(), lambda: False)  # type: ignore[arg-type]


def test_a_lease_is_renewed_while_a_step_takes_its_time() -> None:
    beats: list[int] = []
    ledger: Any = Counted([True, Conflict("busy"), True, True, True])
    slow = piece()
    with worker.kept_alive(slow, ledger, lambda: beats.append(1), every=0.01):
        assert ledger.asked.wait(60)
    assert not slow.lost
    assert len(beats) >= 4


def test_a_lease_that_was_lost_is_noticed() -> None:
    ledger: Any = Counted([True, False])
    slow = piece()
    with worker.kept_alive(slow, ledger, lambda: None, every=0.01):
        assert ledger.asked.wait(60)
    assert slow.lost


def test_the_longest_patience_of_all_runs_counts(place: Place) -> None:
    one = place.open_run([{}], run="a" * 64, budget=Budget(trial_seconds=5))
    two = place.open_run([{}], run="b" * 64, budget=Budget(trial_seconds=7))
    free = place.open_run([{}], run="c" * 64)
    with place.store() as store:

        def patience(*runs: str) -> float | None:
            return worker.patience_of(store, Claim("t", 1, 0, 10, 10, runs))

        assert patience(one) == 5
        assert patience(one, two) == 7
        assert patience(one, free) is None


def test_work_ends_when_it_is_let_go_between_slices(place: Place) -> None:
    """In this process: each slice goes as far as its claim."""
    run = place.open_run([{"base_lr": 0.1}, {"base_lr": 0.2}])
    asked: list[float] = []

    def stop(patience: float) -> bool:
        asked.append(patience)
        with place.store() as store:
            return Ledger(store).run(run).state == "over"

    with place.store() as store:
        done = worker.work(
            *(store, place.repository.trials_folder, Readers()),
            owner=Owner.here("here"),
            runs=[run],
            stop=stop,
        )
    assert done == 2
    assert [t.step for t in place.view(run).trials] == [40, 40]


def test_a_slice_that_nobody_waits_for_is_given_back(place: Place) -> None:
    run = place.open_run([{"base_lr": 0.1}])
    with place.store() as store:
        ledger = Ledger(store)
        claim = ledger.claim(Owner.here("here"), [run])
        assert isinstance(claim, Claim)
        state = Slice(claim, ledger, Readers(), lambda: True).run(
            place.repository.trials_folder / claim.trial
        )
        assert state == "released"
        (trial,) = ledger.run(run).trials
        assert (trial.state, trial.step, trial.attempts) == ("ready", 0, 0)


def test_a_slice_whose_lease_is_lost_writes_nothing(place: Place) -> None:
    run = place.open_run([{"base_lr": 0.1}])
    with place.store() as store:
        ledger = Ledger(store)
        claim = ledger.claim(Owner.here("here"), [run])
        assert isinstance(claim, Claim)
        lost = Slice(claim, ledger, Readers(), lambda: False, lost=True)
        assert lost.run(place.repository.trials_folder / claim.trial) is None
        (trial,) = ledger.run(run).trials
        assert (trial.state, trial.step) == ("running", 0)


def test_a_trial_whose_folder_is_gone_has_failed(place: Place) -> None:
    run = place.open_run([{"base_lr": 0.1}])
    with place.store() as store:
        ledger = Ledger(store)
        claim = ledger.claim(Owner.here("here"), [run])
        assert isinstance(claim, Claim)
        folder = place.repository.trials_folder / claim.trial
        (folder / "trial.json").unlink()
        assert Slice(claim, ledger, Readers(), lambda: False).run(folder) == "failed"
        (trial,) = ledger.run(run).trials
        assert "has no trial.json" in trial.why
