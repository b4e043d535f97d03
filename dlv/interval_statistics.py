"""Figures of matrices of which only bounds are known: intervals that surely hold the exact ones.

Exact means what `weight_statistics` gives for the matrix itself. Both it and what is done here
round, in sums of many terms: every interval is wider by far more than that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlv.weight_statistics import BINS

Floats = NDArray[np.float64]

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


def statistics(centre: Floats, low: Floats, high: Floats, bins: int = BINS) -> StatisticsBounds:
    """Figures of whatever lies between `low` and `high`; all finite, with an element at least."""
    centre, low, high = (part.reshape(-1) for part in (centre, low, high))
    least = Interval(float(low.min()), float(high.min()))
    most = Interval(float(low.max()), float(high.max()))
    exponent = math.frexp(max(abs(least.low), abs(most.high)))[1]
    mean, std, l2 = _moments(centre, low, high, exponent)
    zeros = Counts(int(((low == 0) & (high == 0)).sum()), int(((low <= 0) & (high >= 0)).sum()))
    histogram = _histogram(low, high, least.low, most.high, exponent, bins)
    return StatisticsBounds(len(low), zeros, least, most, mean, std, l2, histogram)


def _moments(
    centre: Floats, low: Floats, high: Floats, exponent: int
) -> tuple[Interval, Interval, Interval]:
    """(mean, standard deviation, L2), of values scaled so that none is beyond 1."""
    count = len(low)
    middle = math.fsum(float(_scaled(c, exponent).sum()) for c in _blocks(centre)) / count
    rows = []
    for block in zip(_blocks(centre), _blocks(low), _blocks(high), strict=True):
        c, a, b = (_scaled(part, exponent) for part in block)
        rows.append(
            (
                *(float(a.sum()), float(b.sum())),
                *(_squares(_least(a, b)), _squares(_most(a, b))),
                *(_squares(c - middle), _squares(np.maximum(b - c, c - a))),
                *(
                    _squares(_least(a - middle, b - middle)),
                    _squares(_most(a - middle, b - middle)),
                ),
            )
        )
    lows, highs, near, far, spread, off, tight, wide = (
        math.fsum(column) for column in zip(*rows, strict=True)
    )
    mean = Interval(lows / count - SLACK, highs / count + SLACK)
    l2 = Interval(math.sqrt(near) * (1 - SLACK), math.sqrt(far) * (1 + SLACK))
    # The deviation of the centre is off by no more than the centre is ...
    deviation, error = math.sqrt(spread / count), math.sqrt(off / count)
    # ... and around any point it is the mean square less that of the mean.
    shift = max(abs(mean.low - middle), abs(mean.high - middle))
    rest = tight / count - shift * shift
    std = Interval(
        max(0.0, deviation - error, math.sqrt(max(0.0, rest - 4 * SLACK))) - SLACK,
        min(deviation + error, math.sqrt(wide / count)) + SLACK,
    )
    std = Interval(max(0.0, std.low), std.high)
    return _back(mean, exponent), _back(std, exponent), _back(l2, exponent)


def _histogram(
    low: Floats, high: Floats, start: float, stop: float, exponent: int, bins: int
) -> HistogramBounds:
    """In each bin: values that must lie there, and that may."""
    if not stop > start:
        return HistogramBounds(start, stop, (Counts(len(low), len(low)),))
    first, last = math.ldexp(start, -exponent), math.ldexp(stop, -exponent)
    scale = bins / (last - first)
    nudge = SLACK + 1e-15 * scale
    surely = np.zeros(bins, np.int64)
    change = np.zeros(bins + 1, np.int64)
    for a, b in zip(_blocks(low), _blocks(high), strict=True):
        # A value at an edge, give or take a rounding, may lie on either side of it.
        places = [
            np.clip(
                np.floor((_scaled(part, exponent) - first) * scale + by).astype(np.int64),
                0,
                bins - 1,
            )
            for part, by in ((a, -nudge), (b, nudge))
        ]
        same = places[0] == places[1]
        surely += np.bincount(places[0][same], minlength=bins)
        change += np.bincount(places[0], minlength=bins + 1)
        change -= np.bincount(places[1] + 1, minlength=bins + 1)
    maybe = np.cumsum(change)[:bins]
    counts = tuple(Counts(int(s), int(m)) for s, m in zip(surely, maybe, strict=True))
    return HistogramBounds(start, stop, counts)


def difference(
    old: tuple[Floats, Floats], new: tuple[Floats, Floats], *, same: bool
) -> DifferenceBounds:
    """The distance of two matrices of which (low, high) are known.

    `same`: they may be the same, bit for bit. What is known exactly may be NaN or infinite:
    such elements have no distance.
    """
    a, b = (part.reshape(-1) for part in old)
    c, d = (part.reshape(-1) for part in new)
    near, far, norm = _Lengths(), _Lengths(), (_Lengths(), _Lengths())
    apart = nonfinite = 0
    most = [0.0, 0.0]
    for parts in zip(_blocks(a), _blocks(b), _blocks(c), _blocks(d), strict=True):
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
        len(a),
        Counts(least_changed, len(a)),
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


def _blocks(values: Floats) -> list[Floats]:
    return [values[at : at + BLOCK] for at in range(0, len(values), BLOCK)]
