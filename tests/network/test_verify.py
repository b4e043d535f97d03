from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.network.graph import Input, Network, Node
from dlv.network.inference import input_shapes, node_shapes
from dlv.network.json_form import read
from dlv.network.ops.op import op_of
from dlv.network.verify import Problem, infer, verify

Json = dict[str, Any]
Load = Callable[[str], Network]
Tensors = dict[str, tuple[str, tuple[int, ...]]]


def tensors_of(network: Network) -> Tensors:
    """The tensors that a network asks for."""
    shapes = node_shapes(network)
    result: Tensors = {}
    for node in network.nodes:
        wanted = op_of(node).parameter_shapes(node, input_shapes(node, shapes))
        for slot, name in node.params.items():
            shape = wanted[slot]
            assert shape is not None
            result[name] = ("float32", tuple(dim for dim in shape if isinstance(dim, int)))
    return result


def changed(network: Network, name: str, **fields: Any) -> Network:
    """One node changed; `attrs` are added to those it has."""
    node = network.node(name)
    if "attrs" in fields:
        fields["attrs"] = {**node.attrs, **fields["attrs"]}
    nodes = tuple(replace(each, **fields) if each is node else each for each in network.nodes)
    return replace(network, nodes=nodes)


def errors(network: Network, tensors: Tensors | None = None) -> list[Problem]:
    return [problem for problem in verify(network, tensors) if problem.severity == "error"]


def only(problems: list[Problem], rule: str, node: str | None) -> Problem:
    """The problem of that rule at that node, which is there exactly once."""
    found = [each for each in problems if each.rule == rule and each.node == node]
    assert len(found) == 1, problems
    return found[0]


def test_the_fixtures_are_sound_with_and_without_tensors(load: Load, named: str) -> None:
    network = load(named)
    assert verify(network) == []
    assert verify(network, tensors_of(network)) == []


def test_tensors_of_a_known_network(load: Load) -> None:
    found = {name: shape for name, (_, shape) in tensors_of(load("lenet")).items()}
    assert found == {
        "conv1.weight": (20, 1, 5, 5),
        "conv1.bias": (20,),
        "conv2.weight": (50, 20, 5, 5),
        "conv2.bias": (50,),
        "ip1.weight": (500, 800),
        "ip1.bias": (500,),
        "ip2.weight": (10, 500),
        "ip2.bias": (10,),
    }


@settings(max_examples=60)
@given(st.data())
def test_random_valid_networks_have_no_error(
    random_network: st.SearchStrategy[Json], data: st.DataObject
) -> None:
    network, _ = read(data.draw(random_network))
    assert errors(network) == []


def test_unique_names(load: Load) -> None:
    network = load("lenet")
    twice = replace(network, nodes=(*network.nodes, network.nodes[0]))
    assert "twice" in only(errors(twice), "unique", "conv1").message
    as_input = replace(network, inputs=(*network.inputs, Input("ip1", ("B",))))
    only(errors(as_input), "unique", "ip1")
    as_constant = replace(network, constants={"relu1": "0" * 64})
    only(errors(as_constant), "unique", "relu1")


def test_cycles(load: Load) -> None:
    network = changed(load("lenet"), "conv2", inputs=(("ip1", 0),))
    found = {problem.node for problem in errors(network) if problem.rule == "cycle"}
    assert found == {"conv2", "pool2", "flatten", "ip1"}


def test_producers(load: Load) -> None:
    problem = only(
        errors(changed(load("lenet"), "conv2", inputs=(("pol1", 0),))), "producer", "conv2"
    )
    assert "'pol1'" in problem.message
    assert problem.alias == "conv2"


def test_ports(load: Load) -> None:
    problem = only(errors(changed(load("lenet"), "relu1", inputs=(("ip1", 1),))), "port", "relu1")
    assert (problem.seen, problem.wanted) == ("1", "0 to 0")
    assert errors(replace(load("lstm"), outputs=(("lstm", 2),))) == []
    only(errors(replace(load("lstm"), outputs=(("lstm", 3),))), "port", None)


@pytest.mark.parametrize(
    ("net", "node", "count", "wanted"),
    [
        ("lenet", "conv1", 0, "1"),
        ("lenet", "conv1", 2, "1"),
        ("resnet", "a.add", 1, "2 or more"),
        ("unet", "cat1", 0, "1 or more"),
        ("transformer", "attention", 2, "3 to 4"),
        ("transformer", "pos", 2, "1"),
        ("lstm", "lstm", 4, "1 to 3"),
        ("lenet", "flatten", 0, "1 or more"),
    ],
)
def test_arity(load: Load, net: str, node: str, count: int, wanted: str) -> None:
    network = load(net)
    producer = network.inputs[0].name
    problem = only(errors(changed(network, node, inputs=((producer, 0),) * count)), "arity", node)
    assert (problem.seen, problem.wanted) == (str(count), wanted)


