"""Whether two networks compute the same, up to names and to how their weights are stored.

Two networks hold the same layer if their normal forms are equal: channels first or last, kernels
in either order, flattened by `view` or by `flatten`, a pool that rounds up where nothing is left
over: none of that changes what is computed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import field
from typing import Any

from dlv.dataclass import dataclass
from dlv.network.edits.axes import network_axes
from dlv.network.graph import Network, Node, Port, plain
from dlv.network.inference import Ports, Tensors, node_shapes
from dlv.network.ops.axes import Axes, axis_key, axis_length, factors, feature_axis, named_axis
from dlv.network.ops.op import op_of
from dlv.network.sizes import Shape

_STORAGE = ("layout", "channels")


class Normal:
    """A network, and the normal form of each of its nodes and edges."""

    def __init__(self, network: Network, tensors: Tensors | None = None) -> None:
        self.network = network
        self.shapes: dict[str, Ports] = node_shapes(network, tensors)
        self.axes = network_axes(network, self.shapes)
        self._kinds: dict[str, Hashable] = {}

    def shape(self, node: Node) -> Shape | None:
        ports = self.shapes.get(node.name)
        return ports[0] if ports else None

    def port_axes(self, port: Port) -> Axes | None:
        ports = self.axes.get(port[0], ())
        return ports[port[1]] if port[1] < len(ports) else None

    def inputs(self, node: Node) -> list[Axes | None]:
        return [self.port_axes(port) for port in node.inputs]

    def parameters(self, node: Node) -> dict[str, Axes]:
        """The axes of the tensors in a node's slots."""
        inputs, outputs = self.inputs(node), self.axes.get(node.name, ())
        return op_of(node).parameter_axes(node, inputs, outputs)

    # Nodes

    def kind(self, node: Node) -> Hashable:
        """Equal for two layers that do the same to what they read."""
        if node.name not in self._kinds:
            self._kinds[node.name] = self._kind(node)
        return self._kinds[node.name]

    def _kind(self, node: Node) -> Hashable:
        attrs = {k: v for k, v in node.attrs.items() if k not in _STORAGE}
        outputs = self.axes.get(node.name, ())
        variant, attrs = op_of(node).comparable(node, attrs, self.inputs(node), outputs)
        return (node.op, variant, *_items(attrs))

    # Edges

    def signature(self, reader: Node | None, port: Port) -> Hashable:
        """What a layer, or the network's output, gets at a port, apart from who computed it."""
        axes = self.port_axes(port)
        if axes is None:
            return (self._losses(port), None)
        dims = [factors(axis) for axis in axes]
        if reader is not None and "channels" in reader.attrs:
            feature = feature_axis(reader.attrs, len(dims))
            dims = [dims[0], dims[feature], *dims[1:feature], *dims[feature + 1 :]]
        elif reader is None or not op_of(reader).dense:
            dims = _channels_first(dims, axes)
        return (self._losses(port), tuple(dims))

    def _losses(self, port: Port) -> Hashable:
        """Plumbing on the way that takes a part, or makes something else of the numbers."""
        found: list[Hashable] = []
        nodes = self.network
        seen: set[str] = set()
        while port[0] in nodes and nodes.node(port[0]).plumbing and port[0] not in seen:
            seen.add(port[0])
            node = nodes.node(port[0])
            kind, attrs = node.attrs["kind"], dict(node.attrs)
            if kind in ("select", "slice", "split", "expand", "to"):
                if kind == "expand" or (kind == "to" and attrs["dtype"] is None):
                    attrs = {"kind": kind}
                elif "axis" in attrs and node.inputs:
                    before = self.port_axes(node.inputs[0])
                    axis = attrs["axis"]
                    attrs["axis"] = None if before is None else named_axis(before, axis, False)
                if kind != "to" or len(attrs) > 1:
                    found.append((*_items(attrs), port[1] if kind == "split" else 0))
            if not node.inputs or node.sizes_only:
                break
            port = node.inputs[0]
        return tuple(found)

    def same_shape(self, node: Node, other: Normal, theirs: Node) -> bool:
        """Whether the outputs are equal up to storage."""
        a, b = self.port_axes((node.name, 0)), other.port_axes((theirs.name, 0))
        if a is None or b is None:
            return self.shape(node) == other.shape(theirs)
        return self._lengths(a) == other._lengths(b)

    def same_input(self, name: str, other: Normal, theirs: str) -> bool:
        """The same of two inputs of the networks."""
        a, b = self.port_axes((name, 0)), other.port_axes((theirs, 0))
        return a is not None and b is not None and self._lengths(a) == other._lengths(b)

    @staticmethod
    def _lengths(axes: Axes) -> list[str]:
        dims = ["batch" if axis[0].key == "b" else str(axis_length(axis)) for axis in axes]
        return _channels_first(dims, axes)

    # The whole

    def hashes(self, numbers: dict[Hashable, int]) -> dict[Port, int]:
        """For every port a number that stands for all that is computed up to there.

        `numbers` is shared by the networks that are compared. Dropout is ignored.
        """
        network = self.network
        found: dict[Port, int] = {}

        def number(key: Hashable) -> int:
            return numbers.setdefault(key, len(numbers))

        for place, item in enumerate(network.inputs):
            axes = self.port_axes((item.name, 0))
            dims = None if axes is None else tuple(sorted(map(factors, axes), key=repr))
            found[item.name, 0] = number(("input", place, dims, item.dtype))
        for name, digest in network.constants.items():
            found[name, 0] = number(("constant", digest))
        for node in network.sorted_part:
            if node.plumbing:
                continue
            before = [self.input_hash(node, port, found) for port in self.data_inputs(node)]
            if op_of(node).dropout and before:
                source = network.data_of(node.inputs[0])
                found[node.name, 0] = found.get(source, -1) if source else -1
                continue
            if op_of(node).commutes:
                before.sort(key=repr)
            for port in range(len(self.shapes[node.name]) or 1):
                found[node.name, port] = number((self.kind(node), tuple(before), port))
        return found

    def data_inputs(self, node: Node) -> list[Port]:
        return [port for port in node.inputs if self.network.data_of(port) is not None]

    def input_hash(
        self, reader: Node | None, port: Port, hashes: Mapping[Port, int]
    ) -> tuple[Hashable, int]:
        """Of one input of a layer, or one output of the network."""
        source = self.network.data_of(port)
        return (self.signature(reader, port), -1 if source is None else hashes.get(source, -1))


