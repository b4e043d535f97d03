"""Points of spaces: their order, what is absent under a condition, what they come to."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlv.training.ledger.space import (
    Choices,
    Circular,
    Dimension,
    Key,
    Lookup,
    Space,
    Uniform,
    Whole,
    named,
    ordered,
    times,
)

RATE, MOMENTUM, OPTIMIZER, SEED = ("base_lr",), ("momentum",), ("optimizer",), ("seed",)


def choices(key: Key, *values: Any, **more: Any) -> Dimension:
    return Dimension((key,), Choices(tuple((value,) for value in values)), **more)


def sgd(lookup: Lookup) -> bool:
    return bool(lookup(OPTIMIZER) == "sgd")


def fixed(key: Key, value: Any) -> Lookup:
    return lambda asked: value if asked == key else None


def assignments(space: Space) -> list[dict[Key, Any]]:
    return [dict(space.settings(point)) for point in space.grid()]


def test_the_first_dimension_changes_slowest() -> None:
    space = Space((choices(RATE, 0.1, 0.2), Dimension((SEED,), Whole(3, 4))))
    assert [tuple(each.values()) for each in assignments(space)] == [
        *((0.1, 3), (0.1, 4), (0.2, 3), (0.2, 4))
    ]
    assert space.count == 4


def test_what_is_absent_makes_equal_points_which_come_once() -> None:
    late = choices(MOMENTUM, 0.0, 0.9, when=sgd, reads=frozenset({OPTIMIZER}))
    space = Space((late, choices(OPTIMIZER, "sgd", "adam")))
    assert assignments(space) == [
        {MOMENTUM: 0.0, OPTIMIZER: "sgd"},
        {OPTIMIZER: "adam"},
        {MOMENTUM: 0.9, OPTIMIZER: "sgd"},
    ]
    assert space.count == 4  # at most


def test_conditions_see_what_is_not_varied() -> None:
    dimension = choices(MOMENTUM, 0.0, 0.9, when=sgd, reads=frozenset({OPTIMIZER}))
    for optimizer, count in (("sgd", 2), ("adam", 1)):
        space = Space((dimension,), fixed(OPTIMIZER, optimizer))
        assert len(list(space.grid())) == count


def test_values_that_belong_together() -> None:
    pair = Dimension((RATE, SEED), Choices(((0.1, 1), (0.2, 2))))
    assert assignments(Space((pair,))) == [{RATE: 0.1, SEED: 1}, {RATE: 0.2, SEED: 2}]


def test_factors_are_of_the_value_that_is_varied() -> None:
    net = ("net", "conv*", "lr")
    factors = Dimension((net,), Choices(((0.1,), (10.0,)), RATE), reads=frozenset({RATE}))
    found = assignments(Space((factors, choices(RATE, 0.1, 0.3))))
    assert [(each[RATE], each[net]) for each in found] == [
        *((0.1, 0.01), (0.3, 0.03), (0.1, 1.0), (0.3, 3.0))
    ]
    assert assignments(Space((factors,), fixed(RATE, 0.7))) == [{net: 0.07}, {net: 7.0}]


@pytest.mark.parametrize(("base", "factor", "found"), [(0.1, 0.1, 0.01), (3, 0.1, 0.3)])
def test_products_are_those_of_the_decimals(base: Any, factor: Any, found: float) -> None:
    assert times(base, factor) == found


def test_conditions_that_wait_for_each_other() -> None:
    first = choices(RATE, 1, reads=frozenset({SEED}))
    second = choices(SEED, 1, reads=frozenset({RATE}))
    with pytest.raises(Circular) as caught:
        ordered([choices(MOMENTUM, 1), first, second])
    assert caught.value.places == (1, 2)
    assert ordered([first, choices(SEED, 1)]) == [1, 0]


def test_a_continuum_has_no_grid_and_no_count() -> None:
    space = Space((Dimension((RATE,), Uniform(0, 1)),))
    assert space.count is None
    with pytest.raises(ValueError, match="continuous"):
        list(space.grid())


def test_names_tell_kinds_apart() -> None:
    assert len({named(((value,),)) for value in (1, 1.0, True, "1")}) == 4


@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True), max_size=4))
def test_a_grid_is_the_product(values: list[list[int]]) -> None:
    space = Space(tuple(choices((f"k{at}",), *each) for at, each in enumerate(values)))
    found = [tuple(row[0] for row in point if row is not None) for point in space.grid()]
    assert found == list(product(*values))
