from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.canonical import HASH, hash_bytes, loads
from dlv.canonical import dumps as canonical_bytes
from dlv.errors import Damaged, NewerFormat, NotFound, UsageError
from dlv.network.graph import Edge, Input, Network, Node
from dlv.network.json_form import read

Json = dict[str, Any]
Load = Callable[[str], Network]
GOLDEN = Path(__file__).parent.parent / "golden" / "network" / "1"


def chain(length: int) -> Network:
    nodes = [
        Node(f"r{i}", "RELU", attrs={"slope": 0.0}, inputs=((f"r{i - 1}" if i else "x", 0),))
        for i in range(length)
    ]
    return Network((Input("x", ("B", 3)),), tuple(nodes), ((f"r{length - 1}", 0),))


def test_golden_bytes_and_id(load: Load) -> None:
    stored = (GOLDEN / "lenet.json").read_bytes()
    network = load("lenet")
    assert canonical_bytes(network.canonical()) == stored
    assert network.id == (GOLDEN / "lenet.id").read_text().strip()
    assert network.id == hash_bytes(stored)
    assert Network.from_canonical(loads(stored)) == network


def test_the_canonical_form_reads_back(load: Load, named: str) -> None:
    network = load(named)
    again = Network.from_canonical(loads(canonical_bytes(network.canonical())))
    assert again == network
    assert again.id == network.id
    assert HASH.match(network.id)


def test_structure_leaves_out_the_source(load: Load) -> None:
    network = load("lenet")
    first = network.nodes[0]
    source = {"dialect": "aten", "op": "conv2d", "args": [], "kwargs": {}}
    other = replace(network, nodes=(replace(first, source=source), *network.nodes[1:]))
    assert other.structure == network.structure
    assert other.id != network.id
    wider = replace(first, attrs={**first.attrs, "out": 21})
    changed = replace(network, nodes=(wider, *network.nodes[1:]))
    assert changed.structure != network.structure


def test_derived_fields_and_origin_are_not_in_the_id(load: Load) -> None:
    network = load("lenet")
    shaped = tuple(replace(node, out_shape=(1, 2)) for node in network.nodes)
    assert replace(network, nodes=shaped, origin={"importer": "t"}).id == network.id
    raw = Node("o", "OP", "raw", inputs=(("x", 0),))
    recorded = replace(raw, out_shape=(3,))
    assert replace(network, nodes=(raw,)).id != replace(network, nodes=(recorded,)).id


def test_order_counts(load: Load) -> None:
    network = load("unet")
    turned = replace(network, nodes=network.nodes[::-1])
    assert turned.id != network.id
    assert {node.name for node in turned.topological()} == {node.name for node in network.nodes}


@given(st.data())
def test_topological_order_is_the_smallest_by_stored_place(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 8))
    pairs = [(i, j) for j in range(count) for i in range(j)]
    chosen = data.draw(st.lists(st.sampled_from(pairs), unique=True) if pairs else st.just([]))
    place = data.draw(st.permutations(range(count)))
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(count))
    graph.add_edges_from(chosen)
    nodes = [
        Node(
            str(i),
            "CONCAT",
            attrs={"axis": 1},
            inputs=tuple((str(a), 0) for a, b in chosen if b == i),
        )
        for i in place
    ]
    network = Network(nodes=tuple(nodes))
    found = [int(node.name) for node in network.topological()]
    assert found == list(networkx.lexicographical_topological_sort(graph, key=place.index))
    assert network.depth() == networkx.dag_longest_path_length(graph) + 1
    assert network.cyclic == ()


