from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dlv.network.graph import Network
from dlv.network.json_form import read
from dlv.network.likeness.comparison import Comparison, compare

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


def _keras() -> Json:
    """The same network with channels last, flattened by a view, in other words."""
    form = _lenet()
    form["inputs"] = [{"name": "image", "shape": ["batch", 28, 28, 1]}]
    conv, relu, pool, flat, full = form["nodes"]
    conv["attrs"] |= {"channels": "last", "layout": "kernel_first", "kernel": [5, 5]}
    pool["attrs"] |= {"channels": "last", "kernel": [2, 2], "ceil": True}
    flat["attrs"] = {"kind": "view", "size": ["batch", 2880]}
    full["attrs"]["layout"] = "in_out"
    for place, node in enumerate(form["nodes"]):
        node["name"] = f"k{place}"
        node["inputs"] = [f"k{place - 1}" if place else "image"]
        node["params"] = {slot: f"k{place}.{slot}" for slot in node.get("params", ())}
    assert relu["name"] == "k1"
    return {**form, "outputs": ["k4"]}


class TestEqual:
    def test_up_to_names_and_storage(self) -> None:
        found = compare(_network(_lenet()), _network(_keras()))
        assert (found.equal, found.up_to) == (True, ("names", "storage"))
        assert (found.only_old, found.only_new) == ((), ())
        kinds = {pair.old.name: pair.kind for pair in found.pairs}
        assert kinds == {
            "conv1": "stored",
            "relu1": "renamed",
            "pool1": "stored",
            "flat": "stored",
            "fc": "stored",
        }
        assert [(change.what, change.form) for change in found.ends] == [("inputs", True)]

    def test_up_to_names(self) -> None:
        form = _lenet()
        form["nodes"][0]["params"] = {"weight": "w", "bias": "b"}
        found = compare(_network(_lenet()), _network(form))
        assert (found.equal, found.up_to) == (True, ("names",))
        assert found.same

    def test_up_to_the_name_of_the_input(self) -> None:
        form = _lenet()
        form["inputs"][0]["name"] = form["nodes"][0]["inputs"][0] = "image"
        found = compare(_network(_lenet()), _network(form))
        assert (found.equal, found.up_to) == (True, ("names",))

    def test_up_to_nothing(self) -> None:
        found = compare(_network(_lenet()), _network(_lenet()))
        assert (found.equal, found.up_to) == (True, ())

    def test_not(self) -> None:
        found = compare(_network(_lenet()), _network(_lenet(out=32)))
        assert (found.equal, found.up_to) == (False, ())

    def test_but_for(self) -> None:
        form = _lenet()
        form["nodes"].append({"name": "prob", "op": "SOFTMAX", "inputs": ["fc"]})
        form["nodes"].insert(4, {"name": "drop", "op": "DROPOUT", "inputs": ["flat"]})
        form["nodes"][5]["inputs"] = ["drop"]
        form["outputs"] = ["prob"]
        found = compare(_network(_lenet()), _network(form))
        assert (found.equal, found.only_old, found.only_new) == (True, (), ("drop", "prob"))
        assert [layer.name for layer in found.added] == ["drop", "prob"]
        assert not found.same

    def test_a_batch_that_is_written_down(self) -> None:
        form = _lenet()
        form["inputs"][0]["shape"][0] = 64
        found = compare(_network(_lenet()), _network(form))
        assert (found.equal, found.up_to) == (True, ("storage",))
        assert not found.changed

    def test_another_symbol_is_no_change(self) -> None:
        form = _lenet()
        form["inputs"][0]["shape"][0] = "N"
        assert compare(_network(_lenet()), _network(form)).same


def test_how_tensors_lie() -> None:
    found = compare(_network(_lenet()), _network(_keras()))
    assert found.turns == {
        ("conv1.weight", "k0.weight"): ((5, 5, 20), (2, 0, 1)),
        ("fc.weight", "k4.weight"): ((12, 12, 20, 10), (3, 2, 0, 1)),
    }
    back = compare(_network(_keras()), _network(_lenet()))
    assert back.turns == {
        ("k0.weight", "conv1.weight"): ((20, 5, 5), (1, 2, 0)),
        ("k4.weight", "fc.weight"): ((10, 20, 12, 12), (2, 3, 1, 0)),
    }
    assert compare(_network(_lenet()), _network(_lenet(out=32))).turns == {}


def test_a_view_whose_numbers_are_others_has_changed() -> None:
    def form(out: int) -> Json:
        made = _lenet(out)
        made["nodes"][3]["attrs"] = {"kind": "view", "size": ["B", out * 144]}
        return made

    found = compare(_network(form(20)), _network(form(32)))
    assert _told(found)["flat"] == ["size", "output"]
    assert not any(c.form for pair in found.changed for c in pair.changes)


