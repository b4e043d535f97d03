"""How far a run of trials is: counts, pace, the best so far, and what happened since last time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dlv.training.ledger.verdicts as verdicts
from dlv.dataclass import dataclass
from dlv.training.ledger.ledger import Ledger
from dlv.training.ledger.results import RunView, TrialView
from dlv.training.workers.crew import HUNG, Ended

WINDOW = 60.0  # seconds over which the pace is measured
BEST = 5
GROUPS = ("done", "running", "stale", "stopped", "diverged", "failed", "waiting", "ready")


@dataclass(frozen=True)
class Course:
    """One of the best trials: its metric, last and at each log up to its end."""

    trial: TrialView
    value: float
    values: Sequence[float]


@dataclass(frozen=True)
class News:
    """Something that happened. `kind`: a trial was stopped or ended, a worker ended, or a note."""

    kind: str
    text: str
    details: Mapping[str, Any]


@dataclass(frozen=True)
class Progress:
    """`groups`: trials by what became of them. `most_steps`: should nothing be stopped any more;
    `left`: seconds till then, at the present pace."""

    run: str
    trials: int
    groups: Mapping[str, int]
    steps: int
    most_steps: int
    rate: float | None
    left: float | None
    workers: int
    metric: str | None
    best: Sequence[Course]
    news: Sequence[News]
    over: bool


class Watch:
    """Looks at one run from time to time; the first look is what it is compared with."""

    def __init__(self, ledger: Ledger, run: str) -> None:
        self._ledger = ledger
        self._run = run
        self._known: dict[str, str] = {}
        self._paces: deque[tuple[float, int]] = deque()

    def look(
        self, view: RunView, now: float, *, workers: int = 0, notes: Iterable[News] = ()
    ) -> Progress:
        """`now` by a clock that never goes back."""
        groups = dict.fromkeys(GROUPS, 0)
        for trial in view.trials:
            groups[trial.condition] += 1
        steps = sum(trial.step for trial in view.trials)
        most = sum(
            trial.steps
            if trial.condition in ("running", "stale", "waiting", "ready")
            else trial.step
            for trial in view.trials
        )
        rate = self._rate(now, steps)
        metric, best = self._best(view)
        return Progress(
            run=view.id,
            trials=len(view.trials),
            groups=groups,
            steps=steps,
            most_steps=most,
            rate=rate,
            left=(most - steps) / rate if rate else None,
            workers=workers,
            metric=metric,
            best=best,
            news=[*notes, *self._news(view.trials)],
            over=view.state != "running",
        )

    def _rate(self, now: float, steps: int) -> float | None:
        paces = self._paces
        paces.append((now, steps))
        while len(paces) > 2 and now - paces[1][0] >= WINDOW:
            paces.popleft()
        seconds, gained = now - paces[0][0], steps - paces[0][1]
        return gained / seconds if seconds > 0 and gained > 0 else None

    def _best(self, view: RunView) -> tuple[str | None, list[Course]]:
        rule = next((rule for rule in view.rules if rule.get("direction")), None)
        if rule is None:
            # Without a rule nobody has said what is better; a loss is known.
            rule = {"metric": "loss", "direction": "min"}
        metric = rule["metric"]
        found = [
            (verdicts.rank(rule, trial.last[metric], trial.ordinal), trial)
            for trial in view.trials
            if metric in trial.last and trial.condition not in ("failed", "diverged", "stopped")
        ]
        found.sort(key=lambda each: each[0])
        return (metric if found else None), [
            self._course(trial, metric) for _, trial in found[:BEST]
        ]

    def _course(self, trial: TrialView, metric: str) -> Course:
        points = self._ledger.curves(trial.trial).get(metric, [])
        values = [value for step, value in points if step <= trial.steps]
        return Course(trial, trial.last[metric], values)

    def _news(self, trials: Sequence[TrialView]) -> list[News]:
        before, first = self._known, not self._known
        self._known = {trial.trial: trial.condition for trial in trials}
        if first:
            return []
        return [
            _ended(trial, now)
            for trial in trials
            if (now := self._known[trial.trial]) in ("done", "stopped", "diverged", "failed")
            and before.get(trial.trial) != now
        ]


def _ended(trial: TrialView, how: str) -> News:
    last = ", ".join(f"{name} {value:.6g}" for name, value in sorted(trial.last.items()))
    text = f"#{trial.ordinal} {how} at step {trial.step}"
    if how in ("stopped", "failed") and trial.why:
        text += f": {trial.why}"
    elif last:
        text += f": {last}"
    return News(
        "trial",
        text,
        {
            "trial": trial.trial,
            "ordinal": trial.ordinal,
            "state": how,
            "step": trial.step,
            "why": trial.why,
            "metrics": dict(trial.last),
            "seconds": trial.seconds,
        },
    )


def worker_ended(ended: Ended) -> News:
    """A worker that is gone; another takes its place."""
    how = ended.how if ended.code < 0 else f"{ended.how} ({ended.reason})"
    if ended.code == HUNG:
        how = "gave up a silent trial and ended"
    return News(
        "worker",
        f"worker {ended.worker} {how}; starting another",
        {"worker": ended.worker, "pid": ended.pid, "code": ended.code, "printed": ended.printed},
    )
