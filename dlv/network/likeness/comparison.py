"""What differs between two networks, layer by layer; all that torch versions change is left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from dlv.dataclass import dataclass
from dlv.network.drawing import operation_text
from dlv.network.graph import Network, Node, Port, plain
from dlv.network.inference import Tensors
from dlv.network.likeness.alignment import Alignment, align_normal
from dlv.network.likeness.equality import Normal, turned
from dlv.network.ops.op import op_of
from dlv.network.sizes import Shape

# What an attribute may not be told as.
_WORDS = ("op", "name", "inputs", "output", "shares", "arguments", "tensors")
_STORAGE = ("layout", "channels")
Turn = tuple[tuple[int, ...], tuple[int, ...]]  # factors of the new tensor, and their order


@dataclass(frozen=True)
class Change:
    """One thing that is another one now. `what`: op, name, inputs, output, or an attribute.

    `form`: only how numbers lie in memory, or how the same is written; not what is computed.
    """

    what: str
    old: Any
    new: Any
    form: bool = False


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
        return self.kind == "reshaped"

    @property
    def kind(self) -> str:
        """unchanged, changed, stored (in another form), renamed, or reshaped by others."""
        if any(not (c.form or c.what in ("name", "output")) for c in self.changes):
            return "changed"
        if any(change.form for change in self.changes):
            return "stored"
        if any(change.what == "name" for change in self.changes):
            return "renamed"
        return "reshaped" if self.changes else "unchanged"


@dataclass(frozen=True)
class Comparison:
    """Two networks side by side; network inputs and outputs stand under `ends`.

    `equal`: they compute the same, up to what `up_to` says (names, storage, batch) and but for
    the layers of `only_old` and `only_new`: dropout, and a softmax at the end.
    """

    pairs: tuple[Pair, ...]
    removed: tuple[Layer, ...]
    added: tuple[Layer, ...]
    ends: tuple[Change, ...]
    equal: bool = False
    up_to: tuple[str, ...] = ()
    only_old: tuple[str, ...] = ()
    only_new: tuple[str, ...] = ()
    turns: Mapping[tuple[str, str], Turn] = field(default_factory=dict)

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

    def __init__(self, normal: Normal, alone: Sequence[Node]) -> None:
        self.normal = normal
        self.network = normal.network
        self.aliases = self.network.node_aliases()
        self.alone = {node.name: node for node in alone}
        self._holders: dict[str, list[str]] = {}
        for node in self.network.nodes:
            for name in node.params.values():
                kept = self.network.aliases.get(name, name)
                self._holders.setdefault(kept, []).append(node.name)

    def layer(self, node: Node) -> Layer:
        ports = (self.network.data_of(port) for port in node.inputs)
        return Layer(
            node.name,
            self.aliases.get(node.name),
            node,
            operation_text(node),
            self.normal.shape(node),
            tuple(dict.fromkeys(port[0] for port in ports if port is not None)),
        )

    def source(self, port: Port) -> Port:
        """Whose data stand there, past plumbing and past nodes that only this side has."""
        seen: set[str] = set()
        while port[0] not in seen:
            seen.add(port[0])
            port = self.network.data_of(port) or port
            inputs = self.alone[port[0]].inputs if port[0] in self.alone else ()
            if not inputs:
                break
            port = inputs[0]
        return port

    def sources(self, node: Node) -> list[Port]:
        """What a node reads, without numbers about shapes where it reads data too."""
        ports = node.inputs[:1] if node.plumbing else self.normal.data_inputs(node)
        return [self.source(port) for port in ports]

    def sharing(self, node: Node) -> set[str]:
        """The other nodes that hold a tensor of this one."""
        found: set[str] = set()
        for name in node.params.values():
            found.update(self._holders[self.network.aliases.get(name, name)])
        return found - {node.name}


def compare(
    old: Network,
    new: Network,
    old_tensors: Tensors | None = None,
    new_tensors: Tensors | None = None,
) -> Comparison:
    """Align two networks and say what of each layer is not the same."""
    normals = Normal(old, old_tensors), Normal(new, new_tensors)
    found = align_normal(*normals)
    before, after = _Side(normals[0], found.removed), _Side(normals[1], found.added)
    names = _names(old, new, found)
    pairs = tuple(
        Pair(before.layer(a), after.layer(b), tuple(_pair_changes(before, after, a, b, names)))
        for a, b in found.pairs
    )
    ends = tuple(_ends(before, after, names))
    same = found.equality
    alone = (*found.removed, *found.added)
    return Comparison(
        pairs,
        tuple(map(before.layer, found.removed)),
        tuple(map(after.layer, found.added)),
        ends,
        same is not None,
        () if same is None else tuple(_up_to(old, new, pairs, ends, alone)),
        () if same is None else tuple(node.name for node in same.only_old),
        () if same is None else tuple(node.name for node in same.only_new),
        _turns(before, after, found),
    )


def _up_to(
    old: Network, new: Network, pairs: Sequence[Pair], ends: Sequence[Change], alone: Sequence[Node]
) -> list[str]:
    """In what two networks that compute the same are not the same."""
    found = []
    changes = [change for pair in pairs for change in pair.changes]
    inputs = [tuple(item.name for item in network.inputs) for network in (old, new)]
    tensors = any(
        name != pair.new.node.params.get(slot)
        for pair in pairs
        for slot, name in pair.old.node.params.items()
    )
    if any(c.what == "name" for c in changes) or inputs[0] != inputs[1] or tensors:
        found.append("names")
    if any(c.form for c in (*changes, *ends)) or any(node.plumbing for node in alone):
        found.append("storage")
    return found


def _turns(before: _Side, after: _Side, alignment: Alignment) -> dict[tuple[str, str], Turn]:
    """Of tensors that lie in another order: how to bring the new one into the old one's."""
    result: dict[tuple[str, str], Turn] = {}
    for a, b in alignment.pairs:
        if not (a.params and b.params):
            continue
        ours, theirs = before.normal.parameters(a), after.normal.parameters(b)
        for slot, name in a.params.items():
            if slot in b.params and slot in ours and slot in theirs:
                turn = turned(ours[slot], theirs[slot])
                if turn is not None:
                    result[name, b.params[slot]] = turn
    return result


