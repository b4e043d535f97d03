from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dlv.network.alignment as alignment
from dlv.network.alignment import align, ordered, positional, score, sequence
from dlv.network.graph import Input, Network, Node

IMAGE = Input("x", ("B", 1, 28, 28))


def _node(text: str, source: str = "x") -> Node:
    """`conv1:CONV 20` as a node; the number is its attribute `out`."""
    name, _, rest = text.partition(":")
    op, _, out = rest.partition(" ")
    return Node(name, op, None, {"out": int(out)} if out else {}, ((source, 0),))


def _chain(*texts: str) -> Network:
    nodes: list[Node] = []
    for text in texts:
        nodes.append(_node(text, nodes[-1].name if nodes else "x"))
    return Network((IMAGE,), tuple(nodes), ((nodes[-1].name, 0),) if nodes else ())


def _pairs(old: Network, new: Network) -> list[tuple[str | None, str | None]]:
    found = align(old, new)
    return [
        *((a.name, b.name) for a, b in found.pairs),
        *((a.name, None) for a in found.removed),
        *((None, b.name) for b in found.added),
    ]


def test_an_inserted_layer() -> None:
    old = _chain("conv1:CONV 20", "relu1:RELU", "fc:FULL 10")
    new = _chain("conv1:CONV 20", "relu1:RELU", "drop:DROPOUT", "fc:FULL 10")
    assert _pairs(old, new) == [
        ("conv1", "conv1"),
        ("relu1", "relu1"),
        ("fc", "fc"),
        (None, "drop"),
    ]


def test_renamed_layers_are_found_by_what_they_do() -> None:
    old = _chain("conv1:CONV 20", "relu1:RELU", "conv2:CONV 50", "relu2:RELU", "ip:FULL 10")
    new = _chain("a:CONV 20", "b:RELU", "c:CONV 50", "d:RELU", "e:FULL 10")
    names = ["conv1", "relu1", "conv2", "relu2", "ip"]
    assert _pairs(old, new) == list(zip(names, "abcde", strict=True))


def test_places_in_a_list_shift() -> None:
    """In torch's Sequential a layer put in renames all that follow."""
    old = _chain("f.0:CONV 16", "f.1:RELU", "f.2:CONV 32", "f.3:RELU", "f.4:CONV 64", "f.5:RELU")
    new = _chain(
        *("f.0:CONV 16", "f.1:NORM", "f.2:DROPOUT", "f.3:RELU", "f.4:CONV 32", "f.5:RELU"),
        *("f.6:CONV 64", "f.7:RELU"),
    )
    assert _pairs(old, new) == [
        *(("f.0", "f.0"), ("f.1", "f.3"), ("f.2", "f.4"), ("f.3", "f.5"), ("f.4", "f.6")),
        *(("f.5", "f.7"), (None, "f.1"), (None, "f.2")),
    ]


def test_places_in_a_list_stay_where_nothing_was_put_in() -> None:
    old = _chain("f.0:CONV 16", "f.1:RELU", "f.2:CONV 32", "f.3:RELU")
    new = _chain("f.0:CONV 32", "f.1:RELU", "f.2:CONV 64", "f.3:RELU")
    assert _pairs(old, new) == [(f"f.{i}", f"f.{i}") for i in range(4)]


def test_a_given_name_counts_more_than_attributes() -> None:
    old, new = _chain("a:CONV 20", "b:CONV 50"), _chain("b:CONV 20", "a:CONV 50")
    assert _pairs(old, new) == [("a", "a"), ("b", "b")]


def test_another_operation_under_the_same_name() -> None:
    old, new = _chain("c:CONV 1", "act:RELU"), _chain("c:CONV 1", "act:ACT")
    assert _pairs(old, new) == [("c", "c"), ("act", "act")]


