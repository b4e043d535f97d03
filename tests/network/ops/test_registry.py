from __future__ import annotations

from collections.abc import Callable

from dlv.network.graph import Node
from dlv.network.ops.layer import Layer
from dlv.network.ops.registry import LAYERS, layer_of

Make = Callable[..., Node]


def test_each_op_has_its_own_class(node: Make) -> None:
    assert {layer.op for layer in LAYERS.values()} == set(LAYERS)
    assert len({type(layer) for layer in LAYERS.values()}) == len(LAYERS)
    assert layer_of(node("RELU")).op == "RELU"
    assert all(isinstance(layer, Layer) for layer in LAYERS.values())
