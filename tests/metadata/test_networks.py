"""Networks in the catalogue against networkx on random graphs; layers are kept once."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

import networkx as nx
import pytest

from dlv.metadata import networks
from dlv.metadata.database import Database
from dlv.metadata.networks import NodeFigures
from dlv.network.graph import Input, Network, Node

LAYERS: list[tuple[str, str | None, dict[str, Any]]] = [
    ("RELU", None, {"slope": 0.0}),
    ("POOL", "MAX", {"kernel": [2, 2]}),
    ("POOL", "AVG", {"kernel": [2, 2]}),
    ("SOFTMAX", None, {"axis": -1}),
    ("ADD", None, {"const": None}),
]
PLUMBING: tuple[str, str | None, dict[str, Any]] = ("RESHAPE", None, {"kind": "flatten"})


def random_network(rng: random.Random, size: int, names: int = 30) -> Network:
    nodes: list[Node] = []
    free = rng.sample(range(names), size)
    for number in free:
        earlier = ["x", *(node.name for node in nodes)]
        op, variant, attrs = PLUMBING if rng.random() < 0.3 else LAYERS[number % len(LAYERS)]
        count = 1 if op != "ADD" else rng.randint(1, 3)
        inputs = tuple((rng.choice(earlier[-4:]), 0) for _ in range(count))
        nodes.append(Node(f"n{number}", op, variant, attrs, inputs))
    return Network((Input("x", ("B", 4)),), tuple(nodes), ((nodes[-1].name, 0),))


def graph(network: Network) -> nx.MultiDiGraph:
    """Layers and the edges between them, plumbing contracted: built the long way round."""
    found = nx.MultiDiGraph()
    found.add_nodes_from(node.name for node in network.nodes)
    for node in network.nodes:
        for port, (producer, _) in enumerate(node.inputs):
            if producer != "x":
                found.add_edge(producer, node.name, port=port, direct=True)
    for node in network.nodes:
        if not node.plumbing:
            continue
        before = [(src, d["port"]) for src, _, d in found.in_edges(node.name, data=True)]
        for _, after, data in list(found.out_edges(node.name, data=True)):
            for source, port in before:
                if port == 0:  # plumbing passes on what its first input brings
                    found.add_edge(source, after, port=data["port"], direct=False)
        found.remove_node(node.name)
    return found


def layer_of(node: Node) -> tuple[str, str, str]:
    return node.name, node.op, node.variant or ""


def figures_of(network: Network) -> dict[str, NodeFigures]:
    return {node.name: NodeFigures(("B", pos), pos * 10) for pos, node in enumerate(network.nodes)}


LAYER_ROWS = "layer.name, layer.op, layer.variant"
ENDS = (
    " JOIN net ON net.id = net_id JOIN layer a ON a.id = src_layer"
    " JOIN layer b ON b.id = dst_layer WHERE net_id = ?"
)
BOTH = "a.name, a.op, a.variant, b.name, b.op, b.variant"


@pytest.mark.parametrize("seed", range(25))
def test_rows_against_networkx(db: Database, seed: int) -> None:
    rng = random.Random(seed)
    stats: Counter[tuple[str, str, str, str]] = Counter()
    for _ in range(4):
        network = random_network(rng, rng.randint(1, 14))
        figures = figures_of(network)
        fresh = networks.find(db, network.id) is None
        net_id = networks.insert(db, network, figures)
        assert networks.find(db, network.id) == net_id
        position = {node.name: pos for pos, node in enumerate(network.nodes)}
        layer = {node.name: layer_of(node) for node in network.nodes}
        logical = graph(network)

        assert networks.figures(db, net_id) == {
            "hash": network.id,
            "structure": network.structure,
            "nodes": len(network.nodes),
            "parameters": sum(figure.parameters for figure in figures.values()),
            "depth": nx.dag_longest_path_length(nx.DiGraph(logical)) + 1 if logical else 0,
        }
        assert db.rows(
            f"SELECT pos, {LAYER_ROWS}, shape.text, n_params FROM node"
            " JOIN layer ON layer.id = layer_id JOIN shape ON shape.id = out_shape"
            " WHERE net_id = ? ORDER BY pos",
            (net_id,),
        ) == [
            (pos, *layer_of(node), f'["B", {pos}]', pos * 10)
            for pos, node in enumerate(network.nodes)
        ]
        wanted = sorted(
            (position[s], position[d], data["port"], *layer[s], *layer[d], int(data["direct"]))
            for s, d, data in logical.edges(data=True)
        )
        rows = db.rows(f"SELECT src, dst, dst_port, {BOTH}, direct FROM edge{ENDS}", (net_id,))
        assert sorted(rows) == wanted
        raw = sorted(
            (position[producer], pos, port, *layer[producer], *layer_of(node))
            for pos, node in enumerate(network.nodes)
            for port, (producer, _) in enumerate(node.inputs)
            if producer != "x" and (node.plumbing or layer[producer][1] == "RESHAPE")
        )
        rows = db.rows(f"SELECT src, dst, dst_port, {BOTH} FROM raw_edge{ENDS}", (net_id,))
        assert sorted(rows) == raw
        pairs = Counter((*layer[s][1:], *layer[d][1:]) for s, d in logical.edges())
        columns = "src_op, src_variant, dst_op, dst_variant, n"
        assert {
            tuple(row[:4]): row[4]
            for row in db.rows(f"SELECT {columns} FROM net_pair WHERE net_id = ?", (net_id,))
        } == dict(pairs)

        aliases = {
            str(name): str(alias)
            for name, alias in db.rows(
                "SELECT layer.name, layer.alias FROM node JOIN layer ON layer.id = layer_id"
                " WHERE net_id = ? ORDER BY pos",
                (net_id,),
            )
        }
        assert [*aliases] == [node.name for node in network.nodes]
        if fresh:
            for node in network.nodes:
                key = (*layer_of(node), aliases[node.name])
                stats[*key[:3], f"nets {key[3]}"] += 1
                if node.name in logical:
                    stats[*key[:3], f"out {key[3]}"] += logical.out_degree(node.name)
                    stats[*key[:3], f"in {key[3]}"] += logical.in_degree(node.name)
    for name, op, variant, alias, nets, out, into in db.rows(
        f"SELECT {LAYER_ROWS}, alias, n_nets, n_out, n_in FROM layer_stat"
        " JOIN layer ON layer.id = layer_id"
    ):
        assert nets == stats[name, op, variant, f"nets {alias}"]
        assert out == stats[name, op, variant, f"out {alias}"]
        assert into == stats[name, op, variant, f"in {alias}"]
    assert db.value("SELECT count(*) FROM shape") == db.value("SELECT max(pos) + 1 FROM node")
    joined = db.rows(
        "SELECT src_layer, dst_layer, count(*) FROM edge"
        " GROUP BY src_layer, dst_layer ORDER BY 1, 2"
    )
    assert db.rows("SELECT * FROM layer_pair ORDER BY 1, 2") == joined


def test_equal_layers_are_one_row(db: Database) -> None:
    def chain(*names: str) -> Network:
        before = ["x", *names]
        nodes = tuple(
            Node(name, "RELU", None, {"slope": 0.0}, ((before[i], 0),))
            for i, name in enumerate(names)
        )
        return Network((Input("x", ("B", 4)),), nodes, ((names[-1], 0),))

    first = networks.insert(db, chain("a", "b"), {})
    second = networks.insert(db, chain("a", "b", "c"), {})
    assert networks.insert(db, chain("a", "b"), {}) == first != second
    assert db.value("SELECT count(*) FROM net") == 2
    assert db.value("SELECT count(*) FROM layer") == 3
    assert db.rows(
        "SELECT name, alias, n_nets, n_out, n_in FROM layer_stat"
        " JOIN layer ON layer.id = layer_id ORDER BY name"
    ) == [("a", "relu1", 2, 2, 0), ("b", "relu2", 2, 1, 2), ("c", "relu3", 1, 0, 1)]


def test_one_definition_under_two_aliases_is_two_layers(db: Database) -> None:
    def pair(first: str, second: str) -> Network:
        nodes = (
            Node(first, "RELU", None, {"slope": 0.0}, (("x", 0),)),
            Node(second, "RELU", None, {"slope": 0.0}, ((first, 0),)),
        )
        return Network((Input("x", ("B", 4)),), nodes, ((second, 0),))

    networks.insert(db, pair("a", "b"), {})
    networks.insert(db, pair("b", "a"), {})
    assert db.value("SELECT count(*) FROM layer") == 4


def test_unknown_figures_are_empty(db: Database) -> None:
    network = random_network(random.Random(1), 5)
    net_id = networks.insert(db, network, {})
    rows = db.rows("SELECT DISTINCT out_shape, n_params FROM node WHERE net_id = ?", (net_id,))
    assert rows == [(None, 0)]
    assert networks.figures(db, 99) == {}


def test_faulty_networks_get_rows_too(db: Database) -> None:
    """Two nodes of one name, and a cycle: `verify` warns of them, a commit goes on."""
    relu: dict[str, Any] = {"slope": 0.0}
    nodes = (
        Node("p", "RELU", None, relu, (("x", 0),)),
        Node("a", "RELU", None, relu, (("p", 0),)),
        Node("a", "RELU", None, relu, (("p", 0),)),
        Node("f", "RESHAPE", None, {"kind": "flatten"}, (("a", 0),)),
        Node("f", "RESHAPE", None, {"kind": "flatten"}, (("a", 0),)),
    )
    net_id = networks.insert(db, Network((Input("x", ("B", 4)),), nodes, (("a", 0),)), {})
    assert db.rows("SELECT src, dst FROM edge WHERE net_id = ?", (net_id,)) == [(0, 1)]
    assert db.rows("SELECT src, dst FROM raw_edge WHERE net_id = ?", (net_id,)) == [(1, 3)]
    cycle = tuple(
        Node(name, "ADD", None, {}, ((other, 0), ("gone", 0)))
        for name, other in itertools.pairwise(["a", "b", "c", "a"])
    )
    net_id = networks.insert(db, Network((), cycle, (("a", 0),)), {})
    assert networks.figures(db, net_id)["depth"] == 0
    assert db.value("SELECT count(*) FROM edge WHERE net_id = ?", (net_id,)) == 3


def test_more_layers_than_one_statement_holds(db: Database) -> None:
    def chain(slope: float) -> Network:
        nodes = [
            Node(f"n{i}", "RELU", None, {"slope": slope if i == 70 else 0.0}, ((f"n{i - 1}", 0),))
            for i in range(1, 251)
        ]
        return Network((Input("n0", ("B", 4)),), tuple(nodes), (("n250", 0),))

    first, second = (networks.insert(db, chain(slope), {}) for slope in (0.0, 0.1))
    ask = "SELECT name, attrs FROM node JOIN layer ON layer.id = layer_id WHERE net_id = ?"
    for net, text in ((first, '{"slope":0.0}'), (second, '{"slope":0.1}')):
        rows = db.rows(f"{ask} ORDER BY pos", (net,))
        assert [name for name, _ in rows] == [f"n{i}" for i in range(1, 251)]
        assert {attrs for _, attrs in rows[:69] + rows[70:]} == {'{"slope":0.0}'}
        assert rows[69][1] == text
    assert db.value("SELECT count(*) FROM layer") == 251
