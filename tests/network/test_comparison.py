from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dlv.network.comparison import Comparison, compare
from dlv.network.graph import Network
from dlv.network.json_form import read

Json = dict[str, Any]


def _lenet(out: int = 20, size: int = 28) -> Json:
    def weights(name: str) -> dict[str, str]:
        return {"weight": f"{name}.weight", "bias": f"{name}.bias"}

    return {
        "dlv_network": 1,
        "inputs": [{"name": "x", "shape": ["B", 1, size, size]}],
        "nodes": [
            {"name": "conv1", "op": "CONV", "attrs": {"out": out, "kernel": 5}, "inputs": ["x"]}
            | {"params": weights("conv1")},
            {"name": "relu1", "op": "RELU", "inputs": ["conv1"]},
            {"name": "pool1", "op": "POOL", "variant": "MAX", "inputs": ["relu1"]}
            | {"attrs": {"kernel": 2, "stride": 2}},
            {"name": "flat", "op": "RESHAPE", "attrs": {"kind": "flatten"}, "inputs": ["pool1"]},
            {"name": "fc", "op": "FULL", "attrs": {"out": 10}, "inputs": ["flat"]}
            | {"params": weights("fc")},
        ],
        "outputs": ["fc"],
    }


def _network(form: Json) -> Network:
    return read(form)[0]


def _told(found: Comparison) -> dict[str, list[str]]:
    return {pair.old.name: [change.what for change in pair.changes] for pair in found.changed}


def test_the_same() -> None:
    found = compare(_network(_lenet()), _network(_lenet()))
    assert found.same
    assert len(found.pairs) == 5
    assert found.slots() == [
        ("conv1.weight", "conv1.weight"),
        ("conv1.bias", "conv1.bias"),
        ("fc.weight", "fc.weight"),
        ("fc.bias", "fc.bias"),
    ]


def test_what_only_another_torch_changes() -> None:
    old = _network(_lenet())
    source = {"dialect": "aten", "op": "aten.relu.default", "args": [], "kwargs": {}}
    nodes = tuple(replace(node, source=source) for node in old.nodes)
    assert compare(old, replace(old, nodes=nodes)).same


def test_an_attribute_and_what_follows_from_it() -> None:
    found = compare(_network(_lenet()), _network(_lenet(out=32)))
    assert _told(found) == {
        "conv1": ["out", "output"],
        "relu1": ["output"],
        "pool1": ["output"],
        "flat": ["output"],
    }
    assert [pair.follows for pair in found.changed] == [False, True, True, True]
    out, shape = found.changed[0].changes
    assert (out.old, out.new) == (20, 32)
    assert (shape.old, shape.new) == (("B", 20, 24, 24), ("B", 32, 24, 24))


def test_another_input() -> None:
    found = compare(_network(_lenet()), _network(_lenet(size=32)))
    assert [change.what for change in found.ends] == ["inputs"]
    assert all(pair.follows for pair in found.changed)
    assert not found.same


@pytest.mark.parametrize("place", [1, 2, 5])
def test_a_layer_put_in_is_no_change_of_its_neighbours(place: int) -> None:
    form = _lenet()
    before = form["nodes"][place - 1]["name"]
    drop = {"name": "drop", "op": "DROPOUT", "attrs": {"p": 0.1}, "inputs": [before]}
    form["nodes"].insert(place, drop)
    if place < 5:
        form["nodes"][place + 1]["inputs"] = ["drop"]
    else:
        form["outputs"] = ["drop"]
    old, new = _network(_lenet()), _network(form)
    found = compare(old, new)
    assert [(layer.name, layer.after) for layer in found.added] == [
        ("drop", (("pool1" if before == "flat" else before),))
    ]
    assert (found.removed, found.changed, found.ends) == ((), (), ())
    back = compare(new, old)
    assert [layer.name for layer in back.removed] == ["drop"]
    assert (back.added, back.changed, back.ends) == ((), (), ())


def test_other_wiring_is_a_change() -> None:
    form = _lenet()
    form["nodes"][2]["inputs"] = ["conv1"]
    assert _told(compare(_network(_lenet()), _network(form))) == {"pool1": ["inputs"]}


def test_other_outputs() -> None:
    form = _lenet()
    form["outputs"] = ["pool1"]
    assert [c.what for c in compare(_network(_lenet()), _network(form)).ends] == ["outputs"]


def test_other_names() -> None:
    names = {"conv1": "features.0", "relu1": "features.1", "pool1": "features.2", "fc": "head"}
    form = _lenet()
    for node in form["nodes"]:
        node["inputs"] = [names.get(name, name) for name in node["inputs"]]
        node["params"] = {slot: f"{names[node['name']]}.{slot}" for slot in node.get("params", ())}
        node["name"] = names.get(node["name"], node["name"])
    form["inputs"][0]["name"], form["nodes"][0]["inputs"] = "image", ["image"]
    form["outputs"] = ["head"]
    found = compare(_network(_lenet()), _network(form))
    assert _told(found) == {name: ["name"] for name in names}
    assert ("conv1.weight", "features.0.weight") in found.slots()
    assert [change.what for change in found.ends] == []


def test_another_operation_under_the_same_name() -> None:
    form = _lenet()
    form["nodes"][1] |= {"op": "ACT", "variant": "GELU"}
    found = compare(_network(_lenet()), _network(form))
    assert _told(found) == {"relu1": ["op"]}
    change = found.changed[0].changes[0]
    assert (change.old, change.new) == ("RELU", "ACT GELU")


def test_an_operation_replaced_under_another_name_is_no_rewiring() -> None:
    form = _lenet()
    form["nodes"][1] = {"name": "gelu", "op": "ACT", "variant": "GELU", "inputs": ["conv1"]}
    form["nodes"][2]["inputs"] = ["gelu"]
    found = compare(_network(_lenet()), _network(form))
    assert ([x.name for x in found.removed], [x.name for x in found.added]) == (["relu1"], ["gelu"])
    assert not found.changed


def test_nothing_against_something() -> None:
    found = compare(Network(), _network(_lenet()))
    assert len(found.added) == 5
    assert not found.pairs
    assert not found.same


def test_an_attribute_that_is_called_as_something_else() -> None:
    form = _lenet()
    form["nodes"].append({"name": "loss", "op": "LOSS", "attrs": {"name": "nll"}, "inputs": ["fc"]})
    old = _network(form)
    form["nodes"][-1]["attrs"] = {"name": "mse"}
    assert _told(compare(old, _network(form))) == {"loss": ["attrs.name"]}
