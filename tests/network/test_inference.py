from __future__ import annotations

from collections.abc import Callable

from dlv.network.graph import Input, Network, Node
from dlv.network.inference import attribute_faults, enough, input_shapes, node_shapes
from dlv.network.sizes import ShapeError
from dlv.network.vocabulary import complete

Load = Callable[[str], Network]


def test_every_port_has_a_shape(load: Load) -> None:
    network = load("lstm")
    shapes = node_shapes(network)
    assert shapes["lstm"] == (("B", 12, 32), (2, "B", 32), (2, "B", 32))
    assert shapes["tokens"] == (("B", 12),)
    assert shapes["batch"] == ((),)
    assert input_shapes(network.node("out"), shapes) == [("B", 12, 32)]


def test_getitem_takes_its_element(load: Load) -> None:
    network = load("transformer")
    shapes = node_shapes(network)
    assert shapes["split"] == (("B", 10, 64),) * 3
    get = complete("RESHAPE", None, {"kind": "getitem", "index": 3})
    beyond = Node("g", "RESHAPE", None, get, (("split", 0),))
    assert input_shapes(beyond, shapes) == [None]


def test_what_waits_for_a_cycle_is_unknown() -> None:
    nodes = tuple(
        Node(name, "RELU", None, {"slope": 0.0}, ((source, 0),))
        for name, source in (("a", "b"), ("b", "a"), ("c", "a"), ("d", "x"))
    )
    shapes = node_shapes(Network((Input("x", (1, 2)),), nodes))
    assert shapes == {"x": ((1, 2),), "a": (None,), "b": (None,), "c": (None,), "d": ((1, 2),)}


def test_ranks_are_bounded() -> None:
    attrs = complete("RESHAPE", None, {"kind": "unsqueeze", "axis": 0})
    nodes = tuple(
        Node(f"u{i}", "RESHAPE", None, attrs, ((f"u{i - 1}" if i else "x", 0),)) for i in range(200)
    )
    told: list[tuple[str, str]] = []

    def report(node: Node, error: ShapeError) -> None:
        told.append((node.name, error.message))

    shapes = node_shapes(Network((Input("x", (1,)),), nodes), report=report)
    assert told == [("u63", "too many axes")]
    assert shapes["u199"] == (None,)


def test_faults_of_attributes() -> None:
    relu = Node("r", "RELU", None, {"slope": 0.1}, (("x", 0),))
    assert attribute_faults(relu) == []
    assert enough(relu)
    assert not enough(Node("r", "RELU", None, {"slope": 0.1}))
    assert [rule for rule, _ in attribute_faults(Node("r", "RELU"))] == ["missing"]


def test_of_two_nodes_with_one_name_the_first_counts() -> None:
    nodes = tuple(
        Node("d", "FULL", None, complete("FULL", None, {"out": out}), (("x", 0),)) for out in (3, 4)
    )
    network = Network((Input("x", (1, 2)),), nodes)
    assert node_shapes(network)["d"] == ((1, 3),)
    assert network.node("d").attrs["out"] == 3