def test_weights_that_are_shared_now() -> None:
    form = _lenet()
    form["nodes"].append({"name": "fc2", "op": "FULL", "attrs": {"out": 10}, "inputs": ["fc"]})
    form["nodes"][-1]["params"] = {"weight": "fc2.weight", "bias": "fc2.bias"}
    form["nodes"].append({"name": "fc3", "op": "FULL", "attrs": {"out": 10}, "inputs": ["fc2"]})
    form["nodes"][-1]["params"] = {"weight": "fc3.weight", "bias": "fc3.bias"}
    form["outputs"] = ["fc3"]
    old = _network(form)
    form["nodes"][-1]["params"] = {"weight": "fc2.weight", "bias": "fc2.bias"}
    found = compare(old, _network(form))
    assert _told(found) == {"fc2": ["shares"], "fc3": ["shares"]}
    assert (found.changed[0].changes[0].old, found.changed[0].changes[0].new) == ([], ["fc3"])
    assert found.changed[0].kind == "changed"
    assert not found.equal


def test_other_arguments_of_an_unknown_operation() -> None:
    def form(shift: int) -> Json:
        made = _lenet()
        source = {"dialect": "aten", "op": "aten.roll", "args": [{"n": 0}, {"c": shift}]}
        made["nodes"][1] = {"name": "roll", "op": "OP", "inputs": ["conv1"], "source": source}
        made["nodes"][2]["inputs"] = ["roll"]
        made["nodes"][2]["attrs"] = {"kernel": [2, 2], "stride": [2, 2]}
        return made

    found = compare(_network(form(1)), _network(form(2)))
    assert _told(found) == {"roll": ["arguments"]}
    assert compare(_network(form(1)), _network(form(1))).same


def test_a_norm_that_does_not_scale_any_more() -> None:
    def form(*slots: str) -> Json:
        made = _lenet()
        made["nodes"][1] = {"name": "bn", "op": "NORM", "variant": "BATCH", "inputs": ["conv1"]}
        made["nodes"][1]["params"] = {slot: f"bn.{slot}" for slot in slots}
        made["nodes"][2]["inputs"] = ["bn"]
        return made

    found = compare(_network(form("weight", "bias")), _network(form()))
    assert _told(found) == {"bn": ["tensors"]}
    assert not found.equal


@pytest.mark.parametrize(("kernel", "form"), [(2, True), (5, False)])
def test_rounding_up(kernel: int, form: bool) -> None:
    """A map of 24: windows of 2 leave nothing over, those of 5 do."""
    forms = [_lenet(), _lenet()]
    for made, ceil in zip(forms, (False, True), strict=True):
        made["nodes"][2]["attrs"] = {"kernel": kernel, "stride": kernel, "ceil": ceil}
    found = compare(_network(forms[0]), _network(forms[1]))
    pool = next(pair for pair in found.pairs if pair.old.name == "pool1")
    assert (pool.changes[0].what, pool.changes[0].form) == ("ceil", form)
    assert found.equal == form


def test_the_sides_of_a_sum_have_no_order() -> None:
    def form(*sides: str) -> Json:
        made = _lenet()
        made["nodes"].insert(3, {"name": "sum", "op": "ADD", "inputs": list(sides)})
        made["nodes"].insert(
            3, {"name": "act", "op": "ACT", "variant": "TANH", "inputs": ["pool1"]}
        )
        made["nodes"][5]["inputs"] = ["sum"]
        return made

    assert compare(_network(form("act", "pool1")), _network(form("pool1", "act"))).same


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("AVG", {"size": [1, 1]}), ("MEAN", {"axis": [2, 3], "keep": True})),
        (("AVG", {"size": [6, 6]}), ("AVG", {"kernel": [4, 4], "stride": [4, 4]})),
    ],
)
def test_the_same_in_other_words(old: tuple[str, Json], new: tuple[str, Json]) -> None:
    forms = [_lenet(), _lenet()]
    for form, (variant, attrs) in zip(forms, (old, new), strict=True):
        form["nodes"][2] = {"name": "pool1", "op": "POOL", "inputs": ["relu1"]}
        form["nodes"][2] |= {"variant": variant, "attrs": attrs}
    found = compare(_network(forms[0]), _network(forms[1]))
    assert (found.equal, found.up_to) == (True, ("storage",))
    assert {change.form for pair in found.changed for change in pair.changes} == {True}
