"""What a run of trials looks like from outside, and its trials in the order of their merit."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import dlv.training.ledger.settling as settling
import dlv.training.ledger.verdicts as verdicts
from dlv.dataclass import dataclass
from dlv.metadata.trials import Row, Trials
from dlv.training.ledger.settling import Budget
from dlv.training.ledger.verdicts import Mark, Marks, Rule
from dlv.training.workers.owners import Owner, dead, driven


@dataclass(frozen=True)
class TrialView:
    """A trial as a run sees it.

    `state`: ready, running, stale (its worker is silent, and may be gone), done (at `steps`),
    diverged, failed; a trial whose worker is known to be dead is ready again;
    `verdict`: stopped, waiting (for others, at a rule), kept once the run is over, or None.
    """

    trial: str
    ordinal: int
    label: str
    network: str
    config: Mapping[str, Any]
    varied: Mapping[str, Any]
    seed: int
    state: str
    step: int
    target: int
    steps: int
    verdict: str | None
    why: str
    marks: tuple[Mark, ...]
    last: Mapping[str, float]  # metrics at the last log up to `steps`
    cut: Mapping[str, float]  # metrics of rules, where the first of them had its say
    seconds: float
    attempts: int
    error: str | None
    unlike: str | None  # not reproducible: what came out otherwise the second time
    owner: Mapping[str, Any] | None
    rank: int = 0  # in the order of `ranked`, 1 is the best; 0: not ranked

    @property
    def kept(self) -> bool:
        return self.verdict == "kept"

    @property
    def condition(self) -> str:
        """State and verdict in the one word that is shown, and under which the trial counts."""
        if self.state in ("running", "stale", "failed", "diverged"):
            return self.state
        if self.verdict == "stopped":
            return "stopped"
        if self.state == "done":
            return "done"
        return "waiting" if self.verdict == "waiting" else "ready"


@dataclass(frozen=True)
class RunView:
    """`state`: running, over, stopped (by the user), failed (it cannot be judged). What `running`
    says of a sweep whose processes were killed, `condition` puts right. `tmp`: the repository's."""

    id: str
    text: str
    parameters: Mapping[str, Any]
    rules: Sequence[Rule]
    budget: Budget
    sampler: Mapping[str, Any] | None
    state: str
    why: str
    created: float
    seconds: float  # with a live worker
    spent_steps: int
    growing: bool
    trials: Sequence[TrialView]
    tmp: Path

    @property
    def at_work(self) -> int:
        """How many trials are being trained now, by processes that live as far as one knows."""
        return sum(trial.state == "running" for trial in self.trials)

    @cached_property
    def condition(self) -> str:
        """The state, or `interrupted` if nobody drives the sweep any more or trains for it."""
        if self.state != "running" or self.at_work or driven(self.tmp, self.id):
            return self.state
        return "interrupted"

    @property
    def idle(self) -> bool:
        """Nobody works, and nothing could be claimed: a growing run that wants more trials."""
        return not any(
            trial.state in ("running", "stale")
            or (trial.verdict is None and trial.state == "ready" and trial.step < trial.target)
            for trial in self.trials
        )

    @cached_property
    def counts(self) -> dict[str, int]:
        """Number of trials by state, and by verdict under `stopped`, `kept`, `waiting`."""
        found = Counter(trial.state for trial in self.trials)
        found.update(trial.verdict for trial in self.trials if trial.verdict is not None)
        return dict(found)


def run_view(store: Trials, run: Row, now: float) -> RunView:
    """A run with all its trials; the caller holds a snapshot of the store."""
    rules = settling.rules_of(run)
    marks = Marks(settling.mark_of(row) for row in store.marks(run["id"]))
    trials = [_trial(store, run, rules, member, marks, now) for member in store.members(run["id"])]
    return RunView(
        parameters=json.loads(run["parameters"]),
        rules=rules,
        budget=settling.budget_of(run),
        sampler=json.loads(run["sampler"]),
        seconds=run["active_seconds"],
        growing=bool(run["growing"]),
        trials=trials,
        tmp=store.path.parent / "tmp",
        **{key: run[key] for key in ("id", "text", "state", "why", "created", "spent_steps")},
    )


