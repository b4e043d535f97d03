"""Depths found for a summed error, against all that there are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dlv.network.suffix.schedule import MOST_ROWS, Allocation


def case(seed: int) -> tuple[dict[str, dict[int, np.ndarray]], dict[str, dict[int, float]]]:
    rng = np.random.default_rng(seed)
    errors, sizes = {}, {}
    for name in "abcde":
        scale = 10.0 ** rng.uniform(-1, 2)
        spread = rng.uniform(0.5, 2, 20)
        errors[name] = {depth: scale * spread * 256.0**-depth for depth in (1, 2, 3)}
        size = float(rng.integers(10, 1000))
        sizes[name] = {depth: depth * size for depth in (1, 2, 3, 4)}
    return errors, sizes


def bearable(errors: dict[str, dict[int, np.ndarray]], depths: dict[str, int]) -> float:
    total = sum(errors[name].get(depth, 0.0) for name, depth in depths.items())
    return float(np.mean(np.broadcast_to(total, (20,)) <= 1))


@pytest.mark.parametrize("seed", range(12))
def test_few_bytes_are_found(seed: int) -> None:
    errors, sizes = case(seed)
    (found,) = Allocation(errors, sizes, np.ones(20)).levels([1.0])
    assert bearable(errors, found) >= MOST_ROWS
    costs = []
    for depths in itertools.product((1, 2, 3, 4), repeat=5):
        one = dict(zip(errors, depths, strict=True))
        if bearable(errors, one) >= MOST_ROWS:
            costs.append(sum(sizes[name][depth] for name, depth in one.items()))
    cost = sum(sizes[name][depth] for name, depth in found.items())
    assert min(costs) <= cost <= 1.1 * min(costs)


def test_levels_read_on() -> None:
    errors, sizes = case(3)
    levels = Allocation(errors, sizes, np.ones(20)).levels()
    assert len(levels) > 1
    for before, after in itertools.pairwise(levels):
        assert before != after
        assert all(before[name] <= after[name] for name in before)


def test_a_budget_that_is_none_takes_everything() -> None:
    errors, sizes = case(1)
    (found,) = Allocation(errors, sizes, np.zeros(20)).levels([1.0])
    assert set(found.values()) == {4}


@pytest.mark.parametrize(
    ("shares", "fall", "kept"), [((0.9, 0.9), 1.3, 1), ((0.9, 0.95), 1.3, 2), ((0.9, 0.9), 4, 2)]
)
def test_a_dear_end_is_left_out(shares: tuple[float, float], fall: float, kept: int) -> None:
    """One that tells no row more, where two planes of all take more of the error per byte."""
    small = 1.0 - 1 / fall  # of the error that its last plane takes away
    errors = {
        "small": {1: np.full(20, 100.0), 2: np.full(20, small), 3: np.zeros(20)},
        "large": {1: np.full(20, 1 - small), 2: np.full(20, (1 - small) / 256)},
    }
    sizes = {
        name: {d: d * each for d in (1, 2, 3)} for name, each in (("small", 6.0), ("large", 23.0))
    }
    first, second = {"small": 2, "large": 1}, {"small": 3, "large": 1}
    allocation = Allocation(errors, sizes, np.ones(20))
    assert allocation.kept([first, second], shares, lambda level: {**level, "large": 2}) == kept
    assert allocation.kept([first, second], shares, lambda _: None) == 2
