"""What a log or a pack brings, put into `live.db`: series by series, a transaction at a time."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from dlv.canonical import hash_bytes
from dlv.curves.store import CurveStore, gaps
from dlv.events.formats import chunks
from dlv.events.formats.chunks import Scalars
from dlv.events.logs.points import (
    BLOBS,
    SCALAR,
    TENSOR,
    BlobPoint,
    Fault,
    Hide,
    Item,
    Metadata,
    ScalarPoints,
    TensorPoint,
)
from dlv.events.provider.downsample import SAMPLE, sampled
from dlv.metadata import curve_writing, curves
from dlv.metadata.curve_writing import PackedChunk, SeriesState

_PACKED_AT_ONCE = 1 << 16  # points; more would take much memory
_FRAGMENTS = 16  # chunks at the end of a series that are not full; then they become one


class Batch:
    """What one transaction is to bring: points of all series of one run, in order."""

    def __init__(self) -> None:
        self.metadata: list[Metadata] = []
        self.faults: list[Fault] = []
        self.items: list[Item] = []
        self.bytes = 0
        self.points = 0

    def add(
        self, items: Iterable[Item], metadata: Iterable[Metadata] = (), faults: Iterable[Fault] = ()
    ) -> None:
        self.metadata += metadata
        self.faults += faults
        for item in items:
            self.items.append(item)
            if isinstance(item, ScalarPoints):
                self.bytes += 24 * len(item)
                self.points += len(item)
            elif isinstance(item, TensorPoint):
                self.bytes += 200 + len(item.data) + len(item.legacy)
                self.points += 1
            elif isinstance(item, BlobPoint):
                self.bytes += 200 + sum(map(len, item.blobs))
                self.points += 1


def _first_backs(steps: NDArray[np.int64], before: NDArray[np.int64]) -> list[int]:
    """Return where a step is first below the largest one before it, and where first equal to it."""
    places = (np.flatnonzero(steps < before), np.flatnonzero(steps == before))
    return [int(found[0]) for found in places if len(found)]


class RunWriter:
    """Writes batches to one run; each within a transaction of the caller's."""

    def __init__(self, store: CurveStore, run_id: int) -> None:
        self.store = store
        self.db = store.database
        self.run_id = run_id
        self.series = curve_writing.series(self.db, run_id)
        self._scalars: dict[str, list[Scalars]] = {}
        self._tensors: dict[str, list[curve_writing.TensorPoint]] = {}
        self._new: dict[str, int] = {}  # points of a tag in this batch so far
        self._purges: dict[str, list[tuple[int, int]]] = {}
        self._back: dict[str, dict[str, tuple[int, int]]] = {}  # of a tag, kind -> (seq, step)

    def write(self, batch: Batch) -> None:
        self._declare(batch.metadata)
        for fault in batch.faults:
            if fault.tag is not None and fault.tag in self.series:
                self._flag(self.series[fault.tag], fault.message)
        for item in batch.items:
            self._take(item)
        self._append()
        for tag, tensors in self._tensors.items():
            curve_writing.put_tensors(self.db, self.series[tag].id, tensors)
        for tag, count in self._new.items():
            self.series[tag].written += count
        for tag, purges in self._purges.items():
            self._hide(tag, self.series[tag], purges)
        for tag, kinds in self._back.items():
            for kind, (seq, step) in kinds.items():
                curve_writing.put_back(self.db, self.series[tag].id, seq, step, kind)
        curve_writing.save_series(self.db, self.series.values())
        for waiting in (self._scalars, self._tensors, self._new, self._purges, self._back):
            waiting.clear()

    def forget(self, tag: str) -> None:
        """What a transaction that failed was about."""
        self.series.pop(tag, None)
        for waiting in (self._scalars, self._tensors, self._new, self._purges, self._back):
            waiting.pop(tag, None)

    def _declare(self, metadata: Iterable[Metadata]) -> None:
        """A tag's first metadata wins."""
        new: dict[str, curve_writing.SeriesRow] = {}
        for m in metadata:
            if m.tag not in self.series and m.tag not in new:
                new[m.tag] = (
                    *(m.tag, m.plugin, m.data_class),
                    *(m.content, m.display_name, m.description),
                )
        if new:
            self.series |= curve_writing.add_series(self.db, self.run_id, list(new.values()))

    def _flag(self, state: SeriesState, message: str) -> None:
        if state.error is None:
            state.error, state.changed = message, True

    def _take(self, item: Item) -> None:
        if isinstance(item, Hide):
            for tag in list(self.series) if item.tag is None else [item.tag]:
                if tag in self.series and (seq := self._count(tag)):
                    self._purges.setdefault(tag, []).append((seq, item.step))
            return
        state = self.series[item.tag]
        wanted = {ScalarPoints: SCALAR, BlobPoint: BLOBS}.get(type(item), TENSOR)
        if state.data_class not in (wanted, 0 if wanted == TENSOR else wanted):
            self._flag(state, "values of several kinds were logged under this tag")
            return
        seq = self._count(item.tag)
        if isinstance(item, ScalarPoints):
            self._scalars.setdefault(item.tag, []).append(
                Scalars(item.steps, item.walls, item.values)
            )
            self._new[item.tag] = self._new.get(item.tag, 0) + len(item)
            return
        self._new[item.tag] = self._new.get(item.tag, 0) + 1
        self._note_back(item.tag, seq, item.step, state.max_step)
        self._count_in(state, item.step, item.wall)
        if isinstance(item, TensorPoint):
            shape = json.dumps(list(item.shape))
            self._tensors.setdefault(item.tag, []).append(
                curve_writing.TensorPoint(
                    seq, item.step, item.wall, item.dtype, shape, item.data, item.legacy
                )
            )
            return
        state.max_length = max(state.max_length, len(item.blobs))
        blobs = [(hash_bytes(blob), blob) for blob in item.blobs]
        curve_writing.put_blobs(self.db, state.id, seq, item.step, item.wall, blobs)

    def _look_back(self, tag: str, steps: NDArray[np.int64]) -> None:
        """Whether new scalars go back, or repeat a step."""
        state = self.series[tag]
        if not len(steps) or (
            (state.max_step is None or steps[0] > state.max_step) and (steps[1:] > steps[:-1]).all()
        ):
            return
        least = max(int(steps[0]) - 1, -(2**63)) if state.max_step is None else state.max_step
        before = np.maximum.accumulate(np.append(np.int64(least), steps[:-1]))
        for at in _first_backs(steps, before):
            self._note_back(tag, state.written + at, int(steps[at]), int(before[at]))

    def _note_back(self, tag: str, seq: int, step: int, before: int | None) -> None:
        if before is not None and step <= before:
            kind = curve_writing.BACK if step < before else curve_writing.REPEAT
            self._back.setdefault(tag, {}).setdefault(kind, (seq, step))

    def _count(self, tag: str) -> int:
        return self.series[tag].written + self._new.get(tag, 0)

    def _count_in(self, state: SeriesState, step: int, wall: float) -> None:
        state.n += 1
        state.max_step = step if state.max_step is None else max(state.max_step, step)
        state.max_wall = wall if state.max_wall is None else max(state.max_wall, wall)
        state.changed = True

    def _append(self) -> None:
        """Store the new scalars as full chunks, and the rest as one that later points fill up."""
        # The series of each part, its first point, and whether no point of it was stored before.
        places: list[tuple[SeriesState, int, bool]] = []
        parts: list[Scalars] = []
        waiting = 0  # points
        for tag, pieces in self._scalars.items():
            new = chunks.joined(pieces)
            if not new.n:
                continue
            state = self.series[tag]
            self._look_back(tag, new.steps)
            first, points = self._with_last_chunks(state, new)
            if points is not new:
                _count_figures(state, chunks.figures(new))
            _count_points(state, new)
            for start in range(0, points.n, curves.CHUNK):
                places.append((state, first + start, points is new))
                parts.append(points.part(start, min(points.n, start + curves.CHUNK)))
            waiting += points.n
            if waiting > _PACKED_AT_ONCE:
                self._put(places, parts)
                places, parts, waiting = [], [], 0
        self._put(places, parts)

    def _put(self, places: list[tuple[SeriesState, int, bool]], parts: list[Scalars]) -> None:
        rows = []
        for (state, seq, is_new), (figures, data) in zip(places, chunks.packed(parts), strict=True):
            if is_new:
                _count_figures(state, figures)
            rows.append((state.id, PackedChunk(seq, *figures, data)))
        curve_writing.put_chunks(self.db, rows)

    def _with_last_chunks(self, state: SeriesState, points: Scalars) -> tuple[int, Scalars]:
        """Join the points with the unfinished last chunks, if these are due to be replaced.

        Return the number of the first point, and all points to store from there on.
        """
        if not state.written:
            return 0, points
        loose = curve_writing.loose_end(self.db, state.id)
        held = sum(n for _, n, _ in loose)
        if not loose or (held + points.n < curves.CHUNK and len(loose) < _FRAGMENTS):
            return state.written, points
        first = loose[0][0]
        curve_writing.drop_chunks(self.db, state.id, first)
        return first, chunks.joined([*(chunks.unpack(data) for _, _, data in loose), points])

    def _hide(self, tag: str, state: SeriesState, purges: Sequence[tuple[int, int]]) -> None:
        for seq, step in purges:
            curve_writing.put_purge(self.db, state.id, seq, step, "marked")
        # Mostly a run goes on after its last step, and nothing is hidden.
        if state.max_step is None or all(step > state.max_step for _, step in purges):
            return
        if state.data_class == SCALAR:
            points = chunks.joined(list(self.store.written(state.id)))
        else:
            points = self._moments(state)
        live = np.ones(points.n, bool)
        for start, n in curves.extent(self.db, state.id).hidden:
            live[start : start + n] = False
        for seq, step in purges:
            live[:seq] &= points.steps[:seq] < step
        curve_writing.set_hidden(self.db, state.id, gaps(live))
        places = np.flatnonzero(live)
        left = points.at(places)
        # Steps that went back may be hidden now, and others go back among those that are left.
        self._back.pop(tag, None)
        curve_writing.drop_back(self.db, state.id)
        before = np.maximum.accumulate(left.steps[:-1])
        for at in (
            np.flatnonzero(left.steps[1:] < before),
            np.flatnonzero(left.steps[1:] == before),
        ):
            if len(at):
                place = int(at[0])
                seq, step = int(places[place + 1]), int(left.steps[place + 1])
                self._note_back(tag, seq, step, int(before[place]))
        state.n, state.max_step, state.max_wall = 0, None, None
        state.last = state.min = state.max = None
        state.changed = True
        if left.n and state.data_class == SCALAR:
            _count_scalars(state, left)
        elif left.n:
            state.n = left.n
            state.max_step, state.max_wall = (
                int(left.steps.max()),
                float(np.fmax.reduce(left.walls)),
            )

    def _moments(self, state: SeriesState) -> Scalars:
        """Steps and times of points that are no scalars."""
        found = curve_writing.moments(
            self.db, state.id, "tensor" if state.data_class != BLOBS else "blob_point"
        )
        steps = np.asarray([step for step, _ in found], np.int64)
        walls = np.asarray([math.nan if wall is None else wall for _, wall in found])
        return Scalars(steps, walls, np.zeros(len(steps)))


def keep_preview(store: CurveStore, series_id: int, n: int) -> None:
    """The sample that is asked for most, out of `n` live points."""
    if n > SAMPLE:
        found = store.points_at(series_id, sampled(n, SAMPLE))
        curve_writing.put_preview(store.database, series_id, n, chunks.pack(found))


def _count_scalars(state: SeriesState, points: Scalars) -> None:
    _count_points(state, points)
    _count_figures(state, chunks.figures(points))


def _count_points(state: SeriesState, points: Scalars) -> None:
    state.n += points.n
    wall = float(np.fmax.reduce(points.walls))
    state.max_wall = wall if state.max_wall is None else max(state.max_wall, wall)
    state.last = float(points.values[-1])
    state.changed = True


def _count_figures(state: SeriesState, figures: chunks.Figures) -> None:
    step, least, most = figures.step1, figures.vmin, figures.vmax
    state.max_step = step if state.max_step is None else max(state.max_step, step)
    if least is not None and most is not None:
        state.min = least if state.min is None else min(state.min, least)
        state.max = most if state.max is None else max(state.max, most)
