"""Graphs of ONNX files as networks: names, order, bodies, what is kept raw, what is refused."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper

from dlv.errors import Damaged, UnsafeInput
from dlv.network.graph import Node
from dlv.network.torch.module import build
from tests.onnx_models import MODELS, array, constant, model, op, value
from tests.onnx_reading import (
    elements,
    in_onnxruntime,
    in_torch,
    network_of,
    opened,
    random_input,
    sound,
    word,
    words,
)

torch.set_num_threads(1)

ROWS: dict[str, Any] = {"x": ["B", 6]}


def names(made: onnx.ModelProto, folder: Path) -> list[str]:
    return [node.name for node in network_of(made, folder).nodes]


# The models, node by node


def test_lenet(tmp_path: Path) -> None:
    """What torch, Caffe and Keras say of the same network."""
    network = network_of(MODELS["lenet"](), tmp_path)
    assert [(node.name, word(node)) for node in network.nodes] == [
        ("conv1", "CONV"),
        ("pool1", "POOL.MAX"),
        ("conv2", "CONV"),
        ("pool2", "POOL.MAX"),
        ("flatten", "flatten"),
        ("ip1", "FULL"),
        ("relu1", "RELU"),
        ("ip2", "FULL"),
        ("softmax", "SOFTMAX"),
    ]
    conv, pool, full = (network.node(name) for name in ("conv1", "pool1", "ip1"))
    assert conv.attrs == {
        "out": 20,
        "kernel": (5, 5),
        "stride": (1, 1),
        "pad": ((0, 0), (0, 0)),
        "dilation": (1, 1),
        "groups": 1,
        "bias": True,
        "layout": "kernel_last",
        "channels": "first",
    }
    assert (pool.attrs["kernel"], pool.attrs["stride"]) == ((2, 2), (2, 2))
    assert full.attrs == {"out": 500, "bias": True, "layout": "out_in"}
    assert full.params == {"weight": "ip1.weight", "bias": "ip1.bias"}
    assert network.inputs[0].shape == ("B", 1, 28, 28)
    assert network.outputs == (("softmax", 0),)


def test_lenet_from_torch_is_the_same(tmp_path: Path) -> None:
    """The graph that torch.export gives, written by dlv, comes back node for node."""
    zoo = pytest.importorskip("tests.zoo.models")
    tracing = pytest.importorskip("dlv.adapters.aten.live")
    module, inputs = zoo.build("lenet")
    traced = tracing.trace(module, inputs).network
    read = network_of(MODELS["lenet"](), tmp_path)
    for one, other in zip(traced.nodes, read.nodes, strict=True):
        assert (one.op, one.variant, one.params) == (other.op, other.variant, other.params)
        assert dict(one.attrs) == dict(other.attrs)
    assert [item.shape for item in traced.inputs] == [item.shape for item in read.inputs]


def test_residual(tmp_path: Path) -> None:
    network = network_of(MODELS["residual"](), tmp_path)
    assert [node.name for node in network.nodes] == ["c1", "n1", "c", "c2", "n2", "f", "y"]
    assert dict(network.node("n1").attrs) == {"eps": 1e-5, "momentum": 0.1, "axis": 1}
    assert dict(network.node("n2").attrs) == {"eps": 1e-3, "momentum": 0.01, "axis": 1}
    with opened(MODELS["residual"](), tmp_path) as checkpoint:
        roles = {tensor.name: tensor.role for tensor in checkpoint.tensors}
    assert roles["n1.running_var"] == "buffer"
    assert roles["n1.weight"] == "weight"


def test_attention(tmp_path: Path) -> None:
    """Decomposed normalisation and GELU are layers again; attention itself is not guessed at."""
    network = network_of(MODELS["attention"](), tmp_path)
    layers = [node for node in network.nodes if not node.plumbing]
    assert [(node.name, word(node)) for node in layers] == [
        ("/ln1/Add", "NORM.LAYER"),
        ("/q/MatMul", "FULL"),
        ("/k/MatMul", "FULL"),
        ("/v/MatMul", "FULL"),
        ("s0", "aten.matmul.default"),
        ("s1", "MUL"),
        ("s2", "SOFTMAX"),
        ("o0", "aten.matmul.default"),
        ("o", "FULL"),
        ("r", "ADD"),
        ("/ln2/Add", "NORM.LAYER"),
        ("f1", "FULL"),
        ("/act/Mul_1", "ACT.GELU"),
        ("f2", "FULL"),
        ("y", "ADD"),
    ]
    assert network.node("f1").params == {"weight": "f1.w", "bias": "f1.b"}
    assert network.node("f1").attrs["layout"] == "in_out"


@pytest.mark.parametrize("name", MODELS)
def test_models_compute_the_same(tmp_path: Path, name: str) -> None:
    made = MODELS[name]()
    with opened(made, tmp_path) as checkpoint:
        for batch in (1, 3):
            inputs = random_input(made, batch)
            for one, other in zip(
                in_onnxruntime(made, inputs), in_torch(checkpoint, inputs), strict=True
            ):
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


# Names


def test_names_are_kept(tmp_path: Path) -> None:
    nodes = [
        op("Relu", "x", "onnx::a/1", name="/blk.0/act::Relu"),
        op("Relu", "onnx::a/1", "b", name="ü: 1"),
        op("Relu", "b", "y", name="x"),
    ]
    assert names(model(nodes, ROWS), tmp_path) == ["/blk.0/act::Relu", "ü: 1", "x_1"]


def test_names_are_made_unique(tmp_path: Path) -> None:
    """The first of a name keeps it; one that was written comes before one that was made up."""
    nodes = [
        op("Relu", "x", "r"),
        op("Relu", "r", "b", name="n"),
        op("Relu", "b", "c", name="n"),
        op("Relu", "c", "d", name="r"),
        op("Relu", "d", "e", name="n_1"),
        op("Relu", "e", "y"),
    ]
    assert names(model(nodes, ROWS), tmp_path) == ["r_", "n", "n_2", "r", "n_1", "y"]


def test_names_from_weights(tmp_path: Path) -> None:
    weights = {
        "a.weight": array(6, 6),
        "b/kernel": array(6, 6),
        "c_w": array(6, 6),
        "w": array(6, 6),
        "weight": array(6, 6),
    }
    nodes = [
        op("MatMul", "x a.weight", "1"),
        op("MatMul", "1 b/kernel", "2"),
        op("MatMul", "2 c_w", "3"),
        op("MatMul", "3 w", "4"),
        op("MatMul", "4 a.weight", "5"),
        op("MatMul", "5 weight", "y"),
    ]
    assert names(model(nodes, ROWS, weights), tmp_path) == ["a", "b", "c", "4", "5", "y"]


def test_a_folded_layer_is_called_after_its_module(tmp_path: Path) -> None:
    """dlv's own writer calls the last operator as the layer, and others after it."""
    weights = {"w": array(6, 6), "b": array(6)}
    for matmul, add, wanted in (
        ("fc/MatMul", "fc", "fc"),
        ("/fc/MatMul", "/fc/Add", "/fc/MatMul"),
        ("", "sum", "sum"),
        ("m", "", "m"),
    ):
        nodes = [op("MatMul", "x w", "t", name=matmul), op("Add", "t b", name=add)]
        assert names(model(nodes, ROWS, weights), tmp_path) == [wanted]


