"""What evaluate gives: trials by rank, with what was varied, what came of them, and why."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import dlv.views.derived as derived
from dlv.dql.outcome import Trial, Trials
from dlv.network.edits.wiring import Edit
from dlv.terminal.table import Cell, Column, Count, Id, Items, Number, Table, Text
from dlv.training.ledger.progress import group
from dlv.views.trials import STYLES, WORDS, assignments
from dlv.views.values import plural, setting

MOST_COLUMNS = 4  # of what is varied; more stand in one
PLANNED = "to do"


def document(found: Trials) -> dict[str, Any]:
    return {
        "run": found.run,
        "name": found.name,
        "planned": found.planned,
        "state": found.state,
        "why": found.why or None,
        "networks": found.networks,
        "most_steps": found.most_steps,
        "done_before": found.done,
        "metric": found.metric,
        "direction": found.direction,
        "seconds": found.seconds,
        "counts": dict(found.counts),
        "into": found.into,
        "trials": [record(trial) for trial in found.trials],
    }


def record(trial: Trial) -> dict[str, Any]:
    view = trial.view
    return {
        "rank": trial.rank,
        "id": trial.id,
        "ordinal": trial.ordinal,
        "network": trial.network.id,
        "sources": list(trial.origins),
        "source_id": trial.source_id,
        "changes": [
            {"action": e.action, "node": e.node, "text": e.text, "warning": e.warning}
            for e in trial.edits
        ],
        "varied": dict(trial.varied),
        "config": dict(trial.config),
        "steps": trial.steps,
        "step": None if view is None else view.step,
        "state": None if view is None else view.state,
        "verdict": None if view is None else view.verdict,
        "why": None if view is None else view.why or None,
        "error": None if view is None else view.error,
        "last": None if view is None else dict(view.last),
        "cut": None if view is None else dict(view.cut),
        "seconds": None if view is None else view.seconds,
        "not_reproducible": None if view is None else view.unlike,
        "version": trial.committed,
    }


def table(found: Trials) -> Table:
    """A row for each trial; columns in which nothing stands are left out."""
    trials = found.trials
    metric = found.metric or _common(trials)
    keys = list(dict.fromkeys(key for trial in trials for key in trial.varied))
    apart = len(keys) <= MOST_COLUMNS
    columns = [
        *(Column("rank", fixed=True), Column("#", "ordinal", fixed=True)),
        *(Column("version", fixed=True), Column("model", "sources", least=12)),
        Column("changes", least=12),
        *([Column(key) for key in keys] if apart else [Column("varied", least=12)]),
        *(Column(f"{metric or 'metric'} at the cut", "cut"), Column(metric or "metric")),
        *(Column("step", fixed=True), Column("seconds")),
        *(Column("state", fixed=True), Column("trial", "id"), Column("why", least=16)),
    ]
    rows = [_row(trial, metric, keys if apart else None) for trial in trials]
    kept = [
        place
        for place, column in enumerate(columns)
        if column.title in ("model", "state") or any(_filled(row[place]) for row in rows)
    ]
    return Table([columns[i] for i in kept], [[row[i] for i in kept] for row in rows])


def _common(trials: Sequence[Trial]) -> str | None:
    """A metric to show where no rule names one: what nearly every trainer logs."""
    names = {name for each in trials if each.view is not None for name in each.view.last}
    return "loss" if "loss" in names else min(names, default=None)


def _row(trial: Trial, metric: str | None, keys: Sequence[str] | None) -> list[Cell]:
    view = trial.view
    state = PLANNED if view is None else group(view)
    last = _number(None if view is None or metric is None else view.last.get(metric))
    cut = _number(None if view is None or metric is None else view.cut.get(metric))
    varied: list[Cell] = (
        [assignments(trial.varied)]
        if keys is None
        else [setting(trial.varied[key]) if key in trial.varied else None for key in keys]
    )
    return [
        *(trial.rank, trial.ordinal, trial.committed and Text(trial.committed, "bold")),
        *(Items(list(trial.origins)), changes(trial.edits) or None, *varied),
        *(None if cut == last else cut, last),
        Count(trial.steps if view is None else view.step),
        None if view is None else Number(round(view.seconds, 3)),
        Text(WORDS.get(state, state), STYLES.get(state, "")),
        Id(trial.id),
        None if view is None else view.why or None,
    ]


def _number(value: float | None) -> Cell:
    if value is None:
        return None
    return Number(value) if math.isfinite(value) else str(value)


def _filled(cell: Cell) -> bool:
    return bool(cell.values) if isinstance(cell, Items) else cell is not None


def changes(edits: Sequence[Edit]) -> str:
    return derived.edit_lines(edits)


def messages(found: Trials) -> Iterator[str]:
    """What is to be said behind the table."""
    if found.planned:
        yield "nothing was trained: only tried"
        return
    failed = found.counts.get("failed", 0)
    if failed:
        yield f"{plural(failed, 'trial')} failed: dlv trials {found.run[:7]} shows why"
    if found.state == "stopped" or found.why:
        yield found.why or "stopped"
    if found.into is not None:
        made = [trial for trial in found.trials if trial.committed and not trial.before]
        there = sum(trial.before for trial in found.trials)
        if made:
            yield f"{plural(len(made), 'version')} of {found.into} committed"
        elif there:
            of = f"{plural(there, 'version')} of {found.into}"
            yield f"nothing new: {of} {'stands' if there == 1 else 'stand'} for what was kept"
        else:
            yield f"nothing was kept, and no version of {found.into} committed"
    yield f"dlv trials {found.run[:7]} shows all of it"
