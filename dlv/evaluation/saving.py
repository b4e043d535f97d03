"""Evaluations as facts: saved with the version they are of, and read again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlv.canonical import number
from dlv.evaluation.answers import Level
from dlv.evaluation.outcome import Evaluation
from dlv.repository.handle import Change, Repository

KIND = "evaluation"


def save(
    repository: Repository, found: list[Evaluation], data: Mapping[str, Any], author: str
) -> None:
    """One fact for each; together they are one operation, which `dlv undo` takes back."""
    with repository.change("eval", author) as change:
        for each in found:
            record(change, each, data)
        labels = ", ".join(each.version for each in found)
        change.summary = f"{labels} on {data['name']}"


def record(change: Change, found: Evaluation, data: Mapping[str, Any]) -> None:
    """The fact of one evaluation."""
    change.record(
        KIND,
        found.id,
        {
            "step": found.step,
            "data": dict(data),
            "mode": found.mode,
            "reference": found.reference,
            "rows": found.rows,
            "metrics": {name: number(value) for name, value in found.metrics.items()},
            "bytes_read": found.bytes_read,
            "bytes_whole": found.bytes_whole,
            "levels": [level_record(each) for each in found.levels],
        },
    )


def level_record(level: Level) -> dict[str, Any]:
    """A level as facts and documents have it."""
    return {
        "bits": dict(level.bits),
        "bytes_read": level.bytes_read,
        "raw_read": level.raw_read,
        "share": level.share,
        "determined": level.determined,
        "open": level.open,
    }
