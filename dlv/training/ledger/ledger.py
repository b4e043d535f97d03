"""The ledger: who trains which trial how far, what was logged, and which trials go on.

Every method is one transaction of the store, so that any number of processes may work on the same
runs. A claim lends a trial to a worker until its lease ends; each claim has a token, and whoever
writes with an old one learns that the trial is no longer its own.
"""

from __future__ import annotations

import enum
import json
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import dlv.training.ledger.settling as settling
from dlv.canonical import dumps
from dlv.dataclass import dataclass
from dlv.errors import NotFound, nearest
from dlv.metadata.trials import Row, Trials
from dlv.training.ledger.results import RunView, TrialView, ranked, run_view
from dlv.training.ledger.settling import Budget
from dlv.training.ledger.verdicts import BUDGET, Mark, Rule
from dlv.training.workers.owners import Owner, dead

LEASE = 60.0  # seconds
RENEW = 10.0  # how often a worker should renew its lease
ATTEMPTS = 3  # claims without a new step, after which a trial is failed
LOGS_BEFORE_CERTAIN = 10  # an own program may log some of its metrics seldom
MOST_ERROR = 100_000  # characters of a traceback


class NoClaim(enum.Enum):
    """Why there is no trial to train."""

    WAIT = "other workers are running, or more trials may follow"
    OVER = "all runs are over"


WAIT, OVER = NoClaim.WAIT, NoClaim.OVER


class LeaseLost(Exception):
    """Another worker has the trial now, or nobody wants it: drop it, and write nothing."""


@dataclass(frozen=True)
class NewTrial:
    """`config`: the resolved configuration as JSON; `steps` and `log_every` are read from it."""

    id: str
    ordinal: int
    network: str
    config: str
    seed: int
    label: str
    varied: Mapping[str, Any]


@dataclass(frozen=True)
class Claim:
    """Train `trial` from `step` (as far as the ledger knows) to `target`."""

    trial: str
    token: int
    step: int
    target: int
    log_every: int
    runs: tuple[str, ...]


@dataclass(frozen=True)
class RunState:
    """What `open_run` found: `done` trials need no training any more, `begun` some."""

    id: str
    new: bool
    trials: int
    begun: int
    done: int


