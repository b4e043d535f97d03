"""Series made ready for drawing: in the order of steps, smoothed, and with fewer points.

What stays of many points is the first, the last, the smallest and the largest of each column of
the picture, so it looks as it would with all of them: no spike vanishes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from dlv.dataclass import dataclass

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


# Of lines in PNG files: those of the light page in style.css.
LINE_COLORS = (
    "#1763c6",
    "#e71417",
    "#088366",
    "#7d2367",
    "#7d36fc",
    "#50801c",
    "#007a9c",
    "#e0155c",
)


@dataclass(frozen=True)
class Course:
    """One series of one version, ordered by step. NaN: a point that cannot be drawn."""

    label: str
    steps: Numbers
    values: Numbers
    smoothed: Numbers | None = None  # beside the values
    about: str = ""  # hyperparameters, to be told of while hovering

    @property
    def left_out(self) -> int:
        return int(np.isnan(self.values).sum())


@dataclass(frozen=True)
class Chart:
    """The courses of one series in several versions."""

    title: str
    courses: tuple[Course, ...]
    log: bool = False

    @property
    def across(self) -> tuple[float, float]:
        return _span(course.steps for course in self.courses)

    @property
    def upwards(self) -> tuple[float, float]:
        """The values' range: of the logarithms where the axis is one."""
        low, high = _span(course.values for course in self.courses)
        return (math.log10(low), math.log10(high)) if self.log and low > 0 else (low, high)


def course(
    label: str,
    steps: Sequence[int],
    values: Sequence[float],
    *,
    smooth: float = 0.0,
    log: bool = False,
    about: str = "",
) -> Course:
    at = np.asarray(steps, np.float64)
    found = np.asarray(values, np.float64)
    order = np.argsort(at, kind="stable")
    at, found = at[order], found[order]
    found = np.where(np.isfinite(found), found, np.nan)
    # Smoothed as it was measured, whatever part of it the axis can show.
    even = smoothed(found, smooth) if smooth else None
    if log:
        found = np.where(found > 0, found, np.nan)
        even = None if even is None else np.where(even > 0, even, np.nan)
    return Course(label, at, found, even, about)


def smoothed(values: Numbers, weight: float) -> Numbers:
    """A moving average that forgets exponentially, as TensorBoard's; it begins at the first value.

    What is not finite stays where it is and counts for nothing.
    """
    made = []
    last, share = 0.0, 1.0
    for value in values.tolist():
        if value - value != 0:
            made.append(math.nan)
            continue
        last = last * weight + (1 - weight) * value
        share *= weight
        made.append(last / (1 - share))
    return np.asarray(made, np.float64)


def thinned(
    steps: Numbers, values: Numbers, across: tuple[float, float], columns: int
) -> tuple[Numbers, Numbers]:
    """At most four points of each column, in order; NaN where there is a gap."""
    if len(steps) <= 4 * columns:
        return steps, values
    low, high = across
    share = (steps - low) / (high - low) if high > low else np.zeros(len(steps))
    column = np.minimum((share * columns).astype(np.int64), columns - 1)
    known = np.flatnonzero(~np.isnan(values))
    if not len(known):
        return steps[:1], values[:1]
    kept = {0, len(steps) - 1, *_corners(column[known], values[known], known)}
    # A column in which nothing can be drawn is a gap; its neighbours are not joined.
    drawn = np.zeros(columns, bool)
    drawn[column[known]] = True
    first_of = np.flatnonzero(np.diff(column, prepend=-1))
    kept.update(int(place) for place in first_of if not drawn[column[place]])
    places = np.asarray(sorted(kept))
    return steps[places], values[places]


def _corners(
    column: npt.NDArray[np.int64], values: Numbers, known: npt.NDArray[np.int64]
) -> set[int]:
    """Of each column the first, last, smallest and largest point."""
    starts = np.flatnonzero(np.diff(column, prepend=-1))
    ends = np.append(starts[1:], len(column)) - 1
    order = np.lexsort((values, column))  # stable: columns stay where they are
    return {
        int(place)
        for places in (starts, ends, order[starts], order[ends])
        for place in known[places]
    }


def _span(columns: Iterable[Numbers]) -> tuple[float, float]:
    finite = [column[np.isfinite(column)] for column in columns]
    finite = [column for column in finite if len(column)]
    if not finite:
        return 0.0, 1.0
    return float(min(c.min() for c in finite)), float(max(c.max() for c in finite))


def padded(span: tuple[float, float], share: float = 0.0) -> tuple[float, float]:
    """A range that has a width, and a margin of `share` of it on both sides."""
    low, high = span
    if not high > low:
        room = abs(low) / 2 or 0.5
        if not (math.isfinite(low - room) and math.isfinite(high + room)):
            return min(low, low / 2), max(high, high / 2)
        return low - room, high + room
    margin = (high - low) * share
    if not (math.isfinite(low - margin) and math.isfinite(high + margin)):
        return low, high  # the values fill all that a number can be
    return low - margin, high + margin


def ticks(span: tuple[float, float], most: int) -> list[float]:
    """Round numbers within a range: steps of 1, 2 or 5."""
    low, high = span
    width = high / most - low / most
    if not (width > 0 and math.isfinite(width)):
        return [low]
    power = math.floor(math.log10(width))
    scale = float(f"1e{power}")
    if not scale:
        return [low, high]
    unit = next((step * scale for step in (1, 2, 5) if step * scale >= width), 10 * scale)
    first, last = math.ceil(low / unit - 1e-9), math.floor(high / unit + 1e-9)
    if last - first > 4 * most:  # numbers so near each other that they cannot be told apart
        return [low, high]
    return [float(f"{place * unit:.12g}") for place in range(first, last + 1)] or [low, high]


def log_ticks(span: tuple[float, float], most: int) -> list[float]:
    """Logarithms at which a logarithmic axis is marked: whole powers of ten where there are two."""
    low, high = span
    first, last = math.ceil(low - 1e-9), math.floor(high + 1e-9)
    if last - first < 1:
        values = ticks((10**low, 10**high), most)
        return [math.log10(value) for value in values if value > 0]
    every = -(-(last - first + 1) // most)
    return [float(power) for power in range(first, last + 1, every)]
