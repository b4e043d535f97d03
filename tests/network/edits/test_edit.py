"""Edits: what becomes of the graph, rule by rule, and what is refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import dlv.network.edits.edit as editing
from dlv.errors import Conflict, DlvError, NotFound, UsageError
from dlv.network.graph import Network
from dlv.network.json_form import read
from dlv.network.patterns import Template, template
from dlv.network.sizes import Shape
from dlv.network.verify import infer, verify

Json = dict[str, Any]
Load = Callable[[str], Network]
Plain = Callable[[str], Json]
RELU = template("RELU")


def _reads(network: Network, name: str) -> list[str]:
    return [producer for producer, _ in network.node(name).inputs]


def _names(network: Network) -> list[str]:
    return [node.name for node in network.nodes]


def _shape(network: Network, name: str) -> Shape | None:
    return infer(network).node(name).out_shape


def _sound(network: Network) -> bool:
    return not any(problem.severity == "error" for problem in verify(network))


class TestInsert:
    def test_behind(self, load: Load) -> None:
        net = load("lenet")
        made, edits = editing.insert(net, "conv1", template("RELU", "relu9"))
        assert _reads(made, "relu9") == ["conv1"]
        assert _reads(made, "pool1") == ["relu9"]
        assert _names(made)[:3] == ["conv1", "relu9", "pool1"]
        assert [(e.action, e.node, e.text) for e in edits] == [
            ("insert", "relu9", "relu9 (RELU) after conv1")
        ]
        assert net.id == load("lenet").id

    def test_before_the_plumbing_that_follows(self, load: Load) -> None:
        made, _ = editing.insert(load("lenet"), "pool2", RELU)
        assert _reads(made, "relu2") == ["pool2"]
        assert _reads(made, "flatten") == ["relu2"]

    def test_all_successors_and_a_warning(self, load: Load) -> None:
        made = editing.insert(load("resnet"), "stem", RELU)
        assert _reads(made.network, "a.conv1") == _reads(made.network, "a.down") == ["relu3"]
        assert made.warnings == ("relu3 is now read instead of stem by a.conv1, a.down",)
        assert not editing.insert(load("resnet"), "a.bn1", RELU).warnings

    def test_on_one_edge(self, load: Load) -> None:
        made, edits = editing.insert(load("resnet"), "stem", RELU, to="a.down")
        assert _reads(made, "a.conv1") == ["stem"]
        assert _reads(made, "a.down") == ["relu3"]
        assert edits[0].text == "relu3 (RELU) between stem and a.down"

    def test_on_one_edge_through_plumbing(self, load: Load) -> None:
        made, _ = editing.insert(load("lenet"), "pool2", RELU, to="ip1")
        assert _reads(made, "flatten") == ["relu2"]

    def test_on_one_edge_behind_plumbing_that_others_share(self, plain: Plain) -> None:
        form = plain("lenet")
        form["nodes"].append({"name": "ip3", "op": "FULL", "attrs": {"out": 3}})
        form["nodes"][-1] |= {"inputs": ["flatten"], "params": {"weight": "w"}}
        form["outputs"].append("ip3")
        made, _ = editing.insert(read(form)[0], "pool2", RELU, to="ip3")
        assert _reads(made, "relu2") == ["flatten"]
        assert (_reads(made, "ip3"), _reads(made, "ip1")) == (["relu2"], ["flatten"])

    def test_a_chain(self, load: Load) -> None:
        chain = [template("CONV", "new", out=30, kernel=3, pad=1), RELU]
        made, edits = editing.insert(load("lenet"), "pool1", chain)
        assert _reads(made, "conv2") == ["relu2"]
        assert _reads(made, "relu2") == ["new"]
        new = made.node("new")
        assert new.attrs["kernel"] == (3, 3)
        assert new.attrs["pad"] == ((1, 1), (1, 1))
        assert dict(new.params) == {"weight": "new.weight", "bias": "new.bias"}
        assert edits[0].text == "new (CONV 30, 3×3, pad 1), relu2 (RELU) after pool1"
        assert _shape(made, "conv2") == ("B", 50, 8, 8)

    def test_behind_the_output(self, load: Load) -> None:
        made, _ = editing.insert(load("lenet"), "prob", RELU)
        assert made.outputs == (("relu2", 0),)

    def test_behind_an_input(self, load: Load) -> None:
        made, _ = editing.insert(load("lenet"), "x", template("NORM", "BATCH", "norm"))
        assert _reads(made, "conv1") == ["norm"]
        assert set(made.node("norm").params) == {"weight", "bias", "running_mean", "running_var"}
        assert _names(made)[0] == "norm"

    def test_a_skip_connection(self, load: Load) -> None:
        block = [
            template("CONV", "c", out=20, kernel=3, pad=1),
            template("ADD", "skip", also=["pool1"]),
        ]
        made, _ = editing.insert(load("lenet"), "pool1", block)
        assert _reads(made, "skip") == ["c", "pool1"]
        assert _reads(made, "conv2") == ["skip"]

    def test_names_are_free_ordinals(self, load: Load) -> None:
        """Neither a name nor an alias: `relu1` and `relu2` are aliases here."""
        made, _ = editing.insert(load("resnet"), "a.bn2", [RELU, RELU])
        assert {"relu3", "relu4"} <= set(_names(made))

    def test_an_output_of_several(self, load: Load) -> None:
        with pytest.raises(UsageError, match="several outputs"):
            editing.insert(load("transformer"), "split", RELU)
        made, _ = editing.insert(load("transformer"), "split", RELU, port=1)
        assert _reads(made, "k.view") == ["relu1"]
        assert _reads(made, "relu1") == ["k.item"]
        assert _reads(made, "q.view") == ["q.item"]

    def test_the_sequence_of_an_rnn(self, load: Load) -> None:
        made, _ = editing.insert(load("lstm"), "lstm", template("DROPOUT", "drop", p=0.3))
        assert _reads(made, "last") == ["drop"]
        assert made.outputs == (("fc", 0), ("lstm", 1))

    def test_storage_as_its_neighbours(self, plain: Plain) -> None:
        form = plain("lenet")
        form["inputs"][0]["shape"] = ["B", 28, 28, 1]
        for node in form["nodes"]:
            if node["op"] in ("CONV", "POOL"):
                node["attrs"]["channels"] = "last"
            if node["op"] == "CONV":
                node["attrs"]["layout"] = "kernel_first"
        made, _ = editing.insert(
            read(form)[0],
            "conv1",
            [template("CONV", "new", out=20, kernel=1), template("NORM", "BATCH", "bn")],
        )
        assert (made.node("new").attrs["channels"], made.node("new").attrs["layout"]) == (
            *("last", "kernel_first"),
        )
        assert made.node("bn").attrs["axis"] == 3


class TestInsertBefore:
    def test_behind_the_plumbing(self, load: Load) -> None:
        made, edits = editing.insert_before(load("lenet"), "ip1", RELU)
        assert _reads(made, "ip1") == ["relu2"]
        assert _reads(made, "relu2") == ["flatten"]
        assert edits[0].text == "relu2 (RELU) before ip1"

    def test_others_read_on(self, load: Load) -> None:
        made, _ = editing.insert_before(load("resnet"), "a.down", RELU)
        assert (_reads(made, "a.down"), _reads(made, "a.conv1")) == (["relu3"], ["stem"])

    def test_several_inputs(self, load: Load) -> None:
        with pytest.raises(UsageError, match=r"`a.add` has several inputs") as caught:
            editing.insert_before(load("resnet"), "a.add", RELU)
        assert caught.value.why == "it reads a.bn2, a.down"
        made, _ = editing.insert_before(load("resnet"), "a.add", RELU, source="a.down")
        assert _reads(made, "a.add") == ["a.bn2", "relu3"]
        with pytest.raises(UsageError, match="does not read `fc`"):
            editing.insert_before(load("resnet"), "a.add", RELU, source="fc")

    def test_one_of_them_comes_through_plumbing(self) -> None:
        """The name of a layer means its own output rather than what a reshape made of it."""
        size = {"kind": "view", "size": ["B", 4, 6, 6]}
        nodes = [
            {"name": "e", "op": "ACT", "variant": "TANH", "inputs": [["x", 0]]},
            {"name": "view", "op": "RESHAPE", "inputs": [["e", 0]], "attrs": size},
            {"name": "sum", "op": "ADD", "inputs": [["e", 0], ["view", 0]]},
        ]
        inputs = [{"name": "x", "shape": ["B", 4, 6, 6]}]
        net = read({"dlv_network": 1, "inputs": inputs, "nodes": nodes, "outputs": [["sum", 0]]})[0]
        made, _ = editing.insert_before(net, "sum", template("RELU", "r"), source="e")
        assert (_reads(made, "sum"), _reads(made, "view")) == (["r", "view"], ["e"])

    def test_states_are_no_data(self, load: Load) -> None:
        made, _ = editing.insert_before(load("lstm"), "lstm", template("DROPOUT", "drop"))
        assert _reads(made, "lstm") == ["drop", "zeros", "zeros"]


class TestReplace:
    def test_one(self, load: Load) -> None:
        made, edits = editing.replace(load("lenet"), "relu1", template("ACT", "GELU", "gelu"))
        assert (_reads(made, "ip2"), _reads(made, "gelu")) == (["gelu"], ["ip1"])
        assert "relu1" not in made
        assert edits[0].text == "RELU by gelu (ACT GELU)"

    def test_under_the_same_name(self, load: Load) -> None:
        chain = [template("CONV", "conv1", out=8, kernel=5), template("RELU", "after")]
        made, _ = editing.replace(load("lenet"), "conv1", chain)
        assert (_reads(made, "conv1"), _reads(made, "after")) == (["x"], ["conv1"])
        assert _reads(made, "pool1") == ["after"]
        assert made.node("conv1").attrs["out"] == 8

    def test_all_inputs(self, load: Load) -> None:
        made, _ = editing.replace(load("resnet"), "a.add", template("CONCAT", "cat"))
        assert _reads(made, "cat") == ["a.bn2", "a.down"]
        assert _shape(made, "a.relu2") == ("B", 64, 16, 16)

    def test_by_something_with_fewer_inputs(self, load: Load) -> None:
        with pytest.raises(UsageError, match=r"at `relu3`.*number of inputs"):
            editing.replace(load("resnet"), "a.add", RELU)


class TestDelete:
    def test_reconnects(self, load: Load) -> None:
        made, edits = editing.delete(load("lenet"), "pool1")
        assert _reads(made, "conv2") == ["conv1"]
        assert (edits[0].action, edits[0].text) == ("delete", "POOL MAX 2×2, stride 2")

    def test_by_alias(self, load: Load) -> None:
        assert "a.relu1" not in editing.delete(load("resnet"), "relu1").network

    def test_tensors_go_but_for_shared_ones(self, load: Load) -> None:
        made, _ = editing.delete(load("lenet"), "conv2")
        assert "conv2.weight" not in made.tensor_names()
        made, _ = editing.delete(load("transformer"), "head")
        assert "wte.weight" in made.tensor_names()

    def test_the_output(self, load: Load) -> None:
        assert editing.delete(load("lenet"), "prob").network.outputs == (("ip2", 0),)

    def test_several_inputs(self, load: Load) -> None:
        with pytest.raises(UsageError, match=r"`a.add` has several inputs"):
            editing.delete(load("resnet"), "a.add")

    def test_an_rnn_and_what_only_it_needed(self, load: Load) -> None:
        net = replace(load("lstm"), outputs=(("fc", 0),))
        made, _ = editing.delete(net, "lstm")
        assert _names(made) == ["embed", "last", "fc"]
        assert _shape(made, "fc") == ("B", 2)

    def test_a_second_output_in_use(self, load: Load) -> None:
        with pytest.raises(UsageError, match="`lstm` cannot be deleted"):
            editing.delete(load("lstm"), "lstm")

    def test_numbers_about_shapes(self, load: Load) -> None:
        with pytest.raises(UsageError, match="`batch` cannot be deleted"):
            editing.delete(load("lstm"), "batch")

    def test_an_unsound_result_names_the_node(self, load: Load) -> None:
        with pytest.raises(
            UsageError, match=r"would be invalid at `a\.add`: shapes cannot be broadcast"
        ) as caught:
            editing.delete(load("resnet"), "a.down")
        assert "B×32×16×16 and B×16×32×32" in caught.value.message

    def test_twice(self, load: Load) -> None:
        with pytest.raises(UsageError, match="can no longer be changed") as caught:
            editing.edit(load("lenet"), [lambda e: e.delete("pool1"), lambda e: e.delete("pool1")])
        assert caught.value.why == "it was deleted before"


class TestDeleteEdge:
    def test_a_sum_of_one_is_gone(self, load: Load) -> None:
        made, edits = editing.delete_edge(load("resnet"), "a.down", "a.add")
        assert _reads(made, "a.relu2") == ["a.bn2"]
        assert not {"a.add", "a.down"} & set(_names(made))
        assert [(e.action, e.node) for e in edits] == [
            ("delete_edge", "a.add"),
            ("delete", "a.add"),
            ("prune", "a.down"),
        ]

    def test_what_others_need_stays(self, load: Load) -> None:
        made, _ = editing.delete_edge(load("transformer"), "pos", "add1")
        assert _reads(made, "ln1") == ["pos"]
        assert _reads(made, "ln2") == ["proj"]

    def test_a_join(self, load: Load) -> None:
        made, _ = editing.delete_edge(load("unet"), "down1", "cat1")
        assert _reads(made, "cat1") == ["up1"]
        assert _shape(made, "cat1") == ("B", 8, 64, 48)

    def test_errors(self, load: Load) -> None:
        with pytest.raises(UsageError, match=r"no edge leads from `fc` to `a.add`"):
            editing.delete_edge(load("resnet"), "fc", "a.add")
        with pytest.raises(UsageError, match="only input of `fc`"):
            editing.delete_edge(load("resnet"), "mean", "fc")

    @pytest.mark.parametrize(
        ("args", "left"),
        [
            ([{"l": [{"n": 0}, {"n": 1}, {"n": 2}]}, {"c": 1}], [{"l": [{"n": 0}, {"n": 1}]}]),
            ([{"n": 0}, {"l": [{"n": 1}, {"n": 2}]}], [{"n": 0}, {"l": [{"n": 1}]}]),
            ([{"n": 0}, {"n": 1}, {"n": 2}], None),
        ],
    )
    def test_positions_in_a_recorded_call(self, args: list[Any], left: list[Any] | None) -> None:
        network = _joined(args)
        if left is None:
            with pytest.raises(UsageError, match="`odd` cannot do without"):
                editing.delete_edge(network, "b", "odd")
            return
        made, _ = editing.delete_edge(network, "b", "odd")
        source = made.node("odd").source
        assert source is not None
        assert source["args"][: len(left)] == left
        assert _reads(made, "odd") == ["a", "c"]
        assert made.node("odd").out_shape is None


def _joined(args: list[Any]) -> Network:
    source = {"dialect": "aten", "op": "aten.odd.default", "args": args, "kwargs": {}}
    nodes: list[Json] = [{"name": name, "op": "RELU", "inputs": ["x"]} for name in "abc"]
    nodes.append({"name": "odd", "op": "OP", "inputs": ["a", "b", "c"], "source": source})
    nodes[-1]["out_shape"] = ["B", 4]
    form = {"dlv_network": 1, "inputs": [{"name": "x", "shape": ["B", 4]}], "nodes": nodes}
    return read({**form, "outputs": ["odd", "a", "b", "c"]})[0]


class TestSet:
    def test_an_attribute_and_what_follows(self, load: Load) -> None:
        made, edits = editing.set_attributes(load("lenet"), "conv1", out=64)
        assert made.node("conv1").attrs["out"] == 64
        assert _shape(made, "pool1") == ("B", 64, 12, 12)
        assert [(e.action, e.node, e.text) for e in edits] == [("set", "conv1", "out 20 -> 64")]

    def test_scalars_stand_for_every_axis(self, load: Load) -> None:
        made, _ = editing.set_attributes(load("lenet"), "conv1", kernel=3, pad=1)
        assert made.node("conv1").attrs["kernel"] == (3, 3)
        assert made.node("conv1").attrs["pad"] == ((1, 1), (1, 1))

    def test_the_recorded_call_is_dropped(self, load: Load) -> None:
        net = load("lenet")
        source = {"dialect": "aten", "op": "aten.x.default", "args": [{"n": 0}], "kwargs": {}}
        net = replace(net, nodes=tuple(replace(node, source=source) for node in net.nodes))
        made, _ = editing.set_attributes(net, "conv1", out=20)
        assert made.node("conv1").source == source
        made, _ = editing.set_attributes(net, "conv1", out=64)
        assert made.node("conv1").source is None
        assert made.node("conv2").source == source

    def test_a_bias_comes_and_goes(self, load: Load) -> None:
        made, _ = editing.set_attributes(load("lenet"), "conv1", bias=False)
        assert "conv1.bias" not in made.tensor_names()
        made, _ = editing.set_attributes(made, "conv1", bias=True)
        assert "conv1.bias" in made.tensor_names()

    def test_tensors_of_a_new_slot_are_called_as_the_others(self, plain: Plain) -> None:
        form = plain("resnet")
        form["nodes"][0]["params"] = {"weight": "backbone.stem.weight"}
        made, _ = editing.set_attributes(read(form)[0], "stem", bias=True)
        assert made.node("stem").params["bias"] == "backbone.stem.bias"

    def test_layers_of_an_rnn(self, load: Load) -> None:
        made, edits = editing.set_attributes(load("lstm"), "lstm", layers=1, hidden=16)
        assert set(made.node("lstm").params) == {
            *("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        }
        assert made.node("zeros").attrs["size"] == (1, "B", 16)
        assert [e.node for e in edits] == ["zeros", "lstm"]
        assert _shape(made, "last") == ("B", 16)

    def test_adaptive_pools(self, load: Load) -> None:
        made, _ = editing.set_attributes(load("lenet"), "pool2", size=[2, 2])
        assert made.node("pool2").attrs["kernel"] is None
        assert _shape(made, "flatten") == ("B", 200)
        made, _ = editing.set_attributes(made, "pool2", kernel=[4, 4], stride=4)
        assert made.node("pool2").attrs["size"] is None
        assert made.node("pool2").attrs["stride"] == (4, 4)
        assert _shape(made, "flatten") == ("B", 200)

    def test_a_layer_called_twice_is_resized_twice(self, plain: Plain) -> None:
        form = plain("lenet")
        for name in ("ip1", "ip2"):
            node = next(node for node in form["nodes"] if node["name"] == name)
            node["attrs"]["out"] = 800
            node["params"] = {"weight": "same.weight", "bias": "same.bias"}
        made, _ = editing.set_attributes(read(form)[0], "ip1", bias=False)
        assert made.node("ip1").attrs["bias"] is False
        with pytest.raises(UsageError, match="another shape in 'ip1'"):
            editing.set_attributes(read(form)[0], "ip1", out=10)
        made, edits = editing.set_attributes(_twice(), "l", out=6)
        assert [e.node for e in edits] == ["l", "l_1"]

    def test_tied_rows(self, load: Load) -> None:
        made, _ = editing.set_attributes(load("transformer"), "wte", rows=600)
        assert made.node("head").attrs["out"] == 600
        made, _ = editing.set_attributes(load("transformer"), "head", out=600)
        assert made.node("wte").attrs["rows"] == 600

    def test_both_branches_at_once(self, load: Load) -> None:
        with pytest.raises(UsageError, match=r"`a.add`"):
            editing.set_attributes(load("resnet"), "a.conv2", out=48)
        made = editing.edit(
            load("resnet"),
            [
                lambda e: e.set_attributes("a.conv2", out=48),
                lambda e: e.set_attributes("a.down", out=48),
            ],
        )
        assert _sound(made.network)

    @pytest.mark.parametrize(
        ("node", "attrs", "words"),
        [
            ("conv1", {"outt": 3}, "unknown attribute 'outt'"),
            ("conv1", {"out": 0}, "'out' is 0"),
            ("conv1", {"out": "many"}, "'out' is 'many'"),
            ("conv1", {"kernel": [3, 3, 3]}, "'stride' has 2 entries"),
            ("conv1", {"groups": 3}, "groups 3 does not divide out 20"),
            ("conv1", {"kernel": 40}, "window of 40 does not fit"),
            ("conv1", {"layout": "kernel_first"}, "cannot be set"),
            ("relu1", {}, "nothing to set"),
            ("conv9", {"out": 3}, "no layer"),
        ],
    )
    def test_refused(self, load: Load, node: str, attrs: Json, words: str) -> None:
        with pytest.raises(DlvError, match=words):
            editing.set_attributes(load("lenet"), node, **attrs)

    def test_an_unknown_operation_has_no_attributes(self) -> None:
        with pytest.raises(UsageError, match="`odd` has no attributes"):
            editing.set_attributes(_joined([{"n": 0}]), "odd", out=3)


def _twice() -> Network:
    shared = {"weight": "l.weight", "bias": "l.bias"}
    nodes = [
        {"name": "l", "op": "FULL", "attrs": {"out": 4}, "inputs": ["x"], "params": shared},
        {"name": "l_1", "op": "FULL", "attrs": {"out": 4}, "inputs": ["y"], "params": shared},
        {"name": "sum", "op": "ADD", "inputs": ["l", "l_1"]},
    ]
    inputs = [{"name": name, "shape": ["B", 8]} for name in "xy"]
    return read({"dlv_network": 1, "inputs": inputs, "nodes": nodes, "outputs": ["sum"]})[0]


class TestVariant:
    """Another variant keeps what both know, and is for the rest as a new node would be."""

    def test_of_a_pool(self, load: Load) -> None:
        made, edits = editing.set_attributes(load("lenet"), "pool1", variant="AVG")
        pool = made.node("pool1")
        assert (pool.variant, pool.attrs["kernel"], pool.attrs["stride"]) == ("AVG", (2, 2), (2, 2))
        assert pool.attrs["count_pad"] is True
        assert [(e.action, e.node, e.text) for e in edits] == [
            ("set", "pool1", "variant MAX -> AVG")
        ]
        again, _ = editing.set_attributes(made, "pool1", variant="MAX")
        assert again.id == load("lenet").id

    def test_of_a_pool_that_leaves_no_map(self, load: Load) -> None:
        made, _ = editing.set_attributes(load("lenet"), "pool2", variant="MEAN", axis=[2, 3])
        assert "kernel" not in made.node("pool2").attrs
        assert _shape(made, "pool2") == ("B", 50)

    def test_of_a_norm(self, load: Load) -> None:
        net = load("resnet")
        made, _ = editing.set_attributes(net, "a.bn1", variant="INSTANCE")
        assert made.node("a.bn1").params == {"weight": "a.bn1.weight", "bias": "a.bn1.bias"}
        made, _ = editing.set_attributes(net, "a.bn1", variant="GROUP", groups=4)
        norm = made.node("a.bn1")
        assert norm.params == {"weight": "a.bn1.weight", "bias": "a.bn1.bias"}
        assert norm.attrs["groups"] == 4
        made, _ = editing.set_attributes(made, "a.bn1", variant="BATCH")
        assert made.id == net.id

    def test_tensors_that_a_norm_does_without_stay_away(self, load: Load) -> None:
        net = load("resnet")
        bare = replace(net.node("a.bn1"), params={})
        nodes = tuple(bare if node.name == "a.bn1" else node for node in net.nodes)
        made, _ = editing.set_attributes(replace(net, nodes=nodes), "a.bn1", variant="INSTANCE")
        assert made.node("a.bn1").params == {}

    def test_the_axis_of_another_kind_of_norm_is_its_own(self, load: Load) -> None:
        made, _ = editing.set_attributes(load("transformer"), "ln2", variant="RMS")
        norm = made.node("ln2")
        assert (norm.attrs["axis"], norm.attrs["eps"]) == (-1, None)
        assert list(norm.params) == ["weight"]

    def test_of_a_recurrent_layer(self, load: Load) -> None:
        """A GRU has no cell state to begin with."""
        with pytest.raises(UsageError, match="wrong number of inputs"):
            editing.set_attributes(load("lstm"), "lstm", variant="GRU")

    def test_that_cannot_be(self, load: Load) -> None:
        with pytest.raises(UsageError, match="POOL has no variant 'MIN'") as caught:
            editing.set_attributes(load("lenet"), "pool1", variant="MIN")
        assert caught.value.why == "it is one of MAX, AVG, MEAN"
        with pytest.raises(UsageError, match="`conv1` has no variants"):
            editing.set_attributes(load("lenet"), "conv1", variant="MAX")
        with pytest.raises(UsageError, match="needs the attribute 'groups'"):
            editing.set_attributes(load("resnet"), "a.bn1", variant="GROUP")

    def test_as_it_is_already(self, load: Load) -> None:
        made, edits = editing.set_attributes(load("lenet"), "pool1", variant="MAX")
        assert (made.id, edits) == (load("lenet").id, ())


class TestFollowing:
    """Attributes that only repeat what a shape was."""

    @pytest.mark.parametrize("kind", ["view", "reshape"])
    @pytest.mark.parametrize("size", [["B", 800], [-1, 800], ["B", -1]])
    def test_a_view_with_a_written_length(self, plain: Plain, kind: str, size: list[Any]) -> None:
        form = plain("lenet")
        form["nodes"][4]["attrs"] = {"kind": kind, "size": size}
        made, edits = editing.set_attributes(read(form)[0], "conv2", out=60)
        assert _shape(made, "flatten") == ("B", 960)
        assert ("follow" in [e.action for e in edits]) == (size[1] == 800)

    def test_a_view_that_was_written_for_an_example_batch(self, plain: Plain) -> None:
        form = plain("lenet")
        form["inputs"][0]["shape"] = [2, 1, 28, 28]
        form["nodes"][4]["attrs"] = {"kind": "view", "size": [2, 800]}
        made, _ = editing.set_attributes(read(form)[0], "conv2", out=60)
        assert _shape(made, "flatten") == (2, 960)

    def test_heads_of_attention(self, plain: Plain) -> None:
        form = plain("transformer")
        form["nodes"][-1]["params"] = {"weight": "head.weight"}
        with pytest.raises(UsageError, match="`add1`"):
            editing.set_attributes(read(form)[0], "wte", out=128)
        made = editing.edit(
            read(form)[0],
            [
                lambda e: e.set_attributes("wte", out=128),
                lambda e: e.set_attributes("qkv", out=384),
                lambda e: e.set_attributes("proj", out=128),
                lambda e: e.set_attributes("down", out=128),
            ],
        ).network
        assert made.node("pos").attrs["shape"] == (1, 10, 128)
        assert made.node("split").attrs["sizes"] == (128, 128, 128)
        assert made.node("q.view").attrs["size"] == ("B", -1, 4, 32)
        assert made.node("join").attrs["size"] == ("B", -1, 128)
        assert _sound(made)

    def test_depthwise_convolutions(self, node_of: Any, network_of: Any) -> None:
        nodes = [
            node_of("wide", "CONV", ["x"], out=8, kernel=[1, 1], params={"weight": "a"}),
            node_of(
                "deep", "CONV", ["wide"], out=16, kernel=[3, 3], groups=8, params={"weight": "b"}
            ),
        ]
        net = read(network_of([{"name": "x", "shape": ["B", 3, 8, 8]}], nodes, ["deep"]))[0]
        made, _ = editing.set_attributes(net, "wide", out=12)
        assert (made.node("deep").attrs["groups"], made.node("deep").attrs["out"]) == (12, 24)

    def test_an_expansion(self, node_of: Any, network_of: Any) -> None:
        nodes = [
            node_of("fc", "FULL", ["x"], out=8, params={"weight": "a"}),
            node_of("row", "RESHAPE", ["fc"], kind="unsqueeze", axis=1),
            node_of("rows", "RESHAPE", ["row"], kind="expand", size=[-1, 5, 8]),
        ]
        net = read(network_of([{"name": "x", "shape": ["B", 3]}], nodes, ["rows"]))[0]
        made, _ = editing.set_attributes(net, "fc", out=12)
        assert made.node("rows").attrs["size"] == (-1, 5, 12)

    def test_what_was_set_does_not_follow(self, node_of: Any, network_of: Any) -> None:
        nodes = [
            node_of("wide", "CONV", ["x"], out=8, kernel=[1, 1], params={"weight": "a"}),
            node_of(
                "deep", "CONV", ["wide"], out=8, kernel=[3, 3], groups=8, params={"weight": "b"}
            ),
        ]
        net = read(network_of([{"name": "x", "shape": ["B", 3, 8, 8]}], nodes, ["deep"]))[0]
        made = editing.edit(
            net,
            [
                lambda e: e.set_attributes("wide", out=12),
                lambda e: e.set_attributes("deep", groups=4),
            ],
        ).network
        assert (made.node("deep").attrs["groups"], made.node("deep").attrs["out"]) == (4, 8)

    def test_recorded_shapes_count_only_for_their_inputs(self, plain: Plain) -> None:
        form = plain("lenet")
        source = {"dialect": "aten", "op": "aten.roll", "args": [{"n": 0}], "kwargs": {}}
        form["nodes"].insert(1, {"name": "odd", "op": "OP", "inputs": ["conv1"]})
        form["nodes"][1] |= {"source": source, "out_shape": ["B", 20, 24, 24]}
        form["nodes"][2]["inputs"] = ["odd"]
        form["nodes"][2]["attrs"] |= {"kernel": [2, 2]}
        net = read(form)[0]
        assert editing.set_attributes(net, "conv2", out=60).network.node("odd").out_shape
        made, _ = editing.set_attributes(net, "conv1", out=64)
        assert made.node("odd").out_shape is None
        assert made.node("odd").source == source


class TestRename:
    def test_all_that_refers_to_it(self, load: Load) -> None:
        made, edits = editing.rename(load("lenet"), {"pool1": "a", "prob": "b", "conv1": "c"})
        assert (_reads(made, "conv2"), _reads(made, "a")) == (["a"], ["c"])
        assert made.outputs == (("b", 0),)
        assert made.node("c").params["weight"] == "conv1.weight"
        assert len(edits) == 3
        back, _ = editing.rename(made, {"a": "pool1", "b": "prob", "c": "conv1"})
        assert back.id == load("lenet").id

    def test_taken(self, load: Load) -> None:
        for name in ("pool1", "x"):
            with pytest.raises(Conflict, match=f"`{name}` already exists"):
                editing.rename(load("lenet"), {"conv1": name})

    def test_and_resized(self, plain: Plain) -> None:
        form = plain("lenet")
        form["nodes"][4]["attrs"] = {"kind": "view", "size": ["B", 800]}
        made = editing.edit(
            read(form)[0],
            [lambda e: e.rename("flatten", "flat"), lambda e: e.set_attributes("conv2", out=60)],
        ).network
        assert made.node("flat").attrs["size"] == ("B", 960)


INJECTED: list[tuple[str, Callable[[editing.Editor], object], str]] = [
    ("unique", lambda e: e.insert("conv1", template("RELU", "pool1")), "`pool1` is"),
    ("unique", lambda e: e.insert("conv1", template("RELU", "x")), "give the layer another name"),
    ("cycle", lambda e: e.insert("conv1", template("ADD", "sum", also=["ip1"])), "on a cycle"),
    ("arity", lambda e: e.insert("conv1", template("ADD", "sum")), "at `sum`.*number of inputs"),
    ("missing", lambda e: e.insert("conv1", template("CONV", "c", out=3)), "needs.*'kernel'"),
    ("range", lambda e: e.set_attributes("conv1", kernel=0), "at least 1"),
    ("range", lambda e: e.set_attributes("conv2", groups=7), "does not divide"),
    (
        "shape",
        lambda e: e.insert("pool2", template("POOL", "MAX", "p", kernel=16)),
        "at `p`.*window of 16 does not fit.*length 4",
    ),
    ("shape", lambda e: e.insert("ip1", template("CONV", "c", out=3, kernel=[3, 3])), "at `c`"),
    ("shape", lambda e: e.insert("ip1", template("POOL", "MAX", "p", kernel=2)), "axes"),
    ("groups", lambda e: e.insert("pool1", template("NORM", "GROUP", groups=7)), "divide the chan"),
    ("producer", lambda e: e.insert("nowhere", RELU), "no layer"),
]


@pytest.mark.parametrize(("rule", "action", "words"), INJECTED)
def test_faults_are_refused(
    load: Load, rule: str, action: Callable[[editing.Editor], object], words: str
) -> None:
    with pytest.raises(DlvError, match=words):
        editing.edit(load("lenet"), [action])


def test_a_fault_of_the_source_is_told_as_such(plain: Plain) -> None:
    form = plain("lenet")
    form["nodes"][0]["params"] = {}
    with pytest.raises(UsageError, match="is already invalid at `conv1`:"):
        editing.delete(read(form)[0], "prob")


def test_unknown_names(load: Load) -> None:
    with pytest.raises(NotFound) as caught:
        editing.delete(load("lenet"), "pool3")
    assert caught.value.did_you_mean


def test_many_edits_are_quick(node_of: Any, network_of: Any) -> None:
    nodes = [node_of("n0", "RELU", ["x"])]
    nodes += [node_of(f"n{i}", "RELU", [f"n{i - 1}"]) for i in range(1, 1000)]
    net = read(network_of([{"name": "x", "shape": ["B", 8]}], nodes, ["n999"]))[0]
    started = time.monotonic()
    editor = editing.Editor(net)
    for place in range(1000):
        editor.insert(f"n{place}", template("ACT", "TANH"))
    made = editor.finish()
    assert len(made.network.nodes) == 2000
    assert time.monotonic() - started < 15


SIMPLE = st.sampled_from(
    [RELU, template("DROPOUT"), template("ACT", "TANH"), template("NORM", "BATCH", eps=0.1)]
)
QUIET = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@QUIET
@given(data=st.data())
def test_insert_then_delete_is_the_identity(
    data: st.DataObject, random_network: st.SearchStrategy[Json]
) -> None:
    network = read(data.draw(random_network))[0]
    assume(_sound(network))
    where = data.draw(st.sampled_from([*_names(network), *network.input_names]))
    made: Template = replace(data.draw(SIMPLE), name="a new one")
    between, _ = editing.insert(network, where, made)
    assert _sound(between)
    if "a new one" in between:
        assert editing.delete(between, "a new one").network.id == network.id
    if where in network:
        before, _ = editing.insert_before(network, where, made, source=_reads(network, where)[0])
        assert editing.delete(before, "a new one").network.id == network.id


@QUIET
@given(data=st.data())
def test_what_is_derived_is_sound_and_computes_what_it_should(
    data: st.DataObject,
    random_network: st.SearchStrategy[Json],
    forward: Callable[..., Any],
    random_tensors: Callable[..., Any],
    random_inputs: Callable[..., Any],
) -> None:
    """An inserted dropout changes nothing in evaluation; a deleted relu feeds what it read."""
    torch = pytest.importorskip("torch")
    network = read(data.draw(random_network))[0]
    assume(_sound(network))
    name = data.draw(st.sampled_from(_names(network)))
    tensors, values = random_tensors(network), random_inputs(network)
    whole = forward(network, tensors, values)
    made, _ = editing.insert(network, name, template("DROPOUT", "none"))
    found = forward(made, tensors, values)
    for old, new in zip(network.outputs, made.outputs, strict=True):
        assert torch.equal(whole[old], found[new])
    try:
        made, _ = editing.delete(network, name)
    except UsageError:
        return
    assert _sound(made)
    assert name not in made
    fed = forward(made, random_tensors(made), values)  # what is behind may be resized
    for node in made.nodes:
        before = [port for port in network.node(node.name).inputs if port[0] == name]
        if before and len(node.inputs) == 1:
            assert torch.equal(fed[node.inputs[0]], fed[network.node(name).inputs[0]])
