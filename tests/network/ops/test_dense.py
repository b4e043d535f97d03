from __future__ import annotations

from collections.abc import Callable

import pytest

from dlv.network.graph import Node
from dlv.network.ops.dense import Embed, Full
from dlv.network.sizes import ShapeError

Make = Callable[..., Node]


def test_the_last_axis_is_replaced(node: Make) -> None:
    full = node("FULL", slots=("weight", "bias"), out=10)
    assert Full().shape(full, [("B", "T", 64)]) == (("B", "T", 10),)
    assert Full().parameter_shapes(full, [("B", "T", 64)]) == {"weight": (10, 64), "bias": (10,)}
    assert Full().flops(full, [(1, 3, 64)], [(1, 3, 10)]) == 2 * 3 * 64 * 10
    assert Full().shape(full, [None]) == (None,)
    with pytest.raises(ShapeError):
        Full().shape(full, [()])


def test_the_layout_turns_the_weights(node: Make) -> None:
    full = node("FULL", slots=("weight",), out=10, layout="in_out")
    assert Full().parameter_shapes(full, [(1, 64)]) == {"weight": (64, 10)}
    assert Full().parameter_shapes(full, [(1, "W")]) == {"weight": ("W", 10)}
    assert Full().parameter_shapes(full, [None]) == {"weight": (None, 10)}


def test_rows_are_looked_up(node: Make) -> None:
    embed = node("EMBED", slots=("weight",), out=8, rows=100)
    assert Embed().shape(embed, [("B", 12)]) == (("B", 12, 8),)
    assert Embed().parameter_shapes(embed, [None]) == {"weight": (100, 8)}
    assert Embed().flops(embed, [(1, 12)], [(1, 12, 8)]) == 0
