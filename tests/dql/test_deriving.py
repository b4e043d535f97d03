"""Slices and constructs: what comes of each source, alike ones, those that cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from dlv.dql import deriving
from dlv.dql.bind.bound import Chosen, Delete, Derivation, Replace, Set
from dlv.dql.deriving import Origin
from dlv.dql.outcome import Networks
from dlv.errors import Conflict, NotFound, UsageError
from dlv.metadata.select.relations import Compare, Constant, Fits, NodeValue
from dlv.network.edits.reuse import COPY, INIT, OVERLAP
from dlv.network.graph import Network
from dlv.network.patterns import Pattern
from dlv.network.selector import SelectorFault
from tests.dql import work
from tests.dql.work import construct, insert, making, nodes, sliced


def derive(asked: Derivation, *networks: Network | Origin, strict: bool = False) -> Networks:
    found = [
        each if isinstance(each, Origin) else work.origin(each, f"net@{place}", str(place) * 64)
        for place, each in enumerate(networks, 1)
    ]
    return deriving.derive(asked, found, strict=strict)


def only(made: Networks) -> Network:
    assert not made.dropped
    (model,) = made.models
    return model.network


def _small() -> list[dict[str, Any]]:
    """What is left behind its pool5 is a map of 2x2."""
    return [
        work.node("conv1", "CONV", ["data"], out=8, kernel=3, pad=1),
        work.node("pool5", "POOL", ["conv1"], variant="MAX", kernel=16, stride=16),
    ]


def edges(network: Network) -> set[tuple[str, str]]:
    return {(name, node.name) for node in network.nodes for name, _ in node.inputs}


class TestThePaper:
    def test_query_2(self) -> None:
        made = derive(sliced("conv1", "fc7"), work.alexnet())
        assert [node.name for node in only(made).nodes] == [
            node.name for node in work.alexnet().nodes[:-1]
        ]
        assert made.verb == "slice"
        assert made.models[0].origins == ("net@1",)
        assert made.models[0].reuse is not None
        assert made.models[0].reuse.share == 1

    def test_query_3(self) -> None:
        """Only behind the convolutions that a pool follows."""
        has_pool = Chosen(nodes("conv*($1)", work.NEXT), Fits((Pattern("POOL", "AVG"),)))
        asked = construct(insert("conv*($1)", making("RELU", "relu$1")), chosen=[has_pool])
        made = only(derive(asked, work.alexnet()))
        relus = [node for node in made.nodes if node.op == "RELU"]
        assert {node.name: node.inputs[0][0] for node in relus} == {
            "relu1": "conv1",
            "relu2": "conv2",
            "relu5": "conv5",
        }
        assert made.node("pool5").inputs == (("relu5", 0),)

    def test_without_its_condition_all_are_meant(self) -> None:
        asked = construct(insert("conv*($1)", making("RELU", "relu$1")))
        made = only(derive(asked, work.alexnet()))
        assert sum(node.op == "RELU" for node in made.nodes) == 5


class TestSources:
    def test_one_without_a_match_is_skipped(self) -> None:
        asked = construct(Delete(nodes("drop*")))
        made = derive(asked, work.forked(), work.alexnet())
        assert made.skipped == ("net@1",)
        assert [model.origins for model in made.models] == [("net@2",)]

    def test_none_has_a_match(self) -> None:
        with pytest.raises(NotFound, match=r'no match for m\["covn1"\]') as caught:
            derive(construct(Delete(nodes("covn1"))), work.alexnet(), work.alexnet("MAX"))
        assert caught.value.did_you_mean[0] == "conv1"
        assert caught.value.why == "looked at net@1, net@2"

    def test_every_action_needs_a_match(self) -> None:
        asked = construct(Delete(nodes("pool")), Delete(nodes("drop*")))
        with pytest.raises(NotFound, match=r'm\["drop\*"\]'):
            derive(asked, work.forked())
        made = derive(construct(Delete(nodes("fc7")), Delete(nodes("drop*"))), work.alexnet())
        assert len(made.models) == 1

    def test_no_source_gives_nothing(self) -> None:
        made = derive(construct(Delete(nodes("x"))))
        assert (made.models, made.skipped, made.dropped) == ((), (), ())

    def test_equal_results_are_one(self) -> None:
        asked = construct(Set(nodes("pool*"), "variant", ("MAX",)))
        made = derive(asked, work.alexnet(), work.alexnet("MAX"))
        (model,) = made.models
        assert model.origins == ("net@1", "net@2")
        assert model.source_id == "1" * 64
        assert model.id == work.alexnet("MAX").id

    def test_by_aliases_where_no_name_fits(self) -> None:
        made = only(derive(construct(Delete(nodes("pool1"))), work.forked()))
        assert ("add", "flat") in edges(made)


class TestFaults:
    def test_an_unsound_network_is_dropped_with_node_shape_and_rule(self) -> None:
        asked = construct(insert("pool5", making("POOL", "MAX", "big", kernel=3)))
        small = work.chain(*_small())
        made = derive(asked, work.alexnet(), small)
        assert [model.origins for model in made.models] == [("net@1",)]
        (dropped,) = made.dropped
        assert dropped.origin == "net@2"
        assert "`big`" in dropped.reason
        assert "2" in dropped.reason
        with pytest.raises(UsageError, match=r"net@2: .*`big`"):
            derive(asked, work.alexnet(), small, strict=True)

    def test_where_nothing_is_left_it_is_an_error(self) -> None:
        asked = construct(insert("conv*", making("RELU", "pool1")))
        with pytest.raises(Conflict) as caught:
            derive(asked, work.alexnet(), work.alexnet("MAX"))
        assert str(caught.value) == (
            "net@1: two nodes would be named `pool1` (and 1 more could not be made)"
        )

    def test_the_others_stay(self) -> None:
        asked = construct(Set(nodes("conv5"), "kernel", (3, 99)))
        made = derive(asked, work.alexnet())
        assert len(made.models) == 1
        assert made.dropped[0].origin == 'net@1 (m["conv5"].kernel = 99)'

    def test_no_path(self) -> None:
        with pytest.raises(UsageError, match="net@1: no path leads from `fc7` to `conv1`"):
            derive(sliced("fc7", "conv1"), work.alexnet())

    def test_nothing_is_captured(self) -> None:
        with pytest.raises(SelectorFault, match=r"captured as \$1"):
            derive(construct(insert("conv*", making("RELU", "r$1"))), work.alexnet())

    def test_an_empty_list(self) -> None:
        with pytest.raises(UsageError, match="makes no node"):
            derive(construct(insert("conv1")), work.alexnet())

    def test_too_many(self) -> None:
        values = tuple(range(1, 102))
        asked = construct(Set(nodes("conv1"), "out", values), Set(nodes("conv2"), "out", values))
        with pytest.raises(UsageError, match="10,201 networks of 1 versions"):
            derive(asked, work.alexnet())


class TestSeveral:
    def test_a_network_for_each_value(self) -> None:
        asked = construct(
            Set(nodes("conv[1,2]"), "out", (4, 8, 12)), Replace(nodes("drop*"), (making("RELU"),))
        )
        made = derive(asked, work.alexnet())
        outs = [
            (model.network.node("conv1").attrs["out"], model.network.node("conv2").attrs["out"])
            for model in made.models
        ]
        assert outs == [(4, 4), (8, 8), (12, 12)]

    def test_the_product_over_actions(self) -> None:
        asked = construct(
            Set(nodes("conv1"), "out", (4, 8)), Set(nodes("fc6"), "out", (16, 32, 64))
        )
        made = derive(asked, work.alexnet())
        pairs = [(_out(m.network, "conv1"), _out(m.network, "fc6")) for m in made.models]
        assert pairs == [(a, b) for a in (4, 8) for b in (16, 32, 64)]

    def test_each_match_by_itself(self) -> None:
        asked = construct(
            insert("conv*($1)", making("NORM", "BATCH", "bn$1"), making("RELU", "relu$1")),
            each=True,
        )
        made = derive(asked, work.alexnet())
        assert len(made.models) == 5
        for place, model in enumerate(made.models, 1):
            new = [n.name for n in model.network.nodes if n.name not in work.alexnet()]
            assert new == [f"bn{place}", f"relu{place}"]

    def test_actions_on_the_same_nodes_go_together(self) -> None:
        asked = construct(
            Set(nodes("conv[1,2]"), "out", (4, 12)), insert("conv[1,2]", making("RELU")), each=True
        )
        made = derive(asked, work.alexnet())
        assert len(made.models) == 4
        for model in made.models:
            (relu,) = (n for n in model.network.nodes if n.op == "RELU")
            assert _out(model.network, relu.inputs[0][0]) in (4, 12)

    def test_different_sets_of_nodes_vary_apart(self) -> None:
        asked = construct(
            Set(nodes("conv*"), "out", (4,)), Set(nodes("fc[6,7]"), "out", (16,)), each=True
        )
        assert len(derive(asked, work.alexnet()).models) == 10


def _out(network: Network, name: str) -> Any:
    return network.node(name).attrs["out"]


class TestWeights:
    def test_carried_over_and_begun(self) -> None:
        asked = construct(
            Set(nodes("conv2"), "out", (12,)), insert("conv1", making("NORM", "BATCH", "bn"))
        )
        (model,) = derive(asked, work.alexnet()).models
        assert model.reuse is not None
        actions = {item.name: item.action for item in model.reuse.tensors}
        assert actions["conv1.weight"] == COPY
        assert actions["conv2.weight"] == OVERLAP
        assert actions["bn.weight"] == INIT

    def test_of_a_network_derived_twice_they_are_the_stored_ones(self) -> None:
        """What the first step made smaller is whole again where the second enlarges it."""
        first = work.origin(work.alexnet())
        smaller = derive(construct(Set(nodes("conv2"), "out", (4,))), first)
        between = deriving.onward(smaller, smaller.models[0], first)
        assert between.label == "d of net@1"
        assert between.tensors["conv2.weight"] == ("float32", (4, 8, 3, 3))
        asked = construct(Set(nodes("conv2"), "out", (8,)))
        (model,) = derive(asked, between).models
        assert model.source_id == first.version
        assert model.reuse is not None
        assert model.reuse.share == 1
        assert model.id == work.alexnet().id
        third = deriving.onward(derive(asked, between), model, between)
        assert third.base is first

    def test_without_weights_there_is_no_plan(self) -> None:
        bare = Origin("net@1", "1" * 64, work.alexnet(), {})
        assert derive(construct(Delete(nodes("drop6"))), bare).models[0].reuse is None


class TestSlices:
    def test_what_the_end_needs_besides(self) -> None:
        made = only(derive(sliced("relu", "add"), work.forked()))
        assert [n.name for n in made.nodes] == ["stem", "relu", "b", "add"]
        assert [item.name for item in made.inputs] == ["data", "a"]
        alone = only(derive(sliced("relu", "add", "inputs"), work.forked()))
        assert [n.name for n in alone.nodes] == ["relu", "b", "add"]
        assert [item.name for item in alone.inputs] == ["a", "stem"]

    def test_several_in_topological_order(self) -> None:
        made = only(derive(sliced("conv1", ["fc7", "pool*"]), work.alexnet()))
        assert [name for name, _ in made.outputs] == ["pool1", "pool2", "pool5", "fc7"]

    def test_from_an_input_of_the_network(self) -> None:
        made = only(derive(sliced("data", "pool1"), work.alexnet()))
        assert [node.name for node in made.nodes] == ["conv1", "pool1"]

    def test_chosen_nodes_only(self) -> None:
        test = Compare("=", NodeValue("name"), Constant("pool2"))
        asked = sliced("conv1", "pool*", chosen=(Chosen(nodes("pool*"), test),))
        assert only(derive(asked, work.alexnet())).outputs == (("pool2", 0),)
