"""What differs between two networks, layer by layer; all that torch versions change is left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlv.network.alignment import Alignment, align
from dlv.network.drawing import operation_text
from dlv.network.graph import Network, Node, Port, plain
from dlv.network.inference import Tensors, node_shapes
from dlv.network.sizes import Shape

_WORDS = ("op", "name", "inputs", "output")  # what an attribute may not be told as


@dataclass(frozen=True)
class Change:
    """One thing that is another one now. `what`: op, name, inputs, output, or an attribute."""

    what: str
    old: Any
    new: Any


@dataclass(frozen=True)
class Layer:
    """A node in its network; `after` names the layers whose data it reads."""

    name: str
    alias: str | None
    node: Node
    text: str
    shape: Shape | None
    after: tuple[str, ...]


@dataclass(frozen=True)
class Pair:
    """One layer in both networks; `changes` is empty where it is the same."""

    old: Layer
    new: Layer
    changes: tuple[Change, ...]

    @property
    def follows(self) -> bool:
        """Changed, but only in the shape that comes in from other layers."""
        return bool(self.changes) and all(change.what == "output" for change in self.changes)


@dataclass(frozen=True)
class Comparison:
    """Two networks side by side; network inputs and outputs stand under `ends`."""

    pairs: tuple[Pair, ...]
    removed: tuple[Layer, ...]
    added: tuple[Layer, ...]
    ends: tuple[Change, ...]

    @property
    def changed(self) -> tuple[Pair, ...]:
        return tuple(pair for pair in self.pairs if pair.changes)

    @property
    def same(self) -> bool:
        return not (self.removed or self.added or self.ends or self.changed)

    def slots(self) -> list[tuple[str, str]]:
        """Tensor names that mean the same slot of the same layer."""
        found: dict[tuple[str, str], None] = {}
        for pair in self.pairs:
            for slot, name in pair.old.node.params.items():
                if slot in pair.new.node.params:
                    found[name, pair.new.node.params[slot]] = None
        return list(found)


class _Side:
    """One of the networks, and what is derived of it."""

    def __init__(self, network: Network, tensors: Tensors | None, alone: Sequence[Node]) -> None:
        self.network = network
        self.aliases = network.node_aliases()
        self.shapes = node_shapes(network, tensors)
        self.alone = {node.name: node for node in alone}

    def shape(self, node: Node) -> Shape | None:
        ports = self.shapes.get(node.name)
        return ports[0] if ports else None

    def layer(self, node: Node) -> Layer:
        ports = (self.network.data_of(port) for port in node.inputs)
        return Layer(
            node.name,
            self.aliases.get(node.name),
            node,
            operation_text(node),
            self.shape(node),
            tuple(dict.fromkeys(port[0] for port in ports if port is not None)),
        )

    def source(self, port: Port) -> Port:
        """The port, or what stands before it as long as it is a node that only this side has."""
        seen: set[str] = set()
        while port[0] in self.alone and port[0] not in seen:
            seen.add(port[0])
            inputs = self.alone[port[0]].inputs
            if not inputs:
                break
            port = inputs[0]
        return port


def compare(
    old: Network,
    new: Network,
    old_tensors: Tensors | None = None,
    new_tensors: Tensors | None = None,
) -> Comparison:
    """Align two networks and say what of each layer is not the same."""
    found = align(old, new)
    before, after = _Side(old, old_tensors, found.removed), _Side(new, new_tensors, found.added)
    names = _names(old, new, found)
    pairs = []
    for a, b in found.pairs:
        changes = _changes(a, b)
        came, comes = [
            [side.source(port) for port in node.inputs] for side, node in ((before, a), (after, b))
        ]
        if [(names(name), port) for name, port in came] != comes:
            changes.append(Change("inputs", _ports(a.inputs), _ports(b.inputs)))
        if before.shape(a) != after.shape(b):
            changes.append(Change("output", before.shape(a), after.shape(b)))
        pairs.append(Pair(before.layer(a), after.layer(b), tuple(changes)))
    return Comparison(
        tuple(pairs),
        tuple(map(before.layer, found.removed)),
        tuple(map(after.layer, found.added)),
        tuple(_ends(before, after, names)),
    )


def _names(old: Network, new: Network, found: Alignment) -> Callable[[str], str | None]:
    """Old producers by the names that they have in the new network."""
    known = {a.name: b.name for a, b in found.pairs}
    if len(old.inputs) == len(new.inputs):
        known.update({a.name: b.name for a, b in zip(old.inputs, new.inputs, strict=True)})
    for name in (*old.input_names, *old.constants):
        known.setdefault(name, name)
    return known.get


def _changes(old: Node, new: Node) -> list[Change]:
    changes = []
    if old.name != new.name:
        changes.append(Change("name", old.name, new.name))
    same_kind = (old.op, old.variant) == (new.op, new.variant)
    if not same_kind or (old.op == "OP" and operation_text(old) != operation_text(new)):
        changes.append(Change("op", operation_text(old), operation_text(new)))
        return changes
    for name in dict.fromkeys([*old.attrs, *new.attrs]):
        a, b = plain(old.attrs.get(name)), plain(new.attrs.get(name))
        if a != b:
            changes.append(Change(f"attrs.{name}" if name in _WORDS else name, a, b))
    return changes


def _ports(ports: Sequence[Port]) -> list[str]:
    return [f"{name}:{port}" if port else name for name, port in ports]


def _ends(before: _Side, after: _Side, names: Callable[[str], str | None]) -> list[Change]:
    """Differences of the network's inputs and outputs."""
    changes = []
    old, new = before.network, after.network
    a, b = [[(list(i.shape), i.dtype) for i in net.inputs] for net in (old, new)]
    if a != b:
        changes.append(Change("inputs", _inputs(old), _inputs(new)))
    came = [(names(name), port) for name, port in map(before.source, old.outputs)]
    if came != [*map(after.source, new.outputs)]:
        changes.append(Change("outputs", _ports(old.outputs), _ports(new.outputs)))
    return changes


def _inputs(network: Network) -> list[Mapping[str, Any]]:
    return [
        {"name": item.name, "shape": list(item.shape), "dtype": item.dtype}
        for item in network.inputs
    ]
