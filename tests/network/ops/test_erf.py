"""The error function against the standard library's, and against torch's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dlv.network.ops.activation import erf


def units(x: float, found: float) -> float:
    return abs(found - math.erf(x)) / float(np.spacing(abs(math.erf(x))))


@given(st.floats(-7, 7))
@example(0.0)
@example(5e-324)
@example(1.0)
@example(math.nextafter(1, 2))
@example(6.0)
@example(math.nextafter(6, 0))
def test_within_two_units_of_the_last_place(x: float) -> None:
    # The standard library's own is off by one at places.
    assert units(x, float(erf(np.array([x]))[0])) <= 2


def test_many_numbers_of_every_size() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-7, 7, 40_000), 10 ** rng.uniform(-300, 0, 2000)])
    wanted = np.array([math.erf(each) for each in x])
    off = np.abs(erf(x) - wanted) / np.spacing(np.abs(wanted))
    assert off.max() <= 2
    assert off.mean() < 0.2


def test_ends_signs_and_what_is_no_number() -> None:
    x = np.array([np.inf, -np.inf, np.nan, 40.0, -40.0])
    np.testing.assert_array_equal(erf(x), [1, -1, np.nan, 1, -1])
    assert np.signbit(erf(np.array([-0.0])))[0]
    assert erf(np.zeros((0, 3))).shape == (0, 3)
    assert erf(np.array(0.5)).shape == ()


def test_shapes_orders_and_dtypes() -> None:
    x = np.random.default_rng(1).normal(size=(3, 4, 5)).transpose(2, 0, 1)
    np.testing.assert_array_equal(erf(x), np.vectorize(lambda each: erf(np.array([each]))[0])(x))
    single = erf(x.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_array_equal(single, erf(x.astype(np.float32).astype(float)).astype("f4"))


def test_against_torch() -> None:
    torch = pytest.importorskip("torch", reason="a second opinion")
    x = np.linspace(-6.5, 6.5, 30_001)
    wanted = torch.erf(torch.from_numpy(x)).numpy()
    assert (np.abs(erf(x) - wanted) <= 2 * np.spacing(np.abs(wanted))).all()
