from __future__ import annotations

from collections.abc import Callable

import pytest

from dlv.network.graph import Node
from dlv.network.ops.pool import Pool
from dlv.network.sizes import ShapeError

Make = Callable[..., Node]


def test_rounding_up_as_in_caffe(node: Make) -> None:
    down = node("POOL", "MAX", kernel=[3, 3], stride=2)
    up = node("POOL", "MAX", kernel=[3, 3], stride=2, ceil=True)
    assert Pool().shape(down, [("B", 64, 112, 112)])[0] == ("B", 64, 55, 55)
    assert Pool().shape(up, [("B", 64, 112, 112)])[0] == ("B", 64, 56, 56)


def test_largest_values_have_positions(node: Make) -> None:
    most = node("POOL", "MAX", kernel=[2, 2])
    assert Pool().ports(most) == 2
    assert Pool().shape(most, [(1, 2, 3, 3)]) == ((1, 2, 2, 2),) * 2
    assert Pool().ports(node("POOL", "AVG", kernel=[2, 2])) == 1


def test_adaptive_and_channels_last(node: Make) -> None:
    pool = node("POOL", "AVG", size=[None, 7], channels="last")
    assert Pool().shape(pool, [("B", "H", 20, 16)]) == (("B", "H", 7, 16),)


def test_means(node: Make) -> None:
    pool = node("POOL", "MEAN", axis=[-1, 1])
    assert Pool().shape(pool, [("B", 3, 4, 5)]) == (("B", 4),)
    keep = node("POOL", "MEAN", axis=-1, keep=True)
    assert Pool().shape(keep, [("B", "T", 5)]) == (("B", "T", 1),)
    with pytest.raises(ShapeError):
        Pool().shape(node("POOL", "MEAN", axis=[3]), [(1, 2, 3)])
    assert Pool().shape(keep, [None]) == (None,)


def test_a_window_larger_than_the_map_is_refused(node: Make) -> None:
    with pytest.raises(ShapeError, match="16"):
        Pool().shape(node("POOL", "MAX", kernel=[16, 16]), [("B", 8, 8, 8)])


def test_windows_of_nothing_but_padding(node: Make) -> None:
    assert Pool().faults(node("POOL", "MAX", kernel=[2, 2], pad=[[0, 2], 0]))
    assert not Pool().faults(node("POOL", "MAX", kernel=[2, 2], pad=[[0, 1], 0]))
    assert not Pool().faults(node("POOL", "MEAN"))
