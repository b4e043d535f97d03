"""`metrics`: what the series of versions and their evaluations come to, and their points."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import gt

import dlv.repository.revisions as revisions
from dlv.dataclass import dataclass
from dlv.errors import NotFound, UsageError, nearest
from dlv.events.formats.series import ADVICE, Scalars
from dlv.events.provider.downsample import extremes
from dlv.metadata import metrics
from dlv.metadata.database import Database
from dlv.metadata.evaluations import saved_evaluations
from dlv.metadata.metrics import Summary, summarise
from dlv.metadata.versions import Version
from dlv.repository.handle import Repository
from dlv.weights.store import MOST_POINTS, MatrixStore, stored_series, summary_of

CURVE = 16  # points of the small curve


@dataclass(frozen=True)
class Curve:
    """One series of one version. `points` and `course` only where they were asked for."""

    version: Version
    summary: Summary
    points: Scalars | None
    course: list[float] | None  # its shape in at most CURVE values, peaks kept


@dataclass(frozen=True)
class Curves:
    curves: list[Curve]
    notes: tuple[str, ...]


def curves(
    repository: Repository,
    references: Sequence[str],
    *,
    series: Sequence[str] = (),
    steps: str | None = None,
    courses: bool = False,
    whole: bool = False,
    restarts: str | None = None,
) -> Curves:
    """The series of versions, `series` of them (names or patterns), between two steps.

    With `whole` all of them have their points, not only those that were named. Figures are of the
    points that `restarts` shows; None is as marked, and it is noted where `preempt` hides more.
    """
    whole = whole or bool(series)
    policy = restarts or "marked"
    db = repository.database
    first, last = (None, None) if steps is None else step_range(steps)
    found = [revisions.whole(db, text) for text in references]
    rows = [
        (reference.version, summary)
        for reference in {r.version.id: r for r in found}.values()
        for summary in metrics.of_version(db, reference.version.key)
    ]
    tested: dict[tuple[str, str], Scalars] = {}
    for version in {r.version.id: r.version for r in found}.values():
        for scalars in evaluations(db, version):
            summary = summary_of(scalars, "")
            tested[version.id, summary.name] = scalars
            rows.append((version, summary))
    if series:
        other = {
            name: reference.version.label
            for reference in found
            for each in repository.manifest(reference.version.id).series
            for name in (each.tag, f"{each.run}/{each.tag}")
        }
        rows = _chosen(rows, series, [reference.version.label for reference in found], other)
    store = MatrixStore.of(repository)
    made = []
    back: list[str] = []
    for version, summary in rows:
        points = None
        known = policy == "marked" or not summary.hash  # its figures are what is asked for
        if whole or steps or not known or (courses and summary.n <= MOST_POINTS):
            points = tested.get((version.id, summary.name))
            if points is None or summary.hash:
                points = stored_series(store, summary.hash, policy)
            if restarts is None and any(map(gt, points.steps, points.steps[1:])):
                back.append(f"`{summary.name}` of {version.label}")
            if steps is not None:
                points = _between(points, first, last)
            if steps is not None or not known:
                summary = summarise(
                    summary.run, summary.tag, summary.hash, points.steps, points.values
                )
        course = None
        if courses and points is not None:
            course = [points.values[i] for i in extremes(points.values, CURVE)]
        made.append(Curve(version, summary, points if whole else None, course))
    store.close()
    notes = tuple(dict.fromkeys(note for reference in found for note in reference.notes))
    if back:
        more = f", as do those of {len(back) - 1} more" if len(back) > 1 else ""
        what = f"steps of {back[0]} go back without a mark of a restart{more}"
        notes = (*notes, f"{what}: {ADVICE}")
    return Curves(made, notes)


def evaluations(db: Database, version: Version) -> list[Scalars]:
    """What evaluations found, as series: a point for each step that was tested on a data set."""
    found: dict[str, dict[int, float]] = {}
    for saved in saved_evaluations(db, version.id):
        for name, value in saved.values():
            # The newest of a step counts.
            found.setdefault(name, {})[saved.step or 0] = value
    return [
        Scalars(
            *(*name.partition("/")[::2], sorted(points), [0.0] * len(points)),
            [points[at] for at in sorted(points)],
        )
        for name, points in sorted(found.items())
    ]


def step_range(text: str) -> tuple[int | None, int | None]:
    """`100:200`, both included; either may be left out."""
    start, colon, end = text.partition(":")
    try:
        first = int(start) if start else None
        last = int(end) if end else None
    except ValueError:
        colon = ""
        first = last = None
    if not colon or (first is not None and last is not None and first > last):
        raise UsageError(
            f"`{text}` is not a range of steps",
            why="the first step, a colon, the last one; both are included",
            hint="--steps 100:200, --steps 100: or --steps :200",
        )
    return first, last


def _between(points: Scalars, first: int | None, last: int | None) -> Scalars:
    kept = [
        i
        for i, step in enumerate(points.steps)
        if (first is None or step >= first) and (last is None or step <= last)
    ]
    return replace(
        points,
        steps=[points.steps[i] for i in kept],
        walls=[points.walls[i] for i in kept],
        values=[points.values[i] for i in kept],
    )


def _chosen(
    rows: Sequence[tuple[Version, Summary]],
    wanted: Sequence[str],
    labels: Sequence[str],
    other: Mapping[str, str],
) -> list[tuple[Version, Summary]]:
    """The series that are named; each name or pattern must be one of some version.

    `other`: names of all that was logged, and a version that has it.
    """
    known = sorted({summary.name for _, summary in rows})
    fitting: set[str] = set()
    for name in wanted:
        matching = {
            summary.name
            for _, summary in rows
            if name in (summary.name, summary.tag) or fnmatch.fnmatchcase(summary.name, name)
        }
        if not matching and name in other:
            raise UsageError(
                f"`{name}` of {other[name]} has no numbers, one for each step",
                why="it was logged as images, text, histograms or the like",
                hint=f"dlv tensorboard {other[name]}",
            )
        if not matching:
            raise NotFound(
                f"no metric `{name}` in {', '.join(labels[:3])}",
                why=f"metrics: {', '.join(known[:8]) or 'none'}",
                did_you_mean=nearest(name, known),
                hint=f"dlv metrics {labels[0]}",
            )
        fitting |= matching
    return [row for row in rows if row[1].name in fitting]
