"""Scores of pairs, and the best alignment of two rows of layers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dlv.network.likeness.alignment as alignment
from dlv.network.graph import Input, Network, Node
from dlv.network.likeness.alignment import Near, Sequencer, counted, name_score
from dlv.network.likeness.equality import Normal

IMAGE = Input("x", ("B", 1, 28, 28))


ALONE = Near({}, {})


def _node(name: str, op: str, slope: float = 0.0) -> Node:
    attrs = {"slope": slope} if op == "RELU" else {"p": slope} if op == "DROPOUT" else {}
    return Node(name, op, "TANH" if op == "ACT" else None, attrs, (("x", 0),))


def _sequencer(before: Sequence[Node], after: Sequence[Node]) -> Sequencer:
    sides = [
        Normal(Network((IMAGE,), tuple({node.name: node for node in nodes}.values())))
        for nodes in (before, after)
    ]
    return Sequencer(sides[0], sides[1], ALONE, ALONE)


nodes = st.builds(
    _node,
    st.sampled_from(["f.0", "f.1", "f.2", "f.3"]),
    st.sampled_from(["RELU", "DROPOUT", "ACT"]),
    st.sampled_from([0.1, 0.2]),
)
rows = st.lists(nodes, max_size=5, unique_by=lambda node: node.name)


def _sum(sequencer: Sequencer, pairs: list[tuple[Node, Node]]) -> float | None:
    """Of their scores; None if one of the pairs does not fit."""
    found = [sequencer.fit(a, b) for a, b in pairs]
    if not all(found):
        return None
    return sum(found) + sum(name_score(a.name, b.name) for a, b in pairs)


def _best(sequencer: Sequencer, before: Sequence[Node], after: Sequence[Node]) -> float:
    """The largest sum of all alignments, by trying every one."""
    best = 0.0
    for count in range(1, min(len(before), len(after)) + 1):
        for left in combinations(before, count):
            for right in combinations(after, count):
                best = max(best, _sum(sequencer, [*zip(left, right, strict=True)]) or 0)
    return best


@settings(max_examples=300, deadline=None)
@given(rows, rows)
def test_the_best_of_all_alignments(before: list[Node], after: list[Node]) -> None:
    sequencer = _sequencer(before, after)
    found = sequencer.pairs(before, after)
    assert all(a < c and b < d for (a, b), (c, d) in pairwise(found))
    total = _sum(sequencer, [(before[i], after[j]) for i, j in found])
    assert total == pytest.approx(_best(sequencer, before, after))


def test_what_speaks_for_a_pair() -> None:
    old = [_node("a", "RELU", 0.1), _node("b", "DROPOUT", 0.1), _node("c", "ACT")]
    new = [_node("a", "RELU", 0.1), _node("b", "DROPOUT", 0.2), _node("d", "ACT")]
    sequencer = _sequencer(old, new)
    same, other, none = (sequencer.fit(*pair) for pair in (
        (old[0], new[0]), (old[1], new[1]), (old[0], new[1]),
    ))  # fmt: skip
    assert same > other > none == 0
    assert name_score("a", "a") > name_score("a1", "a1") > name_score("a", "b") == 0


def test_counted_names() -> None:
    for name in ("features.3", "0", "conv2", "conv2d_4", "relu_1", "layer1.0.conv1", "v2"):
        assert counted(name)
    for name in ("conv", "0.weight", "stem", "layer1.downsample", "a2b"):
        assert not counted(name)


def test_neighbours_speak_too() -> None:
    near = Near({"a": [_node("t", "ACT")]}, {})
    network = Normal(Network((IMAGE,), (_node("a", "RELU"), _node("b", "RELU"))))
    sequencer = Sequencer(network, network, near, near)
    a, b = network.network.nodes
    assert sequencer.fit(a, a) > sequencer.fit(a, b)


def test_the_order_decides_between_equals() -> None:
    row: list[Any] = [_node(f"n{i}", "RELU") for i in range(4)]
    other = [_node(f"m{i}", "RELU") for i in range(4)]
    assert _sequencer(row, other).pairs(row, other) == [(i, i) for i in range(4)]
    assert _sequencer(row, []).pairs(row, []) == []


def test_a_long_stretch_is_compared_near_its_diagonal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "MOST_CELLS", 2000)
    ops = ["RELU", "ACT", "DROPOUT"]
    before = [_node(f"a.{i}", ops[i % 3], i % 7 / 10) for i in range(200)]
    after = [_node(f"b.{i}", ops[i % 3], i % 7 / 10) for i in range(200)]
    started = time.monotonic()
    assert _sequencer(before, after).pairs(before, after) == [(i, i) for i in range(200)]
    del after[90:93]
    sequencer = _sequencer(before, after)
    found = sequencer.pairs(before, after)
    assert len(found) == 197
    assert all(sequencer.fit(before[i], after[j]) for i, j in found)
    assert time.monotonic() - started < 10