# Order and sharing


def test_operators_in_any_order(tmp_path: Path) -> None:
    nodes = [op("Relu", "b"), op("Relu", "a", "b"), op("Relu", "x", "a")]
    assert names(model(nodes, ROWS), tmp_path) == ["a", "b", "y"]


def test_a_weight_used_twice(tmp_path: Path) -> None:
    made = model([op("MatMul", "x w", "a"), op("MatMul", "a w")], ROWS, {"w": array(6, 6)})
    with opened(made, tmp_path) as checkpoint:
        assert [dict(node.params) for node in sound(checkpoint).nodes] == [{"weight": "w"}] * 2
        assert [tensor.name for tensor in checkpoint.tensors] == ["w"]


def test_outputs(tmp_path: Path) -> None:
    """Several, one of them an input, one a constant, one a weight, one within the graph."""
    made = model(
        [
            constant("c", [1.0, 2.0], "float32"),
            op("Relu", "x", "r"),
            op("Identity", "r", "y"),
            op("Identity", "x", "z"),
            op("Identity", "w", "v"),
        ],
        ROWS,
        {"w": array(3)},
        {"y": None, "r": None, "z": None, "c": None, "v": None},
    )
    with opened(made, tmp_path) as checkpoint:
        network = sound(checkpoint)
        assert network.outputs[:4] == (("r", 0), ("r", 0), ("x", 0), ("c", 0))
        inputs = random_input(made)
        for one, other in zip(
            in_onnxruntime(made, inputs), in_torch(checkpoint, inputs), strict=True
        ):
            np.testing.assert_array_equal(one, other)


