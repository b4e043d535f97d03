"""Progress in a line, in rows, as JSON; whatever names and values there are."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

import dlv.views.trials as view
from dlv.training.ledger.progress import GROUPS, Course, News, Progress
from dlv.training.ledger.results import TrialView

TRIAL = TrialView(
    trial="a" * 64,
    ordinal=7,
    label="lenet@2",
    network="n" * 64,
    config={},
    varied={"base_lr": 0.1},
    seed=0,
    state="running",
    step=30,
    target=100,
    steps=100,
    verdict=None,
    why="",
    marks=(),
    last={"loss": 0.123456},
    cut={},
    seconds=1.0,
    attempts=1,
    error=None,
    unlike=None,
    owner=None,
)
COURSE = Course(TRIAL, 0.123456, [2.0, 1.0])
PROGRESS = Progress(
    run="r" * 64,
    trials=72,
    groups={**dict.fromkeys(GROUPS, 0), "done": 12, "running": 2, "failed": 1, "ready": 57},
    steps=3_400,
    most_steps=72_000,
    rate=12.34,
    left=5_559.2,
    workers=2,
    metric="loss",
    best=[COURSE],
    news=[],
    over=False,
)


def drawn(values: Sequence[float], columns: int) -> str:
    return f"{len(values)}/{columns}"


def test_where_a_run_stands_in_a_line() -> None:
    assert view.line(PROGRESS) == (
        "72 trials: 12 done, 2 running, 1 failed, 57 ready; 3,400 of at most 72,000 steps;"
        " 12.3 steps/s; at most 1 h 32 min left"
    )


def test_before_anything_is_known() -> None:
    found = replace(PROGRESS, rate=None, left=None, steps=0)
    assert view.line(found).endswith("57 ready; 0 of at most 72,000 steps")
    assert view.best(replace(found, metric=None, best=[]), drawn) == ([], [])


def test_a_run_that_is_over_has_nothing_left() -> None:
    found = replace(PROGRESS, over=True, steps=5_000, most_steps=5_000)
    assert view.line(found).endswith("5,000 of 5,000 steps; 12.3 steps/s")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (3_599, "59 min 59 s"),
        (3_600, "1 h 0 min"),
        (47 * 3_600, "47 h 0 min"),
        (50 * 3_600, "2 days"),
        (1e9, "11,574 days"),
    ],
)
def test_a_length_of_time(seconds: float, text: str) -> None:
    assert view.span(seconds) == text


def test_the_best_so_far() -> None:
    heads, rows = view.best(PROGRESS, drawn)
    assert heads == ["trial", "model", "varied", "step", "loss", "course"]
    assert rows == [["#7", "lenet@2", "base_lr=0.1", "30", "0.1235", "2/20"]]


def test_names_from_models_are_data() -> None:
    trial = replace(TRIAL, label="\x1b[31m", varied={"a\nb": "\u202ec", "n": [1, None]})
    evil = replace(COURSE, trial=trial)
    _, rows = view.best(replace(PROGRESS, best=[evil]), drawn)
    assert rows[0][1:3] == ["\\x1b[31m", "a\\nb=\\u202ec n=[1, null]"]


def test_events_are_documents() -> None:
    standing = view.standing(replace(PROGRESS, best=[replace(COURSE, value=math.nan)]))
    assert (standing["event"], standing["ready"], standing["seconds_left"]) == (
        "progress",
        57,
        5_559.2,
    )
    assert standing["best"][0]["ordinal"] == 7
    event = view.event(News("trial", "#7 done", {"trial": "a", "step": 5}))
    assert json.dumps(event) == '{"event": "trial", "text": "#7 done", "trial": "a", "step": 5}'