@given(st.data())
def test_the_nodes_of_a_cycle_are_named(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    pairs = [(i, j) for i in range(count) for j in range(count)]
    chosen = data.draw(st.lists(st.sampled_from(pairs), unique=True))
    graph = networkx.DiGraph(chosen)
    nodes = [
        Node(
            str(i),
            "CONCAT",
            attrs={"axis": 1},
            inputs=tuple((str(a), 0) for a, b in chosen if b == i),
        )
        for i in range(count)
    ]
    network = Network(nodes=tuple(nodes))
    loops = {
        n for part in networkx.strongly_connected_components(graph) for n in part if len(part) > 1
    }
    loops |= {a for a, b in chosen if a == b}
    between = {
        n
        for n in graph
        if any(networkx.has_path(graph, a, n) for a in loops)
        and any(networkx.has_path(graph, n, b) for b in loops)
    }
    assert {int(node.name) for node in network.cyclic} == between
    assert set(network.node_aliases()) == {node.name for node in nodes}
    if loops:
        with pytest.raises(UsageError, match="cycle"):
            network.topological()


def test_logical_edges_skip_plumbing(load: Load) -> None:
    lenet = load("lenet")
    found = {(edge.src, edge.dst): edge.direct for edge in lenet.logical_edges()}
    assert found[("pool2", "ip1")] is False
    assert found[("conv1", "pool1")] is True
    assert found[("x", "conv1")] is True
    assert not any("flatten" in pair for pair in found)
    raw = {(edge.src, edge.dst): edge.direct for edge in lenet.edges()}
    assert raw[("pool2", "flatten")] is False
    assert raw[("flatten", "ip1")] is False
    assert raw[("conv1", "pool1")] is True


def test_logical_edges_tell_ports_and_drop_shape_dependences(load: Load) -> None:
    transformer = load("transformer")
    into = [edge for edge in transformer.logical_edges() if edge.dst == "attention"]
    assert into == [Edge("qkv", 0, "attention", port, False) for port in range(3)]
    lstm = load("lstm")
    assert [edge for edge in lstm.logical_edges() if edge.dst == "lstm"] == [
        Edge("embed", 0, "lstm", 0, True)
    ]
    assert [edge for edge in lstm.logical_edges() if edge.dst == "fc"] == [
        Edge("lstm", 0, "fc", 0, False)
    ]
    assert len([edge for edge in lstm.edges() if edge.dst == "lstm"]) == 3


def test_a_getitem_takes_the_port_of_a_layer() -> None:
    get = Node("h", "RESHAPE", attrs={"kind": "getitem", "index": 1}, inputs=(("rnn", 0),))
    use = Node("fc", "FULL", inputs=(("h", 0),))
    network = Network(nodes=(Node("rnn", "RNN", "LSTM"), get, use))
    assert network.logical_edges() == (Edge("rnn", 1, "fc", 0, False),)


def test_a_node_added_to_itself_has_two_edges() -> None:
    network = Network(nodes=(Node("a", "ADD", inputs=(("x", 0), ("x", 0))),))
    assert [edge.dst_port for edge in network.logical_edges()] == [0, 1]


def test_aliases_count_the_layers_by_op(load: Load) -> None:
    aliases = load("transformer").node_aliases()
    assert [aliases[name] for name in ("wte", "pos", "qkv", "proj", "head")] == [
        "embed1",
        "add1",
        "full1",
        "full2",
        "full5",
    ]
    assert aliases["attention"] == "attention1"
    assert "split" not in aliases


def test_depth_of_the_fixtures(load: Load) -> None:
    assert load("lenet").depth() == 8
    assert load("resnet").depth() == 10
    assert load("lstm").depth() == 3
    assert Network().depth() == 0


def test_nodes_by_name(load: Load) -> None:
    network = load("lenet")
    assert network.node("conv2").attrs["out"] == 50
    assert "conv2" in network
    assert "x" not in network
    with pytest.raises(NotFound) as caught:
        network.node("conv3")
    assert set(caught.value.did_you_mean) >= {"conv1", "conv2"}


def test_tied_tensors_have_one_name(load: Load) -> None:
    network = replace(load("transformer"), aliases={"proj.weight": "down.weight"})
    assert "proj.weight" not in network.tensor_names()
    assert "down.weight" in network.tensor_names()


def test_deep_chains_need_no_recursion() -> None:
    network = chain(10_000)
    started = time.perf_counter()
    assert network.depth() == 10_000
    assert len(network.id) == 64
    assert network.node_aliases()["r9999"] == "relu10000"
    assert time.perf_counter() - started < 15


@settings(max_examples=50)
@given(st.data())
def test_random_networks_read_back(
    random_network: st.SearchStrategy[Json], data: st.DataObject
) -> None:
    network, _ = read(data.draw(random_network))
    stored = canonical_bytes(network.canonical())
    assert Network.from_canonical(loads(stored)) == network
    assert hash_bytes(stored) == network.id


def _set(path: list[Any], value: Any) -> Callable[[Json], None]:
    def change(form: Any) -> None:
        for step in path[:-1]:
            form = form[step]
        form[path[-1]] = value

    return change


def _drop(path: list[Any]) -> Callable[[Json], None]:
    def change(form: Any) -> None:
        for step in path[:-1]:
            form = form[step]
        del form[path[-1]]

    return change


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (_set(["dlv_network"], 2), NewerFormat),
        (_set(["extra"], 1), NewerFormat),
        (_set(["nodes", 0, "op"], "WARP"), NewerFormat),
        (_set(["nodes", 1, "variant"], "MEDIAN"), NewerFormat),
        (_set(["nodes", 0, "attrs", "speed"], 1), NewerFormat),
        (_set(["nodes", 4, "attrs", "kind"], "fold"), NewerFormat),
        (_drop(["nodes", 0, "attrs", "out"]), Damaged),
        (_drop(["nodes", 0, "source"]), Damaged),
        (_drop(["aliases"]), Damaged),
        (_set(["nodes", 0, "inputs"], [["x", -1]]), Damaged),
        (_set(["nodes", 0, "inputs"], ["x"]), Damaged),
        (_set(["nodes", 0, "inputs"], [["x", True]]), Damaged),
        (_set(["nodes", 0, "out_shape"], [1]), Damaged),
        (_set(["nodes", 0, "source"], "text"), Damaged),
        (_set(["nodes", 0, "source"], {"args": [2**70]}), Damaged),
        (_set(["nodes", 0, "name"], ""), Damaged),
        (_set(["nodes", 0, "attrs"], []), Damaged),
        (_set(["nodes"], {}), Damaged),
        (_set(["inputs", 0, "dtype"], "float33"), Damaged),
        (_set(["inputs", 0, "shape"], [-1]), Damaged),
        (_set(["constants"], {"c": "xyz"}), Damaged),
        (_set(["aliases"], {"c": 1}), Damaged),
    ],
)
def test_stored_forms_that_are_not_right(
    load: Load, change: Callable[[Json], None], kind: type[Exception]
) -> None:
    form = load("lenet").canonical()
    change(form)
    with pytest.raises(kind):
        Network.from_canonical(form)


def test_a_default_left_out_of_the_stored_form_is_damage(load: Load) -> None:
    form = load("lenet").canonical()
    del form["nodes"][0]["attrs"]["groups"]
    with pytest.raises(Damaged):
        Network.from_canonical(form)
