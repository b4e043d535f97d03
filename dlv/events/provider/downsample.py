"""Which points of a series to show where there are more than wanted. All give places, in order."""

from __future__ import annotations

import bisect
import functools
import math
import random
from collections.abc import Sequence

SAMPLE = 1000  # how many points are asked for where nobody says; previews hold so many


@functools.lru_cache(maxsize=64)
def sampled(n: int, k: int) -> Sequence[int]:
    """A uniform sample of n places that keeps the last one, just as TensorBoard draws it.

    It depends on nothing but n and k, so that series written side by side stay so.
    """
    if k > n:
        return range(n)
    if k == 0:
        return ()
    return (*sorted(random.Random(0).sample(range(n - 1), k - 1)), n - 1)


def linear(n: int, k: int) -> Sequence[int]:
    """Places at equal distances, with both ends; only the last where k is 1."""
    if k >= n:
        return range(n)
    if k < 2:
        return range(n - k, n)
    return [(2 * i * (n - 1) + k - 1) // (2 * (k - 1)) for i in range(k)]


def by_step(steps: Sequence[int], k: int) -> Sequence[int]:
    """The first place of each of k - 1 buckets of equally many steps, and the last of all.

    `steps` ascend. Where steps lie thin, buckets stay empty, and fewer than k are found.
    """
    n = len(steps)
    if k >= n:
        return range(n)
    if k < 2:
        return range(n - k, n)
    first, wide = int(steps[0]), int(steps[-1]) - int(steps[0])
    end = bisect.bisect_left(steps, int(steps[-1]))  # those of the last step are in no bucket
    found = [-1]
    for bucket in range(k - 1):
        begin = first - (-bucket * wide // (k - 1))  # rounded up: nothing of the one before
        at = bisect.bisect_left(steps, begin, lo=max(found[-1], 0))
        if found[-1] < at < end:
            found.append(at)
    return [*found[1:], n - 1]


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
