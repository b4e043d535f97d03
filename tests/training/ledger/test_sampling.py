"""Draws and suggestions: the same for a seed, different points, within their domains."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.training.ledger.sampling import Suggesting, TriedPoint, drawn
from dlv.training.ledger.space import Choices, Dimension, Point, Space, Uniform, Whole, named

RATE = Dimension((("base_lr",),), Uniform(1e-4, 1.0, log=True))
DROP = Dimension((("dropout",),), Uniform(0.0, 0.5))
SIZE = Dimension((("batch_size",),), Whole(16, 64))
KIND = Dimension((("optimizer",),), Choices((("sgd",), ("adam",))))
MIXED = Space((RATE, DROP, SIZE, KIND))
SMALL = Space((KIND, Dimension((("seed",),), Whole(0, 3))))


def names(points: list[Point]) -> list[str]:
    return [named(point) for point in points]


@given(st.integers(0, 2**70), st.integers(0, 30))
@settings(max_examples=20)
def test_draws_are_within_their_domains_and_differ(seed: int, n: int) -> None:
    found = drawn(MIXED, n, seed)
    assert len(set(names(found))) == len(found) == n
    for rate, drop, size, kind in found:
        assert rate is not None
        assert drop is not None
        assert size is not None
        assert kind is not None
        assert 1e-4 <= rate[0] <= 1
        assert 0 <= drop[0] < 0.5
        assert size[0] in range(16, 65)
        assert kind[0] in ("sgd", "adam")


def test_a_seed_says_which_and_more_draws_begin_alike() -> None:
    assert drawn(MIXED, 5, 7) == drawn(MIXED, 9, 7)[:5]
    assert drawn(MIXED, 5, 7) != drawn(MIXED, 5, 8)


def test_draws_are_those_of_philox_with_seed_and_number_as_key() -> None:
    expected = [
        np.random.Generator(np.random.Philox(key=[number, 9])).random() / 2 for number in range(3)
    ]
    assert [point[0] for point in drawn(Space((DROP,)), 3, 9)] == [(each,) for each in expected]


def test_a_small_space_is_drawn_out() -> None:
    found = drawn(SMALL, 100, 1)
    assert sorted(names(found)) == sorted(names(list(SMALL.grid())))
    assert found != list(SMALL.grid())
    assert drawn(Space(()), 5) == [()]


def test_logarithms_are_drawn_evenly() -> None:
    found = [point[0] for point in drawn(Space((RATE,)), 2000, 5)]
    below = sum(row is not None and row[0] < 1e-2 for row in found)
    assert 900 < below < 1100


def value(point: Point) -> float:
    """Best at a rate of 0.01 and adam."""
    rate, _, _, kind = point
    assert rate is not None
    assert kind is not None
    return float(abs(math.log10(rate[0]) + 2) + (kind[0] != "adam"))


def suggested(batches: int, seed: int = 3, **more: Any) -> list[TriedPoint]:
    told: list[TriedPoint] = []
    for _ in range(batches):
        points = Suggesting(MIXED, more.get("direction", "min"), seed).batch(told, 4)
        failed = more.get("failed", ())
        told += [
            TriedPoint(point, None if len(told) + at in failed else value(point))
            for at, point in enumerate(points)
        ]
    return told


def test_suggestions_are_the_same_however_often_they_are_asked() -> None:
    pytest.importorskip("optuna")
    first = suggested(5, failed=(2, 9))
    again = Suggesting(MIXED, "min", 3)
    assert [each.point for each in first[16:20]] == again.batch(first[:16], 4)
    assert [each.point for each in first] == [each.point for each in suggested(5, failed=(2, 9))]
    assert first != suggested(5, seed=4, failed=(2, 9))
    assert len({named(each.point) for each in first}) == 20


def test_suggestions_learn() -> None:
    pytest.importorskip("optuna")
    found = [each.value or 0.0 for each in suggested(12)]
    assert sum(found[-16:]) < 0.6 * sum(found[:16])


def test_a_small_space_is_suggested_once() -> None:
    pytest.importorskip("optuna")
    told: list[TriedPoint] = []
    while points := Suggesting(SMALL, "max", 0).batch(told, 3):
        told += [TriedPoint(point, float(len(told))) for point in points]
    assert sorted(named(each.point) for each in told) == sorted(names(list(SMALL.grid())))


def test_what_is_absent_is_not_suggested() -> None:
    pytest.importorskip("optuna")
    momentum = Dimension(
        (("momentum",),),
        Uniform(0, 1),
        lambda lookup: bool(lookup(("optimizer",)) == "sgd"),
        frozenset({("optimizer",)}),
    )
    told: list[TriedPoint] = []
    for _ in range(5):
        for point in Suggesting(Space((momentum, KIND)), "min", 1).batch(told, 4):
            assert (point[0] is None) == (point[1] == ("adam",))
            told.append(TriedPoint(point, float(len(told))))
