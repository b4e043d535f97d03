from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dlv.network.graph import Node
from dlv.network.ops.activation import Relu, Softmax
from dlv.network.ops.op import Op
from dlv.network.ops.outside import Loss, Placeholder, Raw
from dlv.network.sizes import ShapeError

Make = Callable[..., Node]


def test_shapes_stay(node: Make) -> None:
    assert Relu().shape(node("RELU", slope=0.1), [("B", None)]) == (("B", None),)
    assert Relu().shape(node("RELU"), [None]) == (None,)


def test_softmax_needs_its_axis(node: Make) -> None:
    assert Softmax().shape(node("SOFTMAX", axis=1), [("B", 3)]) == (("B", 3),)
    with pytest.raises(ShapeError):
        Softmax().shape(node("SOFTMAX", axis=2), [("B", 3)])


def test_a_loss_is_a_scalar_and_an_input_has_its_own_shape(node: Make) -> None:
    assert Loss().shape(node("LOSS", name="ce"), [("B", 3), None]) == ((),)
    assert Placeholder().shape(node("INPUT", shape=["B", 3]), []) == (("B", 3),)


def test_raw_operations_have_what_was_recorded(node: Make) -> None:
    raw = node("OP", "raw", ("anything",))
    assert Raw().shape(raw, [("B", 3)]) == (None,)
    assert Raw().shape(replace(raw, out_shape=("B", 7)), [None]) == (("B", 7),)
    layer: Op = Raw()
    assert layer.node_slots(raw) is None
    assert Raw().ports(raw) is None
    assert Raw().required(raw) == frozenset()
    assert Raw().flops(raw, [], []) is None
