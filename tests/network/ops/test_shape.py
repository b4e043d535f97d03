from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dlv.network.graph import Node
from dlv.network.ops.combine import Add, Concat, Mul
from dlv.network.ops.shape import Reshape
from dlv.network.sizes import Shape, ShapeError

Make = Callable[..., Node]


@pytest.mark.parametrize(
    ("attrs", "shape", "wanted"),
    [
        ({"kind": "flatten"}, ("B", 50, 4, 4), ("B", 800)),
        ({"kind": "flatten", "start": 0, "end": 1}, ("B", 50, 4), (None, 4)),
        ({"kind": "flatten", "start": 1, "end": 1}, ("B", "T"), ("B", "T")),
        ({"kind": "view", "size": [-1, 400]}, ("B", 16, 5, 5), ("B", 400)),
        ({"kind": "view", "size": ["B", 4]}, None, ("B", 4)),
        ({"kind": "view", "size": [-1, 4]}, None, (None, 4)),
        ({"kind": "transpose", "axes": [1, -1]}, ("B", "T", 3), ("B", 3, "T")),
        ({"kind": "permute", "axes": [2, 0, 1]}, ("B", "T", 3), (3, "B", "T")),
        ({"kind": "squeeze"}, ("B", 1, 3, 1), ("B", 3)),
        ({"kind": "squeeze", "axis": [1, 2]}, ("B", 1, 3, 1), ("B", 3, 1)),
        ({"kind": "unsqueeze", "axis": -1}, ("B", 3), ("B", 3, 1)),
        ({"kind": "select", "axis": 1, "index": -1}, ("B", "T", 3), ("B", 3)),
        ({"kind": "slice", "axis": 1, "end": 2**63 - 1}, ("B", "T"), ("B", "T")),
        ({"kind": "slice", "axis": 1, "start": 1}, ("B", "T"), ("B", None)),
        ({"kind": "slice", "axis": 1, "start": -3, "end": -1}, ("B", 9), ("B", 2)),
        ({"kind": "expand", "size": [7, -1, "T"]}, ("B", 1), (7, "B", "T")),
        ({"kind": "contiguous"}, ("B",), ("B",)),
        ({"kind": "to", "dtype": "float16"}, ("B",), ("B",)),
        ({"kind": "getitem", "index": 1}, ("B", 3), ("B", 3)),
        ({"kind": "size", "axis": 0}, ("B", 3), ()),
        ({"kind": "arithmetic", "operator": "mul"}, None, ()),
        ({"kind": "fill", "size": [2, "B", 5]}, None, (2, "B", 5)),
        ({"kind": "select", "axis": 0, "index": 0}, None, None),
    ],
)
def test_reshapes(node: Make, attrs: dict[str, Any], shape: Shape | None, wanted: Shape) -> None:
    assert Reshape().shape(node("RESHAPE", **attrs), [shape]) == (wanted,)


@pytest.mark.parametrize(
    ("attrs", "shape"),
    [
        ({"kind": "flatten", "start": 2, "end": 1}, (1, 2, 3)),
        ({"kind": "flatten", "start": 3}, (1, 2, 3)),
        ({"kind": "view", "size": [7]}, (1, 2, 3)),
        ({"kind": "permute", "axes": [0, 1]}, (1, 2, 3)),
        ({"kind": "select", "axis": 1, "index": 2}, (1, 2, 3)),
        ({"kind": "unsqueeze", "axis": 4}, (1, 2, 3)),
        ({"kind": "expand", "size": [3]}, (1, 3)),
        ({"kind": "expand", "size": [-1, 1, 3]}, (1, 3)),
        ({"kind": "expand", "size": [5, 4]}, (5, 3)),
        ({"kind": "split", "axis": 1, "sizes": [1, 2]}, ("B", 4)),
    ],
)
def test_reshapes_that_cannot_be(node: Make, attrs: dict[str, Any], shape: Shape) -> None:
    with pytest.raises(ShapeError):
        Reshape().shape(node("RESHAPE", **attrs), [shape])


def test_pieces(node: Make) -> None:
    split = node("RESHAPE", kind="split", axis=-1, sizes=[1, 3])
    assert Reshape().ports(split) == 2
    assert Reshape().shape(split, [("B", 4)]) == (("B", 1), ("B", 3))
    assert Reshape().shape(split, [("B", "W")]) == (("B", 1), ("B", 3))
    assert Reshape().shape(split, [None]) == (None, None)


def test_reshape_faults(node: Make) -> None:
    assert Reshape().faults(node("RESHAPE", kind="transpose", axes=[0]))
    assert Reshape().faults(node("RESHAPE", kind="permute", axes=[0, 0]))
    assert Reshape().arity(node("RESHAPE", kind="fill", size=[1])) == (0, None)
    assert Reshape().arity(node("RESHAPE", kind="view", size=[1])) == (1, None)


def test_concat_sums_one_axis(node: Make) -> None:
    concat = node("CONCAT")
    assert Concat().shape(concat, [("B", 3, 5), (None, 4, 5)]) == (("B", 7, 5),)
    assert Concat().shape(concat, [("B", 3, "W"), ("B", "C", 5)]) == (("B", None, 5),)
    assert Concat().shape(concat, [("B", 3), None]) == (("B", None),)
    assert Concat().shape(concat, [None]) == (None,)
    assert Concat().shape(concat, [("B", "C")]) == (("B", "C"),)
    for other in ((2, 3, 6), (2, 3)):
        with pytest.raises(ShapeError):
            Concat().shape(concat, [(2, 3, 5), other])


def test_add_broadcasts(node: Make) -> None:
    assert Add().shape(node("ADD"), [("B", 3, 1), (1, 4)]) == (("B", 3, 4),)
    assert Add().shape(node("ADD"), [("B", 3), None]) == (None,)
    with pytest.raises(ShapeError):
        Add().shape(node("ADD"), [("B", 3), (4,), None])


def test_the_other_side_may_be_a_number_or_a_tensor(node: Make) -> None:
    scaled = node("MUL", const=0.5)
    assert Mul().arity(scaled) == (1, 1)
    assert Mul().arity(node("MUL")) == (2, None)
    stored = node("ADD", None, ("value",), shape=[1, 10, 64])
    assert Add().arity(stored) == (1, 1)
    assert Add().shape(stored, [("B", 10, 64)]) == (("B", 10, 64),)
    assert Add().parameter_shapes(stored, []) == {"value": (1, 10, 64)}
    assert Add().parameter_shapes(node("ADD"), []) == {}
    assert Add().faults(node("ADD", None, ("value",)))
    assert Add().faults(node("ADD", None, ("value",), shape=[1], const=1))
    assert Add().faults(node("ADD", shape=[1]))
