"""Hyperparameters and summaries of metric series in the catalogue."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from dlv.canonical import dumps, float_of
from dlv.canonical import number as written
from dlv.dataclass import dataclass
from dlv.metadata.database import Database
from dlv.metadata.schemas import known_number, stored_number


@dataclass(frozen=True)
class Summary:
    """Figures of one series. Infinity is a value; NaN is an extreme only if all values are NaN."""

    run: str
    tag: str
    hash: str
    n: int
    last_step: int | None = None
    last: float | None = None
    min: float | None = None
    min_step: int | None = None
    max: float | None = None
    max_step: int | None = None
    nonfinite: int = 0

    @property
    def name(self) -> str:
        """As it is shown and asked for: the run only where there is one."""
        return f"{self.run}/{self.tag}" if self.run else self.tag


def summarise(
    run: str, tag: str, digest: str, steps: Sequence[int], values: Sequence[float]
) -> Summary:
    """The summary of a scalar series in the order in which it was written."""
    numbers = [
        (value, step) for step, value in zip(steps, values, strict=True) if not math.isnan(value)
    ]
    none = (math.nan, None) if values else (None, None)
    low = min(numbers, default=none, key=lambda point: point[0])
    high = max(numbers, default=none, key=lambda point: point[0])
    return Summary(
        run=run,
        tag=tag,
        hash=digest,
        n=len(values),
        last_step=steps[-1] if steps else None,
        last=values[-1] if values else None,
        min=low[0],
        min_step=low[1],
        max=high[0],
        max_step=high[1],
        nonfinite=sum(not math.isfinite(value) for value in values),
    )


_COLUMNS = "run, tag, series_hash, n, last_step, last, min, min_step, max, max_step, nonfinite"
_SHOWN = _COLUMNS.replace("series_hash", "lower(hex(series_hash))")


def insert(db: Database, version_id: int, summaries: Sequence[Summary]) -> None:
    db.many(
        f"INSERT INTO metric(version_id, {_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
        [
            (
                *(version_id, s.run, s.tag, bytes.fromhex(s.hash), s.n, s.last_step),
                *(
                    stored_number(s.last),
                    stored_number(s.min),
                    s.min_step,
                    stored_number(s.max),
                    s.max_step,
                ),
                s.nonfinite,
            )
            for s in summaries
        ],
    )


def of_version(db: Database, version_id: int) -> list[Summary]:
    return [
        Summary(*map(known_number, row))
        for row in db.rows(
            f"SELECT {_SHOWN} FROM metric WHERE version_id = ? ORDER BY run, tag", (version_id,)
        )
    ]


def all_of(db: Database) -> dict[int, list[Summary]]:
    """Every version's summaries in one read, for listings."""
    found: dict[int, list[Summary]] = {}
    for version_id, *row in db.rows(f"SELECT version_id, {_SHOWN} FROM metric ORDER BY run, tag"):
        found.setdefault(version_id, []).append(Summary(*map(known_number, row)))
    return found


def tags(db: Database) -> list[str]:
    return [
        f"{run}/{tag}" if run else tag
        for run, tag in db.rows("SELECT DISTINCT run, tag FROM metric ORDER BY run, tag")
    ]


def typed(value: Any) -> tuple[str, float | None, str | None]:
    """(type, number, text) of a hyperparameter as the catalogue holds it."""
    if value is None:
        return "null", None, None
    if isinstance(value, bool):
        return "bool", float(value), None
    if isinstance(value, float) and not math.isfinite(value):
        value = written(value)
    if isinstance(value, (int, float)):
        # A float column would round large integers; their digits stay in the text.
        return type(value).__name__, float(value), str(value) if isinstance(value, int) else None
    if isinstance(value, str):
        if value in ("NaN", "Infinity", "-Infinity"):
            there = float_of(value)
            return "float", None if math.isnan(there) else there, value
        return "str", None, value
    return "json", None, dumps(value).decode()


def insert_hyperparameters(db: Database, version_id: int, values: Mapping[str, Any]) -> None:
    db.many(
        "INSERT INTO hyperparameter(version_id, key, type, num, txt) VALUES (?,?,?,?,?)",
        [(version_id, key, *typed(value)) for key, value in values.items()],
    )


def hyperparameters(db: Database) -> dict[int, dict[str, Any]]:
    """Every version's, by its key, in one read."""
    found: dict[int, dict[str, Any]] = {}
    for version_id, key, kind, number, text in db.rows(
        "SELECT version_id, key, type, num, txt FROM hyperparameter ORDER BY version_id, key"
    ):
        found.setdefault(version_id, {})[key] = _untyped(kind, number, text)
    return found


def _untyped(kind: str, number: float | None, text: str | None) -> Any:
    """The inverse of `typed`."""
    if kind == "bool":
        return bool(number)
    if kind == "int":
        return int(text or 0)
    if kind == "json":
        return json.loads(text or "null")
    return text if number is None or text is not None else number  # NaN by its name
