from __future__ import annotations

from collections.abc import Callable

import pytest

from dlv.network.graph import Node
from dlv.network.ops.attention import Attention
from dlv.network.sizes import Shape, ShapeError

Make = Callable[..., Node]
Q: Shape = ("B", 4, 10, 16)


def test_rows_of_the_query_width_of_the_values(node: Make) -> None:
    attention = node("ATTENTION")
    key: Shape = ("B", 4, 7, 16)
    assert Attention().shape(attention, [Q, key, ("B", 4, 7, 8)]) == (("B", 4, 10, 8),)
    assert Attention().shape(attention, [Q, None, key]) == (Q,)
    assert Attention().shape(attention, [None, key, key]) == (None,)
    assert Attention().shape(attention, [Q, key, key, (10, 7)]) == (Q,)


@pytest.mark.parametrize(
    ("query", "key", "value"),
    [
        (Q, ("B", 4, 7, 15), ("B", 4, 7, 16)),
        (Q, ("B", 4, 7, 16), ("B", 4, 8, 16)),
        (Q, ("B", 3, 7, 16), ("B", 3, 7, 16)),
        (Q, (16,), (16,)),
    ],
)
def test_what_does_not_meet(node: Make, query: Shape, key: Shape, value: Shape) -> None:
    with pytest.raises(ShapeError):
        Attention().shape(node("ATTENTION"), [query, key, value])


def test_heads_divide_the_width_if_they_are_not_an_axis(node: Make) -> None:
    flat: Shape = ("B", 10, 64)
    assert Attention().shape(node("ATTENTION", heads=8), [flat] * 3) == (flat,)
    with pytest.raises(ShapeError):
        Attention().shape(node("ATTENTION", heads=7), [flat] * 3)


def test_the_cost_is_two_products(node: Make) -> None:
    shapes: list[Shape] = [(1, 2, 3, 5), (1, 2, 7, 5), (1, 2, 7, 11)]
    wanted = 2 * (2 * 3 * 5 * 7) + 2 * (2 * 3 * 7 * 11)
    assert Attention().flops(node("ATTENTION"), shapes, [(1, 2, 3, 11)]) == wanted
    assert Attention().flops(node("ATTENTION"), [Q, Q, Q], [Q]) is None
