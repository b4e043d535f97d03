"""A network while it grows out of an ONNX graph: values, shapes, names, constants."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dlv.adapters.checkpoint import Tensor
from dlv.adapters.onnx.model import Model, Operator
from dlv.adapters.onnx.tensors import Stored
from dlv.adapters.onnx.values import Formula, Known, Length, Literal, Sizes
from dlv.dataclass import dataclass
from dlv.dtypes import STRUCT_CODES
from dlv.network.graph import Input, Network, Node, Port
from dlv.network.inference import attribute_faults, enough
from dlv.network.ops.op import op_of
from dlv.network.order import FreeNames
from dlv.network.sizes import MAX_RANK, Shape, ShapeError
from dlv.network.vocabulary import complete

# Version of what importing means: another one may make other networks of the same file.
IMPORTER = 1
# Names that exporters give to single numbers of the program; parameters have others.
_NUMBER = re.compile(
    r"(?:.*[/.])?(?:const(?:ant)?|val|scalar_tensor_default)(?:_\d+)?|onnx::\w+_\d+"
)


class Cannot(Exception):
    """An operator is not what the vocabulary says; it is kept raw."""


@dataclass(frozen=True, eq=False)
class Held:
    """A tensor of the file: an initializer, or (`constant`) the value of a Constant node."""

    stored: Stored
    constant: bool = False
    flipped: bool = False  # its two axes exchanged, by a Transpose on the way

    @property
    def trainable(self) -> bool:
        """Whether it counts as a weight rather than as a number that was written down."""
        if self.constant or not self.stored.dtype.startswith(("float", "bfloat", "complex")):
            return False
        return self.stored.elements != 1 or not _NUMBER.fullmatch(self.stored.name)


# What is known of an ONNX value.
State = Port | Held | Literal | Sizes


class Builder:
    """Nodes are emitted producers first; `states` says what became of each value of the file."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.graph = model.graph
        self.nodes: list[Node] = []
        self.states: dict[str, State] = {}
        self.shapes: dict[Port, Shape | None] = {}
        self.dtypes: dict[Port, str] = {}
        self.constants: dict[str, Tensor] = {}
        self.hashes: dict[str, str] = {}
        self.tensors: dict[str, Stored] = dict(model.graph.stored)
        self.notes: dict[str, None] = {}
        self.raw_kinds: dict[str, int] = {}
        self.waiting: dict[str, Operator] = {}  # value that was worked out -> what computes it
        self.computed: dict[str, Port] = {}  # such a value, where it was needed nevertheless
        self.symbols: set[str] = set()
        self._reserved = {operator.name for operator in self.graph.operators if operator.name}
        self.names = FreeNames(reserved=self._reserved)
        self._constant_of: dict[object, str] = {}
        self._lengths: dict[tuple[Port, int], str] = {}
        self.inputs = self._inputs()

    def _inputs(self) -> tuple[Input, ...]:
        graph, result = self.graph, []
        for name, stored in graph.stored.items():
            self.states[name] = Held(stored)
        for name in graph.inputs:
            # Before IR version 4 every initializer had to be an input, too.
            if name in graph.stored or name in graph.odd:
                continue
            value = graph.values.get(name)
            shape = value.shape if value else None
            if shape is None:
                self.notes[f"the input {name!r} says nothing about its shape"] = None
            elif shape and shape[0] is None:
                shape = ("B", *shape[1:])
            dtype = value.dtype if value else "float32"
            result.append(Input(name, self._guess(name) if shape is None else shape, dtype))
            self.names.take(name)
            self.bind(name, (name, 0), shape, result[-1].dtype)
            self.symbols.update(dim for dim in shape or () if isinstance(dim, str))
        return tuple(result)

    def _guess(self, name: str) -> Shape:
        """A shape for an input that has none: of as many axes as its first reader needs."""
        rank = 2
        for operator in self.graph.operators:
            if name not in operator.inputs[:1]:
                continue
            weight = self.graph.stored.get((operator.inputs[1:2] or [""])[0])
            kernel = operator.attrs.get("kernel_shape")
            if operator.kind in ("Conv", "ConvTranspose") and weight is not None:
                rank = len(weight.shape)
            elif operator.kind.endswith("Pool") and isinstance(kernel, list):
                rank = len(kernel) + 2
            break
        return ("B", *[None] * min(rank - 1, MAX_RANK - 1))

    def bind(
        self, value: str, port: Port, shape: Shape | None = None, dtype: str | None = None
    ) -> None:
        """From now on `value` stands at `port`; what the file says fills what is not known."""
        said = self.graph.values.get(value)
        known = self.shapes.get(port)
        self.shapes[port] = merged(shape if known is None else known, said.shape if said else None)
        kind = dtype or self.dtypes.get(port) or (said.dtype if said else None)
        if kind:
            self.dtypes[port] = kind
        self.states[value] = port

    def shape(self, value: str) -> Shape | None:
        state = self.states.get(value)
        if isinstance(state, tuple):
            return self.shapes.get(state)
        if isinstance(state, Held):
            shape = state.stored.shape
            return shape[::-1] if state.flipped else shape
        if isinstance(state, Sizes):
            return () if state.scalar else (len(state.entries),)
        return None if state is None else state.shape

    def dtype(self, value: str) -> str | None:
        state = self.states.get(value)
        if isinstance(state, tuple):
            return self.dtypes.get(state)
        if isinstance(state, Held):
            return state.stored.dtype
        return "int64" if isinstance(state, Sizes) else None if state is None else state.dtype

    def known(self, value: str) -> Known | None:
        """The numbers, if they are few and no weights."""
        state = self.states.get(value)
        if isinstance(state, (Literal, Sizes)):
            return state
        if not isinstance(state, Held) or state.trainable:
            return None
        return literal_of(state)

    def free(self, wanted: str) -> bool:
        return wanted not in self.names and wanted not in self._reserved

    def emit(
        self,
        name: str,
        op: str,
        attrs: Mapping[str, Any],
        inputs: Sequence[Port],
        *,
        variant: str | None = None,
        params: Mapping[str, str] | None = None,
    ) -> str:
        """A new node of the vocabulary; its name."""
        params = params or {}
        attrs = complete(op, variant, attrs, params=params)
        return self.add(Node(name, op, variant, attrs, tuple(inputs), params))

    def emit_call(
        self,
        name: str,
        source: Mapping[str, Any],
        inputs: Sequence[Port],
        *,
        params: Mapping[str, str] | None = None,
        shape: Shape | None = None,
    ) -> str:
        """A new OP node, which `source` describes; its name."""
        return self.add(Node(name, "OP", "raw", {}, tuple(inputs), params or {}, source, shape))

    def add(self, node: Node) -> str:
        """Add a node under a free name; Cannot if its attributes do not go together."""
        faults = attribute_faults(node)
        if faults or not enough(node):
            raise Cannot(faults[0][1] if faults else f"{node.op} has {len(node.inputs)} inputs")
        shapes = op_of(node).shape(node, [self.shapes.get(port) for port in node.inputs])
        if any(shape is not None and len(shape) > MAX_RANK for shape in shapes):
            raise ShapeError("too many axes")
        final = self.names.take(node.name)
        self.nodes.append(replace(node, name=final))
        first = self.dtypes.get(node.inputs[0]) if node.inputs else None
        for place, shape in enumerate(shapes):
            self.shapes[final, place] = shape
            if first and node.op != "OP":
                self.dtypes[final, place] = first
        return final

    def take_back(self, count: int) -> None:
        """Forget the nodes from number `count` on."""
        gone = {node.name for node in self.nodes[count:]}
        if gone:
            del self.nodes[count:]
            self._lengths = {key: name for key, name in self._lengths.items() if name not in gone}
            self.computed = {v: port for v, port in self.computed.items() if port[0] not in gone}

    def size(self, length: Length) -> Port:
        """A node that tells a length."""
        state = self.states[length.value]
        assert isinstance(state, tuple)
        key = (state, length.axis)
        if key not in self._lengths:
            attrs = {"kind": "size", "axis": length.axis}
            self._lengths[key] = self.emit(f"{state[0]}.size", "RESHAPE", attrs, (state,))
        return self._lengths[key], 0

    def number(self, entry: Length | Formula) -> Port:
        """A node that tells a length, or what is computed of lengths."""
        if isinstance(entry, Length):
            return self.size(entry)
        ports: list[Port] = []
        args: list[dict[str, Any]] = []
        # As deep as a Formula may be, not deeper.
        for side in (entry.left, entry.right):
            if isinstance(side, int):
                args.append({"c": side})
            else:
                args.append({"n": len(ports)})
                ports.append(self.number(side))
        source = {"dialect": "aten", "op": f"operator.{entry.operator}", "args": args, "kwargs": {}}
        attrs = {"kind": "arithmetic", "operator": entry.operator}
        attrs = complete("RESHAPE", None, attrs, params={})
        name = f"{ports[0][0]}.{entry.operator}"
        return self.add(Node(name, "RESHAPE", None, attrs, tuple(ports), {}, source)), 0

    def constant(self, value: str) -> Port:
        """What stands at a value that is written down in the file, as a constant."""
        state = self.states[value]
        # One tensor may be known under several names.
        key: object = state.stored if isinstance(state, Held) else value
        if key in self._constant_of:
            return self._constant_of[key], 0
        name = self.names.take(value)
        if isinstance(state, Held):
            if state.flipped:
                raise Cannot("a transposed tensor")
            tensor = state.stored.tensor(name, "buffer")
        elif isinstance(state, Literal):
            raw = struct.pack(f"<{len(state.values)}{STRUCT_CODES[state.dtype]}", *state.values)
            tensor = Tensor(name, state.dtype, state.shape, len(raw), lambda: raw, "buffer")
        else:
            raise Cannot("a value that is known at run time only")
        self._constant_of[key] = name
        self.constants[name], self.hashes[name] = tensor, tensor.content_hash()
        self.shapes[name, 0], self.dtypes[name, 0] = tensor.shape, tensor.dtype
        return name, 0

    def network(self, outputs: Iterable[Port]) -> Network:
        version = self.model.opsets.get("")
        origin: dict[str, Any] = {"importer": "onnx", "version": IMPORTER}
        if version is not None:
            origin["opset"] = version
        if self.model.producer:
            origin["producer"] = self.model.producer[:200]
        return Network(
            self.inputs,
            tuple(self.nodes),
            tuple(outputs),
            constants=self.hashes,
            origin=origin,
            constant_shapes={name: tensor.shape for name, tensor in self.constants.items()},
        )


def literal_of(held: Held) -> Literal | None:
    values = None if held.flipped else held.stored.values()
    return None if values is None else Literal(held.stored.dtype, held.stored.shape, values)


def merged(inferred: Shape | None, declared: Shape | None) -> Shape | None:
    """What was worked out, and where nothing was, what the file says."""
    if inferred is None or declared is None or len(inferred) != len(declared):
        return declared if inferred is None else inferred
    return tuple(b if a is None else a for a, b in zip(inferred, declared, strict=True))
