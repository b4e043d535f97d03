"""The curves in `live.db`, unpacked: what providers and servers ask."""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dlv.disk.durable as durable
import dlv.disk.locks as locks
from dlv.disk.locks import Patience, network_disk
from dlv.events.formats import chunks
from dlv.events.formats.chunks import Scalars
from dlv.events.provider.store import BlobRow, ChunkRow, Columns, RunRow, SeriesRow, TensorRow
from dlv.metadata import curves
from dlv.metadata.curves import CurveDatabase, open_curves

LIVE = "live.db"


class CurveStore:
    """A `Store` of events.provider. One per thread that asks; several may look at one file."""

    def __init__(self, database: CurveDatabase) -> None:
        self.database = database

    @classmethod
    def open(cls, path: Path, patience: Patience | None = None) -> CurveStore:
        """Of a repository this is `.dlv/live.db`; made if it is not there."""
        made = cls(open_curves(path, wal=not network_disk(path.parent), patience=patience))
        durable.inherit_rights(*(f"{path}{end}" for end in ("", "-wal", "-shm")))
        return made

    def close(self) -> None:
        self.database.close()

    def __enter__(self) -> CurveStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Only one process at a time adds to a file of curves."""
        path = self.database.path
        held = path.with_name(path.name + ".lock")
        try:
            file = held.open("ab")
        except OSError as error:
            raise durable.storage_error("lock", held, error) from error
        with file:
            locks.take(file.fileno(), fcntl.LOCK_EX, self.database.patience.for_lock(held))
            yield

    def experiments(self) -> list[tuple[int, str]]:
        return curves.experiments(self.database)

    def runs(self, experiment: int) -> list[RunRow]:
        return [RunRow(*row) for row in curves.runs(self.database, experiment)]

    def series(
        self,
        experiment: int,
        *,
        plugin: str | None = None,
        data_class: int | None = None,
        runs: Collection[str] | None = None,
        tags: Collection[str] | None = None,
    ) -> list[SeriesRow]:
        return [
            _series_row(row)
            for row in curves.series(self.database, experiment, plugin, data_class, runs, tags)
        ]

    def hyperparameters(self, experiment: int) -> list[tuple[str, dict[str, Any]]]:
        return curves.hyperparameters(self.database, experiment)

    def extent(self, series: int) -> curves.Extent:
        """Which points of it are seen."""
        return curves.extent(self.database, series)

    # Scalars

    def scalars(self, series: int, first: int = 0, count: int | None = None) -> Columns:
        with self.database.snapshot():
            ranges = _cut(self.extent(series), first, count)
            parts = [part for start, end in ranges for part in self.written(series, start, end)]
        return _columns(chunks.joined(parts))

    def written(self, series: int, start: int = 0, end: int | None = None) -> Iterator[Scalars]:
        """Points `start` .. `end` in the order written, hidden ones too, chunk by chunk."""
        last = 2**62 if end is None else end
        for seq, n, data in curves.chunks(self.database, series, start, last):
            points = chunks.unpack(data)
            inside = seq >= start and seq + n <= last
            yield points if inside else points.part(max(0, start - seq), min(n, last - seq))

    def scalar_at(self, series: int, ordinals: Sequence[int]) -> Columns:
        return _columns(self.points_at(series, ordinals))

    def points_at(self, series: int, ordinals: Sequence[int]) -> Scalars:
        """Only the chunks that hold them are unpacked."""
        wanted = np.asarray(ordinals, np.int64)
        with self.database.snapshot():
            extent = self.extent(series)
            seqs = _seqs(extent, wanted)
            order = np.argsort(seqs, kind="stable")
            starts = [row[0] for row in curves.chunk_figures(self.database, series)]
            found = np.searchsorted(starts, seqs[order], "right") - 1
            parts = []
            for at in np.unique(found):
                inside = seqs[order][found == at] - starts[at]
                start = starts[at]
                end = start + 1 + int(inside.max())  # SQLite takes no number of numpy's for one
                chunk = chunks.joined(list(self.written(series, start, end)))
                parts.append(chunk.at(inside))
        points = chunks.joined(parts)
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return points.at(back)

    def scalar_chunks(self, series: int) -> list[ChunkRow]:
        with self.database.snapshot():
            extent = self.extent(series)
            rows = curves.chunk_figures(self.database, series)
            if not extent.hidden:
                return [_chunk_row(row[0], chunks.Figures(*row[1:])) for row in rows]
            return list(self._live_chunks(series, extent, rows))

    def _live_chunks(
        self, series: int, extent: curves.Extent, rows: Sequence[Any]
    ) -> Iterator[ChunkRow]:
        """The figures of a chunk with hidden points are made of the points that are left."""
        ranges = list(extent.live())
        for seq, n, *rest in rows:
            for ordinal, start, length in ranges:
                first, end = max(seq, start), min(seq + n, start + length)
                if first >= end:
                    continue
                if end - first == n:
                    told = chunks.Figures(n, *rest)
                else:
                    told = chunks.figures(chunks.joined(list(self.written(series, first, end))))
                yield _chunk_row(ordinal + first - start, told)

    def preview(self, series: int) -> Columns | None:
        found = curves.preview(self.database, series)
        return None if found is None else _columns(chunks.unpack(found))

    # Tensors and blobs

    def tensors(self, series: int, ordinals: Sequence[int] | None = None) -> Iterator[TensorRow]:
        for start, end in self._places(series, ordinals):
            yield from self.written_tensors(series, start, end)

    def written_tensors(self, series: int, start: int = 0, end: int = 2**62) -> Iterator[TensorRow]:
        """Points `start` .. `end` in the order written, hidden ones too."""
        for step, wall, *rest in curves.tensors(self.database, series, start, end):
            dtype, shape, data, legacy = rest
            yield TensorRow(step, _float(wall), dtype, tuple(json.loads(shape)), data, legacy)

    def blob_sequences(
        self, series: int, ordinals: Sequence[int] | None = None
    ) -> Iterator[BlobRow]:
        for start, end in self._places(series, ordinals):
            yield from self.written_blobs(series, start, end)

    def written_blobs(self, series: int, start: int = 0, end: int = 2**62) -> Iterator[BlobRow]:
        for step, wall, blobs in curves.blob_points(self.database, series, start, end):
            found = tuple((key, size) for key, size in json.loads(blobs))
            yield BlobRow(step, _float(wall), found)

    def blob(self, series: int, ordinal: int, index: int) -> Iterator[bytes]:
        for start, _ in self._places(series, [ordinal]):
            found = curves.blob_at(self.database, series, start, index)
            if found is not None:
                yield from curves.blob(self.database, found)

    def _places(self, series: int, ordinals: Sequence[int] | None) -> list[tuple[int, int]]:
        """The points in the order written: (first, end), one by one if they were asked for."""
        with self.database.snapshot():
            extent = self.extent(series)
        if ordinals is None:
            return _cut(extent, 0, None)
        live = sum(n for _, _, n in extent.live())
        wanted = np.asarray([at for at in ordinals if 0 <= at < live], np.int64)
        return [(int(seq), int(seq) + 1) for seq in _seqs(extent, wanted)]


def curves_of(folder: Path) -> Path | None:
    """Where the curves of a repository, its `.dlv`, are kept; None where none can be written."""
    path = folder / LIVE
    if not os.access(folder, os.W_OK):  # files that may be written are not enough for SQLite
        return None
    try:
        with path.with_name(f"{LIVE}.lock").open("ab"):
            return path
    except OSError:
        return None


def _cut(extent: curves.Extent, first: int, count: int | None) -> list[tuple[int, int]]:
    """The places of live points `first` .. `first + count`."""
    last = 2**62 if count is None else first + count
    found = []
    for ordinal, seq, n in extent.live():
        start, end = max(first, ordinal), min(last, ordinal + n)
        if start < end:
            found.append((seq + start - ordinal, seq + end - ordinal))
    return found


def _seqs(extent: curves.Extent, ordinals: NDArray[np.int64]) -> NDArray[np.int64]:
    ranges = list(extent.live())
    if not len(ordinals):
        return ordinals
    live = ranges[-1][0] + ranges[-1][2] if ranges else 0
    if ordinals.min() < 0 or ordinals.max() >= live:
        raise IndexError(f"{live} points are there")
    begins = [ordinal for ordinal, _, _ in ranges]
    shifts = np.asarray([seq - ordinal for ordinal, seq, _ in ranges], np.int64)
    found: NDArray[np.int64] = ordinals + shifts[np.searchsorted(begins, ordinals, "right") - 1]
    return found


def _columns(points: Scalars) -> Columns:
    return Columns(
        points.steps.astype("<i8", copy=False).tobytes(),
        points.walls.astype("<f8", copy=False).tobytes(),
        points.values.astype("<f8", copy=False).tobytes(),
    )


def _chunk_row(ordinal: int, figures: chunks.Figures) -> ChunkRow:
    return ChunkRow(
        *(ordinal, figures.n, figures.step0, figures.step1),
        *(figures.vmin, None if figures.imin is None else ordinal + figures.imin),
        *(figures.vmax, None if figures.imax is None else ordinal + figures.imax),
        figures.nonfinite,
    )


def _series_row(row: Any) -> SeriesRow:
    made = SeriesRow(*row)
    if not made.n:
        return made
    # SQLite keeps a NaN as NULL.
    last = _float(made.last) if made.data_class == 1 else None
    return made._replace(max_wall=_float(made.max_wall), last=last)


def _float(value: float | None) -> float:
    return math.nan if value is None else value


def gaps(live: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """(first, length) of each stretch of hidden points."""
    edges = np.flatnonzero(np.diff(np.concatenate(([True], live, [True])).astype(np.int8)))
    return [(int(a), int(b - a)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
