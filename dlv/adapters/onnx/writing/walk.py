"""A network turned into the operators of an ONNX graph, producers first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from dlv.adapters.checkpoint import Tensor
from dlv.adapters.onnx.graph import Graph, Item, Value, merged
from dlv.adapters.onnx.writing.ops import WRITERS
from dlv.adapters.onnx.writing.raw import raw
from dlv.adapters.onnx.writing.source import dialect
from dlv.errors import DlvError, UsageError, nearest
from dlv.network.effects import refuse_effects
from dlv.network.graph import Network, Node, Port
from dlv.network.inference import attribute_faults, enough
from dlv.network.ops.layer import Shapes
from dlv.network.ops.registry import layer_of
from dlv.network.sizes import Shape, ShapeError, fits, text

# Operators whose last outputs may be left out.
_OPTIONAL = frozenset(("MaxPool", "LSTM", "GRU"))


class Walk:
    """What became of a network: operators in `graph`, and the value at each port."""

    def __init__(
        self, network: Network, tensors: Sequence[Tensor], constants: Sequence[Tensor]
    ) -> None:
        self.network = network
        self.notes: list[str] = []
        aliases = {tensor.name: tensor.tied for tensor in tensors if tensor.tied is not None}
        aliases.update(network.aliases)
        self.tensors = {tensor.name: tensor for tensor in (*constants, *tensors)}
        self.graph = Graph(self.tensors, {name: _end(aliases, name) for name in aliases})
        self.values: dict[Port, Item] = {}
        self.placed: dict[int, Port] = {}  # value -> the port that gives it its name
        self.outputs = self._walk()
        self.used = self._prune()
        self.notes += self.graph.notes

    def _walk(self) -> list[tuple[str, Value]]:
        network, g = self.network, self.graph
        losses = {node.name for node in network.nodes if node.op == "LOSS"}
        wanted = [port for port in network.outputs if port[0] not in losses]
        if len(wanted) != len(network.outputs):
            self.notes.append("losses are left out: the file is for inference")
        if not wanted:
            raise UsageError("the network has no outputs that an ONNX file could give")
        for item in network.inputs:
            self.values[item.name, 0] = g.input(item.name, item.dtype, item.shape)
        for name in network.constants:
            if name in self.tensors:
                self.values[name, 0] = g.tensor(name)
        alive = self._alive(wanted)
        refuse_effects(network, alive)
        read = self._read(wanted, alive)
        for node in network.topological():
            if node.name in alive:
                self._node(node, read.get(node.name, frozenset()))
        return self._outputs(wanted)

    def _alive(self, wanted: Sequence[Port]) -> set[str]:
        nodes = {node.name: node for node in reversed(self.network.nodes)}
        alive: set[str] = set()
        todo = [name for name, _ in wanted]
        while todo:
            name = todo.pop()
            if name in nodes and name not in alive:
                alive.add(name)
                todo += [producer for producer, _ in nodes[name].inputs]
        return alive

    def _read(self, wanted: Sequence[Port], alive: set[str]) -> dict[str, set[int]]:
        """Which outputs of each node anybody reads."""
        read: dict[str, set[int]] = {}
        for name, port in wanted:
            read.setdefault(name, set()).add(port)
        for node in self.network.nodes:
            if node.name in alive:
                for name, port in _ports(node):
                    read.setdefault(name, set()).add(port)
        return read

    def _node(self, node: Node, read: set[int] | frozenset[int]) -> None:
        g = self.graph
        g.scope, g.ports = node.name, read
        first = g.last
        try:
            inputs = [self._value(port) for port in _ports(node)]
            made = self._made(node, inputs)
            results = list(made) if isinstance(made, Sequence) else [made]
            if not all(isinstance(item, (Value, int, float)) for item in results):
                raise UsageError("what it gives is no tensor")
            for port, item in enumerate(self._shaped(node, inputs, results)):
                self.values[node.name, port] = item
                if isinstance(item, Value) and item.id > first:
                    self.placed.setdefault(item.id, (node.name, port))
        except DlvError as error:
            what = node.op if node.variant is None else f"{node.op} {node.variant}"
            error.message = f"node {node.name!r} ({what}): {error.message}"
            error.args = (error.message,)
            raise

    def _made(self, node: Node, inputs: Sequence[Item]) -> Item | Sequence[Item]:
        if node.op == "OP":
            return raw(self.graph, node, inputs)
        faults = attribute_faults(node)
        if faults:
            raise UsageError(faults[0][1])
        if not enough(node):
            raise UsageError(f"{len(inputs)} inputs are the wrong number")
        if node.op == "INPUT":
            attrs = node.attrs
            return self.graph.input(node.name, attrs["dtype"], attrs["shape"])
        self._check_tensors(node, inputs)
        return WRITERS[node.op](self.graph, node, inputs)

    def _check_tensors(self, node: Node, inputs: Sequence[Item]) -> None:
        """What is stored is what the node takes."""
        shapes = [item.shape if isinstance(item, Value) else () for item in inputs]
        for slot, wanted in _checked(layer_of(node).parameter_shapes, node, shapes).items():
            tensor = self.tensors.get(self.graph.kept(node.params.get(slot, "")))
            if tensor is not None and not fits(tensor.shape, wanted):
                raise UsageError(
                    f"the tensor {tensor.name!r} of {slot!r} has another shape",
                    why=f"seen {text(tensor.shape)}, wanted {text(wanted)}",
                )

    def _value(self, port: Port) -> Item:
        if port in self.values:
            return self.values[port]
        name, number = port
        known = {each for each, _ in self.values}
        if name in known:
            raise UsageError(f"{name!r} has no output {number}")
        if name in self.network.constants:
            raise UsageError(f"the constant {name!r} is not there")
        raise UsageError(
            f"its input {name!r} is produced by nothing", did_you_mean=nearest(name, known)
        )

    @staticmethod
    def _shaped(node: Node, inputs: Sequence[Item], results: list[Item]) -> list[Item]:
        """The results with what shape inference knows of them."""
        told: Sequence[Shape | None] = ()
        if node.op == "OP":
            told = (node.out_shape,)
        elif node.op != "RESHAPE" or node.attrs["kind"] not in ("size", "arithmetic", "getitem"):
            shapes = [item.shape if isinstance(item, Value) else () for item in inputs]
            told = _checked(layer_of(node).shape, node, shapes)
        for port, shape in enumerate(told[: len(results)]):
            item = results[port]
            if isinstance(item, Value) and not item.weak:
                results[port] = replace(item, shape=merged(item.shape, shape))
        return results

    def _outputs(self, wanted: Sequence[Port]) -> list[tuple[str, Value]]:
        """Each output under its own name, though it be an input or come twice."""
        g = self.graph
        found: list[tuple[str, Value]] = []
        seen: set[int] = set()
        for place, port in enumerate(wanted):
            item, name = self._value(port), port_name(port)
            g.scope = name
            value = g.value(item)
            if value.id in g.plain and self._verbatim(port):
                # As it is, not as others compute with it.
                value = replace(g.plain[value.id], shape=value.shape)
            length = isinstance(item, Value) and item.weak
            if value.id in seen or (self.placed.get(value.id) != port and not length):
                value = g.op("Identity", [value])
            if self.placed.get(value.id) != port and wanted.index(port) == place:
                # The name is that of what comes out, not of what it was made from.
                self.placed = {key: at for key, at in self.placed.items() if at != port}
                self.placed[value.id] = port
            seen.add(value.id)
            if value.shape is None:
                g.notes[
                    f"the rank of the output {name!r} is not known: the file leaves it open"
                ] = None
            found.append((name, value))
        return found

    def _verbatim(self, port: Port) -> bool:
        """Whether an operator gives it that is written back as it was."""
        name = port[0]
        while name in self.network:
            node = self.network.node(name)
            if not (node.op == "RESHAPE" and node.attrs.get("kind") == "getitem" and node.inputs):
                return node.op == "OP" and dialect(node) == "onnx"
            name = node.inputs[0][0]
        return False

    def _prune(self) -> set[int]:
        """Without what no output needs."""
        used = {value.id for _, value in self.outputs}
        kept = []
        for step in reversed(self.graph.steps):
            if used.isdisjoint(step.outputs):
                continue
            while step.kind in _OPTIONAL and step.outputs[-1] not in used:
                step.outputs.pop()
            used.update(step.outputs)
            used.update(item for item in step.inputs if item is not None)
            used.update(step.needs)
            kept.append(step)
        self.graph.steps = kept[::-1]
        return used


Found = TypeVar("Found")


def _checked(
    rule: Callable[[Node, Shapes], Found], node: Node, shapes: Sequence[Shape | None]
) -> Found:
    """What a layer says of these shapes; an error tells which ones do not fit."""
    try:
        return rule(node, shapes)
    except ShapeError as error:
        detail = f"seen {error.seen}, wanted {error.wanted}" if error.seen else None
        raise UsageError(error.message, why=detail) from error


def _ports(node: Node) -> list[Port]:
    """What a node reads; a getitem says by its index which output it means."""
    if node.op == "RESHAPE" and node.attrs.get("kind") == "getitem" and node.inputs:
        return [(node.inputs[0][0], node.attrs.get("index", 0))]
    return list(node.inputs)


def port_name(port: Port) -> str:
    name, number = port
    return f"{name}:{number}" if number else name


def _end(aliases: Mapping[str, str], name: str) -> str:
    """The tensor at the end of a chain of ties."""
    seen = {name}
    while (following := aliases.get(name)) is not None and following not in seen:
        seen.add(following)
        name = following
    return name