def test_nothing_idle_is_left_of_shapes(tmp_path: Path) -> None:
    """Operators that only told lengths leave no nodes; those that nobody reads do."""
    nodes = [
        op("Transpose", "x", "t"),
        op("Shape", "t", "s"),
        constant("i", 0),
        op("Gather", "s i", "n"),
        constant("a", [0]),
        op("Unsqueeze", "n a", "u"),
        constant("m", [-1]),
        op("Concat", "m u", "z", axis=0),
        op("Reshape", "x z"),
        op("Relu", "x", "unread"),
    ]
    assert words(network_of(model(nodes, ROWS), tmp_path)) == ["view", "RELU"]


def test_shapes_of_unknown_operators(tmp_path: Path) -> None:
    """They are as the file says; what comes behind them is known again."""
    nodes = [op("Odd", "x", "a"), op("MatMul", "a w")]
    values = [value("a", ["B", 6])]
    network = network_of(model(nodes, ROWS, {"w": array(6, 2)}, values=values), tmp_path)
    assert network.node("a").out_shape == ("B", 6)
    assert words(network) == ["onnx:Odd", "FULL"]


# What is kept raw


def source(node: Node) -> dict[str, Any]:
    assert node.source is not None
    return dict(node.source)


def test_raw_operators_keep_everything(tmp_path: Path) -> None:
    made = model(
        [
            helper.make_node(
                "Thing",
                ["x", "", "w", "k"],
                ["y", "", "z"],
                domain="com.example",
                name="it",
                alpha=0.1,
                big=float("inf"),
                sizes=[1, 2],
                mode="fast",
                modes=["a", "b"],
                table=onnx.numpy_helper.from_array(np.array([1, 2], np.int32)),
            ),
            op("Add", "y z", "out"),
        ],
        ROWS,
        {"w": array(4), "k": np.array([7])},
        {"out": None},
    )
    made.opset_import.add(domain="com.example", version=3)
    with opened(made, tmp_path) as checkpoint:
        network = sound(checkpoint)
        assert words(network) == ["onnx:com.example::Thing", "getitem", "getitem", "ADD"]
        node = network.node("it")
        assert node.inputs == (("x", 0), ("k", 0))
        assert node.params == {"p0": "w"}
        assert source(node) == {
            "dialect": "onnx",
            "op": "com.example::Thing",
            "opset": 3,
            "outputs": 3,
            "args": [{"n": 0}, {"c": None}, {"p": "p0"}, {"n": 1}],
            "kwargs": {
                "alpha": {"c": 0.1},
                "big": {"c": "Infinity"},
                "sizes": {"l": [{"c": 1}, {"c": 2}]},
                "mode": {"c": "fast"},
                "modes": {"l": [{"c": "a"}, {"c": "b"}]},
                "table": {
                    "tensor": {
                        "dtype": "int32",
                        "shape": [2],
                        "elements": base64.b64encode(np.array([1, 2], "<i4").tobytes()).decode(),
                    }
                },
            },
        }
        assert [network.node(name).attrs["index"] for name in ("it.0", "it.2")] == [0, 2]
        assert any("com.example::Thing" in note for note in checkpoint.notes)


