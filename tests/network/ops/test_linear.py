"""The terms of a linear layer's radius, one at a time against their formula."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dlv.network.bounds.ball import F64, STRICT, UNIT, UP, Ball, BallRun, Norms, gamma
from dlv.network.ops import linear
from dlv.network.ops.linear import Reach

NOTHING = Norms(0.0, 0.0, 0.0, 0.0, 0.0)
RUN = BallRun([], {}, None, F64, {})
ZERO, ONE, TWO = np.array([0.0]), np.array([1.0]), np.array([2.0])
REACH = Reach(terms=10, places=4, outputs=12, overlap=9, patches=ZERO, plain=ZERO)


def radius(
    norms: Norms, reach: Reach, given: float, bias: float = 0.0, strict: bool = False
) -> float:
    run = replace(RUN, reference=STRICT if strict else F64)
    found = linear.radii(norms, run, reach, np.array([given]), np.array([bias]))
    assert found.shape == (1,)
    return float(found[0])


def test_each_term() -> None:
    assert radius(replace(NOTHING, opn=3.0), REACH, 2.0) == pytest.approx(6.0)
    wide = replace(REACH, patches=TWO, plain=ONE)
    assert radius(replace(NOTHING, dn=3.0), wide, 0.0) == pytest.approx(6.0)
    assert radius(replace(NOTHING, dn=3.0, dopn=4.0), wide, 0.0) == pytest.approx(4.0)
    assert radius(replace(NOTHING, dn=3.0, dopn=7.0), wide, 0.0) == pytest.approx(6.0)


def test_the_reference_rounds_what_it_is_given_and_the_centre_what_it_has() -> None:
    double, single = gamma(13, UNIT), gamma(13, 2.0**-24)
    norms, wide = replace(NOTHING, fro=5.0, dfro=1.0), replace(REACH, patches=TWO)
    # All nine windows that hold an element may carry its error.
    assert radius(norms, REACH, 1.0) == pytest.approx(double * 15)
    assert radius(norms, REACH, 1.0, strict=True) == pytest.approx(single * 15)
    assert radius(norms, wide, 0.0) == pytest.approx(double * (10 + 12))
    assert radius(norms, wide, 0.0, strict=True) == pytest.approx(single * 10 + double * 12)
    # A bias is added at each of the four places.
    assert radius(NOTHING, REACH, 0.0, 3.0) == pytest.approx(2 * double * 6)
    assert radius(NOTHING, REACH, 0.0, 3.0, strict=True) == pytest.approx((double + single) * 6)


def test_what_is_flushed_to_zero() -> None:
    assert radius(NOTHING, REACH, 0.0, strict=True) >= 10 * 2.0**-126 * np.sqrt(12)
    assert 0 < radius(NOTHING, REACH, 0.0) < 1e-150


def test_radii_of_several_axes() -> None:
    reach = replace(REACH, patches=np.ones((2, 3)), plain=np.ones((2, 3)))
    norms = replace(NOTHING, opn=2.0, dn=1.0)
    found = linear.radii(norms, RUN, reach, np.arange(6.0).reshape(2, 3), None)
    assert np.allclose(found, np.arange(6.0).reshape(2, 3) * 2 + 1)


def test_what_one_output_may_be_off() -> None:
    rows, patch, moved = np.array([[2.0]]), np.array([[3.0]]), np.array([[5.0]])
    single, double = gamma(13, 2.0**-24), gamma(13, UNIT)
    run = replace(RUN, reference=STRICT)
    for norms in (replace(NOTHING, dn=0.5), replace(NOTHING, dn=9.0, drows=np.array([0.5]))):
        found = linear.box(norms, run, REACH, rows, np.array([-7.0]), patch, moved)
        exact = 2.5 * 5 + 0.5 * 3
        rounding = single * (2.5 * 8 + 7) + double * (2 * 3 + 7)
        assert found.shape == (1, 1)
        assert float(found[0, 0]) >= exact + rounding
        assert float(found[0, 0]) == pytest.approx(exact + rounding, rel=1e-8)


def test_roots_of_squares_that_vanished() -> None:
    tiny = np.array([1e-170])
    assert linear.root(tiny * tiny, 1) >= tiny
    assert linear.root(np.array([4.0]), 1)[0] == pytest.approx(2 * UP)


def test_radius_and_boxes_bound_each_other() -> None:
    centre = np.zeros((2, 3))
    box = np.array([[1.0, 2.0, 2.0], [9.0, 9.0, 9.0]])
    found = linear.ball(centre, np.array([5.0, 4.0]), box)
    assert isinstance(found, Ball)
    assert found.radius == pytest.approx([3, 4])
    assert found.box is not None
    assert found.box == pytest.approx(np.array([[1, 2, 2], [4, 4, 4]]))
    tokens = np.array([[3.0, 4.0], [30.0, 40.0]])
    assert linear.ball(centre, np.array([6.0, 6.0]), None, tokens).radius == pytest.approx([5, 6])
