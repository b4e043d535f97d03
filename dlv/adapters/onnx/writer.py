"""ONNX files from networks and their tensors, without torch and without the onnx package.

Opset 21 and IR 10 (May 2024): the first with the right GroupNormalization, and with GELU and
dilated average pools; runtimes of the last two years take them. What comes out computes what the
network computes in inference, at any length of an axis that is a symbol in the network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import BinaryIO, TypeVar

import dlv.adapters.onnx.messages as messages
from dlv.adapters.checkpoint import Beside, Tensor
from dlv.adapters.onnx.graph import Graph, Item, Type, Value, Writer, dialect, merged
from dlv.adapters.onnx.messages import Array, Operator, Place
from dlv.adapters.onnx.raw import OPSET, ir_version, raw
from dlv.adapters.onnx.rules import (
    activation,
    attention,
    combine,
    conv,
    dense,
    movement,
    norm,
    pool,
)
from dlv.adapters.protobuf import MOST_BYTES, MessageWriter
from dlv.canonical import VERSION
from dlv.errors import DlvError, UsageError, nearest
from dlv.network.graph import Network, Node, Port
from dlv.network.inference import attribute_faults, enough
from dlv.network.ops.op import Shapes, op_of
from dlv.network.order import FreeNames
from dlv.network.program import refuse_effects
from dlv.network.sizes import Shape, ShapeError, fits, text

WRITERS: dict[str, Writer] = {
    **conv.WRITERS,
    **dense.WRITERS,
    **pool.WRITERS,
    **norm.WRITERS,
    **activation.WRITERS,
    **combine.WRITERS,
    **movement.WRITERS,
    **attention.WRITERS,
}
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
            self.notes.append("losses are skipped: the file is for inference")
        if not wanted:
            raise UsageError("the network has no outputs that an ONNX file could give")
        for item in network.inputs:
            self.values[item.name, 0] = g.input(item.name, item.dtype, item.shape)
        for name in network.constants:
            if name in self.tensors:
                self.values[name, 0] = g.tensor(name)
        alive = network.needed(name for name, _ in wanted)
        refuse_effects(network, alive)
        read = self._read(wanted, alive)
        for node in network.topological():
            if node.name in alive:
                self._node(node, read.get(node.name, frozenset()))
        return self._outputs(wanted)

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
            made = self._written(node, inputs)
            results = list(made) if isinstance(made, Sequence) else [made]
            if not all(isinstance(item, (Value, int, float)) for item in results):
                raise UsageError("what it gives is not a tensor")
            for port, item in enumerate(self._shaped(node, inputs, results)):
                self.values[node.name, port] = item
                if isinstance(item, Value) and item.id > first:
                    self.placed.setdefault(item.id, (node.name, port))
        except DlvError as error:
            what = node.op if node.variant is None else f"{node.op} {node.variant}"
            error.message = f"node {node.name!r} ({what}): {error.message}"
            error.args = (error.message,)
            raise

    def _written(self, node: Node, inputs: Sequence[Item]) -> Item | Sequence[Item]:
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
        for slot, wanted in _checked(op_of(node).parameter_shapes, node, shapes).items():
            tensor = self.tensors.get(self.graph.untied(node.params.get(slot, "")))
            if tensor is not None and not fits(tensor.shape, wanted):
                raise UsageError(
                    f"the tensor {tensor.name!r} of {slot!r} has another shape",
                    why=f"seen {text(tensor.shape)}, expected {text(wanted)}",
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
            f"its input {name!r} is not produced by anything", did_you_mean=nearest(name, known)
        )

    @staticmethod
    def _shaped(node: Node, inputs: Sequence[Item], results: list[Item]) -> list[Item]:
        """The results with what shape inference knows of them."""
        told: Sequence[Shape | None] = ()
        if node.op == "OP":
            told = (node.out_shape,)
        elif node.op != "RESHAPE" or node.attrs["kind"] not in ("size", "arithmetic", "getitem"):
            shapes = [item.shape if isinstance(item, Value) else () for item in inputs]
            told = _checked(op_of(node).shape, node, shapes)
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
                g.notes[f"the rank of the output {name!r} is unknown: the file leaves it open"] = (
                    None
                )
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
        detail = f"seen {error.seen}, expected {error.wanted}" if error.seen else None
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


_LEAST_OUTSIDE = 1024  # smaller tensors stay in the model even where the rest lies beside it
_ALIGNMENT = 4096  # so that runtimes can map them


def save_network(
    out: BinaryIO,
    network: Network,
    tensors: Sequence[Tensor],
    constants: Sequence[Tensor],
    *,
    metadata: Mapping[str, str] | None = None,
    beside: Beside | None = None,
    most: int | None = None,
) -> list[str]:
    """Write the model; notes say what a reader of the file may wonder about.

    A model of more than `most` bytes, by default what protobuf can hold, has its tensors in
    `beside`; without that it is refused before a byte is written. The same input gives the same
    bytes.
    """
    most = MOST_BYTES if most is None else most
    model = _File(Walk(network, tensors, constants))
    whole = model.message(metadata or {}, {})
    if whole.size > most:
        if beside is None:
            raise UsageError(
                "the model is too large for one ONNX file",
                why=f"it takes {whole.size} bytes, the format holds {most}",
                hint="export it as safetensors, or to a file with its tensors next to it",
            )
        places = model.outside(beside.name)
        whole = model.message(metadata or {}, places)
        if whole.size > most:
            raise UsageError("the model is too large for an ONNX file even without its tensors")
        _write_outside(beside.open(), model.arrays, places)
        model.notes.append(f"the tensors are in {beside.name}: keep it next to the model")
    whole.write(out)
    return model.notes


class _File:
    """The graph with the names that everything gets in the file."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.graph = walk.graph
        self.notes = walk.notes
        self.names = self._name()
        self.arrays = self._arrays()
        self._tell_unused()

    def _name(self) -> dict[int, str]:
        """Tensors and inputs keep their names, ports are called like their node."""
        g, names = self.graph, FreeNames()
        final: dict[int, str] = {}
        for wanted, value in (*g.stored.items(), *g.inputs.items()):
            if value.id in self.walk.used or wanted in g.inputs:
                final.setdefault(value.id, self._noted_name(wanted, names.take(wanted)))
        for wanted, value in self.walk.outputs:
            final[value.id] = self._noted_name(wanted, names.take(wanted))
        for item, wanted in g.fixed.items():
            if item in self.walk.used and names.take(wanted) != wanted:
                raise UsageError(f"two values would be named {wanted!r} in the file")
            final[item] = wanted
        for item, port in self.walk.placed.items():
            if item in self.walk.used and item not in final:
                final[item] = names.take(port_name(port))
        for step in g.steps:
            for place, item in enumerate(step.outputs):
                if item in self.walk.used and item not in final:
                    ending = f":{place}" if place else ""
                    final[item] = names.take(f"{step.scope}/{step.kind}{ending}")
        for item in g.made:
            if item in self.walk.used:
                final[item] = names.take(f"{g.made[item].name}/const")
        return final

    def _noted_name(self, wanted: str, name: str) -> str:
        if wanted != name:
            self.notes.append(f"{wanted!r} is named {name!r} in the file: the name is used twice")
        return name

    def _arrays(self) -> list[Array]:
        """Stored tensors, then what was made here, each in the order of its first use."""
        g = self.graph
        found = []
        for name, value in g.stored.items():
            if value.id in self.walk.used:
                tensor = self.walk.tensors[name]
                found.append(Array(self.names[value.id], tensor.dtype, tensor.shape, tensor))
        made = [(item, array) for item, array in g.made.items() if item in self.walk.used]
        return found + [replace(array, name=self.names[item]) for item, array in made]

    def _tell_unused(self) -> None:
        g = self.graph
        written = {name for name, value in g.stored.items() if value.id in self.walk.used}
        tied = {name for name in self.walk.tensors if g.untied(name) in written}
        # Those that count training steps have nothing to say in inference.
        left = [
            name
            for name in self.walk.tensors
            if name not in tied and not name.endswith("num_batches_tracked")
        ]
        if left:
            shown = ", ".join(left[:3]) + (", …" if len(left) > 3 else "")
            self.notes.append(f"{len(left)} tensors that no output needs are skipped: {shown}")

    def outside(self, location: str) -> dict[str, Place]:
        """Where each large tensor lies in the file beside the model."""
        places, offset = {}, 0
        for array in self.arrays:
            if array.data.nbytes >= _LEAST_OUTSIDE:
                offset += -offset % _ALIGNMENT
                places[array.name] = Place(location, offset)
                offset += array.data.nbytes
        return places

    def message(self, metadata: Mapping[str, str], places: Mapping[str, Place]) -> MessageWriter:
        g, names = self.graph, self.names
        graph = MessageWriter()
        # The operator that gives a node's result bears the node's own name.
        bearers = {item: port[0] for item, port in self.walk.placed.items() if port[1] == 0}
        bearing = {bearers[step.outputs[0]] for step in g.steps if step.outputs[0] in bearers}
        taken = FreeNames(bearing)
        for step in g.steps:
            own = bearers.get(step.outputs[0])
            name = own if own is not None else taken.take(f"{step.scope}/{step.kind}")
            ins = ["" if item is None else names[item] for item in step.inputs]
            outs = [names[item] for item in step.outputs]
            attrs = {
                key: messages.data_type(value.dtype, name) if isinstance(value, Type) else value
                for key, value in step.attrs.items()
            }
            made = messages.operator(Operator(step.kind, ins, outs, name, attrs, step.domain))
            graph.message(1, made)
        graph.text(2, "network")
        for array in self.arrays:
            graph.message(5, messages.tensor(array, places.get(array.name)))
        for value in g.inputs.values():
            graph.message(11, messages.value_info(names[value.id], value.dtype, value.shape or ()))
        for _, value in self.walk.outputs:
            graph.message(12, messages.value_info(names[value.id], value.dtype, value.shape))
        for value in self._between():
            graph.message(13, messages.value_info(names[value.id], value.dtype, value.shape))
        return messages.model(
            graph,
            ir_version=ir_version(g.opsets.get("", OPSET)),
            opsets={"": OPSET, **g.opsets},
            producer=("dlv", VERSION),
            metadata=metadata,
        )

    def _between(self) -> list[Value]:
        """What operators give to each other: readers learn the shapes."""
        walk = self.walk
        told = {item.id: item for item in walk.values.values() if isinstance(item, Value)}
        ends = {value.id for _, value in walk.outputs} | self.graph.unsure
        made = [item for step in self.graph.steps for item in step.outputs if item not in ends]
        values = [told.get(item, self.graph.values[item]) for item in made]
        return [value for value in values if value.shape is not None]


def _write_outside(out: BinaryIO, arrays: Sequence[Array], places: Mapping[str, Place]) -> None:
    position = 0
    for array in arrays:
        place = places.get(array.name)
        if place is not None:
            out.write(bytes(place.offset - position))
            array.data.copy_to(out)
            position = place.offset + array.data.nbytes