class Ledger:
    def __init__(self, store: Trials, *, clock: Callable[[], float] = time.time) -> None:
        self.store = store
        self.clock = clock
        # What verdicts looked up, by run and when it was made: it never changes.
        self._values: dict[tuple[str, float], dict[tuple[str, str, int], float]] = {}

    # Runs

    def open_run(
        self,
        run: str,
        text: str,
        parameters: Mapping[str, Any],
        rules: Sequence[Rule],
        budget: Budget,
        trials: Sequence[NewTrial],
        *,
        steps: int,
        sampler: Mapping[str, Any] | None = None,
        growing: bool = False,
    ) -> RunState:
        """Begin a run, or let the one of that id go on. `growing`: `add_trials` will follow."""
        row = {
            "text": text,
            "parameters": dumps(dict(parameters)).decode(),
            "rules": dumps([dict(rule) for rule in rules]).decode(),
            "budget": dumps(budget.as_json()).decode(),
            "sampler": dumps(None if sampler is None else dict(sampler)).decode(),
            "steps": steps,
            "state": "running",
            "why": "",
            "changed": 1,
        }
        with self.store.atomic():
            found = self.store.run(run)
            if found is None:
                now = self.clock()
                fresh = {"id": run, "created": now, "alive": now, "growing": int(growing)}
                self.store.add_run({**row, **fresh})
            else:
                self.store.drop_marks(run, closing=True)
                # Once all trials are there, they are.
                self.store.change_run(run, {**row, "growing": int(growing and found["growing"])})
            self._join(run, trials)
            members = self.store.members(run)
        return RunState(
            run,
            found is None,
            len(members),
            sum(member["step"] > 0 for member in members),
            sum(settling.state_in_run(member) == "done" for member in members),
        )

    def add_trials(self, run: str, trials: Sequence[NewTrial], *, last: bool = False) -> None:
        """More trials for a growing run; `last`: these are all."""
        with self.store.atomic():
            self._run(run)
            self.store.change_run(run, {"changed": 1, **({"growing": 0} if last else {})})
            self._join(run, trials)

    def _join(self, run: str, trials: Sequence[NewTrial]) -> None:
        row = self._run(run)
        for trial in trials:
            config = json.loads(trial.config)
            steps = int(config.get("steps") or row["steps"])
            self.store.add_trial(
                {
                    "id": trial.id,
                    "network": trial.network,
                    "config": trial.config,
                    "seed": trial.seed,
                    "log_every": int(config.get("log_every") or 1),
                }
            )
            self.store.add_member(
                {
                    "run_id": run,
                    "trial_id": trial.id,
                    "ordinal": trial.ordinal,
                    "label": trial.label,
                    "varied": dumps(dict(trial.varied)).decode(),
                    "steps": steps,
                    "target": steps,
                }
            )
            found = self.store.trial(trial.id)
            if found is not None and found["state"] == "done" and found["step"] < steps:
                self.store.change_trial(trial.id, {"state": "ready", "attempts": 0})
        settling.refresh(self.store, row)

    def stop(self, run: str) -> None:
        """End a run; its workers return at their next log. Opened again, it goes on."""
        with self.store.atomic():
            row = self._run(run)
            if row["state"] == "running":
                settling.end(self.store, row, "stopped", "stopped by the user")

    def stopped(self, run: str) -> bool:
        """Whether nobody needs to work on it any more."""
        row = self.store.run(run)
        return row is None or row["state"] != "running"

    def retry_failed(self, run: str, only: Collection[str] | None = None) -> int:
        """Failed trials get another chance, and all verdicts are given anew: how many there are.
        `only`: of these."""
        with self.store.atomic():
            row = self._run(run)
            failed = [
                m["trial"]
                for m in self.store.members(run)
                if m["state"] == "failed" and (only is None or m["trial"] in only)
            ]
            settling.train_again(self.store, row, {trial: {} for trial in failed})
        return len(failed)

    def go_back(self, run: str, trial: str, step: int) -> None:
        """Train a trial again from there: what it had come to since is lost, but for its logs."""
        with self.store.atomic():
            settling.train_again(self.store, self._run(run), {trial: {"step": step}})

    def forget(self, run: str) -> list[str]:
        """Drop a run, and the trials that no other run has: their ids."""
        with self.store.atomic():
            self._run(run)
            return self.store.drop_run(run)

    # Workers

    def claim(self, owner: Owner, runs: Sequence[str] | None = None) -> Claim | NoClaim:
        """The next trial for a worker: first verdicts, then the farthest trial, then the order."""
        with self.store.atomic():
            now = self.clock()
            self._reclaim(now)
            going = []
            for row in self.store.runs("running"):
                if runs is None or row["id"] in runs:
                    self._touch(row, now)
                if self._settle(row):
                    going.append(row["id"])
            going = [run for run in going if runs is None or run in runs]
            for run in going:
                broad = settling.is_broad(self._run(run))
                while found := self._next(run, broad):
                    claim = self._lend(found[0], owner, now)
                    if claim is not None:
                        return claim
                    self._settle(self._run(run))
            # The last that could be tried may just have failed.
            return WAIT if any(not self.stopped(run) for run in going) else OVER

    def _next(self, run: str, broad: bool) -> list[Row]:
        found = self.store.candidates(run, broad=broad)
        if not found and broad:
            # Only now is somebody promoted before the rung is full: else the worker would idle.
            self._settle(self._run(run) | {"changed": 1}, eager=True)
            found = self.store.candidates(run, broad=broad)
        return found

    def _settle(self, row: Row, *, eager: bool = False) -> bool:
        values = self._values.setdefault((row["id"], row["created"]), {})
        return settling.settle(self.store, row, values, eager=eager)

    def _lend(self, row: Row, owner: Owner, now: float) -> Claim | None:
        trial = row["trial"]
        if row["attempts"] >= ATTEMPTS:
            why = f"killed {ATTEMPTS} times at step {row['step']}: out of memory?"
            self.store.change_trial(trial, {"state": "failed", "error": why})
            settling.changed(self.store, trial)
            return None
        token = self.store.next_token()
        lent = {
            "state": "running",
            "token": token,
            "owner": dumps(owner.as_json()).decode(),
            "lease": now + LEASE,
            "attempts": row["attempts"] + 1,
        }
        self.store.change_trial(trial, lent)
        wanted = settling.wanting(self.store.memberships(trial), row["step"])
        target = max(member["target"] for member in wanted)
        names = tuple(member["id"] for member in wanted)
        return Claim(trial, token, row["step"], target, row["log_every"], names)

    def _reclaim(self, now: float) -> None:
        """Take back what dead workers hold, and what silent ones have held for too long."""
        for row in self.store.running():
            owner = Owner(**json.loads(row["owner"]))
            if row["lease"] > now and not dead(owner):
                continue
            state = settling.resting_state(self.store.memberships(row["id"]), row["step"])
            self.store.change_trial(row["id"], {"state": state, "owner": None})
            settling.changed(self.store, row["id"])

    def _touch(self, row: Row, now: float, spent: int = 0) -> None:
        """A worker lives: the run's time goes on since the last one was heard of."""
        pause = now - row["alive"]
        row["active_seconds"] += pause if 0 < pause < LEASE else 0.0
        row["spent_steps"] += spent
        row["alive"] = now
        names = ("active_seconds", "spent_steps", "alive")
        self.store.change_run(row["id"], {name: row[name] for name in names})

    def renew(self, claim: Claim) -> bool:
        """Whether the trial is still the worker's; its lease begins anew."""
        with self.store.atomic():
            now = self.clock()
            if not self.store.change_trial(claim.trial, {"lease": now + LEASE}, claim.token):
                return False
            for row in settling.wanting(self.store.memberships(claim.trial), -1):
                self._touch(row, now)
        return True

    def log(
        self, claim: Claim, step: int, metrics: Mapping[str, float], wall: float, repeated: int = 0
    ) -> bool:
        """What a trial has come to; `wall`: seconds since its last log or its claim; `repeated`:
        steps since then that had been trained before, and whose checkpoint is gone.

        True: return at once. Raises LeaseLost. What is logged again must be equal: the first
        value stays, and the trial is marked where it was not.
        """
        with self.store.atomic():
            now = self.clock()
            row = self.store.held(claim.trial, claim.token)
            if row is None:
                raise LeaseLost
            changes: Row = {"lease": now + LEASE, "seconds": row["seconds"] + max(wall, 0.0)}
            for name, value in metrics.items():
                before = self.store.add_log(claim.trial, step, name, float(value), wall)
                if before != value and not (math.isnan(before) and math.isnan(value)):
                    text = f"{name} at step {step}: {value:.9g}, before {before:.9g}"
                    changes["unlike"] = row["unlike"] or text
            if step > row["step"]:
                changes |= {"step": step, "attempts": 0}
            self.store.change_trial(claim.trial, changes, claim.token)
            runs = [r for r in self.store.memberships(claim.trial) if r["state"] == "running"]
            for run in runs:
                gained = repeated + max(0, min(step, run["target"]) - row["step"])
                self._touch(run, now, 0 if run["stopped"] else gained)
                if step > row["step"] or not repeated:  # else the rules have seen it
                    self._judge(run, row | changes, step, metrics)
            return not settling.wanting(runs, step)

    def _judge(self, run: Row, trial: Row, step: int, metrics: Mapping[str, float]) -> None:
        """The rules that look at each log, and the budget; brings `run` up to date."""
        store, name = self.store, run["id"]
        rules, budget = settling.rules_of(run), settling.budget_of(run)
        if why := self._unknown_metric(run, rules, trial, metrics):
            settling.end(store, run, "failed", why)
            return
        if why := budget.reached(run["active_seconds"], run["spent_steps"]):
            settling.end(store, run, "over", why)
            return
        if run["stopped"]:
            return
        marks: list[Mark] = []
        if step <= run["ends"]:
            marks += settling.patience_marks(store, rules, trial["id"], run["ends"])
            marks += settling.below_median_marks(store, name, rules, trial["id"], step)
        most = budget.trial_seconds
        if most is not None and trial["seconds"] >= most and step < run["ends"]:
            why = f"budget: {most:g} seconds for a trial"
            marks.append(Mark(trial["id"], BUDGET, step, trial["seconds"], most, False, why))
        settling.record(store, name, marks)
        if marks:
            run["stopped"] = 1
            store.change_member(name, trial["id"], {"stopped": 1})
        if marks or step >= run["target"]:
            store.change_run(name, {"changed": 1})

    def _unknown_metric(
        self, run: Row, rules: Sequence[Rule], trial: Row, metrics: Mapping[str, float]
    ) -> str | None:
        """A rule about a metric that nobody logs would only be noticed at its first verdict."""
        wanted = {rule["metric"] for rule in rules} - set(metrics)
        if not wanted:
            return None
        known = self.store.metrics(trial["id"])
        missing = sorted(wanted - set(known))
        if not missing:
            return None
        certain = json.loads(trial["config"]).get("trainer", "torch") == "torch"
        logs = max(len(self.store.history(trial["id"], name)) for name in known) if known else 0
        if not (certain or logs >= LOGS_BEFORE_CERTAIN or trial["step"] >= run["target"]):
            return None
        text = f"no trial logs `{missing[0]}`; logged: {', '.join(known) or 'nothing'}"
        meant = nearest(missing[0], known)
        return f"{text}; did you mean `{meant[0]}`?" if meant else text

    def finish(self, claim: Claim, state: str, error: str | None = None) -> None:
        """End of a claim. `ready` or `done`: the slice was reached or is to be stopped; `released`:
        given back without having been tried; `diverged`, `failed`. Raises LeaseLost."""
        with self.store.atomic():
            row = self.store.held(claim.trial, claim.token)
            if row is None:
                raise LeaseLost
            changes: Row = {"owner": None, "error": error and error[-MOST_ERROR:]}
            if state in settling.ENDED:
                changes["state"] = state
            else:
                runs = self.store.memberships(claim.trial)
                changes["state"] = settling.resting_state(runs, row["step"])
                if state == "released":
                    changes["attempts"] = max(0, row["attempts"] - 1)
            self.store.change_trial(claim.trial, changes, claim.token)
            settling.changed(self.store, claim.trial)

    # Views

    def run(self, run: str) -> RunView:
        with self.store.snapshot():
            return run_view(self.store, self._run(run), self.clock())

    def runs(self) -> list[RunView]:
        with self.store.snapshot():
            now = self.clock()
            return [run_view(self.store, row, now) for row in self.store.runs()]

    def result(self, run: str) -> list[TrialView]:
        """The trials of a run, the best first."""
        return ranked(self.run(run))

    def curves(self, trial: str) -> dict[str, list[tuple[int, float]]]:
        """What a trial has logged: metric -> (step, value)."""
        found: dict[str, list[tuple[int, float]]] = {}
        for metric, step, value, _ in self.store.logs(trial):
            found.setdefault(metric, []).append((step, value))
        return found

    def _run(self, run: str) -> Row:
        found = self.store.run(run)
        if found is None:
            known = [row["id"] for row in self.store.runs()]
            raise NotFound(
                f"no run of trials is `{run}`",
                did_you_mean=nearest(run, known),
                hint="dlv trials lists them",
            )
        return found
