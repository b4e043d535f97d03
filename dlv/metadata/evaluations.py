"""Results of evaluations that were saved, as metrics called DATA/METRIC, as in `test/accuracy`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import dlv.metadata.metrics as metrics
from dlv.canonical import NON_FINITE, float_of
from dlv.errors import NotFound, UsageError, nearest
from dlv.metadata.database import Database
from dlv.metadata.facts import is_undone
from dlv.metadata.metrics import Summary
from dlv.metadata.versions import Version

FILE_SUFFIXES = (".npz", ".npy", ".csv", ".tsv")
_DIGITS = 4  # of a fingerprint, behind the name of a second data set of that name
_NOT_UNDONE_ROWS = (
    "SELECT hash, subject, created, data, EXISTS (SELECT 1 FROM fact AS u WHERE u.kind = 'undo'"
    " AND u.subject = fact.hash) FROM fact WHERE kind = 'evaluation'"
)


class Saved(NamedTuple):
    """A saved evaluation of a version; `data_set` is the name of the data set everywhere."""

    version: str
    created: str
    data_set: str
    data: dict[str, Any]

    @property
    def step(self) -> int | None:
        step: int | None = self.data["step"]
        return step

    def values(self) -> Iterable[tuple[str, float]]:
        """Metrics that have a value, under their full names."""
        for name, value in self.data["metrics"].items():
            if isinstance(value, (int, float)) or value in NON_FINITE:
                yield f"{self.data_set}/{name}", float_of(value)


def saved_evaluations(db: Database, version: str | None = None) -> list[Saved]:
    """Return the evaluations of a version or of all versions, oldest first, without undone ones."""
    sql, values = f"{_NOT_UNDONE_ROWS} ORDER BY created, hash", ()
    rows = [
        (subject, created, json.loads(data), bool(undone) and is_undone(db, digest))
        for digest, subject, created, data, undone in db.rows(sql, values)
    ]
    # Undone ones keep their names: a name must not move to other data because of an undo.
    called = _data_set_names(db, [data for _, _, data, _ in rows])
    return [
        Saved(subject, created, called[_identity(data)], data)
        for subject, created, data, undone in rows
        if not undone and version in (None, subject)
    ]


def _identity(data: dict[str, Any]) -> tuple[str, str | None]:
    """Tell data sets apart: by content if it is known, otherwise by name."""
    told = _told(data)
    fingerprint = told.get("fingerprint")
    return ("", fingerprint) if fingerprint else (told.get("name", "evaluation"), None)


def _told(data: dict[str, Any]) -> dict[str, str]:
    """Return what an evaluation says of its data set; early ones say nothing."""
    told = data.get("data")
    return told if isinstance(told, dict) else {}


def _data_set_names(
    db: Database, evaluations: list[dict[str, Any]]
) -> dict[tuple[str, str | None], str]:
    """Name data sets after their files; a second one of that name gets digits of its content.

    So does a data set whose results would have the name of a logged metric.
    """
    found: dict[tuple[str, str | None], str] = {}
    taken: set[str] = set()
    for data in evaluations:
        key = _identity(data)
        if key in found:
            continue
        name = _short(_told(data).get("name", "evaluation"))
        if name in taken or any(_is_logged(db, f"{name}/{tag}") for tag in data["metrics"]):
            digits = (key[1] or key[0]).removeprefix("unverified:")
            length = _DIGITS
            while f"{name}-{digits[:length]}" in taken and length < len(digits):
                length += _DIGITS
            name = f"{name}-{digits[:length]}"
        taken.add(name)
        found[key] = name
    return found


def _short(name: str) -> str:
    """`data/test.npz`, `lenet@1:test.npz` and `python:sets:test` are all called `test`."""
    path = PurePosixPath(name.rpartition(":")[2] or name)
    return path.stem if path.suffix.lower() in FILE_SUFFIXES else path.name or "data"


def _is_logged(db: Database, name: str) -> bool:
    """Return whether any version has a logged metric of that name."""
    cuts = [at for at, sign in enumerate(name) if sign == "/"]
    pairs = [("", name), *((name[:at], name[at + 1 :]) for at in cuts)]
    return any(
        db.value("SELECT 1 FROM metric WHERE tag = ? AND run = ? LIMIT 1", (tag, run))
        for run, tag in pairs
    )


def _default_steps(db: Database) -> dict[str, int | None]:
    """Return the step of each evaluated version's default checkpoint."""
    return dict(
        db.rows(
            "SELECT version.hash, step FROM version LEFT JOIN snapshot"
            " ON snapshot.version_id = version.id AND own WHERE version.hash IN"
            " (SELECT subject FROM fact WHERE kind = 'evaluation')"
        )
    )


def results(db: Database) -> dict[str, dict[str, float]]:
    """Return the newest results of each version's default checkpoint, by id and full name."""
    found: dict[str, dict[str, float]] = {}
    steps: dict[str, int | None] | None = None
    for saved in saved_evaluations(db):
        steps = _default_steps(db) if steps is None else steps
        if saved.step in (None, steps.get(saved.version)):
            found.setdefault(saved.version, {}).update(saved.values())
    return found


def as_summaries(values: Mapping[str, float]) -> list[Summary]:
    """Return results as metrics of one value, under their full names."""
    return [
        Summary(*name.partition("/")[::2], "", 1, None, value, value, None, value)
        for name, value in sorted(values.items())
    ]


def metrics_of(db: Database, version: Version) -> list[Summary]:
    """Return a version's metrics, logged ones first, then those of evaluations."""
    return [*metrics.of_version(db, version.key), *as_summaries(results(db).get(version.id, {}))]


def last_values(db: Database, versions: Iterable[Version]) -> dict[int, dict[str, float]]:
    """Return the last value of each metric, logged or evaluated, by the key of a version."""
    evaluated = results(db)
    return {
        version.key: {
            **{m.name: m.last for m in metrics.of_version(db, version.key) if m.last is not None},
            **evaluated.get(version.id, {}),
        }
        for version in versions
    }


def metric_named(given: str, known: Collection[str]) -> str:
    """Return the metric of that name; `accuracy` also means `test/accuracy` if nothing else."""
    if given in known:
        return given
    ends = sorted({name for name in known if name.endswith(f"/{given}")})
    if len(ends) == 1:
        return ends[0]
    if ends:
        raise UsageError(
            f"`{given}` is ambiguous: {', '.join(ends[:6])}{' ...' if len(ends) > 6 else ''}",
            hint=f"give the full name, such as {ends[0]}",
        )
    raise NotFound(f"no metric `{given}`", did_you_mean=nearest(given, known))