def test_outputs(load: Load) -> None:
    assert (
        "'nix'"
        in only(errors(replace(load("lenet"), outputs=(("nix", 0),))), "output", None).message
    )
    only(errors(replace(load("lenet"), outputs=())), "output", None)


def test_dead_nodes_are_a_warning(load: Load) -> None:
    network = replace(load("lenet"), outputs=(("ip1", 0),))
    found = {each.node: each.severity for each in verify(network)}
    assert found == {"relu1": "warning", "ip2": "warning", "prob": "warning"}
    loss = Node("loss", "LOSS", attrs={"name": "ce"}, inputs=(("prob", 0),))
    assert verify(replace(network, nodes=(*network.nodes, loss))) == []


def test_missing_attributes(load: Load) -> None:
    network = load("lenet")
    for name in ("out", "kernel"):
        attrs = {key: value for key, value in network.node("conv2").attrs.items() if key != name}
        nodes = tuple(
            replace(node, attrs=attrs) if node.name == "conv2" else node for node in network.nodes
        )
        problem = only(errors(replace(network, nodes=nodes)), "missing", "conv2")
        assert f"'{name}'" in problem.message
    bare = tuple(
        replace(node, attrs={"out": 10}) if node.name == "ip2" else node for node in network.nodes
    )
    assert "lacks" in only(errors(replace(network, nodes=bare)), "missing", "ip2").message


@pytest.mark.parametrize(
    ("net", "node", "attrs", "word"),
    [
        ("lenet", "conv1", {"kernel": (0, 5)}, "kernel"),
        ("lenet", "conv1", {"stride": (1, 0)}, "stride"),
        ("lenet", "conv1", {"dilation": (0, 1)}, "dilation"),
        ("lenet", "conv1", {"pad": ((0, -1), (0, 0))}, "pad"),
        ("lenet", "conv1", {"out": 0}, "out"),
        ("lenet", "conv1", {"groups": 0}, "groups"),
        ("lenet", "conv1", {"groups": 3}, "groups 3 does not divide"),
        ("lenet", "pool1", {"pad": ((2, 2), (0, 0))}, "pad"),
        ("lenet", "ip1", {"out": -1}, "out"),
        ("unet", "up1", {"output_pad": (2, 0)}, "output_pad"),
        ("resnet", "a.bn1", {"eps": -1.0}, "eps"),
        ("resnet", "a.bn1", {"eps": float("nan")}, "eps"),
        ("lstm", "embed", {"rows": 0}, "rows"),
        ("lstm", "lstm", {"layers": 10**9}, "layers"),
        ("lstm", "lstm", {"p": 1.5}, "p"),
        ("transformer", "attention", {"heads": 0}, "heads"),
        ("transformer", "q", {"axes": (1,)}, "two axes"),
    ],
)
def test_ranges(load: Load, net: str, node: str, attrs: Json, word: str) -> None:
    problem = only(errors(changed(load(net), node, attrs=attrs)), "range", node)
    assert word in problem.message


def test_attributes_of_another_kind_or_op(load: Load) -> None:
    only(errors(changed(load("lenet"), "conv1", attrs={"out": "20"})), "attribute", "conv1")
    only(errors(changed(load("lenet"), "conv1", attrs={"ratio": 2})), "attribute", "conv1")
    only(errors(changed(load("lenet"), "conv1", op="WARP")), "op", "conv1")
    only(errors(changed(load("lenet"), "pool1", variant="MEDIAN")), "op", "pool1")
    only(errors(changed(load("lenet"), "conv1", variant="MAX")), "op", "conv1")


