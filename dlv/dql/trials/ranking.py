"""The trials of a run as what a query gives: ranked, ordered, the first of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dlv.dql.bind.bound import Evaluation, Ranked
from dlv.dql.bind.configurations import looked_up
from dlv.dql.outcome import Trial
from dlv.dql.trials.preparing import Planned
from dlv.training.ledger.results import TrialResult


def ranked(results: Sequence[TrialResult], planned: Mapping[str, Planned]) -> list[Trial]:
    """The best first. A trial that an earlier way of asking had, and this one has not, is none."""
    found: list[Trial] = []
    for result in results:
        trial = planned.get(result.trial)
        if trial is not None:
            found.append(_trial(trial, result.ordinal, len(found) + 1, result))
    return found


def unranked(planned: Mapping[str, Planned]) -> list[Trial]:
    """Before anything is trained."""
    return [_trial(trial, trial.ordinal, None, None) for trial in planned.values()]


def _trial(trial: Planned, ordinal: int, rank: int | None, result: TrialResult | None) -> Trial:
    config, candidate = trial.config, trial.candidate
    return Trial(
        id=trial.id,
        ordinal=ordinal,
        network=candidate.network,
        origins=candidate.origins,
        source_id=candidate.source.id,
        edits=candidate.edits,
        varied=trial.variation.varied,
        config=config.document(),
        steps=config.steps,
        rank=rank,
        view=result,
    )


def chosen(work: Evaluation, trials: Sequence[Trial]) -> list[Trial]:
    """As `order by`, `limit` and `offset` say; without an order the best first."""
    found = list(trials)
    for order in reversed(work.order):
        known = [each for each in found if _value(order, each) is not None]
        absent = [each for each in found if _value(order, each) is None]
        known.sort(key=lambda each: _key(_value(order, each)), reverse=order.descending)
        found = [*absent, *known] if order.nulls_first else [*known, *absent]
    start = work.offset or 0
    return found[start:] if work.limit is None else found[start : start + work.limit]


def _value(order: Ranked, trial: Trial) -> Any:
    view = trial.view
    if order.kind == "config":
        return (
            looked_up(dict(trial.config), order.key)
            if order.key[0] != "net"
            else _net(trial, order.key)
        )
    if order.kind == "metric":
        value = None if view is None else view.last.get(order.name)
        return None if value is None or value != value else value
    figures: dict[str, Any] = {
        "rank": trial.rank,
        "trial": trial.ordinal,
        "network": trial.origins[0],
        "steps": None if view is None else view.step,
        "seconds": None if view is None else view.seconds,
        "state": None if view is None else view.state,
    }
    return figures[order.name]


def _net(trial: Trial, key: Sequence[str]) -> Any:
    """What was varied for a selector, as it was written, or what a node has."""
    nodes = trial.config.get("net", {})
    return trial.varied.get(f'net["{key[1]}"].{key[2]}', nodes.get(key[1], {}).get(key[2]))


def _key(value: Any) -> tuple[int, Any]:
    """Numbers before texts before all else."""
    if isinstance(value, (int, float)):
        return 0, value
    return (1, value) if isinstance(value, str) else (2, json.dumps(value, sort_keys=True))
