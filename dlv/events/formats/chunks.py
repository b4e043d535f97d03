"""A chunk of scalars in few bytes: differences as wide as the widest of them, floats as they came.

Logged scalars are mostly single precision, steps even, times close to one another: that takes 8
bytes a point where the columns take 24, and hardly longer than a copy.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlv.errors import Damaged

_HEAD = struct.Struct("<HBBBQQQQ")  # n, widths of steps and walls, kind of values; starts, bases
_DOUBLE, _SINGLE, _SAME = range(3)
_TOGETHER = 1 << 14  # points, so that they stay in the cache


class Scalars(NamedTuple):
    """Columns of one length."""

    steps: NDArray[np.int64]
    walls: NDArray[np.float64]
    values: NDArray[np.float64]

    @property
    def n(self) -> int:
        return len(self.values)

    def at(self, places: NDArray[np.intp] | NDArray[np.int64]) -> Scalars:
        return Scalars(self.steps[places], self.walls[places], self.values[places])

    def part(self, start: int, end: int) -> Scalars:
        return Scalars(self.steps[start:end], self.walls[start:end], self.values[start:end])


class Figures(NamedTuple):
    """A chunk in figures; `imin` and `imax` count from its first point."""

    n: int
    step0: int
    step1: int
    vmin: float | None
    imin: int | None
    vmax: float | None
    imax: int | None
    nonfinite: int


EMPTY = Scalars(np.empty(0, np.int64), np.empty(0), np.empty(0))


def joined(parts: list[Scalars]) -> Scalars:
    if len(parts) == 1:
        return parts[0]
    return (
        Scalars(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        if parts
        else EMPTY
    )


def figures(points: Scalars) -> Figures:
    """Of at least one point."""
    values = points.values
    vmin: float | None
    vmax: float | None
    imin, imax = int(values.argmin()), int(values.argmax())  # a NaN is both
    vmin, vmax = float(values[imin]), float(values[imax])
    nonfinite = 0
    if not (math.isfinite(vmin) and math.isfinite(vmax)):
        at = np.flatnonzero(np.isfinite(values))
        nonfinite = len(values) - len(at)
        if not len(at):
            return Figures(points.n, *_span(points), None, None, None, None, nonfinite)
        imin, imax = int(at[values[at].argmin()]), int(at[values[at].argmax()])
        vmin, vmax = float(values[imin]), float(values[imax])
    return Figures(points.n, *_span(points), vmin, imin, vmax, imax, nonfinite)


def _span(points: Scalars) -> tuple[int, int]:
    return int(points.steps.min()), int(points.steps.max())


def pack(points: Scalars) -> bytes:
    """1 to 65535 points."""
    return packed([points])[0][1]


def packed(parts: Sequence[Scalars]) -> list[tuple[Figures, bytes]]:
    """Pack chunks of 1 to 65535 points each; those of one length together, which is quicker."""
    packed_parts: dict[int, tuple[Figures, bytes]] = {}
    lengths: dict[int, list[int]] = {}
    for index, part in enumerate(parts):
        lengths.setdefault(part.n, []).append(index)
    for n, same_length in lengths.items():
        together = max(1, _TOGETHER // n)
        for start in range(0, len(same_length), together):
            indices = same_length[start : start + together]
            some = [parts[index] for index in indices]
            packed_parts.update(zip(indices, _packed_alike(some, n), strict=True))
    return [packed_parts[index] for index in range(len(parts))]


def _packed_alike(parts: list[Scalars], n: int) -> Iterator[tuple[Figures, bytes]]:
    """Pack parts of `n` points each."""
    steps = np.array([part.steps for part in parts])
    walls = np.array([part.walls for part in parts])
    values = np.array([part.values for part in parts])
    rows = np.arange(len(parts))
    imin, imax = values.argmin(axis=1), values.argmax(axis=1)
    extremes = zip(
        *(steps.min(axis=1).tolist(), steps.max(axis=1).tolist()),
        *(values[rows, imin].tolist(), imin.tolist(), values[rows, imax].tolist(), imax.tolist()),
        strict=True,
    )
    packed_steps, packed_walls = _narrow(steps.view(np.uint64)), _narrow(walls.view(np.uint64))
    for part, row, step, wall, (kind, data) in zip(
        parts, extremes, packed_steps, packed_walls, _values(values), strict=True
    ):
        step0, step1, vmin, least, vmax, most = row
        if math.isfinite(vmin) and math.isfinite(vmax):
            found_figures = Figures(n, step0, step1, vmin, least, vmax, most, 0)
        else:
            found_figures = figures(part)
        head = _HEAD.pack(n, step[2], wall[2], kind, step[0], step[1], wall[0], wall[1])
        yield found_figures, b"".join((head, step[3], wall[3], data))


def _narrow(columns: NDArray[np.uint64]) -> Iterator[tuple[int, int, int, bytes]]:
    """Of each row (first, the least difference, bytes of each, differences less the least), all
    modulo 2^64."""
    firsts = columns[:, 0].tolist()
    if columns.shape[1] == 1:
        for first in firsts:
            yield first, 0, 0, b""
        return
    steps = columns[:, 1:] - columns[:, :-1]
    least = steps.view(np.int64).min(axis=1).view(np.uint64)
    steps -= least[:, None]
    widest = steps.max(axis=1).tolist()
    rows = steps.astype("<u8", copy=False).view(np.uint8).reshape(*steps.shape, 8)
    for first, by, most, row in zip(firsts, least.tolist(), widest, rows, strict=True):
        width = (most.bit_length() + 7) // 8
        yield first, by, width, row[:, :width].tobytes() if width else b""


def _values(values: NDArray[np.float64]) -> Iterator[tuple[int, bytes]]:
    bits = values.view(np.uint64)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        single = values.astype("<f4")
        back = single.astype(np.float64)
    short = (back.view(np.uint64) == bits).all(axis=1).tolist()
    same = (bits == bits[:, :1]).all(axis=1).tolist()
    for row, one, is_short, is_same in zip(values, single, short, same, strict=True):
        if not is_short:
            yield _DOUBLE, row.astype("<f8", copy=False).tobytes()
        elif is_same:
            yield _SAME, one[:1].tobytes()
        else:
            yield _SINGLE, one.tobytes()


def unpack(data: bytes) -> Scalars:
    try:
        n, width, breadth, kind, step, by, wall, pace = _HEAD.unpack_from(data)
        if n == 0 or width > 8 or breadth > 8:
            raise ValueError("impossible lengths")
        at = _HEAD.size
        steps = _widened(data, at, n, width, step, by)
        at += (n - 1) * width
        walls = _widened(data, at, n, breadth, wall, pace)
        at += (n - 1) * breadth
        count = 1 if kind == _SAME else n
        values = np.frombuffer(data, "<f8" if kind == _DOUBLE else "<f4", count, at)
        if kind > _SAME or at + values.nbytes != len(data):
            raise ValueError("its length is another")
    except (ValueError, struct.error) as error:
        raise Damaged("a chunk of points is corrupt", why=str(error)) from error
    wide = values.astype(np.float64)
    if kind == _SAME:
        wide = np.repeat(wide, n)
    return Scalars(steps.view(np.int64), walls.view(np.float64), wide)


def _widened(
    data: bytes, index: int, n: int, width: int, first: int, least: int
) -> NDArray[np.uint64]:
    column = np.empty(n, np.uint64)
    column[0] = first
    if width:
        rows = np.zeros((n - 1, 8), np.uint8)
        rows[:, :width] = np.frombuffer(data, np.uint8, (n - 1) * width, index).reshape(-1, width)
        column[1:] = rows.reshape(-1).view("<u8")
    else:
        column[1:] = 0
    column[1:] += np.uint64(least)
    return column.cumsum(dtype=np.uint64)
