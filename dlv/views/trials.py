"""Trials of networks: a run's progress, runs and trials afterwards, trials by rank."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlv.canonical import timestamp
from dlv.terminal.output import Block, Fields
from dlv.terminal.table import (
    Bytes,
    Cell,
    Column,
    Count,
    Id,
    Items,
    Number,
    Table,
    Text,
    Time,
    escape,
)
from dlv.training.ledger.progress import GROUPS, Course, News, Progress
from dlv.training.ledger.results import RunView, TrialView
from dlv.views.values import columns_where, filled, plural, setting

if TYPE_CHECKING:
    from dlv.dql.outcome import TrainingPlan, Trial, Trials


STYLES = {
    **dict.fromkeys(("failed", "diverged", "stale"), "red"),
    "interrupted": "yellow",
    **dict.fromkeys(("done", "over"), "green"),
    **dict.fromkeys(("stopped", "waiting", "ready", "to train"), "dim"),
    "to continue": "dim",
}

Sparkline = Callable[[Sequence[float], int], str]


# While it runs


def line(progress: Progress) -> str:
    """Where it stands: trials by group, steps, pace, what is left."""
    groups = counted(progress.groups)
    steps = f"{progress.steps:,} of {_at_most(progress)}{progress.most_steps:,} steps"
    parts = [f"{progress.trials} trials: {groups}", steps]
    if progress.rate is not None:
        parts.append(f"{progress.rate:.3g} steps/s")
    if progress.left is not None and not progress.over:
        parts.append(f"{_at_most(progress)}{span(progress.left)} left")
    return "; ".join(parts)


def _at_most(progress: Progress) -> str:
    """Rules may stop what is not done."""
    return "" if progress.over or progress.steps == progress.most_steps else "at most "


def counted(groups: Mapping[str, int]) -> str:
    told = [f"{groups[name]} {name}" for name in GROUPS if groups.get(name)]
    return ", ".join(told) or "none"


def span(seconds: float) -> str:
    """A length of time in two units at most."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    hours = whole // 3600
    return f"{hours:,} h {whole % 3600 // 60} min" if hours < 48 else f"{hours // 24:,} days"