def test_slots_of_a_recurrent_layer(tmp_path: Path) -> None:
    made = model(
        [op("LSTM", "x W_0 R_0 B_0 - h - -", "- y", hidden_size=3)],
        {"x": [4, "B", 2], "h": [1, "B", 3]},
        {"W_0": array(1, 12, 2), "R_0": array(1, 12, 3), "B_0": array(1, 24)},
    )
    node = network_of(made, tmp_path).nodes[0]
    assert node.params == {"W": "W_0", "R": "R_0", "B": "B_0"}
    assert node.out_shape == (4, 1, "B", 3)


def branch(name: str, *nodes: onnx.NodeProto, **more: Any) -> onnx.GraphProto:
    return helper.make_graph(nodes, name, [], [value(nodes[-1].output[0], None)], **more)


def test_bodies(tmp_path: Path) -> None:
    """If: the graphs are kept; what they take from around them flows into the node."""
    inner = branch(
        "inner",
        op("Add", "r local", "q"),
        initializer=[onnx.numpy_helper.from_array(array(6), "local")],
    )
    then = branch("then", op("If", "c", "t", then_branch=inner, else_branch=inner))
    other = branch("other", op("MatMul", "r w", "e"))
    made = model(
        [op("Relu", "x", "r"), op("If", "c", "y", then_branch=then, else_branch=other)],
        {**ROWS, "c": ("bool", [])},
        {"w": array(6, 6)},
    )
    with opened(made, tmp_path) as checkpoint:
        network = sound(checkpoint)
        node = network.node("y")
        assert word(node) == "onnx:If"
        assert set(node.inputs) == {("c", 0), ("r", 0)}
        assert list(node.params.values()) == ["w"]
        assert set(source(node)["captured"]) == {"c", "r", "w"}
        kept = source(node)["kwargs"]["else_branch"]["graph"]
        assert onnx.GraphProto.FromString(base64.b64decode(kept)) == other
        assert [tensor.name for tensor in checkpoint.tensors] == ["w"]
        assert any("graphs of its own" in note for note in checkpoint.notes)


def test_what_a_body_makes_itself_does_not_flow_in(tmp_path: Path) -> None:
    body = branch("body", op("Neg", "x", "r"), op("Relu", "r", "q"))
    nodes = [op("Relu", "x", "r"), op("If", "c", "t", then_branch=body, else_branch=body)]
    made = model([*nodes, op("Add", "r t")], {**ROWS, "c": ("bool", [])})
    assert set(network_of(made, tmp_path).node("t").inputs) == {("c", 0), ("x", 0)}


def test_a_large_body_is_named_by_its_hash(tmp_path: Path) -> None:
    large = branch("large", constant("q", array(50_000), "float32"))
    made = model([op("If", "c", "y", then_branch=large, else_branch=large)], {"c": ("bool", [])})
    kept = source(network_of(made, tmp_path).nodes[0])["kwargs"]["then_branch"]
    assert kept["graph"] is None
    assert kept["bytes"] == large.ByteSize()


def test_functions_of_the_model(tmp_path: Path) -> None:
    made = model([helper.make_node("Block", ["x"], ["y"], domain="local")], ROWS)
    function = helper.make_function(
        "local", "Block", ["a"], ["b"], [op("Relu", "a", "b")], [helper.make_opsetid("", 17)]
    )
    made.functions.append(function)
    made.opset_import.add(domain="local", version=1)
    assert words(network_of(made, tmp_path)) == ["onnx:local::Block"]