def _items(attrs: Mapping[str, Any]) -> tuple[tuple[str, Hashable], ...]:
    return tuple((name, _hashable(plain(value))) for name, value in sorted(attrs.items()))


def _hashable(value: Any) -> Hashable:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _channels_first(dims: list[Any], axes: Axes) -> list[Any]:
    """The axes of a feature map in one order, whichever it has."""
    keys = [axis_key(axis) for axis in axes]
    places = [key[0] == "s" for key in keys]
    if len(keys) > 2 and all(places[1:-1]) and not places[-1] and not places[0]:
        return [dims[0], dims[-1], *dims[1:-1]]
    return dims


def turned(old: Axes, new: Axes) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """How the second's elements lie in the order of the first: (its factors, their order).

    None if they lie alike, or if nothing says how they correspond.
    """
    a = [part for axis in old for part in axis if part.length != 1]
    b = [part for axis in new for part in axis if part.length != 1]
    keys = [part.key for part in b]
    if len(set(keys)) != len(keys) or {(p.key, p.length) for p in a} != {
        (p.key, p.length) for p in b
    }:
        return None
    order = tuple(keys.index(part.key) for part in a)
    sizes = tuple(part.length for part in b if isinstance(part.length, int))
    if len(sizes) != len(b) or len(a) != len(b) or order == tuple(range(len(order))):
        return None
    return sizes, order


@dataclass(frozen=True)
class Equality:
    """The layers that are each other, and what only one of the networks has.

    `only_old`, `only_new`: dropout, which does nothing after training, and a softmax at the very
    end, which changes no decision. Everything else is the same.
    """

    pairs: tuple[tuple[Node, Node], ...]
    only_old: tuple[Node, ...] = ()
    only_new: tuple[Node, ...] = ()


@dataclass
class _Walk:
    """Both networks walked from their outputs at once."""

    old: Normal
    new: Normal
    hashes: tuple[dict[Port, int], dict[Port, int]]
    partner: dict[str, str] = field(default_factory=dict)
    taken: dict[str, str] = field(default_factory=dict)
    only: tuple[dict[str, None], dict[str, None]] = field(default_factory=lambda: ({}, {}))
    todo: list[tuple[Port, Port]] = field(default_factory=list)

    def pair(self, a: str, b: str) -> bool | None:
        """True: new; None: known already; False: one of them is paired with another node."""
        if a in self.partner or b in self.taken:
            return None if self.partner.get(a) == b else False
        self.partner[a] = b
        self.taken[b] = a
        return True

    def sides(self) -> tuple[tuple[Normal, dict[str, None]], tuple[Normal, dict[str, None]]]:
        return (self.old, self.only[0]), (self.new, self.only[1])


