"""Nodes of a network made one by one, each with its shape, from the layers of a Caffe file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dlv.adapters.caffe.spec import MOST_ELEMENTS, Layer, unique
from dlv.adapters.protobuf.message import Message
from dlv.canonical import number
from dlv.errors import Damaged, UnsafeInput
from dlv.network.fields import FieldError
from dlv.network.graph import Node, Port
from dlv.network.inference import attribute_faults
from dlv.network.ops.registry import layer_of
from dlv.network.sizes import Shape, ShapeError
from dlv.network.vocabulary import complete

# Of no meaning for what a layer computes.
_SKIPPED = ("engine", "filler")
_NOT_KEPT = {"transform_param", "loss_param", "param"}


class Builder:
    """What has been built so far. `batch` is how many examples the file itself speaks of."""

    def __init__(self, batch: int | None) -> None:
        self.batch = batch
        self.nodes: list[Node] = []
        self.shapes: dict[Port, Shape | None] = {}
        self.taken: dict[str, int] = {}
        self.notes: list[str] = []

    def mark(self) -> tuple[int, dict[str, int], int]:
        return len(self.nodes), dict(self.taken), len(self.notes)

    def back_to(self, mark: tuple[int, dict[str, int], int]) -> None:
        """Remove all nodes added since the mark."""
        nodes, self.taken, notes = mark
        del self.nodes[nodes:], self.notes[notes:]

    def shape(self, port: Port) -> Shape | None:
        return self.shapes.get(port)

    def rank(self, port: Port) -> int | None:
        shape = self.shapes.get(port)
        return None if shape is None else len(shape)

    def add(
        self,
        layer: Layer,
        op: str,
        variant: str | None,
        inputs: Sequence[Port],
        attrs: Mapping[str, Any] | None = None,
        *,
        params: Mapping[str, str] | None = None,
        part: str = "",
    ) -> Port:
        """A node called like the layer, or `layer.part`; its first output."""
        params = dict(params or {})
        try:
            settled = complete(op, variant, attrs or {}, params=params)
        except FieldError as error:
            raise Damaged(f"{layer.where()}: {error.message}", why=error.why) from error
        return self._place(layer, Node("", op, variant, settled, tuple(inputs), params), part)

    def raw(
        self,
        layer: Layer,
        inputs: Sequence[Port],
        shape: Shape | None = None,
        params: Mapping[str, str] | None = None,
    ) -> list[Port]:
        """A layer outside the vocabulary: what it is, with its parameters, and its outputs."""
        if params is None:
            params = {layer.slot(i): layer.tensor(layer.slot(i)) for i in range(len(layer.blobs))}
        source = {
            "dialect": "caffe",
            "op": layer.type,
            "args": [{"n": place} for place in range(len(inputs))]
            + [{"p": slot} for slot in params],
            "kwargs": _keywords(layer.body),
        }
        node = Node("", "OP", "raw", {}, tuple(inputs), dict(params), source, shape)
        whole = self._place(layer, node, "")
        if len(layer.tops) < 2:
            return [whole]
        ports = []
        for index in range(len(layer.tops)):
            attrs = {"kind": "getitem", "index": index}
            ports.append(self.add(layer, "RESHAPE", None, [whole], attrs, part=f"top{index}"))
            self.shapes[ports[-1]] = shape if not index else None
        return ports

    def _place(self, layer: Layer, node: Node, part: str) -> Port:
        name = unique(f"{layer.name}.{part}" if part else layer.name, self.taken)
        node = Node(name, *(getattr(node, field) for field in _FIELDS))
        for rule, message in attribute_faults(node):
            raise Damaged(f"{layer.where()}: {message}", why=rule)
        self.nodes.append(node)
        try:
            shapes = layer_of(node).shape(node, [self.shape(port) for port in node.inputs])
        except ShapeError:
            # What does not fit is told, with all the rest, where networks are verified.
            shapes = (None,)
        for port, shape in enumerate(shapes):
            self._check(layer, shape)
            self.shapes[(name, port)] = shape
        return name, 0

    def _check(self, layer: Layer, shape: Shape | None) -> None:
        elements = 1
        for side in shape or ():
            elements *= max(side, 1) if isinstance(side, int) else 1
        if elements > MOST_ELEMENTS:
            raise UnsafeInput(
                f"{layer.where()}: its output is too large",
                why=f"{elements} elements, Caffe's own limit is {MOST_ELEMENTS}",
            )


_FIELDS = ("op", "variant", "attrs", "inputs", "params", "source", "out_shape")


def _keywords(body: Message) -> dict[str, Any]:
    """`convolution_param.num_output` and so on, as a source keeps arguments."""
    result: dict[str, Any] = {}
    for name in body.fields:
        if name.endswith("_param") and name not in _NOT_KEPT:
            for message in body.messages(name):
                _collect(result, name, message, 0)
    return result


def _collect(result: dict[str, Any], name: str, message: Message, depth: int) -> None:
    """Depth is that of the text, which is limited where it is read."""
    for field, values in message.fields.items():
        if field.endswith(_SKIPPED):
            continue
        path = f"{name}.{field}"
        plain = [{"c": _plain(value)} for value in values if not isinstance(value, Message)]
        if plain:
            result[path] = plain[0] if len(plain) == 1 else {"l": plain}
        for place, value in enumerate(values):
            if isinstance(value, Message):
                _collect(result, path if len(values) == 1 else f"{path}.{place}", value, depth + 1)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return number(value)
    if isinstance(value, str):
        return str(value)
    # JSON here keeps 64 bits.
    return value if isinstance(value, bool) or -(2**63) <= value < 2**64 else str(value)
