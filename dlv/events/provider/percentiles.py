"""Histograms compressed to a few quantiles, as the older Distributions page drew them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

# The median, and what lies within 1, 2 and 3 bands of half a standard deviation around it.
BASIS_POINTS = (0, 668, 1587, 3085, 5000, 6915, 8413, 9332, 10000)
_WHOLE = 10_000


def compressed(
    least: float,
    most: float,
    limits: Sequence[float],
    counts: Sequence[float],
    points: Sequence[int] = BASIS_POINTS,
) -> list[tuple[int, float]]:
    """The values below which so many ten-thousandths lie, by straight lines within buckets.

    `limits` are the right edges of the buckets. Of an empty histogram every value is 0.
    """
    total = math.fsum(counts)
    if not (math.isfinite(total) and total > 0):
        return [(point, 0.0) for point in points]
    below = list(accumulate(count * _WHOLE / total for count in counts))
    return [(point, _value(point, least, most, limits, below)) for point in points]


def _value(
    point: float, least: float, most: float, limits: Sequence[float], below: Sequence[float]
) -> float:
    bucket = bisect_right(below, point)
    if bucket == len(below):
        return most
    before = below[bucket - 1] if bucket else 0.0
    left = max(limits[bucket - 1], least) if before else least
    right = min(limits[bucket], most)
    return left + (point - before) * (right - left) / (below[bucket] - before)