@pytest.mark.parametrize(
    ("net", "node", "fields", "seen"),
    [
        ("lenet", "pool2", {"attrs": {"kernel": (16, 16)}}, "length 8"),
        ("lenet", "conv2", {"attrs": {"groups": 25}}, "B×20×12×12"),
        ("resnet", "a.down", {"attrs": {"stride": (1, 1)}}, "B×32×32×32"),
        ("unet", "pool2", {"attrs": {"stride": (3, 2)}}, "B×16×32×24"),
        ("unet", "cat1", {"attrs": {"axis": 4}}, "rank 4"),
        ("unet", "up2", {"attrs": {"pad": ((99, 99), (0, 0))}}, "length"),
        ("transformer", "split", {"attrs": {"sizes": (64, 64, 65)}}, "B×10×192"),
        ("transformer", "attention", {"inputs": (("q", 0), ("qkv", 0), ("v", 0))}, "B×4×10×16"),
        ("transformer", "add1", {"inputs": (("pos", 0), ("qkv", 0))}, "B×10×192"),
        ("transformer", "ln1", {"attrs": {"axis": 3}}, "rank 3"),
        ("transformer", "pos", {"attrs": {"shape": (1, 11, 64)}}, "1×11×64"),
        ("lstm", "lstm", {"inputs": (("zeros", 0), ("tokens", 0))}, "B×12"),
        ("lstm", "last", {"attrs": {"index": 12}}, "B×12×32"),
    ],
)
def test_shapes_that_do_not_fit(load: Load, net: str, node: str, fields: Json, seen: str) -> None:
    found = [each for each in errors(changed(load(net), node, **fields)) if each.rule == "shape"]
    # Downstream of the fault nothing is reported twice.
    assert len(found) == 1, found
    users = {each.name for each in load(net).nodes if (node, 0) in each.inputs}
    behind = {user.name for user in load(net).nodes if any(p in users for p, _ in user.inputs)}
    further = {user.name for user in load(net).nodes if any(p in behind for p, _ in user.inputs)}
    assert found[0].node in {node, *users, *behind, *further}
    assert seen in found[0].seen
    assert found[0].wanted
    assert found[0].seen in str(found[0])


def test_slots(load: Load) -> None:
    network = load("lenet")
    missing = changed(network, "conv1", params={"bias": "conv1.bias"})
    assert "'weight'" in only(errors(missing), "slot", "conv1").message
    no_bias = changed(network, "conv1", params={"weight": "conv1.weight"})
    assert "'bias'" in only(errors(no_bias), "slot", "conv1").message
    extra = changed(network, "relu1", params={"weight": "ip1.weight"})
    assert "RELU has no slot" in only(errors(extra), "slot", "relu1").message
    half = changed(load("resnet"), "a.bn1", params={"running_mean": "m"})
    assert "each other" in only(errors(half), "range", "a.bn1").message
    lone = changed(load("transformer"), "pos", params={})
    assert "slot value" in only(errors(lone), "range", "pos").message


def test_tensors(load: Load) -> None:
    network = load("lenet")
    good = tensors_of(network)
    gone = {name: value for name, value in good.items() if name != "ip1.bias"}
    assert "'ip1.bias'" in only(errors(network, gone), "tensor", "ip1").message
    wider = {**good, "conv2.weight": ("float32", (50, 20, 5, 3))}
    problem = only(errors(network, wider), "tensor-shape", "conv2")
    assert (problem.seen, problem.wanted) == ("50×20×5×3", "50×20×5×5")
    mixed = {**good, "ip1.bias": ("float16", (500,))}
    assert "float16 and float32" in only(errors(network, mixed), "tensor-dtype", "ip1").seen
    whole = {**good, "ip1.bias": ("int64", (500,)), "ip1.weight": ("int64", (500, 800))}
    assert len([e for e in errors(network, whole) if e.rule == "tensor-dtype"]) == 2
    more = {**good, "step": ("int64", ())}
    problems = verify(network, more)
    assert [(each.rule, each.severity) for each in problems] == [("extra", "warning")]
    assert "'step'" in problems[0].message


def test_norms_may_keep_wider_statistics(load: Load) -> None:
    network = load("resnet")
    tensors = tensors_of(network)
    tensors["a.bn1.weight"] = ("bfloat16", tensors["a.bn1.weight"][1])
    assert verify(network, tensors) == []


def test_tied_tensors_are_stored_once(load: Load) -> None:
    network = changed(load("transformer"), "head", params={"weight": "head.weight"})
    tensors = tensors_of(network)
    del tensors["head.weight"]
    only(errors(network, tensors), "tensor", "head")
    assert verify(replace(network, aliases={"head.weight": "wte.weight"}), tensors) == []
    tensors["head.weight"] = tensors["wte.weight"]
    assert verify(replace(network, aliases={"head.weight": "wte.weight"}), tensors) == []


def test_the_other_names_of_a_used_tensor_are_not_extra(load: Load) -> None:
    network = load("transformer")
    tensors = tensors_of(network)
    tensors["head.weight"] = tensors["wte.weight"]
    assert [each.rule for each in verify(network, tensors)] == ["extra"]
    assert verify(replace(network, aliases={"head.weight": "wte.weight"}), tensors) == []