def test_a_function_in_the_place_of_an_operator(tmp_path: Path) -> None:
    """What a model defines itself is not what the name means elsewhere."""
    made = model([op("Relu", "x")], ROWS)
    made.functions.append(helper.make_function("", "Relu", ["a"], ["b"], [op("Neg", "a", "b")], []))
    assert words(network_of(made, tmp_path)) == ["onnx:Relu"]


# Numbers and lengths


def test_lengths_of_data_are_operators_where_data_needs_them(tmp_path: Path) -> None:
    """The same length once as a size, once as data: the second needs the operators."""
    nodes = [
        op("Shape", "x", "s"),
        constant("i", 1),
        op("Gather", "s i", "n"),
        op("Cast", "n", "f", to=1),
        op("Div", "x f"),
    ]
    network = network_of(model(nodes, {"x": ["B", None]}), tmp_path)
    assert words(network) == ["onnx:Shape", "onnx:Gather", "to", "aten.div.Tensor"]
    assert network.node("y").inputs == (("x", 0), ("f", 0))


def test_known_lengths_are_numbers(tmp_path: Path) -> None:
    """The scale of attention: 1 / sqrt of a length that is known."""
    nodes = [
        op("Shape", "x", "s"),
        constant("i", [-1]),
        constant("one", [1.0], "float32"),
        op("Gather", "s i", "n"),
        op("Cast", "n", "f", to=1),
        op("Sqrt", "f", "r"),
        op("Div", "one r", "q"),
        op("Mul", "x q"),
    ]
    network = network_of(model(nodes, {"x": ["B", 16]}), tmp_path)
    assert words(network) == ["MUL"]
    assert network.nodes[0].attrs["const"] == 0.25


def test_a_buffer_of_whole_numbers_is_a_constant_or_a_tensor(tmp_path: Path) -> None:
    made = model(
        [op("Gather", "e positions", "p"), op("Add", "x p")],
        {"x": ["B", 5, 6]},
        {"e": array(9, 6), "positions": np.arange(5)},
    )
    with opened(made, tmp_path) as checkpoint:
        network = sound(checkpoint)
        assert words(network) == ["EMBED", "ADD"]
        assert list(network.constants) == ["positions"]
        inputs = random_input(made)
        np.testing.assert_allclose(
            in_onnxruntime(made, inputs)[0], in_torch(checkpoint, inputs)[0], rtol=1e-6
        )


def test_gradients_reach_the_weights(tmp_path: Path) -> None:
    with opened(MODELS["attention"](), tmp_path) as checkpoint:
        module = build(
            sound(checkpoint),
            {tensor.name: elements(tensor) for tensor in checkpoint.tensors},
            {tensor.name: elements(tensor) for tensor in checkpoint.constants},
        )
        module(torch.randn(2, 5, 8)).square().sum().backward()
        assert all(parameter.grad is not None for parameter in module.parameters())
        assert set(module.state_dict()) == {tensor.name for tensor in checkpoint.tensors}


# What is refused

REFUSED = {
    "cycle": [op("Relu", "b", "a"), op("Relu", "a", "b"), op("Relu", "x")],
    "twice": [op("Relu", "x"), op("Relu", "x")],
    "missing": [op("Relu", "nowhere")],
    "output": [op("Relu", "x", "other")],
    "over an input": [op("Relu", "x", "x")],
}


@pytest.mark.parametrize("name", REFUSED)
def test_broken_graphs(tmp_path: Path, name: str) -> None:
    with pytest.raises(Damaged) as caught, opened(model(REFUSED[name], ROWS), tmp_path):
        pass
    assert "m.onnx" in caught.value.message


def test_two_attributes_of_one_name(tmp_path: Path) -> None:
    node = op("LeakyRelu", "x", alpha=0.1)
    node.attribute.add().CopyFrom(node.attribute[0])
    with pytest.raises(UnsafeInput, match="alpha"), opened(model([node], ROWS), tmp_path):
        pass
