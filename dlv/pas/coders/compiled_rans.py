"""The range coder's loops, compiled where numba is installed. Any machine decodes without."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from dlv.errors import UsageError, require

force: list[bool] = []  # tests: [True] or [False]


@dataclass(frozen=True)
class Loops:
    """`decode` returns how many words it took, `encode` the index of the first it wrote."""

    encode: Any
    decode: Any


def loops() -> Loops | None:
    """None without numba."""
    if force and not force[0]:
        return None
    return _compiled()


@cache
def _compiled() -> Loops | None:
    try:
        numba = require("numba", "fast")
    except UsageError:
        return None
    try:
        return Loops(*(numba.njit(loop, cache=True) for loop in (_encode, _decode)))
    except RuntimeError:  # nowhere to keep compiled code
        return Loops(*(numba.njit(loop) for loop in (_encode, _decode)))


def _encode(symbols: Any, rows: Any, frequencies: Any, starts: Any, states: Any, words: Any) -> int:
    at = len(words)
    count = len(states)
    for index in range(len(symbols) - 1, -1, -1):
        lane = index % count
        row, symbol = rows[index], symbols[index]
        share = int(frequencies[row, symbol])
        state = int(states[lane])
        if state >= share << 20:
            at -= 1
            words[at] = state & 0xFFFF
            state >>= 16
        states[lane] = ((state // share) << 12) + state % share + int(starts[row, symbol])
    return at


def _decode(
    contexts: Any, rows: Any, digits: Any, packed: Any, states: Any, words: Any, out: Any
) -> int:
    # `words` has a word for each state more than there are, so that it need not be asked at
    # every digit whether any is left: whoever calls looks at the end how many were taken.
    taken = 0
    count = len(states)
    known = len(words) - count
    for start in range(0, len(contexts), count):
        if taken > known:
            break
        for lane in range(min(count, len(contexts) - start)):
            row = rows[contexts[start + lane]]
            state = states[lane]
            place = state & np.uint32(0xFFF)
            digit = digits[(row << 12) + place]
            both = packed[(row << 8) + digit]  # start and frequency
            state = (both & np.uint32(0xFFFF)) * (state >> np.uint32(12)) + place
            state = np.uint32(state - (both >> np.uint32(16)))
            more = np.uint32((state << np.uint32(16)) | words[taken])
            # No branch: which way it would go, nothing can foresee.
            low = state < np.uint32(0x10000)
            states[lane] = more if low else state
            taken += int(low)
            out[start + lane] = digit
    return taken
