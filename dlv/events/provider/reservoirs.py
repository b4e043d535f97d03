"""A uniform sample of a growing list that changes little while the list grows.

The sample depends on the length and the size of the reservoir alone, so lists that belong
together keep equal places. It always ends with the newest item.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from random import Random

_BELOW_ONE = math.nextafter(1, 0)


def reservoir(n: int, size: int, seed: int = 0) -> list[int]:
    """Places in a list of `n`, in order; at most `size` of them, or all where it is 0."""
    if size == 0 or n <= size:
        return list(range(n))
    return [*_reservoir(n - 1, size - 1, seed), n - 1]


@lru_cache(maxsize=64)
def _reservoir(n: int, size: int, seed: int) -> tuple[int, ...]:
    """Each of the first `n` places with the same probability, `size` of them."""
    held = list(range(size))
    for place, slot in _replacements(size, seed):
        if place >= n:
            break
        held[slot] = place
    return tuple(sorted(held))


def _replacements(size: int, seed: int) -> Iterator[tuple[int, int]]:
    """Which places enter the reservoir, and what they replace: Li's algorithm L.

    What it would draw for all places that do not enter is drawn at once, so a million
    points cost as many steps as there are changes, about size * log(n / size).
    """
    if not size:
        return
    random = Random(seed)
    weight, place = 1.0, size - 1
    while True:
        weight *= math.exp(math.log(_positive(random)) / size)
        weight = min(weight, _BELOW_ONE)
        place += int(math.log(_positive(random)) / math.log1p(-weight)) + 1
        yield place, random.randrange(size)


def _positive(random: Random) -> float:
    """Above 0, whose logarithm is none, and below 1."""
    while not (drawn := random.random()):
        pass
    return drawn
