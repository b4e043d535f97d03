"""What a run with deterministic rules must come to, said in another way than the ledger says it.

All trials train in step with each other; after each step those that log have logged, and all rules
that have something to say at that step say it at once. There are no claims, slices, targets or
marks here. Plus what is needed to have a ledger do the same trials in any order.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from dlv.metadata.trials import Trials
from dlv.training.ledger.ledger import (
    ATTEMPTS,
    LEASE,
    OVER,
    WAIT,
    Claim,
    LeaseLost,
    Ledger,
    NewTrial,
)
from dlv.training.ledger.settling import Budget
from dlv.training.workers.owners import Owner

OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
    "=": operator.eq,
    "!=": operator.ne,
}


@dataclass(frozen=True)
class Plan:
    """What would happen to a trial: its values by step, and where it raises or diverges."""

    name: str
    values: Sequence[float]  # at step 1, 2, ...
    fails: int | None = None  # at this step, before it logs
    diverges: int | None = None  # logs a NaN there

    def value(self, step: int) -> float:
        return math.nan if step == self.diverges else self.values[step - 1]


@dataclass
class Lane:
    plan: Plan
    ordinal: int
    log: dict[int, float] = field(default_factory=dict)
    ended: str | None = None


def outcome(
    plans: Sequence[Plan], rules: Sequence[Mapping[str, Any]], steps: int, log_every: int
) -> dict[str, tuple[str, int, int]]:
    """trial -> (stopped, step, rule), (kept, steps, 0), (failed, 0, 0) or (diverged, 0, 0)."""
    at: dict[int, list[int]] = {}
    for number, rule in enumerate(rules):
        for step in looks(rule, steps):
            at.setdefault(step, []).append(number)
    lanes = [Lane(plan, ordinal) for ordinal, plan in enumerate(plans)]
    found: dict[str, tuple[str, int, int]] = {}
    training = list(lanes)
    for step in range(1, steps + 1):
        for lane in training:
            if lane.plan.fails == step:
                lane.ended = "failed"
                found[lane.plan.name] = ("failed", 0, 0)
            else:
                if step % log_every == 0 or step in at or step in (steps, lane.plan.diverges):
                    lane.log[step] = lane.plan.value(step)
                if lane.plan.diverges == step:
                    lane.ended = "diverged"
        training = [lane for lane in training if lane.ended != "failed"]
        out: dict[str, int] = {}
        for number, rule in enumerate(rules):
            if rule["rule"] == "patience":
                gone = [lane for lane in training if step in lane.log and tired(lane, rule)]
            elif number in at.get(step, ()):
                there = [lane for lane in training if step in lane.log]
                gone = losers(there, rule, step)
            else:
                continue
            for lane in gone:
                out.setdefault(lane.plan.name, number)
        found |= {name: ("stopped", step, number) for name, number in out.items()}
        for lane in training:
            if lane.ended and lane.plan.name not in found:
                found[lane.plan.name] = ("diverged", 0, 0)
        training = [lane for lane in training if lane.plan.name not in found]
    return found | {lane.plan.name: ("kept", steps, 0) for lane in training}


def looks(rule: Mapping[str, Any], steps: int) -> list[int]:
    if rule["rule"] in ("top", "threshold"):
        return [rule["step"] or steps]
    if rule["rule"] == "asha":
        powers = (rule["first"] * rule["eta"] ** power for power in range(20))
        return [step for step in powers if step < steps]
    return []


def tired(lane: Lane, rule: Mapping[str, Any]) -> bool:
    """By definition: n logs in a row, none of them better by min_delta than the best before."""
    values = list(lane.log.values())
    sign = 1 if rule["direction"] == "max" else -1
    best, best_at = None, 0
    for place, value in enumerate(values):
        if best is None or math.isnan(best) or sign * (value - best) > rule["min_delta"]:
            best, best_at = value, place
    return len(values) - 1 - best_at >= int(rule["n"])


def losers(there: Sequence[Lane], rule: Mapping[str, Any], step: int) -> list[Lane]:
    if rule["rule"] == "threshold":
        holds, wanted = OPERATORS[rule["op"]], float(rule["value"])
        return [
            lane
            for lane in there
            if math.isnan(lane.log[step]) or not holds(lane.log[step], wanted)
        ]
    sign = -1 if rule["direction"] == "max" else 1
    places = rule["k"] if rule["rule"] == "top" else max(1, len(there) // rule["eta"])
    good = [lane for lane in there if math.isfinite(lane.log[step])]
    bad = [lane for lane in there if not math.isfinite(lane.log[step])]
    # A sort keeps the order of equals, which is that of the trials.
    return [*sorted(good, key=lambda lane: sign * lane.log[step]), *bad][places:]


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def new_trials(plans: Sequence[Plan], steps: int, log_every: int) -> list[NewTrial]:
    config = json.dumps({"steps": steps, "log_every": log_every, "trainer": "torch"})
    return [
        NewTrial(plan.name, ordinal, "net", config, 0, f"net-{ordinal}", {"lr": ordinal})
        for ordinal, plan in enumerate(plans)
    ]


class Crowd:
    """Workers that take turns by lot, one log at a time, some of them killed on the way."""

    def __init__(self, plans: Sequence[Plan], rng: Random, *, workers: int, deaths: float) -> None:
        self.plans = {plan.name: plan for plan in plans}
        self.clock = Clock()
        self.store = Trials(Path(":memory:"))
        self.ledger = Ledger(self.store, clock=self.clock)
        self.rng, self.deaths = rng, deaths
        self.workers: list[tuple[Claim, int] | None] = [None] * workers
        self.lost: list[tuple[Claim, int]] = []  # zombies: killed, as everybody thinks
        self.trained = 0

    def open(
        self, run: str, rules: Sequence[Mapping[str, Any]], steps: int, every: int, **more: Any
    ) -> None:
        trials = more.pop("trials", None) or new_trials(list(self.plans.values()), steps, every)
        budget = more.pop("budget", Budget())
        self.ledger.open_run(run, "query", {}, rules, budget, trials, steps=steps, **more)

    def work(self, runs: Sequence[str] | None = None) -> None:
        """Until all is over."""
        deaths = 0
        while True:
            place = self.rng.randrange(len(self.workers))
            state = self.workers[place]
            if state is None:
                claim = self.ledger.claim(Owner(place, 0.0, "elsewhere", f"w{place}"), runs)
                if claim is OVER:
                    if not any(self.workers):
                        return
                elif claim is not WAIT:
                    assert isinstance(claim, Claim)
                    assert claim.step < claim.target
                    self.workers[place] = claim, claim.step
                elif not any(self.workers):
                    self.clock.now += LEASE / 2
            elif self.rng.random() < self.deaths and deaths < 60 and self.may_die(state[0]):
                deaths += 1
                self.workers[place] = None
                self.lost.append(state)
                self.clock.now += self.rng.choice([0.0, LEASE + 1])
                for living in self.workers:  # their threads renew all the time
                    assert living is None or self.ledger.renew(living[0])
            else:
                self.workers[place] = self.step(*state)
            if self.lost and self.rng.random() < 0.2:
                self.haunt(self.lost.pop())

    def may_die(self, claim: Claim) -> bool:
        """Not so often in a row that the trial counts as one that cannot be trained."""
        row = self.store.trial(claim.trial)
        return row is not None and row["attempts"] < ATTEMPTS

    def step(self, claim: Claim, step: int) -> tuple[Claim, int] | None:
        """On to the next log; None: the claim has ended."""
        plan, config = self.plans[claim.trial], claim.log_every
        try:
            while True:
                step += 1
                self.trained += 1
                if plan.fails == step:
                    self.ledger.finish(claim, "failed", "Traceback\nValueError: bad")
                    return None
                if step % config == 0 or step in (claim.target, plan.diverges):
                    break
            stop = self.ledger.log(claim, step, {"loss": plan.value(step)}, 0.5)
            if plan.diverges == step:
                self.ledger.finish(claim, "diverged")
            elif stop or step >= claim.target:
                self.ledger.finish(claim, "ready")
            else:
                return claim, step
        except LeaseLost:
            pass
        return None

    def haunt(self, state: tuple[Claim, int]) -> None:
        """A worker that was thought dead wakes up and writes: only if nobody has its trial now."""
        claim, step = state
        before = self.store.trial(claim.trial)
        assert before is not None
        held = before["token"] == claim.token and before["state"] == "running"
        if not held:
            plan = self.plans[claim.trial]
            try:
                self.ledger.log(claim, min(step + 1, len(plan.values)), {"loss": -1e9}, 0.5)
            except LeaseLost:
                assert self.store.trial(claim.trial) == before
                assert not self.ledger.renew(claim)
            else:
                raise AssertionError("the ledger took what a dead worker wrote")

    def outcome(self, run: str) -> dict[str, tuple[str, int, int]]:
        """In the words of `outcome` above."""
        found: dict[str, tuple[str, int, int]] = {}
        for trial in self.ledger.run(run).trials:
            if trial.verdict == "stopped":
                mark = min((m for m in trial.marks if not m.kept), key=lambda m: (m.step, m.rule))
                found[trial.trial] = ("stopped", mark.step, mark.rule)
            elif trial.verdict == "kept":
                assert trial.state == "done"
                found[trial.trial] = ("kept", trial.steps, 0)
            else:
                found[trial.trial] = (trial.state, 0, 0)
        return found
