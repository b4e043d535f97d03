"""A chunk of scalars in few bytes: differences as wide as the widest of them, floats as they came.

Logged scalars are mostly single precision, steps even, times close to one another: that takes 8
bytes a point where the columns take 24, and hardly longer than a copy.
"""

from __future__ import annotations

import math
import struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlv.errors import Damaged

_HEAD = struct.Struct("<HBBBQQQQ")  # n, widths of steps and walls, kind of values; starts, bases
_DOUBLE, _SINGLE, _SAME = range(3)


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
    steps, step, by, width = _narrow(points.steps.view(np.uint64))
    walls, wall, pace, breadth = _narrow(points.walls.view(np.uint64))
    kind, values = _values(points.values)
    head = _HEAD.pack(points.n, width, breadth, kind, step, by, wall, pace)
    return b"".join((head, steps, walls, values))


def _narrow(column: NDArray[np.uint64]) -> tuple[bytes, int, int, int]:
    """(differences less the least, first, the least, bytes of each), all modulo 2^64."""
    first = int(column[0])
    if len(column) == 1:
        return b"", first, 0, 0
    steps = np.diff(column)
    least = steps.view(np.int64).min()
    steps -= least.view(np.uint64)
    width = (int(steps.max()).bit_length() + 7) // 8
    rows = steps.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)
    return rows[:, :width].tobytes(), first, int(least.view(np.uint64)), width


def _values(values: NDArray[np.float64]) -> tuple[int, bytes]:
    bits = values.view(np.uint64)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        single = values.astype("<f4")
        back = single.astype(np.float64)
    if not np.array_equal(back.view(np.uint64), bits):
        return _DOUBLE, values.astype("<f8", copy=False).tobytes()
    if (bits == bits[0]).all():
        return _SAME, single[:1].tobytes()
    return _SINGLE, single.tobytes()


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
