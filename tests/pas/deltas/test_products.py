"""Products in parts are products."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dlv.pas.deltas.predictors as products


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
        patch.setattr(products, "SERIAL", serial)
        patch.setattr(products, "_WIDTH", width)
        assert np.array_equal(products.product(left, right), left @ right)


def test_no_part_is_large_enough_for_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    honest, seen = np.matmul, []

    def watched(left: np.ndarray, right: np.ndarray, out: np.ndarray) -> np.ndarray:
        seen.append(left.shape[-2] * left.shape[-1] * right.shape[-1])
        return honest(left, right, out=out)

    monkeypatch.setattr(np, "matmul", watched)
    for rows, rank, columns in ((170, 32, 384), (682, 64, 1536), (3, 64, 30_522), (5000, 1, 3)):
        products.product(np.ones((rows, rank)), np.ones((rank, columns)))
    assert max(seen) <= products.SERIAL
