from __future__ import annotations

from collections.abc import Callable

import pytest

from dlv.network.graph import Node
from dlv.network.ops.layer import Elementwise, Layer, with_rank
from dlv.network.sizes import ShapeError

Make = Callable[..., Node]


def test_what_the_vocabulary_says_holds_unless_a_layer_says_otherwise(node: Make) -> None:
    layer, conv = Layer(), node("CONV", out=1, kernel=[1], bias=True)
    assert layer.arity(conv) == (1, 1)
    assert layer.required(conv) == {"weight", "bias"}
    assert layer.required(node("CONV", out=1, kernel=[1])) == {"weight"}
    assert layer.required(node("NORM", "BATCH")) == frozenset()
    assert (layer.ports(conv), layer.faults(conv), layer.flops(conv, [], [])) == (1, [], 0)
    with pytest.raises(NotImplementedError):
        layer.shape(conv, [])


def test_elementwise_and_rank(node: Make) -> None:
    assert Elementwise().shape(node("RELU"), [(1, "B")]) == ((1, "B"),)
    assert with_rank((1, 2), 2, "X") == (1, 2)
    with pytest.raises(ShapeError) as caught:
        with_rank((1, 2), 3, "X")
    assert (caught.value.seen, caught.value.wanted) == ("1×2", "3 axes")
