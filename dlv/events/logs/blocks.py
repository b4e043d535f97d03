"""Runs of records that repeat a period: whole columns of times, steps and numbers at once.

A training loop writes the same tags in the same order, so records of the same lengths follow
each other. A period is compared with the one before it, byte by byte, but for what may differ.
Sums are linear: of a record only the bytes that do differ are looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.events.formats import crc
from dlv.events.formats.tfevents import FOOT, HEAD
from dlv.events.logs.run_state import Series
from dlv.events.logs.templates import REST, Slot, Template

LEAST_ROWS = 4
MOST_RECORDS, MOST_BYTES = 2048, 1 << 20  # of a period
BLOCK = 1 << 20  # bytes that are looked at together, so that they stay in the cache
_TILE = 1 << 12


@dataclass(frozen=True)
class Points:
    """Points of one series."""

    series: Series
    steps: NDArray[np.int64]
    walls: NDArray[np.float64]
    values: NDArray[np.float64]


@dataclass(frozen=True)
class _Group:
    """Records of a period that are cut alike."""

    records: list[int]
    bodies: list[int]  # where they begin in the period
    length: int
    digits: int
    slots: tuple[Slot, ...]


class Period:
    """`kinds`: the template and the bytes of the step of each record; `data`: one period."""

    def __init__(self, data: bytes, kinds: Sequence[tuple[Template, int]], sizes: Sequence[int]):
        self.size = len(data)
        self.data = data
        self.series = [template.series for template, _ in kinds]
        mask = np.full(self.size, 0xFF, np.uint8)
        groups: dict[tuple[int, int, tuple[Slot, ...]], list[int]] = {}
        bodies, at = [], 0
        for record, (kind, size) in enumerate(zip(kinds, sizes, strict=True)):
            template, digits = kind
            body = at + HEAD
            bodies.append(body)
            rest = body + REST + (digits and digits + 1)
            mask[body + 1 : body + REST] = 0
            mask[rest - digits : rest] = 0x80
            for slot, width in template.slots:
                mask[rest + slot : rest + slot + width] = 0
            at += HEAD + size + FOOT
            mask[at - FOOT : at] = 0
            groups.setdefault((size, digits, template.slots), []).append(record)
        self.groups = [
            _Group(records, [bodies[each] for each in records], size, digits, slots)
            for (size, digits, slots), records in groups.items()
        ]
        self._tiles = max(1, _TILE // self.size)
        self._mask = np.tile(mask, self._tiles)
        self._row = np.tile(np.frombuffer(data, np.uint8), self._tiles)

    def run(self, data: bytes, at: int, after: int | None) -> tuple[int, list[Points], int]:
        """Rows that repeat the period from `at` on: how many, their points, the last step.

        `after`: the step must never fall, from this one on.
        """
        rows = min((len(data) - at) // self.size, max(LEAST_ROWS, BLOCK // self.size))
        rows = self._alike(data, at, rows)
        columns: list[tuple[_Group, Any, Any, Any]] = []
        for group in self.groups:
            if not rows:
                break
            good, group_steps, walls, numbers = self._columns(group, data, at, rows)
            rows = min(rows, good)
            columns.append((group, group_steps, walls, numbers))
        if not rows:
            return 0, [], 0
        steps: list[NDArray[np.int64]] = [np.empty(0, np.int64)] * len(self.series)
        for group, group_steps, _, _ in columns:
            for index, record in enumerate(group.records):
                steps[record] = group_steps[index, :rows]
        if after is not None:
            order = np.concatenate(([after], np.stack(steps, axis=1).ravel()))
            falls = np.flatnonzero(order[1:] < order[:-1])
            if len(falls):
                rows = int(falls[0]) // len(steps)
        if not rows:
            return 0, [], 0
        return rows, self._points(columns, steps, rows), int(steps[-1][rows - 1])

    def _alike(self, data: bytes, at: int, rows: int) -> int:
        """How many rows have the template's bytes where nothing may differ."""
        tiled = rows // self._tiles * self._tiles
        for low, high, tiles in ((0, tiled, self._tiles), (tiled, rows, 1)):
            if low == high:
                continue
            size = tiles * self.size
            block = np.frombuffer(
                data, np.uint8, (high - low) * self.size, at + low * self.size
            ).reshape(-1, size)
            other = block ^ self._row[:size]
            other &= self._mask[:size]
            if other.any():
                wrong = other.reshape(-1, self.size).any(axis=1)
                return low + int(np.flatnonzero(wrong)[0])
        return rows

    def _columns(
        self, group: _Group, data: bytes, at: int, rows: int
    ) -> tuple[int, NDArray[np.int64], NDArray[np.float64], list[NDArray[np.float64]]]:
        """Rows whose sums are right; steps, walls and numbers of each record of the group."""
        sums = np.zeros((len(group.bodies), rows), np.uint32)
        walls = self._varying(group, data, at, rows, 1, "<u8", 8, sums)
        digits, first = group.digits, REST + 1
        steps = np.zeros((len(group.bodies), rows), np.int64)
        rest = REST
        if digits:
            raw = self._varying(group, data, at, rows, first, "<u8", digits, sums)
            for digit in range(digits):
                steps |= (raw >> np.uint64(digit) & np.uint64(0x7F << 7 * digit)).view(np.int64)
            rest = first + digits
        numbers = []
        for offset, width in group.slots:
            layout = "<u4" if width == 4 else "<u8"
            raw = self._varying(group, data, at, rows, rest + offset, layout, width, sums)
            numbers.append(raw.view("<f4" if width == 4 else "<f8").astype(np.float64))
        kept = self._gather(group, data, at, rows, group.length, "<u4")
        base = self._own(group, group.length, 4)
        expected = crc.unmasked(kept) ^ crc.unmasked(base.astype(np.uint32))[:, None]
        wrong = (expected != sums).any(axis=0)
        good = int(np.flatnonzero(wrong)[0]) if wrong.any() else rows
        return good, steps, walls.view("<f8"), numbers

    def _gather(
        self, group: _Group, data: bytes, at: int, rows: int, offset: int, layout: str
    ) -> NDArray[Any]:
        column = np.empty((len(group.bodies), rows), layout)
        for index, body in enumerate(group.bodies):
            column[index] = np.ndarray((rows,), layout, data, at + body + offset, (self.size,))
        return column

    def _own(self, group: _Group, offset: int, width: int) -> NDArray[np.uint64]:
        """What the template has there."""
        return np.array(
            [
                int.from_bytes(self.data[body + offset : body + offset + width], "little")
                for body in group.bodies
            ],
            np.uint64,
        )

    def _varying(
        self,
        group: _Group,
        data: bytes,
        at: int,
        rows: int,
        offset: int,
        layout: str,
        width: int,
        sums: NDArray[np.uint32],
    ) -> NDArray[Any]:
        """A column of each record; what it adds to the sums that the template has is added."""
        column = self._gather(group, data, at, rows, offset, layout)
        size = column.itemsize
        if width < size:
            column &= np.array((1 << 8 * width) - 1, column.dtype)
        other = column ^ self._own(group, offset, width).astype(column.dtype)[:, None]
        lanes = int(np.bitwise_or.reduce(other, axis=None))
        single = other.view(np.uint8).reshape(*other.shape, size)
        for byte in range(width):
            if lanes >> 8 * byte & 0xFF:
                table = crc.behind(group.length - 1 - offset - byte)
                sums ^= table.take(single[:, :, byte], mode="wrap")
        return column

    def _points(
        self, columns: list[Any], steps: list[NDArray[np.int64]], rows: int
    ) -> list[Points]:
        """By series, in the order written."""
        found: dict[Series, list[tuple[int, int, Any, Any]]] = {}
        for group, _, walls, numbers in columns:
            for index, record in enumerate(group.records):
                for slot, each in enumerate(self.series[record]):
                    part = (record, slot, walls[index, :rows], numbers[slot][index, :rows])
                    found.setdefault(each, []).append(part)
        points = []
        for each, parts in found.items():
            parts.sort(key=lambda part: part[:2])
            rows_of = [
                [steps[part[0]][:rows] for part in parts],
                [part[2] for part in parts],
                [part[3] for part in parts],
            ]
            # One column is taken as it is; several are woven together row by row.
            joined = [c[0] if len(c) == 1 else np.stack(c, axis=1).ravel() for c in rows_of]
            points.append(Points(each, *joined))
        return points


def shortest(kinds: NDArray[np.int64]) -> int:
    """The period of which the latter half of `kinds` is a repetition; 0: there is none.

    Negative kinds are never repeated.
    """
    count = len(kinds)
    if not count or kinds[-1] < 0:
        return 0
    for period in (count - 1 - np.flatnonzero(kinds[:-1] == kinds[-1])[::-1]).tolist():
        if 2 * period > count or period > MOST_RECORDS:
            return 0
        # A loop within a loop repeats itself too, but never for long.
        first = count - max(2 * period, count // 2)
        if (kinds[first + period :] == kinds[first : count - period]).all():
            return period if (kinds[count - period :] >= 0).all() else 0
    return 0
