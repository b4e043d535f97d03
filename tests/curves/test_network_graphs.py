"""Networks as TensorBoard's Graphs page draws them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorboard.compat.proto import graph_pb2

from dlv.curves.board import graph_nodes
from dlv.events.formats.pbtxt import GraphNode, graph_def
from dlv.network.json_form import read


def drawn(nodes: Sequence[dict[str, Any]], inputs: Sequence[str] = ("x",)) -> dict[str, GraphNode]:
    network, _ = read(
        {
            "dlv_network": 1,
            "inputs": [{"name": n, "shape": ["B", 1, 8, 8], "dtype": "float32"} for n in inputs],
            "nodes": nodes,
            "outputs": [nodes[-1]["name"]],
        }
    )
    found = list(graph_nodes(network))
    assert len({node.name for node in found}) == len(found)
    return {node.name: node for node in found}


def conv(name: str, source: str) -> dict[str, Any]:
    slots = {slot: f"{name}.{slot}" for slot in ("weight", "bias")}
    attrs = {"out": 4, "kernel": [3, 3]}
    return {"name": name, "op": "CONV", "attrs": attrs, "inputs": [source], "params": slots}


def relu(name: str, *sources: str) -> dict[str, Any]:
    return {"name": name, "op": "RELU", "attrs": {}, "inputs": list(sources)}


def test_nodes_edges_shapes_and_attributes() -> None:
    found = drawn([conv("conv1", "x"), relu("relu1", "conv1")])
    assert list(found) == ["x", "conv1", "relu1"]
    assert found["x"].op == "Input"
    assert found["x"].shapes == [[None, 1, 8, 8]]
    layer = found["conv1"]
    assert (layer.op, layer.inputs, layer.shapes) == ("CONV", ["x"], [[None, 4, 6, 6]])
    assert layer.attributes["out"] == 4
    assert layer.attributes["parameters"] == 4 * 9 + 4
    assert layer.attributes["params.weight"] == "conv1.weight"
    assert "output" not in layer.attributes
    assert found["relu1"].attributes["output"] is True


def test_dots_fold_the_graph() -> None:
    found = drawn([conv("block.0.conv", "x"), relu("block.0.relu", "block.0.conv")])
    assert found["block/0/relu"].inputs == ["block/0/conv"]


def test_names_that_would_meet_stay_apart() -> None:
    found = drawn([relu("a.b", "x"), relu("a/b", "a.b"), relu("c..d", "a/b"), relu("c.d", "c..d")])
    assert list(found) == ["x", "a.b", "a/b", "c..d", "c.d"]
    assert found["a/b"].inputs == ["a.b"]
    assert found["c.d"].inputs == ["c..d"]


def test_many_of_one_operation_are_told_apart() -> None:
    few = drawn([relu(f"relu{i}", f"relu{i - 1}" if i else "x") for i in range(4)])
    assert {node.op for node in few.values()} == {"Input", "RELU"}
    many = drawn([relu(f"r{i}", f"r{i - 1}" if i else "x") for i in range(5)])
    assert [many[f"r{i}"].op for i in range(5)] == [f"RELU (relu{i + 1})" for i in range(5)]
    scopes = drawn([relu(f"s{i}.relu", f"s{i - 1}.relu" if i else "x") for i in range(5)])
    assert {node.op for node in scopes.values()} == {"Input", "RELU"}


def test_other_outputs_of_a_node_are_named() -> None:
    lstm = {"name": "split", "op": "OP", "variant": "raw", "attrs": {}, "inputs": ["x"]}
    last = {**relu("last"), "inputs": [["split", 1]]}
    assert drawn([lstm, last])["last"].inputs == ["split:1"]


def test_it_is_a_graph_for_tensorboard() -> None:
    found = drawn([conv("conv1", "x"), relu("relu1", "conv1")])
    graph = graph_pb2.GraphDef.FromString(graph_def(found.values()))
    assert [node.name for node in graph.node] == ["x", "conv1", "relu1"]
    assert list(graph.node[1].attr["kernel"].list.i) == [3, 3]
