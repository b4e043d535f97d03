"""What axes are made of, through every operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlv.network.edits.axes import network_axes
from dlv.network.graph import Network
from dlv.network.inference import input_shapes, node_shapes
from dlv.network.json_form import read
from dlv.network.ops.axes import Axis, axis_length
from dlv.network.ops.op import op_of

Json = dict[str, Any]
NodeOf = Callable[..., Json]


def _keys(axis: Axis) -> str:
    return "*".join(f"{part.key}{part.length}" for part in axis)


def _axes(network: Network, name: str, port: int = 0) -> list[str]:
    axes = network_axes(network, node_shapes(network))[name][port]
    assert axes is not None
    return [_keys(axis) for axis in axes]


def _parameter(network: Network, name: str, slot: str = "weight") -> list[str]:
    known = network_axes(network, node_shapes(network))
    node = network.node(name)
    inputs = [known[producer][port] for producer, port in node.inputs]
    return [_keys(axis) for axis in op_of(node).parameter_axes(node, inputs, known[name])[slot]]


@pytest.fixture
def made(node_of: NodeOf, network_of: Callable[..., Json]) -> Callable[..., Network]:
    """made(shape, (name, op, attrs), ..): a chain of nodes."""

    def make(shape: list[Any], *layers: Any) -> Network:
        nodes: list[Json] = []
        before = "x"
        for name, op, attrs in layers:
            nodes.append(node_of(name, op, [before], **attrs))
            before = name
        return read(network_of([{"name": "x", "shape": shape}], nodes, [before]))[0]

    return make


def test_lenet(load: Callable[[str], Network]) -> None:
    net = load("lenet")
    assert _axes(net, "x") == ["bB", "c1", "s028", "s128"]
    assert _axes(net, "pool2") == ["bB", "c50", "s04", "s14"]
    assert _axes(net, "flatten") == ["bB", "c50*s04*s14"]
    assert _axes(net, "prob") == ["bB", "c10"]
    assert _parameter(net, "conv2") == ["o.c50", "i.c20", "k05", "k15"]
    assert _parameter(net, "ip1") == ["o.c500", "i.c50*i.s04*i.s14"]
    assert _parameter(net, "ip1", "bias") == ["o.c500"]


def test_channels_last(made: Any) -> None:
    net = made(
        ["B", 28, 28, 1],
        ("conv", "CONV", {"out": 4, "kernel": [3, 3], "channels": "last", "layout": "kernel_first",
         "params": {"weight": "w"}}),
        ("flat", "RESHAPE", {"kind": "view", "size": ["B", -1]}),
        ("fc", "FULL", {"out": 3, "layout": "in_out", "params": {"weight": "v"}}),
    )  # fmt: skip
    assert _axes(net, "x") == ["bB", "s028", "s128", "c1"]
    assert _axes(net, "flat") == ["bB", "s026*s126*c4"]
    assert _parameter(net, "conv") == ["k03", "k13", "i.c1", "o.c4"]
    assert _parameter(net, "fc") == ["i.s026*i.s126*i.c4", "o.c3"]


def test_groups(made: Any) -> None:
    net = made(
        ["B", 4, 8, 8],
        ("deep", "CONV", {"out": 8, "kernel": [3, 3], "groups": 4, "params": {"weight": "w"}}),
        ("pairs", "CONV", {"out": 6, "kernel": [1, 1], "groups": 2, "params": {"weight": "v"}}),
        ("up", "DECONV", {"out": 4, "kernel": [2, 2], "groups": 2, "params": {"weight": "u"}}),
    )
    assert _parameter(net, "deep") == ["o.c4*o.m2", "i.c1", "k03", "k13"]
    assert _axes(net, "deep") == ["bB", "c4*m2", "s06", "s16"]
    assert _parameter(net, "pairs") == ["o.g2*o.c3", "i.c4", "k01", "k11"]
    assert _parameter(net, "up") == ["i.g2*i.c3", "o.c2", "k02", "k12"]
    deep = {"out": 8, "kernel": [3, 3], "groups": 4, "layout": "depthwise", "channels": "last"}
    net = made(["B", 8, 8, 4], ("deep", "CONV", {**deep, "params": {"weight": "w"}}))
    assert _parameter(net, "deep") == ["k03", "k13", "o.c4", "o.m2"]


def test_joined(load: Callable[[str], Network]) -> None:
    axes = network_axes(load("unet"), node_shapes(load("unet")))["cat1"][0]
    assert axes is not None
    assert [(tag, _keys(own)) for tag, own in axes[1][0].pieces] == [
        ("up1:0", "c8"),
        ("down1:0", "c8"),
    ]
    assert _parameter(load("unet"), "head") == ["o.c2", "i.c16", "k01", "k11"]


def test_heads_apart_and_together_again(load: Callable[[str], Network]) -> None:
    net = load("transformer")
    assert _axes(net, "split", 1) == ["bB", "i110", "c/164"]
    assert _axes(net, "k.view") == ["bB", "i110", "c/1.04", "c/1.116"]
    assert _axes(net, "k") == ["bB", "c/1.04", "i110", "c/1.116"]
    assert _axes(net, "join") == ["bB", "i110", "c/0.04*c/2.116"]
    assert _parameter(net, "pos", "value") == ["11", "i110", "c64"]


def test_recurrent(load: Callable[[str], Network]) -> None:
    net = load("lstm")
    assert _parameter(net, "lstm", "weight_ih_l0") == ["gate4*o.c32", "i.c20"]
    assert _parameter(net, "lstm", "weight_hh_l1") == ["gate4*o.c32", "i.c32"]
    assert _parameter(net, "lstm", "weight_ih_l1") == ["gate4*o.c32", "i.way1*i.c32"]
    assert _axes(net, "last") == ["bB", "way1*c32"]


@pytest.mark.parametrize(
    ("layers", "wanted"),
    [
        ([("r", "RESHAPE", {"kind": "permute", "axes": [0, 2, 3, 1]})], "bB s05 s16 c4"),
        ([("r", "RESHAPE", {"kind": "transpose", "axes": [1, -1]})], "bB s16 s05 c4"),
        ([("r", "RESHAPE", {"kind": "select", "axis": 2, "index": 0})], "bB c4 s16"),
        ([("r", "RESHAPE", {"kind": "slice", "axis": 1, "end": 2})], "bB c/None:2:12 s05 s16"),
        ([("r", "RESHAPE", {"kind": "unsqueeze", "axis": 1})], "bB 11 c4 s05 s16"),
        ([("r", "RESHAPE", {"kind": "contiguous"})], "bB c4 s05 s16"),
        ([("r", "POOL", {"variant": "MEAN", "axis": [2, 3]})], "bB c4"),
        ([("r", "POOL", {"variant": "MEAN", "axis": [2, 3], "keep": True})], "bB c4 s01 s11"),
        ([("r", "RESHAPE", {"kind": "view", "size": ["B", 4, 30]})], "bB c4 s05*s16"),
        (
            [
                ("q", "RESHAPE", {"kind": "flatten"}),
                ("r", "RESHAPE", {"kind": "view", "size": ["B", 4, 5, 6]}),
            ],
            "bB c4 s05 s16",
        ),
        ([("r", "RESHAPE", {"kind": "view", "size": ["B", 2, 60]})], "bB c*s0*s1.02 c*s0*s1.160"),
        (
            [
                ("q", "RESHAPE", {"kind": "unsqueeze", "axis": 1}),
                ("r", "RESHAPE", {"kind": "expand", "size": [-1, 3, -1, -1, -1]}),
            ],
            "bB x3 c4 s05 s16",
        ),
        ([("q", "NORM", {"variant": "LAYER"}), ("r", "SOFTMAX", {})], "bB c4 s05 s16"),
    ],
)
def test_plumbing(made: Any, layers: list[Any], wanted: str) -> None:
    conv = ("c", "CONV", {"out": 4, "kernel": [1, 1], "params": {"weight": "w"}})
    assert _axes(made(["B", 3, 5, 6], conv, *layers), "r") == wanted.split()


def test_flattened_without_a_layer_that_knows_channels(made: Any) -> None:
    net = made(
        ["B", 1, 28, 28],
        ("flat", "RESHAPE", {"kind": "flatten"}),
        ("fc", "FULL", {"out": 3, "params": {"weight": "v"}}),
    )
    assert _parameter(net, "fc") == ["o.c3", "i.i11*i.i228*i.i328"]


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_lengths_are_those_of_the_shapes(
    data: st.DataObject, random_network: st.SearchStrategy[Json]
) -> None:
    network = read(data.draw(random_network))[0]
    shapes = node_shapes(network)
    axes = network_axes(network, shapes)
    for name, ports in shapes.items():
        for shape, own in zip(ports, axes[name], strict=True):
            assert (own is None) == (shape is None)
            assert own is None or tuple(map(axis_length, own)) == shape
    _check_parameters(network)


def test_parameters_have_their_shapes(load: Callable[[str], Network], named: str) -> None:
    _check_parameters(load(named))


def _check_parameters(network: Network) -> None:
    shapes = node_shapes(network)
    axes = network_axes(network, shapes)
    for node in network.nodes:
        wanted = op_of(node).parameter_shapes(node, input_shapes(node, shapes))
        inputs = [axes[name][port] for name, port in node.inputs]
        for slot, found in op_of(node).parameter_axes(node, inputs, axes[node.name]).items():
            if slot in node.params:
                assert tuple(map(axis_length, found)) == wanted[slot]