def test_one_tensor_in_two_shapes(load: Load) -> None:
    network = changed(load("transformer"), "head", attrs={"out": 501})
    problem = only(errors(network), "shared", "head")
    assert (problem.seen, problem.wanted) == ("500×64", "501×64")


def test_constants_get_their_shape_from_the_tensors(load: Load) -> None:
    network = changed(load("lenet"), "relu1", op="ADD", attrs={}, inputs=(("ip1", 0), ("k", 0)))
    nodes = tuple(
        replace(node, attrs={"const": None, "shape": None}) if node.name == "relu1" else node
        for node in network.nodes
    )
    network = replace(network, nodes=nodes, constants={"k": "0" * 64})
    assert {each.rule for each in verify(network)} == {"unchecked"}
    tensors = tensors_of(load("lenet"))
    assert verify(network, {**tensors, "k": ("float32", (1, 500))}) == []
    only(errors(network, {**tensors, "k": ("float32", (3, 499))}), "shape", "relu1")


def test_what_could_not_be_checked_is_said(load: Load) -> None:
    network = changed(load("lenet"), "relu1", op="OP", variant="raw", attrs={})
    network = replace(
        network,
        nodes=tuple(replace(n, attrs={}) if n.name == "relu1" else n for n in network.nodes),
    )
    found = verify(network)
    assert {each.severity for each in found} == {"warning"}
    assert only(found, "unchecked", "relu1").alias == "op1"
    assert only(found, "unchecked", None).message.startswith("2 layers")
    recorded = replace(
        network,
        nodes=tuple(
            replace(n, out_shape=("B", 500)) if n.name == "relu1" else n for n in network.nodes
        ),
    )
    assert verify(recorded) == []


def test_a_recorded_shape_counts_only_behind_the_same_inputs(load: Load) -> None:
    network = changed(load("lenet"), "relu1", op="OP", variant="raw", out_shape=("B", 500))
    source = replace(
        network,
        nodes=tuple(replace(n, attrs={}) if n.name == "relu1" else n for n in network.nodes),
    )
    assert infer(source, source=source).node("ip2").out_shape == ("B", 10)
    edited = changed(source, "ip1", attrs={"out": 400})
    assert infer(edited).node("relu1").out_shape == ("B", 500)
    assert infer(edited, source=source).node("relu1").out_shape is None


def test_inferred_shapes_of_the_fixtures(load: Load) -> None:
    lenet = infer(load("lenet"))
    assert [node.out_shape for node in lenet.nodes] == [
        ("B", 20, 24, 24),
        ("B", 20, 12, 12),
        ("B", 50, 8, 8),
        ("B", 50, 4, 4),
        ("B", 800),
        ("B", 500),
        ("B", 500),
        ("B", 10),
        ("B", 10),
    ]
    assert lenet.id == load("lenet").id
    assert infer(load("unet")).node("head").out_shape == ("B", 2, 64, 48)
    assert infer(load("lstm")).node("fc").out_shape == ("B", 2)
    assert infer(load("resnet")).node("fc").out_shape == ("B", 10)
    transformer = infer(load("transformer"))
    assert transformer.node("attention").out_shape == ("B", 4, 10, 16)
    assert transformer.node("head").out_shape == ("B", 10, 500)


def test_faults_anywhere_never_raise(load: Load) -> None:
    network = load("transformer")
    for node in network.nodes:
        for fields in (
            {"inputs": ()},
            {"inputs": (("nix", 5),)},
            {"inputs": (("head", 0),)},
            {"inputs": (("tokens", 0),) * 3},
            {"params": {"weight": "qkv.weight", "odd": "wte.weight"}},
            {"op": "NONE"},
            {"op": "CONV"},
            {"op": "OP", "variant": "raw"},
        ):
            broken = changed(network, node.name, **fields)
            verify(broken, tensors_of(network))
            infer(broken)


def test_a_thousand_layers_take_well_under_a_second() -> None:
    nodes: list[Json] = [
        {
            "name": f"c{i}",
            "op": "CONV",
            "attrs": {"out": 3, "kernel": 3, "pad": 1},
            "inputs": [f"c{i - 1}" if i else "x"],
            "params": {"weight": f"w{i}"},
        }
        for i in range(1000)
    ]
    image = {"name": "x", "shape": ["B", 3, 32, 32]}
    network, _ = read({"dlv_network": 1, "inputs": [image], "nodes": nodes, "outputs": ["c999"]})
    started = time.process_time()
    assert verify(network) == []
    assert infer(network).node("c999").out_shape == ("B", 3, 32, 32)
    assert len(network.id) == 64
    assert time.process_time() - started < 5