def _names(old: Network, new: Network, alignment: Alignment) -> Callable[[str], str | None]:
    """Old producers by the names that they have in the new network."""
    known = {a.name: b.name for a, b in alignment.pairs}
    if len(old.inputs) == len(new.inputs):
        known.update({a.name: b.name for a, b in zip(old.inputs, new.inputs, strict=True)})
    for name in (*old.input_names, *old.constants):
        known.setdefault(name, name)
    return known.get


def _pair_changes(
    before: _Side, after: _Side, a: Node, b: Node, names: Callable[[str], str | None]
) -> list[Change]:
    same_shape = before.normal.same_shape(a, after.normal, b)
    alike = before.normal.kind(a) == after.normal.kind(b)
    changes = _changes(a, b, alike and (same_shape or not a.plumbing))
    came = [(names(name), port) for name, port in before.sources(a)]
    comes: list[tuple[str | None, int]] = [*after.sources(b)]
    if op_of(a).commutes and op_of(b).commutes:
        came, comes = sorted(came, key=repr), sorted(comes, key=repr)
    if came != comes:
        changes.append(Change("inputs", _ports(a.inputs), _ports(b.inputs)))
    ours, theirs = ({*map(names, before.sharing(a))} - {None}, after.sharing(b))
    if ours != theirs:
        changes.append(Change("shares", sorted(before.sharing(a)), sorted(after.sharing(b))))
    if not same_shape:
        changes.append(Change("output", before.normal.shape(a), after.normal.shape(b)))
    return changes


def _changes(old: Node, new: Node, alike: bool) -> list[Change]:
    """Name, operation and attributes; `alike`: what is computed is the same all the while."""
    changes = []
    if old.name != new.name:
        changes.append(Change("name", old.name, new.name))
    same_kind = (old.op, old.variant) == (new.op, new.variant)
    if not same_kind or (op_of(old).raw and operation_text(old) != operation_text(new)):
        changes.append(Change("op", operation_text(old), operation_text(new), alike))
        return changes
    if op_of(old).raw and _arguments(old) != _arguments(new):
        changes.append(Change("arguments", _arguments(old), _arguments(new)))
    if op_of(old).optional_tensors and old.params.keys() != new.params.keys():
        changes.append(Change("tensors", sorted(old.params), sorted(new.params)))
    for name in dict.fromkeys([*old.attrs, *new.attrs]):
        a, b = plain(old.attrs.get(name)), plain(new.attrs.get(name))
        if a != b:
            what = f"attrs.{name}" if name in _WORDS else name
            changes.append(Change(what, a, b, alike or name in _STORAGE))
    return changes


def _arguments(node: Node) -> list[Any]:
    source = dict(node.source or {})
    kwargs = source.get("kwargs") or {}
    return [*source.get("args", []), *({name: value} for name, value in kwargs.items())]


def _ports(ports: Sequence[Port]) -> list[str]:
    return [f"{name}:{port}" if port else name for name, port in ports]


def _ends(before: _Side, after: _Side, names: Callable[[str], str | None]) -> list[Change]:
    """Differences of the network's inputs and outputs."""
    changes = []
    old, new = before.network, after.network
    a, b = (_plain_inputs(network) for network in (old, new))
    if a != b:
        form = _inputs_alike(before.normal, after.normal)
        changes.append(Change("inputs", _inputs(old), _inputs(new), form))
    came = [(names(name), port) for name, port in map(before.source, old.outputs)]
    if came != [*map(after.source, new.outputs)]:
        changes.append(Change("outputs", _ports(old.outputs), _ports(new.outputs)))
    return changes


def _plain_inputs(network: Network) -> list[Any]:
    """Shapes and dtypes; a symbol is as good as another one."""
    symbols: dict[str, str] = {}
    return [
        (
            [
                symbols.setdefault(dim, f"${len(symbols)}") if isinstance(dim, str) else dim
                for dim in item.shape
            ],
            item.dtype,
        )
        for item in network.inputs
    ]


def _inputs_alike(old: Normal, new: Normal) -> bool:
    """Whether they are the same up to the place of the channels and the size of the batch."""
    if len(old.network.inputs) != len(new.network.inputs):
        return False
    return all(
        a.dtype == b.dtype and old.same_input(a.name, new, b.name)
        for a, b in zip(old.network.inputs, new.network.inputs, strict=True)
    )


def _inputs(network: Network) -> list[Mapping[str, Any]]:
    return [
        {"name": item.name, "shape": list(item.shape), "dtype": item.dtype}
        for item in network.inputs
    ]
