"""Numbers that agree up to rounding, and numbers that do not."""

from __future__ import annotations

import numpy as np
import pytest

from dlv.errors import UsageError
from dlv.network.agreement import (
    TOLERANCE,
    another,
    differing,
    distance,
    drawn,
    rows_of,
    tolerance,
    too_long,
)
from dlv.network.graph import Input, Network, Node
from dlv.network.vocabulary import complete


def node(op: str, name: str, source: str, **attrs: object) -> Node:
    made = complete(op, None, attrs, params={"weight": "w"})
    return Node(name, op, None, made, ((source, 0),), {"weight": "w"})


def test_inputs_have_the_shapes_and_are_the_same_each_time() -> None:
    inputs = [Input("x", ("B", 3, None)), Input("n", ("B", "T"), "int64"), Input("m", (), "bool")]
    first = drawn(inputs, batch=3, other=7, limits={"n": 2})
    assert {name: x.shape for name, x in first.items()} == {"x": (3, 3, 7), "n": (3, 7), "m": ()}
    assert first["n"].dtype == np.int64
    assert set(first["n"].ravel()) == {0, 1}
    again = drawn(inputs, batch=3, other=7, limits={"n": 2})
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["x"], drawn(inputs, batch=3, other=7, seed=1)["x"])


def test_a_symbol_is_one_length_everywhere() -> None:
    inputs = [Input("x", ("B", "T")), Input("y", ("T", "B"))]
    found = drawn(inputs, batch=2, other=5)
    assert found["x"].shape == (2, 5)
    assert found["y"].shape == (5, 2)


def test_no_numbers_of_texts() -> None:
    with pytest.raises(UsageError, match="raw:string"):
        drawn([Input("x", (2,), "raw:string")])


def test_another_batch_is_like_the_example() -> None:
    tokens = another(np.array([[3, 9], [4, 3]]), batch=50)
    assert tokens.shape == (50, 2)
    assert tokens.min() == 3
    assert tokens.max() == 9
    floats = another(np.full((2, 3), 7, np.float32), batch=5)
    assert floats.shape == (5, 3)
    assert floats.dtype == np.float32
    assert 4 < floats.mean() < 10
    assert another(np.zeros((0, 2), np.int64)).shape == (0, 2)
    assert another(np.array(True)).dtype == bool


def test_rows_of_tables() -> None:
    net = Network(
        (Input("n", ("B",), "int64"),), (node("EMBED", "e", "n", rows=30, out=4),), (("e", 0),)
    )
    assert rows_of(net) == {"n": 30}


@pytest.mark.parametrize(
    ("got", "wanted", "equal"),
    [
        ([1.0, 1e-3], [1.0 + 1e-6, 1e-3], True),
        ([1.0, 2.0], [1.0, 2.001], False),
        ([np.nan, np.inf], [np.nan, np.inf], True),
        ([np.nan, 1.0], [1.0, 1.0], False),
        ([np.inf], [-np.inf], False),
        ([[1.0]], [1.0], False),
        ([], [], True),
        ([1, 2], [1, 2], True),
        ([1, 2], [1, 3], False),
        ([1], [1.0], False),
        ([True], [1], False),
        ([0.0, 0.0], [1e-9, 0.0], True),
        # Numbers of a mask do not hide what is wrong beside them.
        ([1.0, 2.0, -1e9, -3e38], [1.0, 2.1, -1e9, -3e38], False),
        ([1.0, 2.0, -1e4], [1.0, 2.01, -1e4], False),
        (["a"], ["a"], True),
        (["a"], ["b"], False),
        ([1 + 2j], [1 + 2j], True),
        ([1 + 2j], [1 - 2j], False),
    ],
)
def test_distance(got: list[object], wanted: list[object], equal: bool) -> None:
    assert (distance(np.array(got), np.array(wanted)) <= TOLERANCE) is equal


def test_widths_of_floats_may_differ() -> None:
    assert distance(np.array([0.1, 0.2], np.float32), np.array([0.1, 0.2])) <= TOLERANCE


def test_narrow_floats_have_fewer_digits() -> None:
    assert tolerance("float32") == TOLERANCE
    assert TOLERANCE < tolerance("float32", "float16") < tolerance("bfloat16") < 0.1


def test_the_first_that_differs() -> None:
    wanted = {"a": np.ones(2), "b": np.ones(2), "c": np.ones(2)}
    got = {"a": np.ones(2), "b": np.full(2, 1.5), "c": np.zeros(2), "d": np.ones(2)}
    found = differing(["d", "a", "b", "c"], got, wanted)
    assert found is not None
    assert found.where == "b"
    assert "off by 0.2" in str(found)
    assert differing(["a"], got, wanted) is None
    shape = differing(["a"], {"a": np.ones((1, 2))}, wanted)
    assert str(shape) == "'a' has the shape [1, 2] instead of [2]"


def test_a_comparison_that_takes_too_long_is_told() -> None:
    net = Network((Input("x", ("B", 4)),), (node("FULL", "f", "x", out=4),), (("f", 0),))
    assert too_long(net, {"w": ("float32", (4, 4))}) is None
    assert "GB" in str(too_long(net, {"w": ("float32", (1 << 16, 1 << 16))}))
    wide = Network((Input("x", ("B", 1 << 13)),), (node("FULL", "f", "x", out=1 << 13),), ())
    assert "GFLOPs" in str(too_long(wide, {"w": ("float32", (1 << 13, 1 << 13))}, batch=400))
