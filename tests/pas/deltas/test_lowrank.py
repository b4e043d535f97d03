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
from dlv.pas.deltas.lowrank import Predicted, Scaled, find_low_rank, find_shrinks
from dlv.pas.deltas.pair import Pair
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


def affine(found: Pair) -> list[Predicted]:
    """A low rank alone, and beside a shrink by one number."""
    scaled = Scaled.of(found)
    assert scaled is not None
    shrinks = [one for one in find_shrinks(scaled) if len(one.alphas) == 1]
    return find_low_rank(scaled, next(iter(shrinks), None))


def best(found: Pair) -> tuple[list[str], float]:
    costs = []
    for configs, side in affine(found):
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
        sizes.append(min(lowrank.entropy_bytes(found, one) for one in affine(found)))
    assert sizes[0] < 0.97 * sizes[1]


def test_nothing_is_found_in_noise() -> None:
    _, alone = adapted(1e-4)
    assert affine(alone) == []


@pytest.mark.parametrize("shape", [(40, 60), (900, 700), (3000, 500), (500, 3000)])
@pytest.mark.parametrize("rank", [1, 6, 30])
def test_the_range_finder_finds_what_a_decomposition_does(
    shape: tuple[int, int], rank: int
) -> None:
    """Within a hundredth of the energy that the best product of as many components takes off."""
    random = np.random.default_rng(rank)
    base = random.normal(0, 0.05, shape).astype("<f4")
    paces = np.exp(random.normal(0, 1, rank))
    moved = (random.normal(0, 1e-4, (shape[0], rank)) * paces) @ random.normal(
        0, 1, (rank, shape[1])
    )
    target = (base + moved + random.normal(0, 1e-4, shape)).astype("<f4")
    words = [one.view("<u4").ravel() for one in (target, base)]
    scaled = Scaled.of(Pair(words[0], words[1], "float32", shape))
    assert scaled is not None
    whole = np.concatenate([grid for _, grid in scaled.passes(None)]).astype(np.float64)
    exact = np.linalg.svd(whole, compute_uv=False) ** 2
    left, squares, energies = lowrank.leading(scaled, None, 32, rounds=2)
    some = min(rank, len(squares))
    assert energies[0] == pytest.approx(float(exact.sum()), rel=1e-4)
    assert squares[:some].sum() > 0.99 * exact[:some].sum()
    taken = ((left[:, :some].T @ whole) ** 2).sum()
    assert taken > 0.99 * exact[:some].sum()


def test_all_passes_are_products_with_few_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is decomposed whose sides both grow with the matrix, and passes are few."""
    sides, passes = [], []

    def watched(name: str) -> Any:
        honest = getattr(np.linalg, name)

        def watch(matrix: NDArray[Any], *rest: Any, **options: Any) -> Any:
            sides.append(min(matrix.shape[-2:]))
            return honest(matrix, *rest, **options)

        return watch

    for name in ("svd", "qr", "eigh", "eigvalsh", "cholesky", "inv", "solve"):
        monkeypatch.setattr(np.linalg, name, watched(name))
    honest = Scaled.passes

    def counted(*given: Any) -> Any:
        passes.append(1)
        return honest(*given)

    monkeypatch.setattr(Scaled, "passes", counted)
    random = np.random.default_rng(0)
    base = random.normal(0, 0.05, (1500, 1400)).astype("<f4")
    moved = random.normal(0, 1e-3, (1500, 4)) @ random.normal(0, 1, (4, 1400))
    target = (base + moved + random.normal(0, 1e-4, base.shape)).astype("<f4")
    words = [one.view("<u4").ravel() for one in (target, base)]
    scaled = Scaled.of(Pair(words[0], words[1], "float32", base.shape))
    assert scaled is not None
    assert find_low_rank(scaled, None)
    assert max(sides) <= lowrank.RANK + lowrank.SPARE
    assert len(passes) <= 16
