"""Norms that are rounded up, held against exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dlv.network.bounds.ball import STRICT, constant, gamma, l2, point, short

NUMBERS = st.one_of(
    st.floats(-1e150, 1e150), st.floats(-1e-150, 1e-150), st.floats(-1e-300, 1e-300)
)


@given(st.lists(NUMBERS, min_size=1, max_size=20))
def test_norms_are_never_too_small(row: list[float]) -> None:
    found = Fraction(float(l2(np.array([row, row]))[1]))
    exact = sum(Fraction(value) ** 2 for value in row)
    assert found * found >= exact
    # Nor much too large, but for numbers whose squares vanish.
    if exact > Fraction(1, 2**790):
        assert found * found <= exact * Fraction(1.00000001)


def test_norms_of_maps_and_of_nothing() -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    np.testing.assert_allclose(l2(x), np.linalg.norm(x.reshape(2, 12), axis=1), rtol=1e-8)
    assert l2(np.zeros((2, 0))).max() < 1e-100
    assert math.isnan(l2(np.array([[np.nan, 1.0]]))[0])
    assert l2(np.array([[np.inf, 1.0]]))[0] == np.inf
    assert l2(np.array([[1e200, 1e200]]))[0] == np.inf


@given(st.integers(1, 300))
def test_gamma_bounds_sums_of_rounded_products(n: int) -> None:
    # n roundings, each up by a whole unit, and the first numbers where there is no bound.
    assert Fraction(gamma(n, STRICT.unit)) >= (1 + Fraction(1, 2**24)) ** n - 1
    assert gamma(2.0**24, STRICT.unit) == math.inf


def test_points() -> None:
    ball = point(np.array([[1, 2], [3, 4]], np.float32))
    assert ball.exact
    assert ball.centre.dtype == np.float64
    assert ball.radius.shape == (2,)
    assert constant(np.array(3.0)).radius.shape == (1,)


@given(st.floats(0, allow_nan=False), st.integers(2, 8))
def test_short_numbers_are_never_below(value: float, digits: int) -> None:
    found = short(value, digits)
    assert found >= value
    if 1e-300 < value < 1e300:
        assert found <= value * (1 + 1.01 * 10.0 ** (1 - digits))
        assert float(f"{found:.{digits - 1}e}") == found
