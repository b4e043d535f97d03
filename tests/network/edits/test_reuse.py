"""What becomes of each tensor of an edited network, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import dlv.network.edits.edit as editing
from dlv.errors import UsageError
from dlv.network.edits.axes import Run
from dlv.network.edits.edit import Editor
from dlv.network.edits.reuse import Plan, Reuse, plan
from dlv.network.edits.slicing import slice as cut
from dlv.network.graph import Network
from dlv.network.inference import input_shapes, node_shapes
from dlv.network.json_form import read
from dlv.network.ops.op import op_of
from dlv.network.patterns import template

Json = dict[str, Any]
Load = Callable[[str], Network]
Plain = Callable[[str], Json]
Shapes = dict[str, tuple[str, tuple[int, ...]]]


def _tensors(network: Network, dtype: str = "float32") -> Shapes:
    shapes = node_shapes(network)
    found: Shapes = {}
    for node in network.nodes:
        wanted = op_of(node).parameter_shapes(node, input_shapes(node, shapes))
        for slot, name in node.params.items():
            shape = wanted[slot]
            assert shape is not None
            found[name] = dtype, tuple(dim for dim in shape if isinstance(dim, int))
    return found


def _edited(network: Network, *actions: Callable[[Editor], object], **given: Any) -> Plan:
    made = editing.edit(network, actions).network
    return plan(network, made, {**_tensors(network), **given.pop("extra", {})}, **given)


def _by_name(made: Plan) -> dict[str, Reuse]:
    return {item.name: item for item in made.tensors}


def _told(made: Plan) -> dict[str, str]:
    """Of what is not copied: what is done and why."""
    return {
        i.name: i.action + (f": {i.reason}" if i.reason else "")
        for i in made.tensors
        if i.action != "copy"
    }


def test_nothing_changes(load: Load, named: str) -> None:
    network = load(named)
    made = plan(network, network, _tensors(network))
    assert {item.action for item in made.tensors} == {"copy"}
    assert [item.name for item in made.tensors] == list(_tensors(network))
    assert (made.dropped, made.share) == ((), 1.0)


def test_wider(load: Load) -> None:
    made = _edited(load("lenet"), lambda e: e.set_attributes("conv2", out=60))
    assert _told(made) == {
        "conv2.weight": "overlap",
        "conv2.bias": "overlap",
        "ip1.weight": "overlap",
    }
    weight = _by_name(made)["ip1.weight"]
    assert weight.shape == (500, 960)
    assert weight.runs == ((Run(0, 0, 500),), (Run(0, 0, 800),))
    assert weight.share == pytest.approx(800 / 960)
    assert (weight.fill, weight.fan_in) == ("uniform", 960)
    assert (_by_name(made)["conv2.bias"].fill, _by_name(made)["conv2.weight"].fan_in) == (
        *("zero", 500),
    )


def test_narrower(load: Load) -> None:
    made = _edited(load("lenet"), lambda e: e.set_attributes("conv2", out=40))
    assert _by_name(made)["ip1.weight"].runs == ((Run(0, 0, 500),), (Run(0, 0, 640),))
    assert made.share == 1.0


def test_behind_a_flatten_of_channels_last(plain: Plain) -> None:
    form = plain("lenet")
    form["inputs"][0]["shape"] = ["B", 28, 28, 1]
    for node in form["nodes"]:
        if node["op"] in ("CONV", "POOL"):
            node["attrs"]["channels"] = "last"
    form["nodes"][5]["attrs"]["layout"] = "in_out"
    made = _edited(read(form)[0], lambda e: e.set_attributes("conv2", out=60))
    weight = _by_name(made)["ip1.weight"]
    assert weight.old_shape == (800, 500)
    assert weight.runs[0] == tuple(Run(60 * i, 50 * i, 50) for i in range(16))
    assert weight.fan_in == 960


def test_another_size_of_the_flattened_map(load: Load) -> None:
    made = _edited(load("lenet"), lambda e: e.set_attributes("conv2", kernel=3))
    assert _told(made) == {"conv2.weight": "overlap", "ip1.weight": "init: the map's size was 4×4"}


def test_another_size_of_the_map_with_as_many_elements(load: Load) -> None:
    """50 channels of 4 x 4 and 200 of 2 x 2 are 800 numbers, but not the same ones."""
    made = _edited(
        load("lenet"),
        lambda e: e.set_attributes("conv2", out=200),
        lambda e: e.set_attributes("pool2", kernel=4, stride=4),
    )
    weight = _by_name(made)["ip1.weight"]
    assert weight.old_shape == weight.shape
    assert (weight.action, weight.reason) == ("init", "the map's size was 4×4")


def test_new_and_gone(load: Load) -> None:
    made = _edited(
        load("lenet"),
        lambda e: e.insert("conv1", template("NORM", "BATCH", "bn")),
        lambda e: e.delete("relu1"),
        lambda e: e.replace("ip1", template("FULL", "wide", out=700)),
    )
    assert _told(made) == {
        **{f"bn.{slot}": "init" for slot in ("weight", "bias", "running_mean")},
        "bn.running_var": "init",
        "wide.weight": "init",
        "wide.bias": "init",
        "ip2.weight": "overlap",
    }
    fills = {item.name: item.fill for item in made.tensors}
    assert [fills[f"bn.{s}"] for s in ("weight", "bias", "running_mean", "running_var")] == [
        *("one", "zero", "zero", "one")
    ]
    assert [item.name for item in made.dropped] == ["ip1.weight", "ip1.bias"]
    assert [item.name for item in made.tensors][:6] == [
        *("conv1.weight", "conv1.bias", "bn.weight", "bn.bias", "bn.running_mean"),
        "bn.running_var",
    ]


def test_the_same_name_under_another_operation(load: Load) -> None:
    made = _edited(load("lenet"), lambda e: e.replace("ip2", template("FULL", "ip2", out=12)))
    assert _told(made)["ip2.weight"] == "overlap"
    made = _edited(
        load("lenet"), lambda e: e.replace("conv2", template("DECONV", "conv2", out=20, kernel=5))
    )
    assert _told(made)["conv2.weight"] == "init: it was the weight of a CONV"


def test_joined_maps_go_stretch_by_stretch(load: Load) -> None:
    made = _edited(load("unet"), lambda e: e.set_attributes("up1", out=12))
    weight = _by_name(made)["head.weight"]
    assert weight.runs[1] == (Run(0, 0, 8), Run(12, 8, 8))
    made = _edited(load("unet"), lambda e: e.delete_edge("up1", "cat1"))
    assert _by_name(made)["head.weight"].runs[1] == (Run(0, 8, 8),)
    assert _told(made)["head.weight"] == "overlap"


def test_a_slice_takes_what_it_holds(load: Load) -> None:
    network = load("lenet")
    made = plan(network, cut(network, "conv2", "ip1").network, _tensors(network))
    assert [item.name for item in made.tensors] == [
        *("conv2.weight", "conv2.bias", "ip1.weight", "ip1.bias")
    ]
    assert {item.action for item in made.tensors} == {"copy"}
    assert len(made.dropped) == 4


@pytest.mark.parametrize("support", ["keep", "inputs"])
def test_every_slice_takes_all_that_it_holds(load: Load, named: str, support: str) -> None:
    network = load(named)
    tensors = _tensors(network)
    count = 0
    for start in network.nodes:
        for end in network.nodes:
            try:
                made = cut(network, start.name, end.name, support=support).network
            except UsageError:
                continue
            found = plan(network, made, tensors)
            assert {item.action for item in found.tensors} <= {"copy"}
            assert {item.name for item in found.tensors} == made.tensor_names()
            count += 1
    assert count > 20


def test_counters_stay_with_their_layer(load: Load) -> None:
    counters: Shapes = {f"a.bn{i}.num_batches_tracked": ("int64", ()) for i in (1, 2)} | {
        "other": ("float32", (3,))
    }
    made = _edited(load("resnet"), lambda e: e.delete("a.bn1"), extra=counters)
    assert {"a.bn2.num_batches_tracked", "other"} <= set(_by_name(made))
    assert "a.bn1.num_batches_tracked" in {item.name for item in made.dropped}


class TestTied:
    def test_resized_together(self, load: Load) -> None:
        network = load("transformer")
        tied = {"head.weight": "wte.weight"}
        extra = {"head.weight": _tensors(network)["wte.weight"]}
        made = _edited(network, lambda e: e.set_attributes("wte", rows=600), tied=tied, extra=extra)
        items = _by_name(made)
        assert items["head.weight"].tied == "wte.weight"
        assert items["head.weight"].shape == items["wte.weight"].shape == (600, 64)
        assert items["head.weight"].action == "overlap"

    def test_the_network_says_so(self, load: Load) -> None:
        network = replace(load("transformer"), aliases={"lm": "wte.weight"})
        tensors = _tensors(network)
        tensors["lm"] = tensors["wte.weight"]
        made = plan(network, network, tensors)
        assert _by_name(made)["lm"].tied == "wte.weight"
        assert made.share == 1.0

    def test_stored_under_the_other_name_only(self, load: Load) -> None:
        network = replace(load("transformer"), aliases={"lm": "wte.weight"})
        tensors = _tensors(network)
        tensors["lm"] = tensors.pop("wte.weight")
        made = plan(network, network, tensors)
        assert {item.action for item in made.tensors} == {"copy"}
        assert "wte.weight" not in _by_name(made)

    def test_no_longer_of_one_shape(self, plain: Plain) -> None:
        """Only the weights' file said that they are one; each goes its own way then."""
        form = plain("transformer")
        form["nodes"][-1]["params"] = {"weight": "head.weight"}
        tied = {"head.weight": "wte.weight"}
        made = _edited(read(form)[0], lambda e: e.set_attributes("head", out=600), tied=tied)
        items = _by_name(made)
        assert (items["head.weight"].shape, items["head.weight"].tied) == ((600, 64), None)
        assert items["wte.weight"].action == "copy"

    def test_one_of_them_is_gone(self, load: Load) -> None:
        network = load("transformer")
        made = _edited(
            network,
            lambda e: e.delete("head"),
            tied={"head.weight": "wte.weight"},
            extra={"head.weight": ("float32", (500, 64))},
        )
        assert _by_name(made)["wte.weight"].action == "copy"


