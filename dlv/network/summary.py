"""What a network holds and costs: shapes, parameters, multiply-adds, activation memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dlv.dataclass import dataclass
from dlv.dtypes import ITEM_BYTES
from dlv.network.graph import Network, Node
from dlv.network.inference import Tensors, attribute_faults, enough, input_shapes, node_shapes
from dlv.network.ops.op import op_of
from dlv.network.sizes import Dim, Shape, ShapeError, elements
from dlv.network.vocabulary import slots


@dataclass(frozen=True)
class Row:
    """One node. Costs are per example; None where a shape is not known."""

    name: str
    alias: str | None
    op: str
    variant: str | None
    out_shape: Shape | None
    parameters: int | None  # trainable; a tensor that an earlier node holds too is not counted
    buffers: int | None
    flops: int | None  # forward, multiply-adds x 2
    activation_bytes: int | None


@dataclass(frozen=True)
class Summary:
    """All nodes in topological order, and the sums; a sum is None if a part is not known."""

    rows: tuple[Row, ...]
    parameters: int | None
    buffers: int | None
    flops: int | None
    activation_bytes: int | None
    layers: int
    depth: int


def summary(network: Network, tensors: Tensors | None = None) -> Summary:
    """Figures of every node and of the whole; `tensors` tell what the network alone cannot."""
    aliases = network.node_aliases()
    symbol, examples = _batch(network)
    single = network if symbol is None else _substituted(network, symbol)
    shapes, single_shapes = node_shapes(network, tensors), node_shapes(single, tensors)
    item = next((ITEM_BYTES[i.dtype] for i in network.inputs if "float" in i.dtype), 4)
    counted: set[str] = set()
    rows = []
    for node, alone in zip(network.topological(), single.topological(), strict=True):
        inputs, outputs = input_shapes(alone, single_shapes), single_shapes[node.name]
        faulty = bool(attribute_faults(node))
        weights, buffers = _parameters(network, node, inputs, tensors, counted, faulty)
        flops = None
        if not faulty and enough(node):
            flops = _cost(alone, inputs, outputs)
        size = elements(outputs[0])
        # Plumbing shares the memory of what it reshapes.
        held = 0 if node.plumbing else None if size is None else size * item // examples
        rows.append(
            Row(
                node.name,
                aliases.get(node.name),
                node.op,
                node.variant,
                shapes[node.name][0],
                weights,
                buffers,
                None if flops is None else flops // examples,
                held,
            )
        )
    return Summary(
        tuple(rows),
        _sum(row.parameters for row in rows),
        _sum(row.buffers for row in rows),
        _sum(row.flops for row in rows),
        _sum(row.activation_bytes for row in rows),
        len(aliases),
        network.depth(),
    )


def outlines(network: Network) -> dict[str, tuple[Shape | None, int]]:
    """Output shape and parameters of every node: what a catalogue keeps, without the costs."""
    faults = {id(node): attribute_faults(node) for node in network.nodes}
    shapes = node_shapes(network, faults=faults)
    counted: set[str] = set()
    found = {}
    for node in network.topological():
        weights, _ = _parameters(
            network, node, input_shapes(node, shapes), None, counted, bool(faults[id(node)])
        )
        if weights is None:  # perhaps known for one example
            return {row.name: (row.out_shape, row.parameters or 0) for row in summary(network).rows}
        found[node.name] = (shapes[node.name][0], weights)
    return found


def _sum(values: Iterable[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _cost(node: Node, inputs: list[Shape | None], outputs: tuple[Shape | None, ...]) -> int | None:
    try:
        return op_of(node).flops(node, inputs, outputs)
    except ShapeError:
        return None


def _batch(network: Network) -> tuple[str | None, int]:
    """The symbol that stands for the batch, or how many examples are baked into the shapes."""
    symbols = [dim for item in network.inputs for dim in item.shape if isinstance(dim, str)]
    first = next((item.shape[0] for item in network.inputs if item.shape), None)
    if "B" in symbols:
        return "B", 1
    if isinstance(first, str):
        return first, 1
    return None, first if isinstance(first, int) and first > 0 else 1


def _substituted(network: Network, symbol: str) -> Network:
    """The network for one example."""

    def one(shape: Shape) -> Shape:
        return tuple(1 if dim == symbol else dim for dim in shape)

    def node_of(node: Node) -> Node:
        attrs = {
            name: one(value) if name in ("size", "shape") and isinstance(value, tuple) else value
            for name, value in node.attrs.items()
        }
        recorded = None if node.out_shape is None else one(node.out_shape)
        return replace(node, attrs=attrs, out_shape=recorded)

    return replace(
        network,
        inputs=tuple(replace(item, shape=one(item.shape)) for item in network.inputs),
        nodes=tuple(node_of(node) for node in network.nodes),
    )


def _parameters(
    network: Network,
    node: Node,
    inputs: list[Shape | None],
    tensors: Tensors | None,
    counted: set[str],
    faulty: bool,
) -> tuple[int | None, int | None]:
    """Elements of the trainable tensors and of the buffers that the node is the first to hold."""
    if faulty:
        return None, None
    buffers = {slot.name for slot in slots(node.op, node.variant, node.attrs) if slot.buffer}
    try:
        wanted = op_of(node).parameter_shapes(node, inputs) if enough(node) else {}
    except ShapeError:
        wanted = {}
    total: list[int | None] = [0, 0]
    for slot, name in node.params.items():
        kept = network.aliases.get(name, name)
        if kept in counted:
            continue
        counted.add(kept)
        shape: tuple[Dim, ...] | None = wanted.get(slot)
        if tensors is not None and kept in tensors:
            shape = tensors[kept][1]
        size, place = elements(shape), int(slot in buffers)
        so_far = total[place]
        total[place] = None if size is None or so_far is None else so_far + size
    return total[0], total[1]
