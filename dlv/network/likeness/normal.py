"""What a layer does, apart from its name and from how its numbers lie in memory.

Two networks hold the same layer if these forms are equal: channels first or last, kernels in
either order, flattened by `view` or by `flatten`, a pool that rounds up where nothing is left
over: none of that changes what is computed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from dlv.canonical import dumps
from dlv.network.edits.axes import (
    Axes,
    Axis,
    axis_length,
    feature_axis,
    network_axes,
    parameter_axes,
)
from dlv.network.graph import Network, Node, Port, plain
from dlv.network.inference import Ports, Tensors, node_shapes
from dlv.network.sizes import Dim, Shape, window

_STORAGE = ("layout", "channels")
_SHAPING = ("flatten", "view", "reshape", "squeeze", "unsqueeze", "contiguous", "getitem")
_COMMUTING = ("ADD", "MUL")


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
        return parameter_axes(node, self.inputs(node), self.axes.get(node.name, ()))

    # Nodes

    def kind(self, node: Node) -> Hashable:
        """Equal for two layers that do the same to what they read."""
        if node.name not in self._kinds:
            self._kinds[node.name] = self._kind(node)
        return self._kinds[node.name]

    def _kind(self, node: Node) -> Hashable:
        attrs = {k: v for k, v in node.attrs.items() if k not in _STORAGE}
        variant = node.variant
        given = self.inputs(node)
        first = given[0] if given else None
        if node.op == "OP":
            source = dict(node.source or {})
            return ("OP", source.get("op"), dumps([source.get("args"), source.get("kwargs")]))
        if node.op == "RESHAPE":
            kind = attrs["kind"]
            if kind in _SHAPING:
                return ("RESHAPE", "shaping")
            return ("RESHAPE", *_items(attrs))
        if node.op == "POOL" and first is not None:
            variant, attrs = self._pool(node, attrs, first)
        if node.op in ("NORM", "SOFTMAX", "CONCAT") and first is not None:
            attrs["axis"] = _named(first, attrs["axis"], node.variant in ("LAYER", "RMS"))
        if node.op in ("CONV", "DECONV"):
            pairs = zip(attrs["kernel"], attrs["dilation"], strict=True)
            attrs["dilation"] = tuple(1 if kernel == 1 else each for kernel, each in pairs)
        if node.op in _COMMUTING and attrs["shape"] is not None:
            axes = self.parameters(node).get("value")
            if axes is not None:
                attrs["shape"] = tuple(sorted(filter(None, map(self._factors, axes)), key=repr))
        return (node.op, variant, *_items(attrs))

    def _pool(
        self, node: Node, attrs: dict[str, Any], first: Axes
    ) -> tuple[str | None, dict[str, Any]]:
        """Windows rather than sizes; a mean over the whole map as such."""
        if node.variant == "MEAN":
            axis = attrs["axis"]
            places = range(len(first)) if axis is None else [a % len(first) for a in axis]
            return "MEAN", {"axis": tuple(sorted(self._keys(first[place]) for place in places))}
        if len(first) != len(attrs["kernel"] or attrs["size"]) + 2:
            return node.variant, attrs
        feature = feature_axis(node, len(first))
        spatial = [axis for place, axis in enumerate(first) if place not in (0, feature)]
        lengths = [axis_length(axis) for axis in spatial]
        if attrs["size"] is not None:
            attrs = _windows(attrs, lengths)
        if attrs["size"] is None:
            attrs = {**attrs, **_rounding(attrs, lengths)}
            whole = list(attrs["kernel"]) == lengths and not any(map(any, attrs["pad"]))
            if whole and node.variant == "AVG" and set(attrs["dilation"]) == {1}:
                return "MEAN", {"axis": tuple(sorted(map(self._keys, spatial)))}
        return node.variant, attrs

    @staticmethod
    def _keys(axis: Axis) -> str:
        return "*".join(part.key for part in axis)

    # Edges

    def signature(self, reader: Node | None, port: Port) -> Hashable:
        """What a layer, or the network's output, gets at a port, apart from who computed it."""
        axes = self.port_axes(port)
        if axes is None:
            return (self._losses(port), None)
        dims = [self._factors(axis) for axis in axes]
        if reader is not None and "channels" in reader.attrs:
            feature = feature_axis(reader, len(dims))
            dims = [dims[0], dims[feature], *dims[1:feature], *dims[feature + 1 :]]
        elif reader is None or reader.op != "FULL":
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
                    attrs["axis"] = None if before is None else _named(before, attrs["axis"], False)
                if kind != "to" or len(attrs) > 1:
                    found.append((*_items(attrs), port[1] if kind == "split" else 0))
            if not node.inputs or node.sizes_only:
                break
            port = node.inputs[0]
        return tuple(found)

    def _factors(self, axis: Axis) -> tuple[tuple[str, Hashable], ...]:
        """An axis as the set of its factors; one that holds the batch is called so."""
        if len(axis) == 1 and axis[0].key == "b":
            return (("b", "batch"),)
        return tuple(sorted((part.key, part.length) for part in axis if part.length != 1))

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
            dims = None if axes is None else tuple(sorted(map(self._factors, axes), key=repr))
            found[item.name, 0] = number(("input", place, dims, item.dtype))
        for name, digest in network.constants.items():
            found[name, 0] = number(("constant", digest))
        for node in network.sorted_part:
            if node.plumbing:
                continue
            before = [self.input_hash(node, port, found) for port in self.data_inputs(node)]
            if node.op == "DROPOUT" and before:
                source = network.data_of(node.inputs[0])
                found[node.name, 0] = found.get(source, -1) if source else -1
                continue
            if node.op in _COMMUTING:
                before.sort(key=repr)
            for port in range(len(self.shapes[node.name]) or 1):
                found[node.name, port] = number((self.kind(node), tuple(before), port))
        return found

    def data_inputs(self, node: Node) -> list[Port]:
        return [port for port in node.inputs if self.network.data_of(port) is not None]

    def input_hash(
        self, reader: Node | None, port: Port, found: Mapping[Port, int]
    ) -> tuple[Hashable, int]:
        """Of one input of a layer, or one output of the network."""
        source = self.network.data_of(port)
        return (self.signature(reader, port), -1 if source is None else found.get(source, -1))