class TestDtypes:
    def test_as_it_was(self, load: Load) -> None:
        network = load("lenet")
        made = editing.insert(network, "conv1", template("NORM", "LAYER", "ln")).network
        found = plan(network, made, _tensors(network, "bfloat16"))
        assert {item.dtype for item in found.tensors} == {"bfloat16"}

    def test_another_one_begins_anew(self, load: Load) -> None:
        network = load("lenet")
        found = plan(network, network, _tensors(network), dtypes={"ip1.weight": "float16"})
        assert _told(found) == {"ip1.weight": "init: the dtype was float32"}
        assert _by_name(found)["ip1.weight"].dtype == "float16"


def test_a_shape_that_nobody_knows(plain: Plain) -> None:
    form = plain("resnet")
    form["nodes"][3] = {"name": "odd", "op": "OP", "inputs": ["a.bn1"]}
    form["nodes"][3]["source"] = {"dialect": "x", "op": "y", "args": [], "kwargs": {}}
    form["nodes"][4]["inputs"] = ["odd"]
    network = read(form)[0]
    made = editing.insert(network, "odd", template("CONV", "c", out=3, kernel=[1, 1])).network
    shapes = dict.fromkeys(network.tensor_names(), ("float32", (3,)))
    with pytest.raises(UsageError, match=r"shape of the new tensor `c.weight` is unknown"):
        plan(network, made, shapes)


