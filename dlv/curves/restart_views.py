"""Curves as another policy of restarts shows them: nothing is changed, other points are seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np

from dlv.curves.store import CurveStore, gaps
from dlv.events.formats import chunks
from dlv.events.formats.chunks import Scalars
from dlv.events.formats.series import ADVICE
from dlv.events.logs.points import BLOBS, SCALAR, live_points
from dlv.events.provider.store import Columns, SeriesRow
from dlv.metadata import curve_writing, curves
from dlv.metadata.curves import CurveDatabase
from dlv.metadata.database import Row

MARKED = "marked"


class _Seen(NamedTuple):
    extent: curves.Extent
    max_step: int | None
    max_wall: float | None
    max_length: int
    last: float | None
    min: float | None
    max: float | None

    @property
    def n(self) -> int:
        return sum(n for _, _, n in self.extent.live())


class RestartView(CurveStore):
    """A store under another policy than `marked`, which is how `live.db` keeps it.

    Only series that the policies do not agree on are read for it, once until there is more of one.
    """

    def __init__(self, database: CurveDatabase, policy: str) -> None:
        super().__init__(database)
        self._policy = policy
        self._seen: dict[int, tuple[Row, _Seen]] = {}

    def series(
        self,
        experiment: int,
        *,
        plugin: str | None = None,
        data_class: int | None = None,
        runs: Collection[str] | None = None,
        tags: Collection[str] | None = None,
    ) -> list[SeriesRow]:
        with self.database.snapshot():
            found = super().series(
                experiment, plugin=plugin, data_class=data_class, runs=runs, tags=tags
            )
            disputed = curves.restarted(self.database, experiment)
            return [self._row(row) if row.id in disputed else row for row in found]

    def _row(self, row: SeriesRow) -> SeriesRow:
        seen = self._look(row.id)
        return row._replace(
            n=seen.n,
            max_step=seen.max_step,
            max_wall=seen.max_wall,
            max_length=seen.max_length,
            last=seen.last,
            min=seen.min,
            max=seen.max,
        )

    def extent(self, series: int) -> curves.Extent:
        if not curves.is_restarted(self.database, series):
            return super().extent(series)
        return self._look(series).extent

    def preview(self, series: int) -> Columns | None:
        """The sample that is kept is one of the points that `marked` shows."""
        if curves.is_restarted(self.database, series):
            return None
        return super().preview(series)

    def _look(self, series: int) -> _Seen:
        stamp = curves.stamp(self.database, series)
        known = self._seen.get(series)
        if known is None or known[0] != stamp:
            known = self._seen[series] = (stamp, self._read(series, stamp[0]))
        return known[1]

    def _read(self, series: int, data_class: int) -> _Seen:
        lengths = None
        if data_class == SCALAR:
            points = chunks.joined(list(self.written(series)))
        else:
            moments = curve_writing.moments(
                self.database, series, "blob_point" if data_class == BLOBS else "tensor"
            )
            walls = [math.nan if wall is None else wall for _, wall in moments]
            steps = np.asarray([step for step, _ in moments], np.int64)
            points = Scalars(steps, np.asarray(walls, np.float64), np.zeros(len(steps)))
        if data_class == BLOBS:
            lengths = [len(point.blobs) for point in self.written_blobs(series)]
        marks = [
            (seq, step)
            for policy, seq, step in curves.purges(self.database, series)
            if policy == MARKED
        ]
        live = live_points(points.steps, marks, self._policy)
        if live is None:
            live = np.ones(points.n, bool)
        extent = curves.Extent(points.n, tuple(gaps(live)))
        left = points.at(np.flatnonzero(live))
        if not left.n:
            return _Seen(extent, None, None, 0, None, None, None)
        told = chunks.figures(left)
        scalar = data_class == SCALAR
        return _Seen(
            extent,
            told.step1,
            float(np.fmax.reduce(left.walls)),
            max((n for n, seen in zip(lengths or (), live, strict=False) if seen), default=0),
            float(left.values[-1]) if scalar else None,
            told.vmin if scalar else None,
            told.vmax if scalar else None,
        )


def under(store: CurveStore, policy: str | None) -> CurveStore:
    """The same curves as a policy of restarts shows them; None is as marked."""
    return RestartView(store.database, policy) if policy and policy != MARKED else store


def advice(
    store: CurveStore, experiment: str, shown: Callable[[str], bool] = lambda _: True
) -> str | None:
    """What to say of runs whose steps go back although no restart is marked, if there are any."""
    key = curves.experiment(store.database, experiment)
    found = [] if key is None else curves.went_back(store.database, key)
    runs = [(run, step) for run, step in found if shown(run)]
    if not runs:
        return None
    run, step = runs[0]
    others = "1 other run" if len(runs) == 2 else f"{len(runs) - 1} other runs"
    more = f", as do those of {others}" if len(runs) > 1 else ""
    which = "here" if run == "." else f"of `{run}`"
    return f"steps {which} go back to {step} without a mark of a restart{more}: {ADVICE}"