def test_position_counts_between_known_layers() -> None:
    """A RELU gone at the front and one come at the end are not one that moved."""
    old = _chain("r1:RELU", "c1:CONV 8", "c2:CONV 9")
    new = _chain("c1:CONV 8", "c2:CONV 9", "r2:RELU")
    assert (None, "r2") in _pairs(old, new)
    assert ("r1", None) in _pairs(old, new)


def test_positional_names() -> None:
    assert positional("features.3")
    assert positional("0")
    assert not positional("conv3")
    assert not positional("0.weight")


nodes = st.builds(
    lambda name, op, out: _node(f"{name}:{op} {out}"),
    st.sampled_from(["f.0", "f.1", "f.2", "f.3"]),
    st.sampled_from(["CONV", "RELU"]),
    st.integers(1, 2),
)


def _best(before: Sequence[Node], after: Sequence[Node]) -> float:
    """The largest sum of all alignments, by trying every one."""
    best = 0.0
    for count in range(1, min(len(before), len(after)) + 1):
        for left in combinations(before, count):
            for right in combinations(after, count):
                fits = [score(a, b) for a, b in zip(left, right, strict=True)]
                if all(fits):
                    best = max(best, sum(fits))
    return best


@settings(max_examples=300, deadline=None)
@given(st.lists(nodes, max_size=5), st.lists(nodes, max_size=5))
def test_the_best_of_all_alignments(before: list[Node], after: list[Node]) -> None:
    found = sequence(before, after)
    assert all(a < c and b < d for (a, b), (c, d) in pairwise(found))
    fits = [score(before[i], after[j]) for i, j in found]
    assert all(fits)
    assert sum(fits) == pytest.approx(_best(before, after))


def _unique(texts: list[tuple[str, str]]) -> Network:
    return _chain(*(f"{name}:{op}" for name, op in dict(texts).items()))


chains = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", "f.0", "f.1", "f.2", "g.1"]),
        st.sampled_from(["CONV 1", "CONV 2", "RELU", "FULL 3"]),
    ),
    max_size=7,
).map(_unique)


@settings(max_examples=150, deadline=None)
@given(chains, chains)
def test_every_node_stands_once_and_both_ways_agree(old: Network, new: Network) -> None:
    found = align(old, new)
    assert {a.name for a, _ in found.pairs} | {a.name for a in found.removed} == {
        node.name for node in old.nodes
    }
    assert len(found.pairs) + len(found.removed) == len(old.nodes)
    assert len(found.pairs) + len(found.added) == len(new.nodes)
    back = align(new, old)
    assert [(b, a) for a, b in back.pairs] == sorted(
        found.pairs, key=lambda pair: [*new.nodes].index(pair[1])
    )
    assert (back.added, back.removed) == (found.removed, found.added)


@given(chains)
def test_a_network_is_itself(network: Network) -> None:
    assert _pairs(network, network) == [(node.name, node.name) for node in ordered(network)]


def _long(count: int, prefix: str) -> list[Node]:
    ops: list[Any] = ["CONV", "RELU", "NORM"]
    return [_node(f"{prefix}.{i}:{ops[i % 3]} {i % 7 + 1}") for i in range(count)]


def test_a_long_stretch_is_compared_near_its_diagonal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "MOST_CELLS", 2000)
    before, after = _long(200, "a"), _long(200, "b")
    started = time.monotonic()
    assert sequence(before, after) == [(i, i) for i in range(200)]
    del after[90:93]
    found = sequence(before, after)
    assert len(found) == 197
    assert all(score(before[i], after[j]) for i, j in found)
    assert time.monotonic() - started < 2


def test_nodes_on_a_cycle_are_not_lost() -> None:
    a, b = Node("a", "RELU", inputs=(("b", 0),)), Node("b", "RELU", inputs=(("a", 0),))
    network = Network((IMAGE,), (a, b, Node("c", "RELU", inputs=(("x", 0),))), (("c", 0),))
    assert [node.name for node in ordered(network)] == ["c", "a", "b"]
    assert len(align(network, network).pairs) == 3
