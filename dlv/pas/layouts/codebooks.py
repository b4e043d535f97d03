"""Where the levels of a quantised matrix lie: evenly, drawn from its elements, or by Lloyd."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

_FINENESS = 4  # stretches of the sample, for each level, from which Lloyd's iteration starts
_ROUNDS = 300
_SETTLED = 2.0**-24  # of the range: levels that move less have settled


@dataclass(frozen=True)
class Spread:
    """What is known of a matrix's finite elements when its levels are chosen.

    `sample`: some of them in ascending order, the least and the most among them.
    """

    least: float
    most: float
    zero: bool  # whether some are exactly 0
    sample: Values
    seed: str  # hash of the matrix


def uniform(spread: Spread, count: int) -> Values:
    """Levels at equal distances from the least to the most, moved so that zeros stay zero.

    No element is further than half a step from a level: moving them costs at most half a step
    at either end.
    """
    # By a power of two, which costs no bits, so that no difference overflows or vanishes.
    scale = math.frexp(max(abs(spread.least), abs(spread.most)))[1]
    least, most = math.ldexp(spread.least, -scale), math.ldexp(spread.most, -scale)
    step = (most - least) / (count - 1)
    if spread.zero:
        levels = (np.arange(count) - round(-least / step)) * step
    else:
        levels = least + np.arange(count) * step
        levels[-1] = most
    found: Values = np.ldexp(levels, scale)
    return found


def random(spread: Spread, count: int) -> Values:
    """The least, the most and elements drawn at random: dense where the elements are."""
    # Philox, whose raw words numpy promises to keep.
    words = np.random.Philox(key=int(spread.seed[:32], 16)).random_raw(32 * count)
    drawn = spread.sample[(words % np.uint64(len(spread.sample))).astype(np.intp)]
    fixed = {spread.least, spread.most} | ({0.0} if spread.zero else set())
    chosen = list(dict.fromkeys([*sorted(fixed), *(float(value) for value in drawn)]))
    return np.sort(np.array(chosen[:count]))


def lloyd(spread: Spread, count: int) -> Values:
    """Levels with a small mean squared error: each the mean of the elements nearest to it.

    The iteration runs over a sorted sample with running sums, so a round costs the same for
    any number of elements.
    """
    scale = math.frexp(max(abs(spread.least), abs(spread.most)))[1]
    sample = np.ldexp(spread.sample, -scale)
    # Sequential sums: pairwise ones may differ in the last bit from machine to machine.
    sums = np.concatenate([[0.0], np.cumsum(sample)])
    levels = _start(sample, count)
    for _ in range(_ROUNDS):
        ends = np.searchsorted(sample, (levels[1:] + levels[:-1]) / 2, side="right")
        bounds = np.concatenate([[0], ends, [len(sample)]])
        held = np.diff(bounds)
        means = np.diff(sums[bounds]) / np.maximum(held, 1)
        moved = np.where(held > 0, means, levels)
        done = np.max(np.abs(moved - levels)) <= _SETTLED * (sample[-1] - sample[0])
        levels = np.sort(moved)
        if done:
            break
    levels = np.ldexp(levels, scale)
    if spread.zero:
        levels[np.argmin(np.abs(levels))] = 0.0
    return levels


def _start(sample: Values, count: int) -> Values:
    """Levels as dense as the cube root of the elements' density: the best for many levels.

    Between two of `_FINENESS * count` quantiles that is about the 2/3rd power of the distance.
    By square roots, which are the same on every machine.
    """
    places = np.arange(_FINENESS * count + 1) * (len(sample) - 1) // (_FINENESS * count)
    edges = sample[places]
    half = np.sqrt(np.diff(edges))
    eighth = np.sqrt(np.sqrt(half))
    mass = np.concatenate([[0.0], np.cumsum(half * eighth * np.sqrt(np.sqrt(eighth)))])
    wanted = (np.arange(count) + 0.5) / count * mass[-1]
    found: Values = np.interp(wanted, mass, edges)
    return found


CODEBOOKS = {"uniform": uniform, "random": random, "lloyd": lloyd}
