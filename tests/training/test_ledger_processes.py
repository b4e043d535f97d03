"""The ledger between real processes: killed, stopped, and all at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dlv.metadata.trials import Trials
from dlv.training.ledger.ledger import LEASE, OVER, Claim, Ledger
from dlv.training.ledger.settling import Budget
from dlv.training.workers.owners import Owner
from tests.training.lockstep import Plan, new_trials, outcome
from tests.training.mortal import value

ROOT = Path(__file__).resolve().parents[2]
STEPS, COUNT = 9, 12
RULES: Sequence[Mapping[str, Any]] = (
    {"rule": "asha", "metric": "loss", "direction": "min", "eta": 3, "first": 1, "sync": True},
    {"rule": "top", "metric": "loss", "direction": "min", "k": 3, "step": 5},
    {"rule": "patience", "metric": "loss", "direction": "min", "n": 4, "min_delta": 0.0},
)
PLANS = [Plan(f"t{n}", [value(f"t{n}", s) for s in range(1, STEPS + 1)]) for n in range(COUNT)]


class Workers:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *more: str) -> subprocess.Popen[str]:
        made = subprocess.Popen(
            [sys.executable, "-m", "tests.training.mortal", str(self.path), *more],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.started.append(made)
        return made

    def line(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline().strip()

    def go_on(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()

    def end(self) -> None:
        for process in self.started:
            process.kill()
            process.communicate()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    made = Workers(tmp_path / "trials.db")
    yield made
    made.end()


def open_run(store: Trials) -> Ledger:
    ledger = Ledger(store)
    trials = new_trials(PLANS, STEPS, 1)
    ledger.open_run("run", "q", {}, RULES, Budget(), trials, steps=STEPS)
    return ledger


def check(ledger: Ledger) -> None:
    """As if nothing had happened: every row is there once, the verdicts are those of the oracle."""
    view = ledger.run("run")
    assert view.state == "over"
    expected = outcome(PLANS, RULES, STEPS, 1)
    found = {}
    for trial in view.trials:
        assert trial.unlike is None
        curve = ledger.curves(trial.trial)["loss"]
        assert curve == [(s, value(trial.trial, s)) for s in range(1, trial.step + 1)]
        if trial.verdict == "stopped":
            mark = min((m for m in trial.marks if not m.kept), key=lambda m: (m.step, m.rule))
            found[trial.trial] = ("stopped", mark.step, mark.rule)
        else:
            found[trial.trial] = (str(trial.verdict), trial.step, 0)
    assert found == expected


SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 30))]


@pytest.mark.parametrize("seed", SEEDS)
def test_killed_at_any_moment(tmp_path: Path, workers: Workers, seed: int) -> None:
    """kill -9 after so many lines; whatever the worker was at, another one goes on with it."""
    rng = Random(seed)
    with Trials(workers.path) as store:
        ledger = open_run(store)
        others = [workers.start()] if seed % 2 else []
        for _ in range(8):
            victim = workers.start()
            for _ in range(rng.randint(1, 9)):
                if workers.line(victim) == "over":
                    break
            time.sleep(rng.choice([0, 0.001, 0.004]))
            victim.kill()
            if rng.random() < 0.5:
                victim.wait()  # else it stays a zombie
        last = workers.start()
        for process in (*others, last):
            out, _ = process.communicate()
            assert out.endswith("over\n")
        check(ledger)


def test_four_at_once(workers: Workers) -> None:
    with Trials(workers.path) as store:
        ledger = open_run(store)
        started = [workers.start() for _ in range(4)]
        lines = [line for each in started for line in each.communicate()[0].splitlines()]
        check(ledger)
        logs = [line for line in lines if line.startswith("log")]
        assert len(logs) == len(set(logs)) == ledger.run("run").spent_steps  # no step twice
        assert "lost" not in {line.split()[0] for line in lines}


def test_first_opened_by_many(workers: Workers) -> None:
    """The store is made by whoever comes first."""
    started = [workers.start() for _ in range(4)]
    for process in started:
        assert process.communicate()[0] == "over\n"
        assert process.returncode == 0


def test_stopped_beyond_its_lease(workers: Workers) -> None:
    """SIGSTOP, a lease that ends, SIGCONT: what the sleeper writes changes nothing."""
    with Trials(workers.path) as store:
        ledger = open_run(store)
        sleeper = workers.start("pause")
        assert workers.line(sleeper) == "claim t0 0 1"
        while True:  # till it has one of several steps
            words = workers.line(sleeper).split()
            if words[0] == "log":
                workers.go_on(sleeper)
            elif int(words[3]) - int(words[2]) > 1:
                break
        name, first = words[1], int(words[2]) + 1
        assert workers.line(sleeper) == f"log {name} {first}"
        os.kill(sleeper.pid, signal.SIGSTOP)
        # Nobody waits a minute here: to the others it is later.
        later = Ledger(store, clock=lambda: time.time() + LEASE + 1)
        assert next(t for t in ledger.run("run").trials if t.trial == name).state == "running"
        assert next(t for t in later.run("run").trials if t.trial == name).state == "stale"
        claim = later.claim(Owner.here("other"))
        assert isinstance(claim, Claim)
        assert (claim.trial, claim.step) == (name, first)
        later.log(claim, first + 1, {"loss": value(name, first + 1)}, 0.1)
        before = store.trial(name)
        workers.go_on(sleeper)
        os.kill(sleeper.pid, signal.SIGCONT)
        assert workers.line(sleeper) == f"lost {name}"
        assert store.trial(name) == before
        later.finish(claim, "ready")
        out, _ = sleeper.communicate("\n" * 1000)
        assert out.endswith("over\n")
        assert ledger.claim(Owner.here("other")) is OVER
        check(ledger)
