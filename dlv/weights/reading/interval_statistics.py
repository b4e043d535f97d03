"""Figures of matrices of which only bounds are known: intervals that surely hold the exact ones.

Exact means what `weight_statistics` gives for the matrix itself. Both it and what is done here
round, in sums of many terms: every interval is wider by far more than that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from dlv.dataclass import dataclass
from dlv.kinds import Floats
from dlv.weights.statistics import BINS

Block = tuple[Floats, Floats, Floats]  # centre, low, high: flat, of equal lengths

BLOCK = 1 << 18
# Of a sum of 2^40 terms added up in blocks, the relative error stays below this.
SLACK = 1e-10


@dataclass(frozen=True)
class Interval:
    low: float
    high: float


@dataclass(frozen=True)
class Counts:
    """So many at least, and at most."""

    low: int
    high: int


@dataclass(frozen=True)
class HistogramBounds:
    """Bins of one width from `low` to `high`, between which all values lie."""

    low: float
    high: float
    counts: tuple[Counts, ...]

    def edges(self) -> list[float]:
        width = self.high / len(self.counts) - self.low / len(self.counts)
        return [*(self.low + width * i for i in range(len(self.counts))), self.high]


@dataclass(frozen=True)
class StatisticsBounds:
    """Of a matrix with elements, all of them finite."""

    elements: int
    zeros: Counts
    min: Interval
    max: Interval
    mean: Interval
    std: Interval
    l2: Interval
    histogram: HistogramBounds


@dataclass(frozen=True)
class DifferenceBounds:
    """How far two matrices are apart. `relative_l2`: None where it has no bound."""

    elements: int
    changed: Counts
    nonfinite: int
    l2: Interval
    relative_l2: Interval | None
    max_abs: Interval


def statistics(blocks: Iterable[Block], bins: int = BINS) -> StatisticsBounds:
    """Figures of what lies between `low` and `high`; all finite, with an element at least.

    `blocks` of (centre, low, high) are gone through twice.
    """
    ends = [math.inf, math.inf, -math.inf, -math.inf]
    elements = least = most = 0
    middle = 0.0
    for centre, low, high in blocks:
        elements += len(low)
        with np.errstate(over="ignore"):
            middle += (float(centre.mean()) - middle) * (len(low) / elements)
        ends[0], ends[1] = min(ends[0], low.min()), min(ends[1], high.min())
        ends[2], ends[3] = max(ends[2], low.max()), max(ends[3], high.max())
        least += int(((low == 0) & (high == 0)).sum())
        most += int(((low <= 0) & (high >= 0)).sum())
    a, b, c, d = (float(end) for end in ends)
    exponent = math.frexp(max(abs(a), abs(d)))[1]
    # Any point will do, if the mean is beyond what float64 can add up.
    moments = _Moments(_grown(middle, -exponent) if math.isfinite(middle) else 0.0)
    histogram = _Histogram(a, d, exponent, bins)
    for block in blocks:
        scaled = [_scaled(part, exponent) for part in block]
        moments.add(*scaled)
        histogram.add(*scaled[1:])
    mean, std, l2 = (_back(interval, exponent) for interval in moments.found(elements))
    counts = Counts(least, most)
    return StatisticsBounds(
        *(elements, counts, Interval(a, b), Interval(c, d), mean, std, l2),
        histogram.found(elements),
    )


class _Moments:
    """Sums for mean, deviation and norm, of values scaled so that none is beyond 1.

    Deviations are taken from `middle`, which may be any number.
    """

    def __init__(self, middle: float) -> None:
        self._middle = middle
        self._rows: list[tuple[float, ...]] = []

    def add(self, centre: Floats, low: Floats, high: Floats) -> None:
        m = self._middle
        for at in range(0, len(low), BLOCK):
            c, a, b = (part[at : at + BLOCK] for part in (centre, low, high))
            own = float(c.mean())
            self._rows.append(
                (
                    *(float(a.sum()), float(b.sum()), float(len(c))),
                    *(_squares(_least(a, b)), _squares(_most(a, b))),
                    *(own, _squares(c - own), _squares(np.maximum(b - c, c - a))),
                    *(_squares(_least(a - m, b - m)), _squares(_most(a - m, b - m))),
                )
            )

    def found(self, count: int) -> tuple[Interval, Interval, Interval]:
        lows, highs, _, near, far, _, _, off, tight, wide = (
            math.fsum(column) for column in zip(*self._rows, strict=True)
        )
        mean = Interval(lows / count - SLACK, highs / count + SLACK)
        l2 = Interval(math.sqrt(near) * (1 - SLACK), math.sqrt(far) * (1 + SLACK))
        # The deviation of the centre is off by no more than the centre is ...
        centre = math.fsum(row[2] * row[5] for row in self._rows) / count
        within = math.fsum(row[6] + row[2] * (row[5] - centre) ** 2 for row in self._rows)
        deviation, error = math.sqrt(within / count), math.sqrt(off / count)
        # ... and around any point it is the mean square less that of the mean.
        shift = max(abs(mean.low - self._middle), abs(mean.high - self._middle))
        rest = tight / count - shift * shift
        low = max(0.0, deviation - error, math.sqrt(max(0.0, rest - 8 * SLACK))) - SLACK
        high = min(deviation + error, math.sqrt(wide / count)) + SLACK
        return mean, Interval(max(0.0, low), high), l2


class _Histogram:
    """In each bin: values that must lie there, and that may."""

    def __init__(self, start: float, stop: float, exponent: int, bins: int) -> None:
        self._ends = start, stop
        self._bins = bins
        self._first = math.ldexp(start, -exponent)
        extent = math.ldexp(stop, -exponent) - self._first
        self._scale = bins / extent if extent > 0 else 0.0
        self._surely = np.zeros(bins, np.int64)
        self._change = np.zeros(bins + 1, np.int64)

    def add(self, low: Floats, high: Floats) -> None:
        if not self._scale:
            return
        # A value at an edge, give or take a rounding, may lie on either side of it.
        nudge = SLACK + 1e-15 * self._scale
        places = [
            np.clip(
                np.floor((part - self._first) * self._scale + by).astype(np.int64),
                0,
                self._bins - 1,
            )
            for part, by in ((low, -nudge), (high, nudge))
        ]
        same = places[0] == places[1]
        self._surely += np.bincount(places[0][same], minlength=self._bins)
        self._change += np.bincount(places[0], minlength=self._bins + 1)
        self._change -= np.bincount(places[1] + 1, minlength=self._bins + 1)

    def found(self, elements: int) -> HistogramBounds:
        if not self._scale:
            return HistogramBounds(*self._ends, (Counts(elements, elements),))
        maybe = np.cumsum(self._change)[: self._bins]
        counts = zip(self._surely.tolist(), maybe.tolist(), strict=True)
        return HistogramBounds(*self._ends, tuple(Counts(low, high) for low, high in counts))


def difference(old: Iterable[Block], new: Iterable[Block], *, same: bool) -> DifferenceBounds:
    """The distance of two matrices, given in blocks of equal lengths.

    `same`: they may be the same, bit for bit. What is known exactly may be NaN or infinite:
    such elements have no distance.
    """
    near, far, norm = _Lengths(), _Lengths(), (_Lengths(), _Lengths())
    elements = apart = nonfinite = 0
    most = [0.0, 0.0]
    for before, after in zip(old, new, strict=True):
        parts = (*before[1:], *after[1:])
        elements += len(parts[0])
        known = np.isfinite(parts[0])
        finite = known & np.isfinite(parts[2])
        nonfinite += len(finite) - int(finite.sum())
        norm[0].add(_least(parts[0][known], parts[1][known]))
        norm[1].add(_most(parts[0][known], parts[1][known]))
        low, high, least, most_ = (part[finite] for part in parts)
        with np.errstate(over="ignore"):
            gap = np.maximum(np.maximum(low - most_, least - high), 0.0)
            reach = np.maximum(high - least, most_ - low)
        near.add(gap)
        far.add(reach)
        most = [max(most[0], gap.max(initial=0.0)), max(most[1], reach.max(initial=0.0))]
        apart += int(((high < least) | (most_ < low)).sum())
    l2 = Interval(near.value * (1 - SLACK), far.value * (1 + SLACK))
    base = Interval(norm[0].value * (1 - SLACK), norm[1].value * (1 + SLACK))
    relative = None
    if base.low > 0 and math.isfinite(base.high):
        ends = l2.low / base.high * (1 - SLACK), l2.high / base.low * (1 + SLACK)
        relative = Interval(*ends) if math.isfinite(ends[1]) else None
    least_changed = max(apart + nonfinite, 0 if same else 1)
    return DifferenceBounds(
        elements,
        Counts(least_changed, elements),
        nonfinite,
        l2,
        relative,
        Interval(float(most[0]) * (1 - SLACK), float(most[1]) * (1 + SLACK)),
    )


class _Lengths:
    """A Euclidean norm of magnitudes, collected block by block."""

    def __init__(self) -> None:
        self.value = 0.0

    def add(self, values: Floats) -> None:
        largest = float(values.max(initial=0.0))
        if largest == math.inf:
            self.value = math.inf
        elif largest:
            exponent = math.frexp(largest)[1]
            length = math.sqrt(_squares(_scaled(values, exponent)))
            self.value = math.hypot(self.value, _grown(length, exponent))


def _least(low: Floats, high: Floats) -> Floats:
    """How small the magnitude of a value between these may be."""
    found: Floats = np.maximum(np.maximum(low, -high), 0.0)
    return found


def _most(low: Floats, high: Floats) -> Floats:
    """How large it may be."""
    found: Floats = np.maximum(-low, high)
    return found


def _squares(values: Floats) -> float:
    return float(np.square(values).sum())


def _scaled(values: Floats, exponent: int) -> Floats:
    scaled: Floats = np.ldexp(values, -exponent)
    return scaled


def _grown(value: float, exponent: int) -> float:
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.copysign(math.inf, value)


def _back(interval: Interval, exponent: int) -> Interval:
    return Interval(_grown(interval.low, exponent), _grown(interval.high, exponent))
