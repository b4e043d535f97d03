"""A store of curves in lists, with small chunks: what the provider is tried on by lot."""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from dlv.events.provider import downsample
from dlv.events.provider.store import BlobRow, ChunkRow, Columns, RunRow, SeriesRow, TensorRow

Point = tuple[int, float, float]  # step, wall, value


def columns(points: Sequence[Point]) -> Columns:
    return Columns(
        struct.pack(f"<{len(points)}q", *(step for step, _, _ in points)),
        struct.pack(f"<{len(points)}d", *(wall for _, wall, _ in points)),
        struct.pack(f"<{len(points)}d", *(value for _, _, value in points)),
    )


class MemoryStore:
    """One experiment. `opened` counts the points that were handed out."""

    def __init__(self, chunk: int = 7) -> None:
        self.chunk = chunk
        self.rows: list[SeriesRow] = []
        self.points: dict[int, list[Point]] = {}
        self.tensor_rows: dict[int, list[TensorRow]] = {}
        self.blob_rows: dict[int, list[tuple[int, float, list[bytes]]]] = {}
        self.given: list[tuple[str, dict[str, Any]]] = []
        self.opened = 0

    def _add(self, run: str, tag: str, plugin: str, data_class: int, moments: list[Any]) -> int:
        key = len(self.rows)
        steps, walls = [each[0] for each in moments], [each[1] for each in moments]
        figures = (len(moments), max(steps, default=None), max(walls, default=None), 0)
        self.rows.append(
            SeriesRow(
                *(key, run, tag, plugin, data_class, b"", tag, ""),
                *figures,
                *(None, None, None, None),
            )
        )
        return key

    def add_scalars(
        self, run: str, tag: str, points: Sequence[Point], plugin: str = "scalars"
    ) -> None:
        key = self._add(run, tag, plugin, 1, list(points))
        self.points[key] = list(points)
        if points:
            self.rows[key] = self.rows[key]._replace(last=points[-1][2])

    def add_tensors(self, run: str, tag: str, rows: list[TensorRow], plugin: str) -> None:
        self.tensor_rows[self._add(run, tag, plugin, 2, list(rows))] = rows

    def add_blobs(
        self, run: str, tag: str, rows: list[tuple[int, float, list[bytes]]], plugin: str
    ) -> None:
        key = self._add(run, tag, plugin, 3, list(rows))
        self.blob_rows[key] = rows
        longest = max((len(blobs) for _, _, blobs in rows), default=0)
        self.rows[key] = self.rows[key]._replace(max_length=longest)

    def experiments(self) -> list[tuple[int, str]]:
        return [(1, "")]

    def runs(self, experiment: int) -> list[RunRow]:
        assert experiment == 1
        names = dict.fromkeys(row.run for row in self.rows)
        return [RunRow(at, name, None, None) for at, name in enumerate(names)]

    def series(
        self,
        experiment: int,
        *,
        plugin: str | None = None,
        data_class: int | None = None,
        runs: Collection[str] | None = None,
        tags: Collection[str] | None = None,
    ) -> list[SeriesRow]:
        assert experiment == 1
        return [
            row
            for row in self.rows
            if plugin in (None, row.plugin)
            and data_class in (None, row.data_class)
            and (runs is None or row.run in runs)
            and (tags is None or row.tag in tags)
        ]

    def scalars(self, series: int, first: int = 0, count: int | None = None) -> Columns:
        found = self.points[series][first : None if count is None else first + count]
        self.opened += len(found)
        return columns(found)

    def scalar_at(self, series: int, ordinals: Sequence[int]) -> Columns:
        self.opened += len(ordinals)
        return columns([self.points[series][at] for at in ordinals])

    def scalar_chunks(self, series: int) -> list[ChunkRow]:
        points, made = self.points[series], []
        for start in range(0, len(points), self.chunk):
            part = points[start : start + self.chunk]
            steps = [step for step, _, _ in part]
            finite = [(v, at) for at, (_, _, v) in enumerate(part, start) if math.isfinite(v)]
            odd, span = len(part) - len(finite), (min(steps), max(steps))
            low: tuple[float | None, int | None] = (None, None)
            high = low
            if finite:
                low = min(finite)
                most = max((value, -at) for value, at in finite)
                high = most[0], -most[1]
            made.append(ChunkRow(start, len(part), *span, *low, *high, odd))
        return made

    def preview(self, series: int) -> Columns | None:
        points = self.points[series]
        if len(points) <= downsample.SAMPLE:
            return None
        return columns([points[at] for at in downsample.sampled(len(points), downsample.SAMPLE)])

    def tensors(self, series: int, ordinals: Sequence[int] | None = None) -> Iterator[TensorRow]:
        rows = self.tensor_rows[series]
        return iter(rows if ordinals is None else [rows[at] for at in ordinals])

    def blob_sequences(
        self, series: int, ordinals: Sequence[int] | None = None
    ) -> Iterator[BlobRow]:
        rows = self.blob_rows[series]
        for at in range(len(rows)) if ordinals is None else ordinals:
            step, wall, blobs = rows[at]
            told = tuple((hash(blob) & 0xFFFF, len(blob)) for blob in blobs)
            yield BlobRow(step, wall, told)

    def blob(self, series: int, ordinal: int, index: int) -> Iterator[bytes]:
        yield self.blob_rows[series][ordinal][2][index]

    def hyperparameters(self, experiment: int) -> list[tuple[str, dict[str, Any]]]:
        assert experiment == 1
        return self.given
