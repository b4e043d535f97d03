from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.errors import DlvError, NewerFormat, UsageError
from dlv.network.graph import Input, Network, Node
from dlv.network.json_form import read, write
from dlv.network.vocabulary import complete

Json = dict[str, Any]
Make = Callable[..., Json]
Load = Callable[[str], Network]
X = {"name": "x", "shape": ["B", 3, 8, 8]}


def through_text(network: Network) -> Network:
    again, warnings = read(json.loads(json.dumps(write(network), allow_nan=False)))
    assert warnings == []
    return again


def test_written_and_read_again_it_has_the_same_id(load: Load, named: str) -> None:
    network = load(named)
    assert through_text(network).id == network.id
    assert read(network.canonical())[0].id == network.id


@settings(max_examples=100)
@given(st.data())
def test_random_networks_keep_their_id(
    random_network: st.SearchStrategy[Json], data: st.DataObject
) -> None:
    plain = data.draw(random_network)
    network, warnings = read(plain)
    assert warnings == []
    again = through_text(network)
    assert again == network
    assert again.id == network.id


def test_names_and_ports_with_colons_are_told_apart() -> None:
    size = complete("RESHAPE", None, {"kind": "split", "sizes": [1, 2]})
    nodes = tuple(Node(name, "RESHAPE", None, size, (("x", 0),)) for name in ("a", "a:1", "b:0:1"))
    ports = (("a", 1), ("a:1", 0), ("a:1", 1), ("b:0:1", 0), ("a", 0), ("gone:7", 0), ("b:0", 2))
    network = Network((Input("x", (3,)),), nodes, ports)
    form = write(network)
    assert form["outputs"][1] == "a:1"
    assert form["outputs"][0] == ["a", 1]
    assert read(form)[0].outputs == ports


def test_short_references_are_used_where_they_are_clear(load: Load) -> None:
    assert write(load("lstm"))["outputs"] == ["fc", "lstm:1"]


def test_derived_keys_are_written_and_ignored(load: Load) -> None:
    network = replace(load("lenet"), origin={"importer": "torch", "version": "2"})
    form = write(network)
    by_name = {node["name"]: node for node in form["nodes"]}
    assert by_name["conv1"]["out_shape"] == ["B", 20, 24, 24]
    assert by_name["ip1"]["alias"] == "full1"
    assert by_name["flatten"]["alias"] is None
    assert form["origin"] == {"importer": "torch", "version": "2"}
    edge = {"src": "pool2", "src_port": 0, "dst": "ip1", "dst_port": 0, "direct": False}
    assert edge in form["edges"]
    for node in form["nodes"]:
        node["alias"] = "other"
        node["out_shape"] = ["nonsense"]
    form["edges"] = 7
    assert read(form)[0].id == network.id


def test_defaults_are_filled_in(load: Load) -> None:
    conv = load("lenet").node("conv1")
    assert conv.attrs["kernel"] == (5, 5)
    assert conv.attrs["pad"] == ((0, 0), (0, 0))
    assert conv.attrs["bias"] is True
    assert load("resnet").node("stem").attrs["bias"] is False


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_scalar_stands_for_every_axis(node_of: Make, network_of: Make, axes: int) -> None:
    data = network_of(
        [{"name": "x", "shape": ["B", 3, *[16] * axes]}],
        [
            # Stored before its producer: the axes are known only after walking the network.
            node_of("p", "POOL", ["r"], variant="AVG", kernel=2),
            node_of("c", "CONV", ["x"], out=4, kernel=3, params={"weight": "w"}),
            node_of("r", "RELU", ["c"]),
        ],
        ["p"],
    )
    network, _ = read(data)
    assert network.node("c").attrs["kernel"] == (3,) * axes
    assert network.node("p").attrs["pad"] == ((0, 0),) * axes


def test_a_scalar_on_unknown_axes_is_refused(node_of: Make, network_of: Make) -> None:
    raw = node_of("o", "OP", ["x"], variant="raw")
    conv = node_of("c", "CONV", ["o"], out=4, kernel=3, params={"weight": "w"})
    with pytest.raises(UsageError, match="'c'") as caught:
        read(network_of([X], [raw, conv], ["c"]))
    assert "list" in str(caught.value.hint)
    loop = node_of("c", "CONV", ["c"], out=4, kernel=3, params={"weight": "w"})
    with pytest.raises(UsageError, match="'c'"):
        read(network_of([X], [loop], ["c"]))


def test_an_unknown_op_becomes_raw_with_a_warning(node_of: Make, network_of: Make) -> None:
    data = network_of([X], [node_of("c", "CONVV", ["x"], out=4)], ["c"])
    network, warnings = read(data)
    assert len(warnings) == 1
    assert "'c'" in warnings[0]
    assert "CONV?" in warnings[0]
    node = network.node("c")
    assert (node.op, node.variant, dict(node.attrs)) == ("OP", "raw", {})
    assert node.source == {"dialect": "json", "op": "CONVV", "args": [], "kwargs": {"out": 4}}
    assert through_text(network).id == network.id


