"""The search for a low rank: what it leaves is what was added to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dlv.pas.deltas import lowrank
from dlv.pas.deltas.lowrank import find_affine
from dlv.pas.deltas.pairs import Pair
from dlv.pas.deltas.predictors import predictors_of

SHAPE = (300, 400)


def pair(base: NDArray[Any], target: NDArray[Any]) -> Pair:
    words = [one.astype("<f4").view("<u4").ravel() for one in (target, base)]
    return Pair(words[0], words[1], "float32", SHAPE)


def adapted(noise: float, shrunk: float = 0.0) -> tuple[Pair, Pair]:
    """A base that a product of rank 10 and noise were added to, and one with noise alone."""
    random = np.random.default_rng(3)
    base = random.normal(0, 0.05, SHAPE).astype("<f4").astype(np.float64)
    moved = random.normal(0, 1, (300, 10)) @ random.normal(0, 1e-3, (10, 400))
    rest = random.normal(0, noise, SHAPE)
    target = base * (1 - shrunk) + moved + rest
    return pair(base, target), pair(base, base + rest)


def best(found: Pair) -> tuple[list[str], float]:
    costs = []
    for configs, side in find_affine(found):
        made = predictors_of(configs, side, found.dtype, found.shape)
        costs.append((found.with_predictors(made).cost(), [one["id"] for one in configs]))
    cost, kinds = min(costs)
    return kinds, cost


@pytest.mark.parametrize("shrunk", [0.0, 0.002])
def test_noise_is_all_that_is_left(shrunk: float) -> None:
    found, alone = adapted(1e-4, shrunk)
    kinds, cost = best(found)
    assert kinds == (["shrink", "lowrank"] if shrunk else kinds)
    assert "lowrank" in kinds
    # Rounding of factors adds a little to the noise.
    assert alone.cost() - 0.1 < cost < alone.cost() + 0.25 < found.cost() - 3


def test_the_last_bits_are_worth_a_closer_look(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = adapted(0)
    sizes = []
    for rank in (lowrank.MAX_RANK, 0):
        monkeypatch.setattr(lowrank, "MAX_RANK", rank)
        sizes.append(min(lowrank.entropy_bytes(found, one) for one in find_affine(found)))
    assert sizes[0] < 0.97 * sizes[1]


def test_nothing_is_found_in_noise() -> None:
    _, alone = adapted(1e-4)
    assert all(one[0]["id"] != "lowrank" for one, _ in find_affine(alone))
