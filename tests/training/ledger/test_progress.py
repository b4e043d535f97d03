"""What is seen of a run from one look to the next: pace, the best, and each thing once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dlv.metadata.trials import Trials
from dlv.training.ledger.ledger import Claim, Ledger, NewTrial
from dlv.training.ledger.progress import WINDOW, Progress, Watch, worker_ended
from dlv.training.ledger.settling import Budget
from dlv.training.workers.crew import HUNG, Ended
from dlv.training.workers.owners import Owner

RUN = "r" * 64
ANYBODY = Owner(1, -1.0, "nowhere at all -", "w0")


class Run:
    """A run of three trials of 100 steps, watched; no process works on it."""

    def __init__(self, path: Path, direction: str | None = "max") -> None:
        self.ledger = Ledger(Trials(path))
        config = json.dumps({"steps": 100, "log_every": 10, "trainer": "x:y"})
        trials = [NewTrial(f"{n}" * 64, n, "n", config, 0, f"m{n}", {"lr": n}) for n in (1, 2, 3)]
        rule = {"rule": "top", "k": 1, "metric": "acc", "direction": direction, "step": 100}
        rules = [] if direction is None else [rule]
        self.ledger.open_run(RUN, "q", {}, rules, Budget(), trials, steps=100)
        self.watch = Watch(self.ledger, RUN)

    def claim(self) -> Claim:
        claim = self.ledger.claim(ANYBODY)
        assert isinstance(claim, Claim)
        return claim

    def look(self, now: float) -> Progress:
        return self.watch.look(self.ledger.run(RUN), now)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "trials.db")


def test_the_pace_is_that_of_the_last_minute(run: Run) -> None:
    claim = run.claim()
    assert run.look(0.0).rate is None
    run.ledger.log(claim, 20, {"acc": 0.1}, 1.0)
    found = run.look(10.0)
    assert (found.rate, found.steps, found.most_steps) == (2.0, 20, 300)
    assert found.left == 140.0
    run.look(10.0 + WINDOW)
    assert run.look(20.0 + WINDOW).rate is None  # nothing was gained since
    run.ledger.log(claim, 50, {"acc": 0.1}, 1.0)
    assert run.look(10.0 + 2 * WINDOW).rate == pytest.approx(0.5)


def test_each_end_is_news_once(run: Run) -> None:
    first, second = run.claim(), run.claim()
    assert run.look(0.0).news == []
    run.ledger.log(first, 100, {"acc": 0.5}, 1.0)
    run.ledger.finish(first, "ready")
    run.ledger.log(second, 10, {"acc": 0.25}, 1.0)
    run.ledger.finish(second, "failed", "Traceback\nValueError: no")
    found = run.look(1.0)
    assert [news.text for news in found.news] == [
        "#1 done at step 100: acc 0.5",
        "#2 failed at step 10: ValueError: no",
    ]
    assert found.news[0].details["metrics"] == {"acc": 0.5}
    assert found.most_steps == 210  # nothing is left of the second
    assert run.look(2.0).news == []


def test_what_had_ended_before_is_no_news(run: Run) -> None:
    claim = run.claim()
    run.ledger.log(claim, 100, {"acc": 0.5}, 1.0)
    run.ledger.finish(claim, "ready")
    assert run.look(0.0).news == []
    assert run.look(1.0).news == []


def test_the_best_are_those_that_still_count(run: Run) -> None:
    for accuracy, end in ((0.5, "ready"), (0.9, "failed"), (0.7, "ready")):
        claim = run.claim()
        for step in (10, 90 if end == "failed" else 100):
            run.ledger.log(claim, step, {"acc": accuracy * step / 100, "loss": 1.0}, 1.0)
        run.ledger.finish(claim, end)
    found = run.look(0.0)
    assert found.metric == "acc"
    assert [(each.trial.ordinal, each.value) for each in found.best] == [(3, 0.7), (1, 0.5)]
    assert found.best[0].values == pytest.approx([0.07, 0.7])


@pytest.mark.parametrize("metric", ["loss", "zeal"])
def test_without_a_rule_only_a_loss_is_known(tmp_path: Path, metric: str) -> None:
    run = Run(tmp_path / "trials.db", None)
    for value in (0.5, 0.25):
        claim = run.claim()
        run.ledger.log(claim, 100, {metric: value}, 1.0)
        run.ledger.finish(claim, "ready")
    found = run.look(0.0)
    assert found.metric == ("loss" if metric == "loss" else None)
    assert [each.trial.ordinal for each in found.best] == ([2, 1] if metric == "loss" else [])


@pytest.mark.parametrize(
    ("code", "printed", "text"),
    [
        (-9, "", "was killed by SIGKILL: out of memory?"),
        (HUNG, "", "gave up a silent trial and ended"),
        (1, "Traceback\nOSError: no", "ended with exit code 1 (OSError: no)"),
    ],
)
def test_the_end_of_a_worker_is_news(code: int, printed: str, text: str) -> None:
    news = worker_ended(Ended("w1", 5, code, True, printed))
    assert news.text == f"worker w1 {text}; starting another"
    assert news.details["code"] == code
