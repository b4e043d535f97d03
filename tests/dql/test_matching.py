"""Sets of nodes of one network: against brute force, and what was captured on the way."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.dql import matching
from dlv.dql.bind.bound import Chosen
from dlv.dql.matching import Layers
from dlv.dql.words import ast
from dlv.metadata.select.relations import (
    Compare,
    Constant,
    Fits,
    Fitting,
    Hop,
    Named,
    Nodal,
    Nodes,
    NodeValue,
    Pick,
    Step,
)
from dlv.network.graph import Input, Network, Node
from dlv.network.patterns import Pattern
from dlv.network.selector import selector
from dlv.weights.store import node_figures
from tests.dql import brute_networks, brute_nodes, work
from tests.dql.brute_model import Graph
from tests.dql.work import NEXT, NEXT_RAW, PREV, nodes

TEXTS = [
    *("conv*", "conv1", "pool[1,2]", "relu?", "*", "fc6", "features.*", "full1", "sum", "*.view"),
    *("x", "conv[2-5]", "norm*", "act*", "block.*", "n*", "[!0]*", "layer1.*", "none"),
]
REGULAR = ["^conv", r"\d$", "view|pool", "e"]
KINDS: list[tuple[str, str | None]] = [
    *[("CONV", None), ("POOL", None), ("POOL", "MAX"), ("RELU", None), ("RESHAPE", None)],
    *[("NORM", "BATCH"), ("ADD", None), ("FULL", None), ("ACT", "GELU")],
]


def _nodal(lot: Random) -> tuple[Nodal, ast.Trailer]:
    pick = lot.random()
    if pick < 0.6:
        text = lot.choice(TEXTS)
        return Named(selector(text)), ast.Selector(text)
    if pick < 0.8:
        text = lot.choice(REGULAR)
        return Named(re.compile(text)), ast.Selector(text, regular=True)
    op, variant = lot.choice(KINDS)
    args = () if variant is None else (ast.Argument(ast.Text(variant)),)
    return Fitting((Pattern(op, variant),)), ast.TypeSelector(ast.Template(op, args, called=True))


def _path(lot: Random) -> tuple[Nodes, list[ast.Trailer]]:
    start, first = _nodal(lot)
    steps: list[Step] = []
    trailers: list[ast.Trailer] = [first]
    for _ in range(lot.randrange(4)):
        if lot.random() < 0.6:
            forward, raw = lot.random() < 0.5, lot.random() < 0.4
            steps.append(Hop(forward, raw))
            word = ("next" if forward else "prev") + ("_raw" if raw else "")
            trailers.append(ast.Attribute(word))
        elif lot.random() < 0.7:
            step, trailer = _nodal(lot)
            steps.append(step)
            trailers.append(trailer)
        else:
            place = lot.randrange(3)
            steps.append(Pick(place))
            trailers.append(ast.Index(place))
    return Nodes("m", start, tuple(steps)), trailers


def _network(lot: Random) -> Network:
    makers: list[Any] = [
        lambda: brute_networks.alexnet(lot.choice(["MAX", "AVG"]), lot.random() < 0.5),
        *(brute_networks.torch_like, brute_networks.crossed, brute_networks.attending),
        *[lambda: brute_networks.drawn(lot)] * 3,
    ]
    return brute_networks.network(lot.choice(makers)())


def _agree(network: Network, lot: Random) -> None:
    graph = Graph(network, node_figures(network))
    layers = Layers(network)
    for _ in range(20):
        wanted, trailers = _path(lot)
        expected = [layer.name for layer in brute_nodes.chosen(graph, trailers, lambda v: v.value)]
        assert [match.name for match in layers.nodes(wanted)] == expected, (wanted, trailers)


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_as_brute_force_says(lot: Random) -> None:
    _agree(_network(lot), lot)


@pytest.mark.parametrize("name", ["lenet", "resnet16", "gpt"])
def test_on_real_models(name: str) -> None:
    pytest.importorskip("torch", reason="torch makes the networks: dlv[torch]")
    traced: Any = pytest.importorskip("tests.zoo.traced")
    lot = Random(name)
    for _ in range(5):
        _agree(traced.traced(name).network, lot)


class TestCaptures:
    def test_of_a_selector(self) -> None:
        found = matching.nodes(work.alexnet(), nodes("conv*($1)"))
        assert {match.name: match.captures for match in found} == {
            f"conv{n}": {1: str(n)} for n in range(1, 6)
        }

    def test_of_an_alias(self) -> None:
        found = matching.nodes(work.forked(), nodes("conv*($1)"))
        assert [(m.name, m.captures) for m in found] == [
            ("stem", {1: "1"}),
            ("a", {1: "2"}),
            ("b", {1: "3"}),
        ]

    def test_are_carried_along(self) -> None:
        found = matching.nodes(work.alexnet(), nodes("conv*($1)", NEXT, "pool*($2)"))
        assert [(m.name, dict(m.captures)) for m in found] == [
            (f"pool{n}", {1: n, 2: n}) for n in "125"
        ]

    def test_of_a_node_reached_in_two_ways_are_the_first_ones(self) -> None:
        found = matching.nodes(work.forked(), nodes("*($1)", NEXT, "add"))
        assert [(m.name, m.captures[1]) for m in found] == [("add", "stem")]

    def test_of_a_regular_expression(self) -> None:
        wanted = Nodes("m", Named(re.compile(r"^conv(\d)(x)?")))
        assert matching.nodes(work.alexnet(), wanted)[2].captures == {1: "3", 2: ""}

    def test_templates_capture_nothing(self) -> None:
        found = matching.nodes(work.forked(), nodes(work.fitting("ADD")))
        assert [(m.name, m.captures) for m in found] == [("add", {})]


class TestPicking:
    def test_in_topological_order_and_from_the_end(self) -> None:
        network = work.alexnet()
        for place, name in ((0, "conv1"), (4, "conv5"), (-1, "conv5"), (-5, "conv1")):
            assert [m.name for m in matching.nodes(network, nodes("conv*", Pick(place)))] == [name]
        assert matching.nodes(network, nodes("conv*", Pick(5))) == []
        assert matching.nodes(network, nodes("conv*", Pick(-6))) == []

    def test_a_network_with_a_cycle(self) -> None:
        network = Network(
            (Input("x", ("B", 3)),),
            (
                Node("a", "RELU", inputs=(("b", 0),)),
                Node("b", "RELU", inputs=(("a", 0),)),
                Node("c", "RELU", inputs=(("x", 0),)),
            ),
        )
        assert [m.name for m in matching.nodes(network, nodes("*"))] == ["c", "a", "b"]
        assert [m.name for m in matching.nodes(network, nodes("a", NEXT_RAW))] == ["b"]


class TestChosen:
    """Of the nodes of `where`, those that fulfil what is asked there."""

    def names(self, wanted: Nodes, *chosen: Chosen) -> list[str]:
        return [m.name for m in Layers(work.alexnet()).nodes(wanted, chosen)]

    pooled = Chosen(nodes("conv*", NEXT), Fits((Pattern("POOL"),)))

    def test_by_what_is_behind_them(self) -> None:
        assert self.names(nodes("conv*"), self.pooled) == ["conv1", "conv2", "conv5"]

    def test_the_very_set_that_is_asked_of(self) -> None:
        assert self.names(nodes("conv*", NEXT), self.pooled) == ["pool1", "pool2", "pool5"]

    def test_what_is_behind_the_set(self) -> None:
        found = self.names(nodes("conv*", NEXT, NEXT), self.pooled)
        assert found == ["conv2", "conv3", "fc6"]

    def test_another_way(self) -> None:
        assert self.names(nodes("conv*", PREV), self.pooled) == ["pool1", "conv4"]

    def test_another_selector_is_not_meant(self) -> None:
        assert len(self.names(nodes("conv?"), self.pooled)) == 5
        other = Chosen(Nodes("n", nodes("conv*").start, (NEXT,)), self.pooled.test)
        assert len(self.names(nodes("conv*"), other)) == 5

    def test_two_conditions(self) -> None:
        late = Chosen(nodes("conv*"), Compare("!=", NodeValue("name"), Constant("conv1")))
        assert self.names(nodes("conv*"), self.pooled, late) == ["conv2", "conv5"]

    def test_one_of_the_set_is_picked_of_all(self) -> None:
        """Not of each node by itself."""
        second = Chosen(nodes("conv*", NEXT, Pick(1)), Fits((Pattern("POOL"),)))
        assert self.names(nodes("conv*"), second) == ["conv2"]


def test_edges_go_past_plumbing_and_begin_at_inputs() -> None:
    layers = Layers(work.alexnet())
    assert layers.edge("pool5", "fc6")
    assert layers.edge("pool5", "flat")
    assert layers.edge("data", "conv1")
    assert not layers.edge("conv1", "conv2")
    assert not layers.edge("fc6", "pool5")


def test_what_is_asked_of_a_node() -> None:
    network = work.alexnet()
    (conv,) = matching.nodes(network, nodes("conv1"))
    for attribute, value in (
        *(("out", 8), ("kernel", 3), ("name", "conv1"), ("alias", "conv1"), ("op", "CONV")),
        *(("n_params", 224), ("out_shape", ("B", 8, 32, 32))),
    ):
        test = Compare("=", NodeValue(attribute), Constant(value))
        assert matching.fulfils(network, conv, test), attribute
    assert not matching.fulfils(network, conv, Compare("=", NodeValue("rows"), Constant(1)))