def test_raw_keeps_its_recorded_shape(node_of: Make, network_of: Make) -> None:
    data = network_of([X], [node_of("o", "OP", ["x"], out_shape=["B", None])], ["o"])
    network, _ = read(data)
    assert network.node("o").out_shape == ("B", None)
    assert network.node("o").variant == "raw"
    assert through_text(network).id == network.id


def test_numbers_that_are_not_finite(node_of: Make, network_of: Make) -> None:
    network, _ = read(network_of([X], [node_of("a", "ADD", ["x"], const="-Infinity")], ["a"]))
    assert network.node("a").attrs["const"] == -math.inf
    assert network.canonical()["nodes"][0]["attrs"]["const"] == "-Infinity"
    assert through_text(network).id == network.id


def conv(**changes: Any) -> Json:
    node: Json = {
        "name": "c",
        "op": "CONV",
        "attrs": {"out": 4, "kernel": [3, 3]},
        "inputs": ["x"],
        "params": {"weight": "w"},
    }
    return {**node, **changes}


def net(*nodes: Any, **changes: Any) -> Json:
    return {"dlv_network": 1, "inputs": [X], "nodes": list(nodes), "outputs": ["c"], **changes}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([], ["object"]),
        ({}, ["dlv_network"]),
        (net(output=["c"]), ["output", "outputs"]),
        ({"dlv_network": 1, "nodes": [], "outputs": []}, ["inputs", "missing"]),
        (net(outputs="c"), ["outputs", "list"]),
        (net(conv(parms={})), ["'c'", "parms", "params"]),
        (net(conv(attrs={"out": 4, "kernal": 3})), ["'c'", "kernal", "kernel"]),
        (net(conv(attrs={"kernel": [3, 3]})), ["'c'", "'out'"]),
        (net(conv(attrs={"out": "4", "kernel": [3, 3]})), ["'c'", "'out'", "whole"]),
        (net(conv(attrs=[])), ["'c'", "attrs"]),
        (net(conv(variant="MAX")), ["'c'", "variants"]),
        (net(conv(op="POOL", variant="MAXX", attrs={"kernel": 2})), ["'c'", "MAXX", "MAX"]),
        (net(conv(op="POOL", attrs={"kernel": 2})), ["'c'", "variant", "AVG"]),
        (net(conv(op=["CONV"])), ["'c'", "op"]),
        (net(conv(op="RESHAPE", attrs={"kind": "veiw"})), ["'c'", "veiw", "view"]),
        (net(conv(op="RESHAPE", attrs={"kind": ["view"]})), ["'c'", "view"]),
        (net(conv(op="RESHAPE", attrs={})), ["'c'", "kind"]),
        (net(conv(inputs="x")), ["'c'", "inputs"]),
        (net(conv(inputs=[1])), ["'c'", "reference"]),
        (net(conv(inputs=[["x"]])), ["'c'", "reference"]),
        (net(conv(inputs=[["x", -1]])), ["'c'", "reference"]),
        (net(conv(inputs=["x:99999999999"])), ["'c'", "reference"]),
        (net(conv(params={"weight": 3})), ["'c'", "params"]),
        (net(conv(source=3)), ["'c'", "source"]),
        (net(conv(source={"args": [2**80]})), ["'c'", "source"]),
        (net(conv(source={"args": [math.inf]})), ["'c'", "source"]),
        (net(conv(name="")), ["name"]),
        (net(3), ["node 0"]),
        (net({"op": "RELU"}), ["node 0", "name"]),
        (net(inputs=[{"name": "x"}]), ["'x'", "shape"]),
        (net(inputs=[{"name": "x", "shape": 3}]), ["'x'", "shape"]),
        (net(inputs=[{**X, "dtype": "float23"}]), ["'x'", "float23", "float32"]),
        (net(inputs=[{**X, "type": "float32"}]), ["'x'", "type", "dtype"]),
        (net(constants={"k": "12"}), ["'k'", "hash"]),
        (net(aliases=[]), ["aliases"]),
    ],
)
def test_what_is_wrong_is_named(data: Any, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        read(data)
    error = caught.value
    told = f"{error.message} {error.why} {error.hint} {error.did_you_mean}"
    for word in words:
        assert word in told


@pytest.mark.parametrize("number", [2, 0, "1", True, 1.0, None])
def test_another_format_number_is_a_newer_one(number: Any) -> None:
    with pytest.raises(NewerFormat):
        read(net(conv(), dlv_network=number))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=300)
@given(st.data())
def test_anything_put_anywhere_ends_in_a_network_or_in_an_error_with_text(
    plain: Callable[[str], Json], data: st.DataObject
) -> None:
    form: Any = plain(data.draw(st.sampled_from(("lenet", "lstm"))))
    where: Any = form
    for _ in range(data.draw(st.integers(0, 4))):
        step = data.draw(
            st.sampled_from(sorted(where) if isinstance(where, dict) else range(len(where)))
        )
        if not isinstance(where[step], (dict, list)) or not where[step]:
            break
        where = where[step]
    keys = sorted(where) if isinstance(where, dict) else list(range(len(where)))
    where[data.draw(st.sampled_from(keys))] = data.draw(JSON)
    # Any other exception fails the test.
    with contextlib.suppress(DlvError):
        network, _ = read(form)
        assert through_text(network).id == network.id