def equality(old: Normal, new: Normal) -> Equality | None:
    """How the layers correspond, or None if the networks differ in more than names and storage."""
    a, b = old.network, new.network
    if len(a.outputs) != len(b.outputs) or len(a.inputs) != len(b.inputs) or a.cyclic or b.cyclic:
        return None
    numbers: dict[Hashable, int] = {}
    walk = _Walk(old, new, (old.hashes(numbers), new.hashes(numbers)))
    for one, other in zip(a.outputs, b.outputs, strict=True):
        ends = _ends(walk, one, other)
        if ends is None:
            return None
        walk.todo.append(ends)
    while walk.todo:
        if not _step(walk, *walk.todo.pop()):
            return None
    pairs = tuple(
        (node, b.node(walk.partner[node.name]))
        for node in a.sorted_part
        if node.name in walk.partner
    )
    for side, only in walk.sides():
        paired = walk.partner if side is old else walk.taken
        layers = {node.name for node in side.network.nodes if not node.plumbing}
        if layers - set(paired) - set(only):
            return None  # something that leads to no output
    if not _shared_alike(a, b, pairs):
        return None
    only_old, only_new = (
        tuple(node for node in side.network.sorted_part if node.name in only)
        for side, only in walk.sides()
    )
    return Equality(pairs, only_old, only_new)


def _ends(walk: _Walk, one: Port, other: Port) -> tuple[Port, Port] | None:
    """Two outputs, less the softmax that only one of them ends with."""
    ports = [one, other]
    nodes: list[Node | None] = []
    for (side, _), port in zip(walk.sides(), ports, strict=True):
        source = side.network.data_of(port)
        known = source is not None and source[0] in side.network
        nodes.append(side.network.node(source[0]) if known and source else None)
    softmax = [node is not None and op_of(node).gives_probabilities for node in nodes]
    if softmax[0] != softmax[1]:
        place = 0 if softmax[0] else 1
        node, (_, only) = nodes[place], walk.sides()[place]
        assert node is not None
        only[node.name] = None
        ports[place] = node.inputs[0]
    signatures = [
        side.input_hash(None, port, found)
        for (side, _), port, found in zip(walk.sides(), ports, walk.hashes, strict=True)
    ]
    return (ports[0], ports[1]) if signatures[0] == signatures[1] else None


def _step(walk: _Walk, one: Port, other: Port) -> bool:
    """Pair the layers that stand at two ports, and go on to what they read."""
    chains: list[list[Node]] = []
    sources: list[Port] = []
    for (side, _), port in zip(walk.sides(), (one, other), strict=True):
        chain: list[Node] = []
        source = side.network.data_of(port)
        while source is not None and source[0] in side.network:
            node = side.network.node(source[0])
            if not op_of(node).dropout or not node.inputs:
                break
            chain.append(node)
            source = side.network.data_of(node.inputs[0])
        if source is None:
            return False
        chains.append(chain)
        sources.append(source)
    if not _dropouts(walk, *chains):
        return False
    a, b = sources
    if (a[0] in walk.old.network) != (b[0] in walk.new.network) or a[1] != b[1]:
        return False
    if a[0] not in walk.old.network:  # inputs and constants, which the hashes have compared
        return True
    done = walk.pair(a[0], b[0])
    if done is not True:
        return done is None
    node, theirs = walk.old.network.node(a[0]), walk.new.network.node(b[0])
    if walk.hashes[0].get(a) != walk.hashes[1].get(b):
        return False
    walk.todo += _inputs(walk, node, theirs)
    return True


def _dropouts(walk: _Walk, ours: Sequence[Node], theirs: Sequence[Node]) -> bool:
    if len(ours) == len(theirs):
        return all(
            walk.pair(a.name, b.name) is not False and a.attrs == b.attrs
            for a, b in zip(ours, theirs, strict=True)
        )
    for chain, (_, only) in zip((ours, theirs), walk.sides(), strict=True):
        only.update({node.name: None for node in chain})
    return True


def _inputs(walk: _Walk, node: Node, theirs: Node) -> list[tuple[Port, Port]]:
    a, b = walk.old.data_inputs(node), walk.new.data_inputs(theirs)
    if not op_of(node).commutes:
        return list(zip(a, b, strict=True))
    # By what they compute; of several that compute the same, as they are paired already.
    keys = [(walk.old.input_hash(node, port, walk.hashes[0]), port) for port in a]
    keys.sort(key=lambda item: item[1][0] not in walk.partner)
    left = [(walk.new.input_hash(theirs, port, walk.hashes[1]), port) for port in b]
    found = []
    for key, port in keys:
        fitting = [each for each in left if each[0] == key]
        known = walk.partner.get(port[0])
        best = next((each for each in fitting if each[1][0] == known), fitting[0])
        left.remove(best)
        found.append((port, best[1]))
    return found


def _shared_alike(old: Network, new: Network, pairs: Sequence[tuple[Node, Node]]) -> bool:
    """Whether the same slots hold one tensor together in both."""
    forth: dict[str, str] = {}
    back: dict[str, str] = {}
    for a, b in pairs:
        if a.params.keys() != b.params.keys():
            return False
        for slot, name in a.params.items():
            ours = old.aliases.get(name, name)
            theirs = new.aliases.get(b.params[slot], b.params[slot])
            if forth.setdefault(ours, theirs) != theirs or back.setdefault(theirs, ours) != ours:
                return False
    return True
