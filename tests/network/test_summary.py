from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dlv.network.graph import Network
from dlv.network.json_form import read
from dlv.network.summary import outlines, summary

Load = Callable[[str], Network]


def test_lenet_by_hand(load: Load) -> None:
    found = summary(load("lenet"))
    rows = {row.name: row for row in found.rows}
    assert rows["conv1"].parameters == 20 * 25 + 20
    assert rows["conv1"].flops == 2 * 20 * 24 * 24 * 25
    assert rows["conv1"].activation_bytes == 20 * 24 * 24 * 4
    assert rows["conv1"].out_shape == ("B", 20, 24, 24)
    assert rows["ip1"].flops == 2 * 800 * 500
    assert rows["ip1"].alias == "full1"
    assert rows["flatten"].activation_bytes == 0
    assert found.parameters == 520 + 25_050 + 400_500 + 5_010
    assert found.flops == 2 * (20 * 576 * 25 + 50 * 64 * 500 + 800 * 500 + 500 * 10)
    assert (found.layers, found.depth, found.buffers) == (8, 8, 0)


def test_running_statistics_are_buffers(load: Load) -> None:
    found = {row.name: row for row in summary(load("resnet")).rows}
    assert (found["a.bn1"].parameters, found["a.bn1"].buffers) == (64, 64)


def test_a_shared_tensor_counts_once(load: Load) -> None:
    found = {row.name: row for row in summary(load("transformer")).rows}
    assert found["wte"].parameters == 500 * 64
    assert found["head"].parameters == 0
    assert found["pos"].parameters == 640
    assert found["attention"].flops == 2 * 2 * 4 * 10 * 10 * 16
    assert found["qkv"].flops == 2 * 10 * 64 * 192


def test_costs_are_per_example_whatever_the_batch(plain: Callable[[str], Any]) -> None:
    data = plain("lenet")
    costs = []
    for batch in ("B", "N", 1, 8):
        data["inputs"][0]["shape"][0] = batch
        found = summary(read(data)[0])
        costs.append((found.flops, found.activation_bytes, found.parameters))
    assert len(set(costs)) == 1


def test_a_batch_hidden_in_a_product_does_not_hide_the_cost(plain: Callable[[str], Any]) -> None:
    data = plain("transformer")
    for node in data["nodes"]:
        if node["name"] == "proj":
            node["inputs"] = ["rows"]
        if node["name"] == "add1":
            node["inputs"] = ["pos", "back"]
    rows: dict[str, Any] = {"name": "rows", "op": "RESHAPE", "inputs": ["join"]}
    rows["attrs"] = {"kind": "view", "size": [-1, 64]}
    back: dict[str, Any] = {"name": "back", "op": "RESHAPE", "inputs": ["proj"]}
    back["attrs"] = {"kind": "view", "size": ["B", 10, 64]}
    data["nodes"] += [rows, back]
    network, _ = read(data)
    found = {row.name: row for row in summary(network).rows}
    assert found["proj"].out_shape == (None, 64)
    assert found["proj"].flops == 2 * 10 * 64 * 64


def test_what_is_not_known_is_none(load: Load) -> None:
    network = load("lenet")
    raw = replace(network.node("relu1"), op="OP", variant="raw", attrs={}, params={"w": "roll.w"})
    nodes = tuple(raw if node.name == "relu1" else node for node in network.nodes)
    found = summary(replace(network, nodes=nodes))
    rows = {row.name: row for row in found.rows}
    assert rows["relu1"].parameters is None
    assert rows["ip2"].flops is None
    assert (found.parameters, found.flops, found.activation_bytes) == (None, None, None)
    told = summary(replace(network, nodes=nodes), {"roll.w": ("float32", (3, 4))})
    assert {row.name: row.parameters for row in told.rows}["relu1"] == 12
    assert summary(Network()).parameters == 0


def test_outlines_are_what_the_summary_says(load: Load, named: str) -> None:
    network = load(named)
    rows = {row.name: (row.out_shape, row.parameters or 0) for row in summary(network).rows}
    assert outlines(network) == rows
