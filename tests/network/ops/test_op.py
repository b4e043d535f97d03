from __future__ import annotations

from collections.abc import Callable

import pytest

from dlv.network.graph import Node
from dlv.network.ops.op import Elementwise, Op, op_of, with_rank
from dlv.network.sizes import ShapeError
from dlv.network.vocabulary import OPS

Make = Callable[..., Node]


def test_what_holds_unless_an_operator_says_otherwise(node: Make) -> None:
    op, conv = Op(), node("CONV", out=1, kernel=[1], bias=True)
    assert op.arity(conv) == (1, 1)
    assert op_of(conv).required(conv) == {"weight", "bias"}
    assert op_of(conv).required(node("CONV", out=1, kernel=[1])) == {"weight"}
    norm = node("NORM", "BATCH")
    assert op_of(norm).required(norm) == frozenset()
    assert (op.ports(conv), op.faults(conv), op.flops(conv, [], [])) == (1, [], 0)
    with pytest.raises(NotImplementedError):
        op.shape(conv, [])


def test_each_operator_has_its_own_record(node: Make) -> None:
    assert {op.name for op in OPS.values()} == set(OPS)
    assert len({type(op) for op in OPS.values()}) == len(OPS)
    assert op_of(node("RELU")).name == "RELU"
    assert not op_of(Node("x", "NONSENSE")).plumbing


def test_elementwise_and_rank(node: Make) -> None:
    assert Elementwise().shape(node("RELU"), [(1, "B")]) == ((1, "B"),)
    assert with_rank((1, 2), 2, "X") == (1, 2)
    with pytest.raises(ShapeError) as caught:
        with_rank((1, 2), 3, "X")
    assert (caught.value.seen, caught.value.wanted) == ("1×2", "3 axes")
