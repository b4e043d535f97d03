"""Runs of trials: their progress in a line, a table, JSON; runs and trials as tables."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dlv.canonical import timestamp
from dlv.terminal.output import Block, Fields
from dlv.terminal.table import Cell, Column, Count, Id, Number, Table, Text, Time, escape
from dlv.training.ledger.progress import GROUPS, Course, News, Progress, group
from dlv.training.ledger.results import RunView, TrialView
from dlv.training.workers.owners import Owner, dead

WORDS = {"ready": "to do"}
STYLES = {
    **dict.fromkeys(("failed", "diverged", "stale"), "red"),
    "interrupted": "yellow",
    **dict.fromkeys(("done", "over"), "green"),
    **dict.fromkeys(("stopped", "waiting", "ready"), "dim"),
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
    told = [f"{groups[name]} {WORDS.get(name, name)}" for name in GROUPS if groups.get(name)]
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
        "run": progress.run,
        "trials": progress.trials,
        **{name: progress.groups[name] for name in GROUPS},
        "steps": progress.steps,
        "most_steps": progress.most_steps,
        "steps_per_second": progress.rate,
        "seconds_left": progress.left,
        "metric": progress.metric,
        "best": [_course(each) for each in progress.best],
    }


def _course(each: Course) -> dict[str, Any]:
    return {
        "trial": each.trial.trial,
        "ordinal": each.trial.ordinal,
        "model": each.trial.label,
        "varied": dict(each.trial.varied),
        "step": each.trial.step,
        "value": each.value,
    }


# Afterwards


def moment(seconds: float) -> str:
    return timestamp(datetime.datetime.fromtimestamp(seconds, datetime.UTC))


def runs(found: Sequence[RunView]) -> tuple[dict[str, Any], Table]:
    """The newest first."""
    columns = [
        Column("run", "id", fixed=True),
        Column("state", fixed=True),
        Column("trials"),
        Column("steps", fixed=True),
        Column("begun", "created", fixed=True),
        Column("query"),
    ]
    ordered = list(reversed(found))
    rows: list[list[Cell]] = [
        [
            Id(run.id),
            Text(state_of(run), STYLES.get(state_of(run), "")),
            counted(groups_of(run)),
            Count(run.spent_steps),
            Time(moment(run.created)),
            " ".join(run.text.split()),
        ]
        for run in ordered
    ]
    return {"runs": [run_record(run) for run in ordered]}, Table(columns, rows)


def state_of(run: RunView) -> str:
    """A run that is not over, and at which nobody works, waits for its query."""
    return run.state if at_work(run) or run.state != "running" else "interrupted"


def at_work(run: RunView) -> int:
    """How many of its trials are being trained now, by processes that live as far as one knows."""
    owners = [trial.owner for trial in run.trials if trial.state == "running"]
    return sum(owner is None or not dead(Owner(**owner)) for owner in owners)


def groups_of(run: RunView) -> dict[str, int]:
    found = dict.fromkeys(GROUPS, 0)
    for trial in run.trials:
        found[group(trial)] += 1
    return found


def run_record(run: RunView) -> dict[str, Any]:
    return {
        "id": run.id,
        "state": run.state,
        "at_work": at_work(run),
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
) -> tuple[dict[str, Any], list[Block]]:
    """A run with its trials, the best first; with courses of the metric where people look."""
    metric = next((str(rule["metric"]) for rule in run.rules if "metric" in rule), None)
    if metric is None:
        metric = next((name for each in results for name in sorted(each.last)), None)
    document = {**run_record(run), "metric": metric}
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
        state = group(each)
        points = curves(each.trial).get(metric or "", []) if drawn else []
        course = [value for step, value in points if step <= each.steps]
        row: list[Cell] = [
            *(each.rank, each.ordinal, each.label, assignments(each.varied)),
            *(None if value is None else Number(value), Count(each.step)),
            Text(WORDS.get(state, state), STYLES.get(state, "")),
            Id(each.trial) if sparkline is None else sparkline(course, 12),
            _why(each),
        ]
        rows.append(row)
    return document, [*(_heading(run) if drawn else ()), Table(columns, rows)]


def _heading(run: RunView) -> Iterator[Block]:
    state = f"{state_of(run)}: {run.why}" if run.why else state_of(run)
    yield Fields(
        {
            "run": Id(run.id),
            "query": " ".join(run.text.split()),
            "state": Text(state, STYLES.get(state_of(run), "")),
            "trials": counted(groups_of(run)),
            "time": span(run.seconds),
        }
    )


def one_trial(
    each: TrialView,
    curves: Mapping[str, Sequence[tuple[int, float]]],
    folder: Path,
    sparkline: Sparkline | None,
) -> tuple[dict[str, Any], list[Block]]:
    """Everything about a trial: its settings, what it logged, what went wrong."""
    state = group(each)
    fields: dict[str, Cell] = {
        "trial": Id(each.trial),
        "number": each.ordinal,
        "model": each.label,
        "varied": assignments(each.varied),
        "state": Text(WORDS.get(state, state), STYLES.get(state, "")),
        "why": each.why or None,
        "step": f"{each.step:,} of {each.steps:,}",
        "time": span(each.seconds),
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
    if each.error:
        blocks += ["", each.error]
    return {"trial": {**trial_record(each, curves), "folder": str(folder)}}, blocks


def _why(each: TrialView) -> str | None:
    """For a failure the last line of what was said; the rest is in JSON and in output.txt."""
    text = each.why or (f"not reproducible: {each.unlike}" if each.unlike else "")
    return text or None


def trial_record(
    each: TrialView, curves: Mapping[str, Sequence[tuple[int, float]]]
) -> dict[str, Any]:
    return {
        "rank": each.rank,
        "id": each.trial,
        "ordinal": each.ordinal,
        "model": each.label,
        "network": each.network,
        "varied": dict(each.varied),
        "config": dict(each.config),
        "state": each.state,
        "verdict": each.verdict,
        "why": each.why or None,
        "error": each.error,
        "step": each.step,
        "steps": each.steps,
        "last": dict(each.last),
        "cut": dict(each.cut),
        "seconds": each.seconds,
        "not_reproducible": each.unlike,
        "logs": {
            name: {"steps": [s for s, _ in points], "values": [v for _, v in points]}
            for name, points in curves.items()
        },
    }
