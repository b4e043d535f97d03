"""The network of a version as a graph of named operations, for pages that draw such graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dlv.events.formats.pbtxt import GraphNode
from dlv.network.graph import Network, Node, Port
from dlv.weights.store import node_figures

MANY = 5  # of one operation in one scope are drawn as one
_KINDS = (bool, int, float, str, list, tuple)


def graph_nodes(network: Network) -> Iterator[GraphNode]:
    """Inputs, constants, then the layers in their order; `block.0.conv` becomes a nested name."""
    figures = node_figures(network)
    names = _nested(network)
    ops = _told_apart(network, names)

    def port(source: Port) -> str:
        name = names.get(source[0], source[0])
        return f"{name}:{source[1]}" if source[1] else name

    for item in network.inputs:
        yield GraphNode(
            names[item.name],
            "Input",
            attributes={"dtype": item.dtype, "shape": [str(size) for size in item.shape]},
            shapes=[_sizes(item.shape)],
        )
    for name in sorted(network.constants):
        held = network.constant_shapes.get(name)
        yield GraphNode(names[name], "Const", shapes=[] if held is None else [_sizes(held)])
    given_out = {name for name, _ in network.outputs}
    for node in network.nodes:
        found = figures.get(node.name)
        inferred = None if found is None else found.out_shape
        shape = node.out_shape if inferred is None else inferred
        attributes = _attributes(node)
        if found is not None and found.parameters:
            attributes["parameters"] = found.parameters
        if node.name in given_out:
            attributes["output"] = True
        yield GraphNode(
            names[node.name],
            ops[node.name],
            [port(source) for source in node.inputs],
            attributes,
            [] if shape is None else [_sizes(shape)],
        )


def _nested(network: Network) -> Mapping[str, str]:
    """Slashes fold a graph: what the dots of most names mean. A name that would not be unique
    then stays as it is."""
    known = [
        *(item.name for item in network.inputs),
        *network.constants,
        *(node.name for node in network.nodes),
    ]
    folded = {name: "/".join(part for part in name.split(".") if part) or name for name in known}
    taken = Counter(folded.values()) + Counter(known)
    return {name: new if new == name or taken[new] == 1 else name for name, new in folded.items()}


def _told_apart(network: Network, names: Mapping[str, str]) -> Mapping[str, str]:
    """Operations by node. TensorBoard draws many of one kind in a scope as a single node, and
    a chain of layers as a tangle: where there are many, each has its alias too."""
    scopes = {node.name: (names[node.name].rpartition("/")[0], node.op) for node in network.nodes}
    count = Counter(scopes.values())
    aliases = network.node_aliases()
    return {
        node.name: node.op
        if count[scopes[node.name]] < MANY
        else f"{node.op} ({aliases.get(node.name, node.name)})"
        for node in network.nodes
    }


def _attributes(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = {} if node.variant is None else {"variant": node.variant}
    for name, value in node.attrs.items():
        if isinstance(value, _KINDS):
            found[name] = value
    found |= {f"params.{slot}": tensor for slot, tensor in node.params.items()}
    return found


def _sizes(shape: Sequence[int | str | None]) -> list[int | None]:
    return [size if isinstance(size, int) else None for size in shape]