def _trial(
    store: Trials, run: Row, rules: Sequence[Rule], member: Row, marks: Marks, now: float
) -> TrialView:
    name, steps = member["trial"], member["steps"]
    state = settling.state_in_run(member)
    owner = None if member["owner"] is None else json.loads(member["owner"])
    if state == "running" and owner is not None and dead(Owner(**owner)):
        state = "ready"
    elif state == "running" and member["lease"] <= now:
        state = "stale"
    verdict, why = _verdict(run, rules, member, state, marks)
    last = {
        metric: value
        for metric in store.metrics(name)
        if (value := store.last_value(name, metric, steps)) is not None
    }
    cut: dict[str, float] = {}
    at = min((point for rule in rules for point in verdicts.points(rule, steps)), default=steps)
    if member["step"] >= at:
        for metric in last:
            value = store.last_value(name, metric, at)
            if value is not None:
                cut[metric] = value
    if state == "diverged" and verdict is None:
        odd = [f"{name} {value:g}" for name, value in last.items() if not math.isfinite(value)]
        why = f"{', '.join(odd) or 'not finite'} at step {member['step']}"
    return TrialView(
        trial=name,
        config=json.loads(member["config"]),
        varied=json.loads(member["varied"]),
        state=state,
        step=min(member["step"], steps),
        verdict=verdict,
        why=why,
        marks=marks.of_trial(name),
        last=last,
        cut=cut,
        owner=owner if member["state"] == "running" else None,
        error=member["error"] if state == "failed" else None,
        **{key: member[key] for key in ("ordinal", "label", "network", "seed", "target")},
        **{key: member[key] for key in ("steps", "seconds", "attempts", "unlike")},
    )


def _verdict(
    run: Row, rules: Sequence[Rule], member: Row, state: str, marks: Marks
) -> tuple[str | None, str]:
    stop = marks.stop(member["trial"])
    if stop is not None:
        return "stopped", stop.why or reason(rules[stop.rule], stop)
    if state in settling.ENDED:
        return None, member["error"].strip().splitlines()[-1] if member["error"] else state
    if run["state"] == "failed":
        return None, run["why"]
    if run["state"] != "running":
        # A run that ended before its time keeps what it has of the best.
        return ("kept", run["why"]) if member["step"] else (None, run["why"])
    if state in ("ready", "done") and member["step"] >= member["target"]:
        pending = verdicts.pending(rules, settling.standing(member), marks)
        if pending is not None:
            return "waiting", f"for the others at step {pending}"
    return None, ""


def reason(rule: Rule, mark: Mark) -> str:
    """In one line why a rule stopped a trial."""
    value, cut = _apart(mark.value, mark.cut)
    what = f"{rule['metric']} {value} at step {mark.step}"
    than = f", cut {cut}" if cut else ""
    if cut and mark.value == mark.cut:
        than = ", tied with a trial of a lower number"
    match rule["rule"]:
        case "top":
            return f"not in the top {rule['k']}: {what}{than}"
        case "asha":
            return f"not in the best 1/{rule.get('eta') or 3}: {what}{than}"
        case "median":
            return f"worse than the median: {rule['metric']} at best {value}{than}"
        case "patience":
            return f"not better for {rule['n']} logs: {what}, best {cut}"
    return f"threshold: {what}, expected {rule['op']} {rule['value']:g}"


def _apart(value: float | None, cut: float | None) -> tuple[str, str]:
    """Both as people read them, with so many digits that one sees which is larger."""
    if value is None:
        return "never logged", "" if cut is None else f"{cut:.6g}"
    if cut is None:
        return f"{value:.6g}", ""
    digits = 6
    while value != cut and f"{value:.{digits}g}" == f"{cut:.{digits}g}" and digits < 17:
        digits += 1
    return f"{value:.{digits}g}", f"{cut:.{digits}g}"


def ranked(run: RunView) -> list[TrialView]:
    """Kept ones first, then those that came farther, each by the metric of the first rule that
    has a direction; without such a rule in the order of the trials."""
    rule = next((rule for rule in run.rules if rule.get("direction")), None)

    def key(trial: TrialView) -> tuple[Any, ...]:
        if trial.verdict == "stopped" and trial.marks:
            at = min(mark.step for mark in trial.marks if not mark.kept)
        else:
            at = trial.step
        ended = trial.state in settling.ENDED
        group = 3 if not trial.step else 2 if ended else 0 if trial.verdict == "kept" else 1
        if rule is None:
            return group, 0, (0, 0.0, trial.ordinal)
        return group, -at, verdicts.rank(rule, trial.last.get(rule["metric"]), trial.ordinal)

    order = sorted(run.trials, key=key)
    return [replace(trial, rank=place) for place, trial in enumerate(order, 1)]
