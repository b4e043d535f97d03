"""Fewer points that still show every peak: the smallest and the largest of each bucket stay."""

from __future__ import annotations

import math
from collections.abc import Sequence


def extremes(values: Sequence[float], most: int) -> list[int]:
    """Indices of at most `most` points in order: per bucket its minimum and its maximum.

    What is not finite counts only in a bucket that holds nothing else.
    """
    if len(values) <= most:
        return list(range(len(values)))
    buckets = max(1, most // 2)
    found: list[int] = []
    for bucket in range(buckets):
        start, end = bucket * len(values) // buckets, (bucket + 1) * len(values) // buckets
        finite = [i for i in range(start, end) if math.isfinite(values[i])]
        if not finite:
            found.append(start)
            continue
        low = min(finite, key=values.__getitem__)
        high = max(finite, key=values.__getitem__)
        found += sorted({low, high})
    return found
