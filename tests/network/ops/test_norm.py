from __future__ import annotations

from collections.abc import Callable

import pytest

from dlv.network.graph import Node
from dlv.network.ops.norm import Norm
from dlv.network.sizes import ShapeError

Make = Callable[..., Node]
ALL = ("weight", "bias", "running_mean", "running_var")


def test_channels_lie_where_axis_says(node: Make) -> None:
    shape = ("B", 6, 5, 4)
    first = Norm().parameter_shapes(node("NORM", "BATCH", ALL), [shape])
    assert first == dict.fromkeys(ALL, (6,))
    last = Norm().parameter_shapes(node("NORM", "BATCH", ALL, axis=-1), [shape])
    assert last == dict.fromkeys(ALL, (4,))


def test_layer_norms_reach_to_the_last_axis(node: Make) -> None:
    layer = node("NORM", "LAYER", ("weight", "bias"), axis=-2)
    assert Norm().parameter_shapes(layer, [("B", 5, 4)]) == {"weight": (5, 4), "bias": (5, 4)}
    assert Norm().parameter_shapes(node("NORM", "RMS", ("weight",)), [("B", 5, 4)]) == {
        "weight": (4,)
    }


def test_only_slots_that_are_filled_have_shapes(node: Make) -> None:
    assert Norm().parameter_shapes(node("NORM", "BATCH"), [(1, 2, 3)]) == {}
    assert Norm().parameter_shapes(node("NORM", "BATCH", ("weight",)), [None]) == {"weight": None}


def test_groups_and_axes_must_fit(node: Make) -> None:
    group = node("NORM", "GROUP", groups=4)
    assert Norm().shape(group, [("B", 8, 5)]) == (("B", 8, 5),)
    assert Norm().shape(group, [("B", "C", 5)]) == (("B", "C", 5),)
    with pytest.raises(ShapeError):
        Norm().shape(group, [("B", 6, 5)])
    with pytest.raises(ShapeError):
        Norm().shape(node("NORM", "BATCH"), [("B",)])


def test_statistics_come_in_pairs(node: Make) -> None:
    assert Norm().faults(node("NORM", "BATCH", ("running_mean",)))
    assert not Norm().faults(node("NORM", "BATCH", ALL))
