"""Numbers among a network's nodes, and single outputs of several: no place to cut or insert."""

from __future__ import annotations

from typing import Any

import pytest

from dlv.errors import UsageError
from dlv.network.edits import edit as editing
from dlv.network.edits.slicing import slice as cut
from dlv.network.graph import Input, Network, Node, Port
from dlv.network.patterns import template


def _call(name: str, op: str, inputs: tuple[Port, ...], *more: Any) -> Node:
    args = [{"n": place} for place in range(len(inputs))] + [{"c": item} for item in more]
    source = {"dialect": "aten", "op": op, "args": args, "kwargs": {}}
    return Node(name, "OP", "raw", {}, inputs, source=source, out_shape=("B", 6))


def _network() -> Network:
    pick = Node("best", "RESHAPE", None, {"kind": "getitem", "index": 0}, (("topk", 0),))
    nodes = (
        _call("item", "aten.item.default", (("x", 0),)),
        _call("mul", "aten.mul.Tensor", (("x", 0), ("item", 0))),
        _call("topk", "aten.topk.default", (("mul", 0),), 3),
        pick,
        _call("exp", "aten.exp.default", (("best", 0),)),
    )
    return Network((Input("x", ("B", 6)),), nodes, (("exp", 0),))


def test_nothing_is_inserted_behind_a_number() -> None:
    with pytest.raises(UsageError, match="`item` gives a number, no tensor"):
        editing.insert(_network(), "item", template("DROPOUT", p=0.5))
    made = editing.insert(_network(), "mul", template("DROPOUT", p=0.5)).network
    assert made.node("topk").inputs == (("dropout1", 0),)


def test_a_number_is_no_input_of_a_slice() -> None:
    with pytest.raises(UsageError, match="`item` as an input, which is a number"):
        cut(_network(), "mul", "exp", support="inputs")


def test_a_slice_does_not_begin_where_one_of_several_outputs_is_taken() -> None:
    with pytest.raises(UsageError, match="cannot begin at `best`") as caught:
        cut(_network(), "best", "exp")
    assert caught.value.hint == "begin at `topk`, or at what reads `best`"
