"""Shapes walked through a network, as far as attributes and inputs allow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from dlv.network.fields import FieldError
from dlv.network.graph import Network, Node
from dlv.network.ops.op import Shapes, op_of
from dlv.network.sizes import MAX_RANK, Shape, ShapeError
from dlv.network.vocabulary import OPS, attributes, complete

Tensors = Mapping[str, tuple[str, tuple[int, ...]]]  # name -> dtype, shape
Ports = tuple[Shape | None, ...]
_FAULTS = "_attribute_faults"


def attribute_faults(node: Node) -> list[tuple[str, str]]:
    """(rule, message) for each attribute that is missing, unknown, or out of its range."""
    # A node is kept as it is from one network to the next that is derived of it.
    known: tuple[tuple[str, str], ...] | None = node.__dict__.get(_FAULTS)
    if known is None:
        known = node.__dict__[_FAULTS] = tuple(_attribute_faults(node))
    return list(known)


def _attribute_faults(node: Node) -> list[tuple[str, str]]:
    if node.op not in OPS:
        return [("op", f"unknown operation {node.op!r}")]
    variants = OPS[node.op].variants
    if (node.variant not in variants) if variants else node.variant is not None:
        return [("op", f"{node.op} has no variant {node.variant!r}")]
    try:
        wanted = complete(node.op, node.variant, node.attrs, params=node.params)
    except FieldError as error:
        rule = "missing" if " needs the attribute " in error.message else "attribute"
        return [(rule, f"{error.message} ({error.why})" if error.why else error.message)]
    for name in wanted:
        if name not in node.attrs:
            return [("missing", f"{node.op} lacks the attribute {name!r}")]
    result = []
    for name, attribute in attributes(node.op, node.variant, node.attrs).items():
        least, most = attribute.minimum, attribute.maximum
        if least is None and most is None:
            continue
        for value in _numbers(wanted[name]):
            # Written so that NaN, which compares with nothing, is out of range.
            if (least is not None and not value >= least) or (
                most is not None and not value <= most
            ):
                bounds = f"at least {least}" if most is None else f"{least} to {most}"
                result.append(("range", f"{name!r} is {value}, it must be {bounds}"))
                break
    if not result:
        result = [("range", message) for message in op_of(node).faults(node)]
    return result


def _numbers(value: object) -> Iterator[float]:
    if isinstance(value, tuple):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, (int, float)):
        yield value


def node_shapes(
    network: Network,
    tensors: Tensors | None = None,
    *,
    settle: Callable[[Node, list[Shape | None]], Node] | None = None,
    recorded: Mapping[str, Shapes] | None = None,
    faults: Mapping[int, Sequence[object]] | None = None,
    report: Callable[[Node, ShapeError], None] | None = None,
) -> dict[str, Ports]:
    """Output shapes of every input, constant and node, one per port; None where unknown.

    `settle` may replace a node once its input shapes are there. `recorded`: input shapes
    that OP nodes had when their shape was recorded; with others it does not count.
    `faults`: what `attribute_faults` said of each node, by id, where it is known already.
    """
    shapes: dict[str, Ports] = {
        name: (
            tensors[name][1] if tensors and name in tensors else network.constant_shapes.get(name),
        )
        for name in network.constants
    }
    shapes.update({item.name: (item.shape,) for item in network.inputs})
    for node in network.sorted_part:
        inputs = input_shapes(node, shapes)
        if settle:
            node = settle(node, inputs)
        result: Ports = (None,)
        told = attribute_faults(node) if faults is None else faults[id(node)]
        if not told and enough(node):
            try:
                result = op_of(node).shape(node, inputs)
                for shape in result:
                    if shape is not None and len(shape) > MAX_RANK:
                        raise ShapeError(
                            "too many axes", seen=str(len(shape)), wanted=f"{MAX_RANK} at most"
                        )
            except ShapeError as error:
                result = (None,) * (op_of(node).ports(node) or 1)
                if report:
                    report(node, error)
        if op_of(node).raw and recorded is not None and node.name in recorded:
            result = result if list(recorded[node.name]) == inputs else (None,)
        shapes.setdefault(node.name, result)
    for node in network.nodes:
        shapes.setdefault(node.name, (None,))
    return shapes


def input_shapes(node: Node, shapes: Mapping[str, Ports]) -> list[Shape | None]:
    """What stands at a node's input ports; for getitem, the element that it takes."""
    result: list[Shape | None] = []
    for name, port in node.inputs:
        index = node.attrs.get("index", 0) if node.picks else port
        ports = shapes.get(name, (None,))
        result.append(ports[index] if isinstance(index, int) and 0 <= index < len(ports) else None)
    return result


def enough(node: Node) -> bool:
    """Whether a node with sound attributes has as many inputs as it takes."""
    least, most = op_of(node).arity(node)
    return least <= len(node.inputs) and (most is None or len(node.inputs) <= most)
