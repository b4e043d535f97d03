"""What a layer does, apart from its name and from how its numbers lie in memory.

Two networks hold the same layer if these forms are equal: channels first or last, kernels in
either order, flattened by `view` or by `flatten`, a pool that rounds up where nothing is left
over: none of that changes what is computed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

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

        `numbers` is shared by the networks that are compared. Dropout is passed over.
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
