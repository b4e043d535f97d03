"""From verdicts to rows: what a run wants of each of its trials, and when it is over.

All of it happens inside a transaction of the caller.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dlv.training.ledger.verdicts as verdicts
from dlv.dataclass import dataclass
from dlv.metadata.trials import Row, Trials
from dlv.training.ledger.verdicts import BUDGET, Mark, Marks, Rule, Standing


@dataclass(frozen=True)
class Budget:
    """None: without a limit."""

    trials: int | None = None  # so many are begun, in their order
    hours: float | None = None  # with a live worker, summed over restarts
    steps: int | None = None  # trained for this run, all trials together
    trial_seconds: float | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Budget:
        return cls(**{name: values.get(name) for name in cls.__dataclass_fields__})

    def as_json(self) -> dict[str, Any]:
        return {
            name: getattr(self, name)
            for name in self.__dataclass_fields__
            if getattr(self, name) is not None
        }

    def reached(self, seconds: float, steps: int) -> str | None:
        """Why the whole run ends now."""
        if self.hours is not None and seconds >= self.hours * 3600:
            return f"budget: {self.hours:g} hours"
        if self.steps is not None and steps >= self.steps:
            return f"budget: {self.steps} steps"
        return None


ENDED = ("failed", "diverged")


def standing(member: Row) -> Standing:
    return Standing(
        member["trial"],
        member["ordinal"],
        member["step"],
        member["steps"],
        member["state"] in ENDED,
    )


def state_in_run(member: Row) -> str:
    """The trial may have gone farther for another run, and failed there."""
    if member["state"] == "diverged" and member["step"] <= member["steps"]:
        return "diverged"
    return "done" if member["step"] >= member["steps"] else str(member["state"])


def mark_of(row: Row) -> Mark:
    kept = bool(row["kept"])
    value, cut, why = row["value"], row["cut"], row["why"]
    return Mark(row["trial_id"], row["rule"], row["step"], value, cut, kept, why)


def record(store: Trials, run: str, marks: Iterable[Mark], *, closing: bool = False) -> None:
    store.add_marks(
        {
            "run_id": run,
            "trial_id": mark.trial,
            "rule": mark.rule,
            "step": mark.step,
            "value": mark.value,
            "cut": mark.cut,
            "kept": mark.kept,
            "why": mark.why,
            "closing": closing,
        }
        for mark in marks
    )


def rules_of(run: Row) -> list[Rule]:
    found: list[Rule] = json.loads(run["rules"])
    return found


def budget_of(run: Row) -> Budget:
    return Budget.of(json.loads(run["budget"]))


def values_of(store: Trials, cache: dict[tuple[str, str, int], float]) -> verdicts.Value:
    """What was last logged, as the store has it; what has been asked for stays in `cache`."""

    def value(trial: str, metric: str, step: int) -> float | None:
        key = trial, metric, step
        if key not in cache:
            found = store.last_value(*key)
            if found is None:
                return None
            cache[key] = found
        return cache[key]

    return value


def is_broad(run: Row) -> bool:
    """Whether a rule promotes trials as they come: it errs the less, the more it has seen."""
    return any(rule["rule"] == "asha" and not rule.get("sync") for rule in rules_of(run))


def settle(
    store: Trials, run: Row, cache: dict[tuple[str, str, int], float], *, eager: bool
) -> bool:
    """Give the verdicts that can be given; whether the run goes on."""
    name, rules = run["id"], rules_of(run)
    reached = budget_of(run).reached(run["active_seconds"], run["spent_steps"])
    if reached is not None:
        end(store, run, "over", reached)
        return False
    if not run["changed"]:
        return True
    members = store.standings(name)
    marks = [mark_of(row) for row in store.marks(name)]
    value = values_of(store, cache)
    standings = [standing(member) for member in members]
    fresh = verdicts.decide(
        rules, standings, marks, value, growing=bool(run["growing"]), eager=eager
    )
    record(store, name, fresh)
    _apply(store, name, rules, members, Marks([*marks, *fresh]))
    open_still = any(_open(member) for member in members) or run["growing"]
    store.change_run(name, {"changed": 0} if open_still else {"changed": 0, "state": "over"})
    return bool(open_still)


def _open(member: Row) -> bool:
    return not member["stopped"] and state_in_run(member) in ("ready", "running")


def _apply(
    store: Trials, run: str, rules: Sequence[Rule], members: Sequence[Row], marks: Marks
) -> None:
    """Bring targets and stops into the rows, and into `members`."""
    looks = {m["steps"]: [verdicts.points(r, m["steps"]) for r in rules] for m in members}
    for member in members:
        target = verdicts.target_of(looks[member["steps"]], member["trial"], member["steps"], marks)
        stopped = int(marks.stop(member["trial"]) is not None)
        if (target, stopped) != (member["target"], member["stopped"]):
            member["target"], member["stopped"] = target, stopped
            store.change_member(run, member["trial"], {"target": target, "stopped": stopped})


def refresh(store: Trials, run: Row) -> None:
    """For trials that came with a past: what rules that look at each log say of it."""
    name, rules = run["id"], rules_of(run)
    members = store.members(name)
    marks = [mark_of(row) for row in store.marks(name)]
    known = Marks(marks)
    fresh = [
        mark
        for member in members
        if member["step"]
        for mark in patience_marks(store, rules, member["trial"], member["steps"])
        if known.get(mark.rule, mark.trial, mark.step) is None
    ]
    most = budget_of(run).trials
    if most is not None:
        late = [m["trial"] for m in members[most:] if known.get(BUDGET, m["trial"], 0) is None]
        fresh += [Mark(t, BUDGET, 0, None, None, False, f"budget: {most} trials") for t in late]
    record(store, name, fresh)
    _apply(store, name, rules, members, Marks([*marks, *fresh]))


def patience_marks(store: Trials, rules: Sequence[Rule], trial: str, steps: int) -> list[Mark]:
    """Where patience with a trial ended."""
    made = []
    for number, rule in enumerate(rules):
        if rule["rule"] == "patience":
            history = [each for each in store.history(trial, rule["metric"]) if each[0] <= steps]
            if found := verdicts.out_of_patience(rule, history):
                made.append(Mark(trial, number, *found, kept=False))
    return made


def below_median_marks(
    store: Trials, run: str, rules: Sequence[Rule], trial: str, step: int
) -> list[Mark]:
    """Whether a trial that has just logged is worse than the median of the others."""
    made = []
    for number, rule in enumerate(rules):
        if rule["rule"] == "median":
            history = [each for each in store.history(trial, rule["metric"]) if each[0] <= step]
            if not history or history[-1][0] != step:
                continue
            others = store.values_at(run, rule["metric"], step)
            others.pop(trial, None)
            if found := verdicts.below_median(rule, history, list(others.values())):
                made.append(Mark(trial, number, *found, kept=False))
    return made


def end(store: Trials, run: Row, state: str, why: str) -> None:
    """The run ends before its time: verdicts by how far each has come, if it can be judged."""
    name, rules = run["id"], rules_of(run)
    if state != "failed":
        members = store.members(name)
        marks = [mark_of(row) for row in store.marks(name)]
        fresh = verdicts.closing(rules, [standing(m) for m in members], marks, store.last_value)
        record(store, name, fresh, closing=True)
        _apply(store, name, rules, members, Marks([*marks, *fresh]))
    run |= {"state": state, "why": why}
    store.change_run(name, {"state": state, "why": why})


def changed(store: Trials, trial: str) -> list[Row]:
    """The running runs that have the trial; each decides anew at the next claim."""
    found = [row for row in store.memberships(trial) if row["state"] == "running"]
    for row in found:
        store.change_run(row["id"], {"changed": 1})
    return found


def train_again(store: Trials, run: Row, trials: Mapping[str, Row]) -> None:
    """Trials of a run are trained again, with these changes, and all verdicts given anew."""
    for trial, changes in trials.items():
        store.change_trial(trial, {"state": "ready", "attempts": 0, "error": None, **changes})
        changed(store, trial)
    if trials:
        store.drop_marks(run["id"])
        store.change_run(run["id"], {"state": "running", "why": "", "changed": 1})
        refresh(store, run)


def wanting(memberships: Iterable[Row], step: int) -> list[Row]:
    """The runs that want the trial trained beyond `step`."""
    return [
        row
        for row in memberships
        if row["state"] == "running" and not row["stopped"] and row["target"] > step
    ]


def resting_state(memberships: Sequence[Row], step: int) -> str:
    """Of a trial on which nobody works."""
    ends: list[Any] = [row["ends"] for row in memberships]
    return "done" if ends and step >= max(ends) else "ready"