def best(progress: Progress, sparkline: Sparkline) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of the best so far."""
    if progress.metric is None:
        return [], []
    heads = ["trial", "model", "varied", "step", escape(progress.metric), "course"]
    return heads, [
        [
            f"#{each.trial.ordinal}",
            escape(each.trial.label),
            assignments(each.trial.varied),
            f"{each.trial.step:,}",
            f"{each.value:.4g}",
            sparkline(each.values, 20),
        ]
        for each in progress.best
    ]


def assignments(varied: Mapping[str, Any]) -> str:
    """`base_lr=0.1 momentum=0.9`."""
    return escape(" ".join(f"{name}={_plain(value)}" for name, value in varied.items()))


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def event(news: News) -> dict[str, Any]:
    return {"event": news.kind, "text": news.text, **news.details}


def standing(progress: Progress) -> dict[str, Any]:
    """The event that says how far it is."""
    return {
        "event": "progress",
        "sweep": progress.run,
        "trials": progress.trials,
        **{name: progress.groups[name] for name in GROUPS},
        "steps": progress.steps,
        "most_steps": progress.most_steps,
        "steps_per_second": progress.rate,
        "seconds_left": progress.left,
        "metric": progress.metric,
        "best": [_course(each) for each in progress.best],
    }


def _course(course: Course) -> dict[str, Any]:
    return {
        "trial": course.trial.trial,
        "ordinal": course.trial.ordinal,
        "model": course.trial.label,
        "varied": dict(course.trial.varied),
        "step": course.trial.step,
        "value": course.value,
    }


# Afterwards


def moment(seconds: float) -> str:
    return timestamp(datetime.datetime.fromtimestamp(seconds, datetime.UTC))


def runs(runs: Sequence[RunView]) -> tuple[dict[str, Any], Table]:
    """The newest first."""
    columns = [
        Column("sweep", "id", fixed=True),
        Column("state", fixed=True),
        Column("trials"),
        Column("steps", fixed=True),
        Column("begun", "created", fixed=True),
        Column("query"),
    ]
    ordered = list(reversed(runs))
    rows: list[list[Cell]] = [
        [
            Id(run.id),
            Text(run.condition, STYLES.get(run.condition, "")),
            counted(groups_of(run)),
            Count(run.spent_steps),
            Time(moment(run.created)),
            " ".join(run.text.split()),
        ]
        for run in ordered
    ]
    return {"sweeps": [run_record(run) for run in ordered]}, Table(columns, rows)


def groups_of(run: RunView) -> dict[str, int]:
    found = dict.fromkeys(GROUPS, 0)
    for trial in run.trials:
        found[trial.condition] += 1
    return found


def run_record(run: RunView) -> dict[str, Any]:
    return {
        "id": run.id,
        "state": run.condition,
        "at_work": run.at_work,
        "why": run.why or None,
        "query": run.text,
        "parameters": dict(run.parameters),
        "created": moment(run.created),
        "seconds": run.seconds,
        "steps": run.spent_steps,
        "rules": [dict(rule) for rule in run.rules],
        "budget": run.budget.as_json(),
        "sampler": None if run.sampler is None else dict(run.sampler),
        "counts": groups_of(run),
        "total": len(run.trials),
    }


def one_run(
    run: RunView,
    results: Sequence[TrialView],
    curves: Callable[[str], Mapping[str, Sequence[tuple[int, float]]]],
    sparkline: Sparkline | None,
    *,
    disk: int = 0,
) -> tuple[dict[str, Any], list[Block]]:
    """A run with its trials, the best first; with courses of the metric where people look.

    `disk`: bytes that its checkpoints take.
    """
    metric = next((str(rule["metric"]) for rule in run.rules if "metric" in rule), None)
    if metric is None:
        metric = next((name for each in results for name in sorted(each.last)), None)
    document = {**run_record(run), "metric": metric, "checkpoint_bytes": disk}
    document["trials"] = [trial_record(each, curves(each.trial)) for each in results]
    drawn = sparkline is not None
    columns = [
        *(Column("rank", fixed=True), Column("#", fixed=True), Column("model"), Column("varied")),
        *(Column(metric or "metric", fixed=True), Column("step", fixed=True)),
        *(Column("state", fixed=True), Column("course" if drawn else "trial", fixed=True)),
        Column("why"),
    ]
    rows = []
    for each in results:
        value = each.last.get(metric) if metric else None
        state = each.condition
        points = curves(each.trial).get(metric or "", []) if drawn else []
        course = [value for step, value in points if step <= each.steps]
        row: list[Cell] = [
            *(each.rank, each.ordinal, each.label, assignments(each.varied)),
            *(None if value is None else Number(value), Count(each.step)),
            Text(state, STYLES.get(state, "")),
            Id(each.trial) if sparkline is None else sparkline(course, 12),
            _why(each),
        ]
        rows.append(row)
    return document, [*(_heading(run, disk) if drawn else ()), Table(columns, rows)]


def _heading(run: RunView, disk: int) -> Iterator[Block]:
    state = f"{run.condition}: {run.why}" if run.why else run.condition
    yield Fields(
        {
            "sweep": Id(run.id),
            "query": " ".join(run.text.split()),
            "state": Text(state, STYLES.get(run.condition, "")),
            "trials": counted(groups_of(run)),
            "time": span(run.seconds),
            "checkpoints": Bytes(disk),
        }
    )


def one_trial(
    trial: TrialView,
    curves: Mapping[str, Sequence[tuple[int, float]]],
    folder: Path,
    sparkline: Sparkline | None,
) -> tuple[dict[str, Any], list[Block]]:
    """Everything about a trial: its settings, what it logged, what went wrong."""
    state = trial.condition
    fields: dict[str, Cell] = {
        "trial": Id(trial.trial),
        "number": trial.ordinal,
        "model": trial.label,
        "varied": assignments(trial.varied),
        "state": Text(state, STYLES.get(state, "")),
        "why": trial.why or None,
        "step": f"{trial.step:,} of {trial.steps:,}",
        "time": span(trial.seconds),
        "folder": str(folder),
    }
    drawn = [] if sparkline is None else ["course"]
    rows: list[list[Cell]] = []
    for name, points in sorted(curves.items()):
        rows.append([name, len(points), Number(points[-1][1])])
        if sparkline is not None:
            rows[-1].append(sparkline([value for _, value in points], 20))
    blocks: list[Block] = [Fields({k: v for k, v in fields.items() if v not in (None, "")})]
    if rows:
        blocks += ["", Table(["metric", "logs", "last", *drawn], rows)]
    if trial.error:
        blocks += ["", trial.error]
    return {"trial": {**trial_record(trial, curves), "folder": str(folder)}}, blocks


def _why(trial: TrialView) -> str | None:
    """For a failure the last line of what was said; the rest is in JSON and in output.txt."""
    text = trial.why or (f"not reproducible: {trial.unlike}" if trial.unlike else "")
    return text or None


def trial_record(
    trial: TrialView, curves: Mapping[str, Sequence[tuple[int, float]]]
) -> dict[str, Any]:
    return {
        "rank": trial.rank,
        "id": trial.trial,
        "ordinal": trial.ordinal,
        "model": trial.label,
        "network": trial.network,
        "varied": dict(trial.varied),
        "config": dict(trial.config),
        "state": trial.condition,
        "verdict": trial.verdict,
        "why": trial.why or None,
        "error": trial.error,
        "step": trial.step,
        "steps": trial.steps,
        "last": dict(trial.last),
        "cut": dict(trial.cut),
        "seconds": trial.seconds,
        "not_reproducible": trial.unlike,
        "logs": {
            name: {"steps": [s for s, _ in points], "values": [v for _, v in points]}
            for name, points in curves.items()
        },
    }


# By rank, as `evaluate` gives them


MOST_COLUMNS = 4  # of what is varied; more stand in one


def trials_document(trials: Trials) -> dict[str, Any]:
    return {
        "sweep": trials.run,
        "name": trials.name,
        "planned": trials.plan is not None,
        "plan": None if trials.plan is None else asdict(trials.plan),
        "state": trials.state,
        "why": trials.why or None,
        "networks": trials.networks,
        "most_steps": trials.most_steps,
        "done_before": trials.done,
        "metric": trials.metric,
        "direction": trials.direction,
        "seconds": trials.seconds,
        "counts": dict(trials.counts),
        "into": trials.into,
        "trials": [ranked_record(trial) for trial in trials.trials],
    }


def ranked_record(trial: Trial) -> dict[str, Any]:
    view = trial.view
    return {
        "rank": trial.rank,
        "id": trial.id,
        "ordinal": trial.ordinal,
        "network": trial.network.id,
        "sources": list(trial.origins),
        "source_id": trial.source_id,
        "changes": [asdict(edit) for edit in trial.edits],
        "varied": dict(trial.varied),
        "config": dict(trial.config),
        "steps": trial.steps,
        "step": None if view is None else view.step,
        "state": None if view is None else view.condition,
        "verdict": None if view is None else view.verdict,
        "why": None if view is None else view.why or None,
        "error": None if view is None else view.error,
        "begin": trial.begin,
        "last": None if view is None else dict(view.last),
        "cut": None if view is None else dict(view.cut),
        "seconds": None if view is None else view.seconds,
        "not_reproducible": None if view is None else view.unlike,
        "version": trial.committed,
    }


def trials_table(ranked: Trials) -> Table:
    """A row for each trial; columns in which nothing stands are left out."""
    trials = ranked.trials
    metric = ranked.metric or _common(trials)
    keys = list(dict.fromkeys(key for trial in trials for key in trial.varied))
    apart = len(keys) <= MOST_COLUMNS
    columns = [
        *(Column("rank", fixed=True), Column("#", "ordinal", fixed=True)),
        *(Column("version", fixed=True), Column("model", "sources", least=12)),
        Column("changes", least=12),
        *([Column(key) for key in keys] if apart else [Column("varied", least=12)]),
        *(Column(f"{metric or 'metric'} at the cut", "cut"), Column(metric or "metric")),
        *(Column("step", fixed=True), Column("steps", fixed=True), Column("seconds")),
        *(Column("state", fixed=True), Column("trial", "id"), Column("why", least=16)),
    ]
    planned = ranked.plan is not None
    rows = [_trial_row(trial, metric, keys if apart else None, planned) for trial in trials]
    return columns_where(
        Table(columns, rows),
        lambda column, cells: column.title in ("model", "state") or any(map(filled, cells)),
    )


def _common(trials: Sequence[Trial]) -> str | None:
    """A metric to show where no rule names one: what nearly every trainer logs."""
    names = {name for each in trials if each.view is not None for name in each.view.last}
    return "loss" if "loss" in names else min(names, default=None)


def planned_state(trial: Trial) -> str:
    """What a plan says of a trial: that it would be trained, or what has become of it."""
    if trial.begin is not None and not (trial.view and trial.view.condition == "waiting"):
        return "to continue" if trial.begin else "to train"
    return "" if trial.view is None else trial.view.condition


def _trial_row(
    trial: Trial, metric: str | None, keys: Sequence[str] | None, planned: bool
) -> list[Cell]:
    import dlv.views.derived as derived

    view = trial.view
    state = planned_state(trial) if planned else "" if view is None else view.condition
    step = (view.step if view is not None else 0) if trial.begin is None else trial.begin
    last = _number(None if view is None or metric is None else view.last.get(metric))
    cut = _number(None if view is None or metric is None else view.cut.get(metric))
    varied: list[Cell] = (
        [assignments(trial.varied)]
        if keys is None
        else [setting(trial.varied[key]) if key in trial.varied else None for key in keys]
    )
    return [
        *(trial.rank, trial.ordinal, trial.committed and Text(trial.committed, "bold")),
        *(Items(list(trial.origins)), derived.edit_lines(trial.edits) or None, *varied),
        *(None if cut == last else cut, last),
        Count(step) if step or not planned else None,
        Count(trial.steps) if planned else None,
        None if view is None or not view.step else Number(round(view.seconds, 3)),
        Text(state, STYLES.get(state, "")),
        Id(trial.id),
        None if view is None else view.why or None,
    ]


def _number(value: float | None) -> Cell:
    if value is None:
        return None
    return Number(value) if math.isfinite(value) else str(value)


def _plan_messages(plan: TrainingPlan) -> Iterator[str]:
    yield "nothing was trained (--dry-run)"
    count = plan.finished + plan.to_train + plan.waiting
    if plan.finished == count:
        yield f"the query would train nothing: all {plural(count, 'trial')} are finished"
        return
    parts = [f"train {plural(plan.to_train, 'trial')}"] if plan.to_train else []
    if plan.waiting:
        parts.append(f"perhaps continue {plan.waiting:,} waiting for others")
    reused = f", and reuse {plural(plan.finished, 'finished trial')}" if plan.finished else ""
    yield f"the query would {' and '.join(parts)}, at most {plan.steps:,} steps{reused}"


def trials_messages(trials: Trials) -> Iterator[str]:
    """What is to be said behind the table."""
    if trials.plan is not None:
        yield from _plan_messages(trials.plan)
        return
    failed = trials.counts.get("failed", 0)
    if failed:
        yield f"{plural(failed, 'trial')} failed; for the reasons: dlv trials {trials.run[:7]}"
    if trials.state == "stopped" or trials.why:
        yield trials.why or "stopped"
    if trials.into is not None:
        made = [trial for trial in trials.trials if trial.committed and not trial.before]
        there = sum(trial.before for trial in trials.trials)
        if made:
            yield f"{plural(len(made), 'version')} of {trials.into} committed"
        elif there:
            of = f"{plural(there, 'version')} of {trials.into}"
            yield f"nothing new: {of} already {'has' if there == 1 else 'have'} the result"
        else:
            yield f"nothing was kept, and no version of {trials.into} committed"
    yield f"to show details: dlv trials {trials.run[:7]}"
