"""Sketches: a few elements of a matrix, enough to tell which base a delta should be against.

All matrices of one size are sampled at the same places, so that two sketches can be compared
element by element, and in short runs, so that reading them touches few pages.
"""

from __future__ import annotations

import math

import numpy as np

from dlv.kinds import Raw
from dlv.pas.floats import Words, format_of, ordered, words_in

RUN = 32  # elements in a row
PART = 64  # one in so many is taken,
LEAST, MOST = 1 << 10, 1 << 14  # but not fewer nor more than these

_GOLDEN = (math.sqrt(5) - 1) / 2


def sketch(raw: Raw, dtype: str) -> Words:
    """Words from all over the matrix; those of a small one are all there."""
    words = words_in(raw, dtype)
    runs = max(LEAST, min(MOST, len(words) // PART)) // RUN
    if len(words) <= 2 * runs * RUN:
        return words.copy()
    # Multiples of the golden ratio fall everywhere and keep step with no row length.
    slots = len(words) // RUN
    starts = np.unique((np.arange(runs) * _GOLDEN % 1.0 * slots).astype(np.int64)) * RUN
    places = (starts[:, None] + np.arange(RUN)).ravel()
    return np.take(words, places)


def difference_bits(target: Words, base: Words, dtype: str) -> float:
    """About how many bits an element's difference takes; only good for comparing bases."""
    form = format_of(dtype)
    if not len(target):
        return 0.0
    a, b = ordered(target, form), ordered(base, form)
    distance = np.minimum(a - b, b - a).astype(np.float64)  # the shorter way round
    return float(np.minimum(np.log2(1.0 + 2.0 * distance), form.bits).mean())