def commutes(node: Node) -> bool:
    return node.op in _COMMUTING


def _items(attrs: Mapping[str, Any]) -> tuple[tuple[str, Hashable], ...]:
    return tuple((name, _hashable(plain(value))) for name, value in sorted(attrs.items()))


def _hashable(value: Any) -> Hashable:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _named(axes: Axes, axis: int, onwards: bool) -> Hashable:
    """An axis by what it is made of, so that its place does not matter."""
    if not -len(axes) <= axis < len(axes):
        return axis
    place = axis % len(axes)
    chosen = axes[place:] if onwards else axes[place : place + 1]
    return tuple(
        sorted("*".join(sorted(part.key for part in each if part.length != 1)) for each in chosen)
    )


def _windows(attrs: dict[str, Any], lengths: Sequence[Dim]) -> dict[str, Any]:
    """An adaptive pool as the windows that it has, if they are all of one size."""
    steps = []
    for size, have in zip(attrs["size"], lengths, strict=True):
        if size is None:
            steps.append(1)
        elif isinstance(have, int) and have % size == 0:
            steps.append(have // size)
        else:
            return attrs
    return {
        **attrs,
        "size": None,
        "kernel": tuple(steps),
        "stride": tuple(steps),
        "pad": ((0, 0),) * len(steps),
        "dilation": (1,) * len(steps),
    }


def _rounding(attrs: Mapping[str, Any], lengths: Sequence[Dim]) -> dict[str, Any]:
    """`ceil` where it matters, `count_pad` where there is something to count, strides that do."""
    ceil = False
    strides = []
    names = ("kernel", "stride", "pad", "dilation")
    for have, kernel, stride, pad, dilation in zip(
        lengths, *(attrs[name] for name in names), strict=True
    ):
        if not isinstance(have, int):
            ceil = ceil or attrs["ceil"]
            strides.append(stride)
            continue
        room = have + sum(pad) - dilation * (kernel - 1) - 1
        up = window(have, kernel, stride, pad, dilation, True) if room >= 0 else None
        down = window(have, kernel, stride, pad, dilation, False) if room >= 0 else None
        ceil = ceil or (attrs["ceil"] and up != down)
        only = (up if attrs["ceil"] else down) == 1
        strides.append(1 if only else stride)  # a single window goes nowhere
    found: dict[str, Any] = {"ceil": ceil, "stride": tuple(strides)}
    if "count_pad" in attrs and not ceil and not any(map(any, attrs["pad"])):
        found["count_pad"] = True
    return found


def _channels_first(dims: list[Any], axes: Axes) -> list[Any]:
    """The axes of a feature map in one order, whichever it has."""
    keys = [Normal._keys(axis) for axis in axes]
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
