"""Which trials go on: the rules of `keep`, decided from what was logged and nothing else.

A rule looks at a trial at its points: steps of training. A trial comes to a point when it has
reached the step and every rule has kept it at all earlier ones; a trial that was stopped earlier,
or ended, never comes. Two rules that stop a trial at the same step both saw it, so that the order
of the rules does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dlv.dataclass import dataclass

Rule = Mapping[str, Any]
Value = Callable[[str, str, int], float | None]  # (trial, metric, step): last logged up to there
History = Sequence[tuple[int, float]]

BUDGET = -1  # the number of the rule in marks that a budget made
OTHERS = 3  # a median of fewer says nothing


@dataclass(frozen=True)
class Standing:
    """A trial as one run sees it."""

    trial: str
    ordinal: int
    step: int  # reached
    steps: int  # where it ends in this run
    ended: bool = False  # failed or diverged: it goes no further


@dataclass(frozen=True)
class Mark:
    """What a rule said of a trial at a step: the value that it saw, and what was wanted."""

    trial: str
    rule: int
    step: int
    value: float | None
    cut: float | None
    kept: bool
    why: str = ""


class Marks:
    """All marks of a run, and where each trial was stopped first."""

    def __init__(self, marks: Iterable[Mark] = ()) -> None:
        self._marks: dict[tuple[int, str, int], Mark] = {}
        self._by_trial: dict[str, list[Mark]] = {}
        self._stops: dict[str, Mark] = {}
        self.add(marks)

    def add(self, marks: Iterable[Mark]) -> None:
        for mark in marks:
            self._marks[mark.rule, mark.trial, mark.step] = mark
            self._by_trial.setdefault(mark.trial, []).append(mark)
            if not mark.kept:
                before = self._stops.get(mark.trial)
                if before is None or (mark.step, mark.rule) < (before.step, before.rule):
                    self._stops[mark.trial] = mark

    def get(self, rule: int, trial: str, step: int) -> Mark | None:
        return self._marks.get((rule, trial, step))

    def of_trial(self, trial: str) -> tuple[Mark, ...]:
        """All marks of a trial, in the order in which they were added."""
        return tuple(self._by_trial.get(trial, ()))

    def stop(self, trial: str) -> Mark | None:
        """The first mark that stops it: by step, then by rule."""
        return self._stops.get(trial)

    def stopped_before(self, trial: str, step: int) -> bool:
        stop = self._stops.get(trial)
        return stop is not None and stop.step < step


def points(rule: Rule, steps: int) -> list[int]:
    """Where the rule looks at a trial that ends at `steps`."""
    match rule["rule"]:
        case "top" | "threshold":
            step = rule.get("step")
            return [steps if step is None else min(int(step), steps)]
        case "asha":
            eta = int(rule.get("eta") or 3)
            rung = int(rule.get("first") or max(1, steps // eta**3))
            found = []
            while rung < steps:
                found.append(rung)
                rung *= eta
            return found
    return []  # median and patience look at each log


def pending(rules: Sequence[Rule], standing: Standing, marks: Marks) -> int | None:
    """The first step at which a rule has not said yet whether the trial goes on."""
    return _pending([points(rule, standing.steps) for rule in rules], standing.trial, marks)


def _pending(looks: Sequence[Sequence[int]], trial: str, marks: Marks) -> int | None:
    first = None
    for number, found in enumerate(looks):
        for point in found:  # in order
            if first is not None and point >= first:
                break
            if marks.get(number, trial, point) is None:
                first = point
                break
    return first


def target_of(looks: Sequence[Sequence[int]], trial: str, steps: int, marks: Marks) -> int:
    """How far a trial may be trained before a rule, each with its points, has its say."""
    point = _pending(looks, trial, marks)
    return steps if point is None else min(point, steps)


def target(rules: Sequence[Rule], standing: Standing, marks: Marks) -> int:
    looks = [points(rule, standing.steps) for rule in rules]
    return target_of(looks, standing.trial, standing.steps, marks)


def decide(
    rules: Sequence[Rule],
    standings: Sequence[Standing],
    marks: Iterable[Mark],
    value: Value,
    *,
    growing: bool = False,
    eager: bool = True,
) -> list[Mark]:
    """Every verdict that can be given now; `growing`: more trials may join the run.

    Without `eager` nobody is promoted as long as others may still come to the rung.
    """
    known = Marks(marks)
    made: list[Mark] = []
    # Where the rules look, by the end of a trial: nearly always one for all.
    looks = {s.steps: [points(rule, s.steps) for rule in rules] for s in standings}
    while True:
        fresh: list[Mark] = []
        wanted = {s.trial: _pending(looks[s.steps], s.trial, known) for s in standings}
        for number, rule in enumerate(rules):
            stage = 0
            while group := _Group.of(number, stage, standings, looks, known, wanted):
                fresh += group.decided(rule, value, growing, eager)
                stage += 1
        if not fresh:
            return made
        known.add(fresh)
        made += fresh


@dataclass
class _Group:
    """Those whom one rule compares at one of its stages."""

    number: int
    arrived: list[tuple[Standing, int]]  # with the step of each
    decided_before: dict[str, Mark]
    coming: bool  # somebody may still arrive

    @classmethod
    def of(
        cls,
        number: int,
        stage: int,
        standings: Sequence[Standing],
        looks: Mapping[int, Sequence[Sequence[int]]],
        marks: Marks,
        wanted: Mapping[str, int | None],
    ) -> _Group | None:
        """None: nobody has come to that stage, nor then to a later one."""
        found: list[tuple[Standing, int]] = []
        before: dict[str, Mark] = {}
        coming = False
        for standing in standings:
            at = looks[standing.steps][number]
            if stage >= len(at):
                continue
            point, trial = at[stage], standing.trial
            if standing.step < point:
                coming |= not (standing.ended or marks.stopped_before(trial, point))
                continue
            if marks.stopped_before(trial, point):
                continue
            first = wanted[trial]
            if first is None or first >= point:
                found.append((standing, point))
                mark = marks.get(number, trial, point)
                if mark is not None:
                    before[trial] = mark
            else:
                coming = True
        return cls(number, found, before, coming) if found else None

    def decided(self, rule: Rule, value: Value, growing: bool, eager: bool) -> list[Mark]:
        if len(self.decided_before) == len(self.arrived):
            return []
        closed = not (self.coming or growing)
        together = rule["rule"] == "top" or (
            rule["rule"] == "asha" and (rule.get("sync") or not eager)
        )
        if together and not closed:
            return []
        seen = []
        for s, point in self.arrived:
            mark = self.decided_before.get(s.trial)
            v = value(s.trial, rule["metric"], point) if mark is None else mark.value
            seen.append((s, point, v))
        if rule["rule"] == "threshold":
            return [
                self._mark(s, point, v, rule["value"], _holds(rule, v))
                for s, point, v in seen
                if s.trial not in self.decided_before
            ]
        seen.sort(key=lambda each: rank(rule, each[2], each[0].ordinal))
        if rule["rule"] == "top":
            places = int(rule["k"])
        else:
            places = len(seen) // int(rule.get("eta") or 3)
            places = max(places, 1) if closed else places
        cut = seen[places - 1][2] if 0 < places <= len(seen) else None
        made = []
        for place, (s, point, v) in enumerate(seen):
            kept = place < places and v is not None
            if s.trial not in self.decided_before and (kept or closed):
                made.append(self._mark(s, point, v, cut, kept))
        return made

    def _mark(
        self, standing: Standing, point: int, value: float | None, cut: Any, kept: bool
    ) -> Mark:
        return Mark(standing.trial, self.number, point, value, cut, kept)


def rank(rule: Rule, value: float | None, ordinal: int) -> tuple[int, float, int]:
    """The better the smaller: what is not finite, and what was never logged, comes last."""
    if value is None:
        return 2, 0.0, ordinal
    if not math.isfinite(value):
        return 1, 0.0, ordinal
    return 0, -value if rule.get("direction") == "max" else value, ordinal


def _holds(rule: Rule, value: float | None) -> bool:
    if value is None or math.isnan(value):
        return False
    wanted = float(rule["value"])
    match rule["op"]:
        case ">=":
            return value >= wanted
        case ">":
            return value > wanted
        case "<=":
            return value <= wanted
        case "<":
            return value < wanted
        case "!=" | "<>":
            return value != wanted
    return value == wanted


def out_of_patience(rule: Rule, history: History) -> tuple[int, float, float] | None:
    """(step, value there, best so far) of the first log that came too late to be better."""
    best, since = math.nan, 0
    least = float(rule.get("min_delta") or 0)
    sign = -1.0 if rule.get("direction") == "max" else 1.0
    for step, value in history:
        if math.isnan(best) or sign * (best - value) > least:
            best, since = value, 0
            continue
        since += 1
        if since >= int(rule["n"]):
            return step, value, best
    return None


def below_median(
    rule: Rule, history: History, others: Sequence[float]
) -> tuple[int, float, float] | None:
    """(step, best so far, median of the others there), if the trial is worse at its last log."""
    finite = sorted(value for value in others if math.isfinite(value))
    own = [value for _, value in history if math.isfinite(value)]
    warmup = rule.get("warmup")
    if len(history) <= (5 if warmup is None else int(warmup)) or len(finite) < OTHERS:
        return None
    half = len(finite) // 2
    middle = finite[half] if len(finite) % 2 else (finite[half - 1] + finite[half]) / 2
    sign = -1.0 if rule.get("direction") == "max" else 1.0
    best = min(own, key=lambda value: sign * value, default=math.nan)
    if sign * best <= sign * middle:
        return None
    return history[-1][0], best, middle


def closing(
    rules: Sequence[Rule], standings: Sequence[Standing], marks: Iterable[Mark], value: Value
) -> list[Mark]:
    """The verdicts when a run ends before its time: by how far each trial has come."""
    known = Marks(marks)
    made: list[Mark] = []
    begun = [s for s in standings if s.step and not s.ended and known.stop(s.trial) is None]
    for number, rule in enumerate(rules):
        if rule["rule"] not in ("top", "threshold"):
            continue
        seen = []
        for s in begun:
            point = points(rule, s.steps)[0]
            if known.get(number, s.trial, point) is None:
                seen.append((s, point, value(s.trial, rule["metric"], min(point, s.step))))
        seen.sort(key=lambda each: rank(rule, each[2], each[0].ordinal))
        places = int(rule["k"]) if rule["rule"] == "top" else len(seen)
        cut = seen[places - 1][2] if places <= len(seen) and seen else None
        for place, (s, point, v) in enumerate(seen):
            at = min(point, s.step)
            if rule["rule"] == "threshold":
                made.append(Mark(s.trial, number, at, v, rule["value"], _holds(rule, v)))
            else:
                kept = place < places and v is not None
                made.append(Mark(s.trial, number, at, v, cut, kept))
    return made
