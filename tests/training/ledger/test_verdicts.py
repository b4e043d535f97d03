"""Verdicts: what each rule says, and that any order of work comes to what lockstep.py says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dlv.training.ledger.verdicts as verdicts
from dlv.training.ledger.verdicts import Mark, Marks, Standing, Value
from tests.training.lockstep import Crowd, Plan, outcome

# Few different values, so that there are ties.
VALUES = st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75, 1.0, 2.0, math.inf, -1.0])
DIRECTIONS = st.sampled_from(["min", "max"])


@st.composite
def rules(draw: st.DrawFn, steps: int) -> dict[str, Any]:
    step = st.one_of(st.none(), st.integers(1, steps))
    rule: dict[str, Any] = {"metric": "loss", "direction": draw(DIRECTIONS)}
    match draw(st.sampled_from(["top", "asha", "patience", "threshold"])):
        case "top":
            return rule | {"rule": "top", "k": draw(st.integers(1, 6)), "step": draw(step)}
        case "asha":
            rung = {"eta": draw(st.integers(2, 3)), "first": draw(st.integers(1, steps))}
            return rule | {"rule": "asha", "sync": True} | rung
        case "patience":
            least = draw(st.sampled_from([0.0, 0.125, 0.3]))
            return rule | {"rule": "patience", "n": draw(st.integers(1, 4)), "min_delta": least}
    wanted: dict[str, Any] = {"op": draw(st.sampled_from([">=", ">", "<=", "<", "=", "!="]))}
    wanted["value"] = draw(st.sampled_from([0.25, 0.5, 1.0]))
    return {"rule": "threshold", "metric": "loss", "step": draw(step)} | wanted


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[Plan], list[dict[str, Any]], int]:
    steps = draw(st.integers(1, 10))
    plans = [
        Plan(
            f"t{number}",
            draw(st.lists(VALUES, min_size=steps, max_size=steps)),
            draw(st.one_of(st.none(), st.none(), st.integers(1, steps))),
            draw(st.one_of(st.none(), st.none(), st.integers(1, steps))),
        )
        for number in range(draw(st.integers(1, 9)))
    ]
    return plans, draw(st.lists(rules(steps), max_size=3)), steps


@settings(max_examples=80, deadline=None)
@given(problems(), st.integers(1, 3), st.randoms(use_true_random=False), st.integers(1, 4))
def test_any_order_and_any_deaths_come_to_the_same(
    problem: tuple[list[Plan], list[dict[str, Any]], int], every: int, rng: Random, workers: int
) -> None:
    plans, kept, steps = problem
    crowd = Crowd(plans, rng, workers=workers, deaths=0.15)
    crowd.open("run", kept, steps, every)
    crowd.work()
    assert crowd.outcome("run") == outcome(plans, kept, steps, every)


@settings(max_examples=50, deadline=None)
@given(problems(), st.randoms(use_true_random=False), st.data())
def test_trials_of_other_runs_change_nothing(
    problem: tuple[list[Plan], list[dict[str, Any]], int], rng: Random, data: st.DataObject
) -> None:
    """Another run has trained some of them farther, or trains them at the same time."""
    plans, kept, steps = problem
    others = data.draw(rules(steps))
    crowd = Crowd(plans, rng, workers=3, deaths=0.05)
    crowd.open("other", [others], steps, 1)
    if data.draw(st.booleans()):
        crowd.work()
    crowd.open("run", kept, steps, 1)
    crowd.work()
    expected = outcome(plans, kept, steps, 1)
    assert crowd.outcome("run") == expected
    assert crowd.outcome("other") == outcome(plans, [others], steps, 1)


@settings(max_examples=50, deadline=None)
@given(problems(), st.randoms(use_true_random=False), st.integers(2, 3), st.integers(1, 3))
def test_halving_without_waiting(
    problem: tuple[list[Plan], list[dict[str, Any]], int], rng: Random, eta: int, first: int
) -> None:
    """No oracle says who wins; but it ends, and keeps at least those that a rung's end keeps."""
    plans, _, steps = problem
    rule = {"rule": "asha", "metric": "loss", "direction": "min", "eta": eta, "first": first}
    crowd = Crowd(plans, rng, workers=3, deaths=0.1)
    crowd.open("run", [rule], steps, 1)
    crowd.work()
    view = crowd.ledger.run("run")
    assert view.state == "over"
    by_rung: dict[int, list[Mark]] = {}
    for trial in view.trials:
        for mark in trial.marks:
            by_rung.setdefault(mark.step, []).append(mark)
    for rung, marks in by_rung.items():
        assert rung in verdicts.points(rule, steps)
        order = {plan.name: number for number, plan in enumerate(plans)}
        marks.sort(key=lambda m: verdicts.rank(rule, m.value, order[m.trial]))
        best = marks[: max(1, len(marks) // eta)]
        assert all(mark.kept for mark in best)
    for trial in view.trials:  # who goes on was kept at every rung on the way
        kept = {mark.step for mark in trial.marks if mark.kept}
        assert {p for p in verdicts.points(rule, steps) if p < trial.step} <= kept


def test_the_paper_of_halving() -> None:
    """27 trials of 27 epochs with rungs at 3 and 9: 189 of 729 epochs."""
    plans = [Plan(f"t{n}", [n + 1 / step for step in range(1, 28)]) for n in range(27)]
    rule = {"rule": "asha", "metric": "loss", "direction": "min", "eta": 3, "first": 3}
    crowd = Crowd(plans, Random(1), workers=4, deaths=0.0)
    crowd.open("run", [rule | {"sync": True}], 27, 1)
    crowd.work()
    assert crowd.trained == crowd.ledger.run("run").spent_steps == 189
    assert [t.trial for t in crowd.ledger.result("run")[:4]] == ["t0", "t1", "t2", "t3"]


def _lookup(values: dict[tuple[str, int], float | None]) -> Value:
    def value(trial: str, metric: str, step: int) -> float | None:
        assert metric in ("loss", "acc")
        return values[trial, step]

    return value


def _decided(rule: dict[str, Any], values: Sequence[float | None], step: int) -> list[bool | None]:
    standings = [Standing(f"t{n}", n, step, step) for n in range(len(values))]
    table = {(f"t{n}", step): value for n, value in enumerate(values)}
    made = verdicts.decide([rule], standings, [], _lookup(table))
    kept = {mark.trial: mark.kept for mark in made}
    return [kept.get(f"t{n}") for n in range(len(values))]


def test_ties_go_to_the_earlier_trial() -> None:
    rule = {"rule": "top", "k": 2, "metric": "loss", "direction": "max", "step": None}
    assert _decided(rule, [0.5, 0.5, 0.5], 5) == [True, True, False]


def test_what_is_not_finite_is_last_and_what_was_never_logged_is_not_kept() -> None:
    rule = {"rule": "top", "k": 3, "metric": "loss", "direction": "min", "step": None}
    assert _decided(rule, [math.nan, None, 3.0, -math.inf], 5) == [True, False, True, True]
    assert _decided(rule | {"k": 2}, [math.nan, None, 3.0, -math.inf], 5) == [
        *(True, False),
        *(True, False),
    ]


@pytest.mark.parametrize(
    ("op", "kept"),
    [
        (">=", [False, True, True, False]),
        (">", [False, False, True, False]),
        ("<=", [True, True, False, False]),
        ("<", [True, False, False, False]),
        ("=", [False, True, False, False]),
        ("!=", [True, False, True, False]),
    ],
)
def test_threshold(op: str, kept: list[bool]) -> None:
    rule = {"rule": "threshold", "metric": "acc", "op": op, "value": 0.5, "step": 5}
    assert _decided(rule, [0.4, 0.5, 0.6, math.nan], 5) == kept


def test_a_group_waits_for_those_who_may_still_come() -> None:
    rule = {"rule": "top", "k": 1, "metric": "loss", "direction": "min", "step": 4}
    late = [Standing("t0", 0, 4, 9), Standing("t1", 1, 3, 9)]

    def value(trial: str, metric: str, step: int) -> float:
        return 1.0

    assert verdicts.decide([rule], late, [], value) == []
    ended = [late[0], Standing("t1", 1, 3, 9, ended=True)]
    assert [m.kept for m in verdicts.decide([rule], ended, [], value)] == [True]
    assert verdicts.decide([rule], ended, [], value, growing=True) == []
    assert verdicts.target([rule], late[1], Marks()) == 4
    assert verdicts.target([rule], late[0], Marks([Mark("t0", 0, 4, 1.0, 1.0, True)])) == 9


def test_each_trial_is_judged_at_its_own_end() -> None:
    rule = {"rule": "top", "k": 1, "metric": "loss", "direction": "min", "step": None}
    standings = [Standing("t0", 0, 4, 4), Standing("t1", 1, 9, 9)]
    values: dict[tuple[str, int], float | None] = {("t0", 4): 0.3, ("t1", 9): 0.2}
    made = verdicts.decide([rule], standings, [], _lookup(values))
    assert {(m.trial, m.step, m.kept) for m in made} == {("t0", 4, False), ("t1", 9, True)}


def test_median() -> None:
    rule = {"rule": "median", "metric": "loss", "direction": "min", "warmup": 2}
    history = [(1, 5.0), (2, 4.0), (3, 3.0)]
    assert verdicts.below_median(rule, history, [1.0, 2.0, 9.0]) == (3, 3.0, 2.0)
    assert verdicts.below_median(rule, history, [1.0, 4.0, 9.0]) is None
    assert verdicts.below_median(rule, history, [1.0, 3.0, 3.0, 9.0]) is None  # just as good
    assert verdicts.below_median(rule, history[:2], [1.0, 2.0, 9.0]) is None  # warming up
    assert verdicts.below_median(rule, history, [1.0, 2.0]) is None  # of too few
    assert verdicts.below_median(rule, history, [1.0, 2.0, math.nan]) is None
    assert verdicts.below_median(rule | {"direction": "max"}, history, [6.0, 7.0, 8.0]) == (3, 5, 7)
    hopeless = [(1, math.nan), (2, math.nan), (3, math.nan)]
    found = verdicts.below_median(rule, hopeless, [1.0, 2.0, 9.0])
    assert found is not None
    assert math.isnan(found[1])


def test_patience() -> None:
    rule = {"rule": "patience", "metric": "loss", "direction": "min", "n": 2, "min_delta": 0.1}
    assert verdicts.out_of_patience(rule, [(5, 1.0), (10, 0.95), (15, 0.91)]) == (15, 0.91, 1.0)
    assert verdicts.out_of_patience(rule, [(5, 1.0), (10, 0.95), (15, 0.8), (20, 0.75)]) is None
    assert verdicts.out_of_patience(rule, [(5, math.nan), (10, 2.0), (15, 1.0)]) is None


def test_the_end_before_its_time_keeps_the_best_so_far() -> None:
    rule = {"rule": "top", "k": 1, "metric": "loss", "direction": "min", "step": 9}
    standings = [
        Standing("t0", 0, 3, 9),
        Standing("t1", 1, 5, 9),
        Standing("t2", 2, 0, 9),  # never begun
        Standing("t3", 3, 9, 9, ended=True),
    ]
    values: dict[tuple[str, int], float | None] = {("t0", 3): 2.0, ("t1", 5): 1.0}
    made = verdicts.closing([rule], standings, [], _lookup(values))
    assert {(m.trial, m.step, m.kept) for m in made} == {("t0", 3, False), ("t1", 5, True)}
