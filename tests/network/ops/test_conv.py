from __future__ import annotations

from collections.abc import Callable

import pytest

from dlv.network.graph import Node
from dlv.network.ops.conv import Conv, Deconv
from dlv.network.sizes import ShapeError

Make = Callable[..., Node]


def test_asymmetric_pads_and_dilation(node: Make) -> None:
    conv = node("CONV", out=8, kernel=[3, 3], stride=[2, 1], pad=[[0, 1], [2, 0]], dilation=[1, 2])
    # Keras `same` with stride 2 on an even length: one more behind than before.
    assert Conv().shape(conv, [("B", 4, 8, 9)]) == (("B", 8, 4, 7),)


def test_symbols_pass_and_unknowns_stay_where_they_are(node: Make) -> None:
    conv = node("CONV", out=8, kernel=[3, 3], stride=[2, 1], pad=1)
    assert Conv().shape(conv, [("B", None, "H", "W")]) == (("B", 8, None, "W"),)
    assert Conv().shape(conv, [None]) == (None,)
    assert Conv().parameter_shapes(conv, [None])["weight"] == (8, None, 3, 3)
    assert Conv().flops(conv, [("B", 4, 8, 8)], [("B", 8, 4, 8)]) is None


def test_channels_last_and_kernels_first(node: Make) -> None:
    attrs = {"out": 6, "kernel": [3, 5], "channels": "last", "layout": "kernel_first"}
    conv = node("CONV", slots=("weight", "bias"), groups=2, **attrs)
    assert Conv().shape(conv, [("B", 10, 12, 4)]) == (("B", 8, 8, 6),)
    assert Conv().parameter_shapes(conv, [("B", 10, 12, 4)]) == {
        "weight": (3, 5, 2, 6),
        "bias": (6,),
    }
    deconv = node("DECONV", slots=("weight",), **attrs)
    assert Deconv().parameter_shapes(deconv, [("B", 8, 8, 4)]) == {"weight": (3, 5, 6, 4)}
    assert Deconv().shape(deconv, [("B", 8, 8, 4)]) == (("B", 10, 12, 6),)


def test_depthwise_kernels_keep_channels_and_multiplier_apart(node: Make) -> None:
    attrs = {"out": 6, "groups": 3, "kernel": [3, 5], "channels": "last", "layout": "depthwise"}
    conv = node("CONV", slots=("weight",), **attrs)
    assert Conv().shape(conv, [("B", 10, 12, 3)]) == (("B", 8, 8, 6),)
    assert Conv().parameter_shapes(conv, [("B", 10, 12, 3)]) == {"weight": (3, 5, 3, 2)}
    with pytest.raises(ShapeError, match="one group for each channel"):
        Conv().shape(conv, [("B", 10, 12, 6)])


def test_weights_by_group(node: Make) -> None:
    conv = node("CONV", slots=("weight",), out=6, kernel=[3, 5], groups=2)
    assert Conv().parameter_shapes(conv, [("B", 4, 10, 12)]) == {"weight": (6, 2, 3, 5)}
    deconv = node("DECONV", slots=("weight",), out=6, kernel=[3, 5], groups=2)
    assert Deconv().parameter_shapes(deconv, [("B", 4, 10, 12)]) == {"weight": (4, 3, 3, 5)}


def test_the_cost_is_that_of_every_product(node: Make) -> None:
    conv = node("CONV", out=4, kernel=[3], groups=2)
    products = 0
    for _out in range(4):
        for _position in range(8):
            for _in in range(6 // 2):
                products += 3
    assert Conv().flops(conv, [(1, 6, 10)], [(1, 4, 8)]) == 2 * products
    deconv = node("DECONV", out=4, kernel=[3], groups=2)
    assert Deconv().flops(deconv, [(1, 6, 10)], [(1, 4, 12)]) == 2 * 6 * 10 * 2 * 3


def test_maps_of_another_rank_are_refused(node: Make) -> None:
    conv = node("CONV", out=8, kernel=[3, 3])
    with pytest.raises(ShapeError) as caught:
        Conv().shape(conv, [("B", 500)])
    assert caught.value.seen == "B×500"
    with pytest.raises(ShapeError, match="groups"):
        Conv().shape(node("CONV", out=8, kernel=[1], groups=4), [(1, 6, 3)])


def test_faults(node: Make) -> None:
    assert Conv().faults(node("CONV", out=9, kernel=[1], groups=2))
    assert Deconv().faults(node("DECONV", out=8, kernel=[1], groups=2, output_pad=[1]))
    assert not Deconv().faults(node("DECONV", out=8, kernel=[1], stride=[2], output_pad=[1]))