U = ("uniform",)
DEEP = {"op": "CONV", "out": 20, "kernel": [3, 3], "groups": 20}


@pytest.mark.parametrize(
    ("text", "slot", "fill", "fan_in"),
    [
        ({"op": "CONV", "out": 4, "kernel": [3, 3]}, "weight", "uniform", 180),
        ({"op": "CONV", "out": 4, "kernel": [3, 3]}, "bias", "zero", 0),
        ({"op": "CONV", "out": 4, "kernel": [3, 3], "layout": "kernel_first"}, "weight", *U, 180),
        (DEEP, "weight", "uniform", 9),
        ({**DEEP, "layout": "depthwise"}, "weight", "uniform", 9),
        ({"op": "DECONV", "out": 4, "kernel": [3, 3]}, "weight", "uniform", 36),
        ({"op": "DECONV", "out": 4, "kernel": [3, 3], "layout": "kernel_first"}, "weight", *U, 36),
        ({"op": "FULL", "out": 4}, "weight", "uniform", 12),
        ({"op": "FULL", "out": 4, "layout": "in_out"}, "weight", "uniform", 12),
        ({"op": "MUL", "shape": [20, 1, 1]}, "value", "one", 0),
        ({"op": "ADD", "shape": [20, 1, 1]}, "value", "zero", 0),
    ],
)  # fmt: skip
def test_beginnings(load: Load, text: Json, slot: str, fill: str, fan_in: int) -> None:
    """Each behind a pool of 20 maps of 12 x 12."""
    network = load("lenet")
    made = template(text["op"], "new", **{k: v for k, v in text.items() if k != "op"})
    derived = editing.edit(network, [lambda e: e.insert("pool1", made), _short]).network
    found = plan(network, derived, _tensors(network))
    item = _by_name(found)[f"new.{slot}"]
    assert (item.fill, item.fan_in) == (fill, fan_in)


def _short(editor: Editor) -> None:
    """Only what stands before the first pool matters here."""
    for name in ("conv2", "pool2"):
        editor.delete(name)
