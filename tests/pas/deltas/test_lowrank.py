"""The search for a low rank: what it leaves is what was added to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import dlv.pas.deltas.predictors as predictors
from dlv.pas.deltas import lowrank
from dlv.pas.deltas.lowrank import Pair, find_affine
from dlv.pas.deltas.predictors import predictors_of


@given(
    rows=st.integers(0, 40),
    rank=st.integers(0, 9),
    columns=st.integers(0, 50),
    serial=st.integers(1, 500),
    width=st.integers(1, 60),
    seed=st.integers(0, 99),
)
def test_parts_make_the_product(
    rows: int, rank: int, columns: int, serial: int, width: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    left, right = (
        rng.integers(-9999, 9999, shape).astype(np.float64)
        for shape in ((rows, rank), (rank, columns))
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predictors, "SERIAL", serial)
        patch.setattr(predictors, "_WIDTH", width)
        assert np.array_equal(predictors.product(left, right), left @ right)


def test_no_part_is_large_enough_for_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    honest, seen = np.matmul, []

    def watched(left: np.ndarray, right: np.ndarray, out: np.ndarray) -> np.ndarray:
        seen.append(left.shape[-2] * left.shape[-1] * right.shape[-1])
        return honest(left, right, out=out)

    monkeypatch.setattr(np, "matmul", watched)
    for rows, rank, columns in ((170, 32, 384), (682, 64, 1536), (3, 64, 30_522), (5000, 1, 3)):
        predictors.product(np.ones((rows, rank)), np.ones((rank, columns)))
    assert max(seen) <= predictors.SERIAL


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
