"""Restarted runs in `dlv metrics`, `dlv plots` and `dlv tensorboard`: which points are shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import event_bytes

Dlv = Callable[..., Any]
SAID = "old and new points are both shown; `--restarts preempt` hides the old ones"


@pytest.fixture
def restarted(dlv: Dlv, workspace: Path) -> Path:
    """A run that went back from step 9 to step 5, without a mark, and one with a mark."""
    rows = [*((step, step) for step in range(10)), *((step, -step) for step in range(5, 12))]
    text = "step,loss\n" + "".join(f"{step},{value}\n" for step, value in rows)
    (workspace / "log.csv").write_text(text)
    marked = (
        event_bytes.version() + event_bytes.start(1.0, 0) + event_bytes.scalars("loss", range(10))
    )
    marked += event_bytes.start(2.0, 5) + event_bytes.scalars("loss", range(5, 12))
    (workspace / "runs").mkdir()
    (workspace / "runs" / "events.out.tfevents.1.x").write_bytes(marked)
    dlv("init")
    dlv("commit", "-m", "back", "--name", "net", "--log", "log.csv")
    dlv("commit", "-m", "marked", "--name", "net", "--orphan", "--tb", "runs")
    return workspace


@pytest.mark.parametrize("policy", [None, "marked", "preempt", "keep"])
def test_metrics(dlv: Dlv, restarted: Path, policy: str | None) -> None:
    words = [] if policy is None else ["--restarts", policy]
    found = dlv("metrics", "net@1", "net@2", *words, json=True).document["metrics"]
    expected = {
        None: [(17, 9.0, 9), (12, 5.5, 11)],
        "marked": [(17, 9.0, 9), (12, 5.5, 11)],
        "preempt": [(12, 4.0, 4), (12, 5.5, 11)],
        "keep": [(17, 9.0, 9), (17, 5.5, 11)],
    }
    assert [(each["points"], each["max"], each["max_step"]) for each in found] == expected[policy]


@pytest.mark.parametrize("mode", ["tty", "pipe", "json"])
def test_plots_without_what_was_given_up(
    dlv: Dlv, snapshot: Dlv, restarted: Path, mode: str
) -> None:
    words = ["plots", "net@1", "--restarts", "preempt"]
    snapshot(dlv(*words, tty=mode == "tty", json=mode == "json"))


def test_it_is_said_once_and_only_where_nobody_has_chosen(dlv: Dlv, restarted: Path) -> None:
    for verb in ("plots", "metrics"):
        words = [verb, "net@1", "net@2", "--metric", "loss"]
        told = dlv(*words).stderr
        assert told.count(SAID) == 1
        assert "steps of `loss` of net@1 go back" in told
        assert "net@2" not in told
        assert dlv(*words, "--restarts", "marked").stderr == ""
    dlv("config", "curves.restarts", "keep")
    assert dlv("plots", "net@1").stderr == ""
    assert len(dlv("plots", "net@2").stdout.splitlines()) == 17


def test_a_commit_says_it(dlv: Dlv, restarted: Path) -> None:
    silent = (
        event_bytes.version()
        + event_bytes.scalars("loss", range(10))
        + event_bytes.scalars("loss", range(5, 12))
    )
    (restarted / "runs" / "events.out.tfevents.1.x").write_bytes(silent)
    told = dlv("commit", "-m", "silent", "--name", "net", "--tb", "runs").stderr
    assert told.count(SAID) == 1
    told = dlv("import", "tensorboard", "runs", "--name", "other").stderr
    assert told.count(SAID) == 1


def test_an_unknown_policy(dlv: Dlv, snapshot: Dlv, restarted: Path) -> None:
    snapshot(dlv("metrics", "net@1", "--restarts", "last"))
