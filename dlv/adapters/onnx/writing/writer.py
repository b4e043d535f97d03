"""ONNX files from networks and their tensors, without torch and without the onnx package.

Opset 21 and IR 10 (May 2024): the first with the right GroupNormalization, and with GELU and
dilated average pools; runtimes of the last two years take them. What comes out computes what the
network computes in inference, at any length of an axis that is a symbol in the network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import BinaryIO

import dlv.adapters.onnx.messages as messages
from dlv.adapters.checkpoint import Beside, Tensor
from dlv.adapters.onnx.graph import Names, Type, Value
from dlv.adapters.onnx.messages import Array, Operator, Place
from dlv.adapters.onnx.writing.raw import OPSET, ir_version
from dlv.adapters.onnx.writing.walk import Walk, port_name
from dlv.adapters.protobuf.writer import MOST_BYTES, Message
from dlv.canonical import VERSION
from dlv.errors import UsageError
from dlv.network.graph import Network

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
                hint="export it as safetensors, or to a file beside which its tensors can lie",
            )
        places = model.outside(beside.name)
        whole = model.message(metadata or {}, places)
        if whole.size > most:
            raise UsageError("the model is too large for an ONNX file even without its tensors")
        _write_outside(beside.open(), model.arrays, places)
        model.notes.append(f"the tensors lie in {beside.name}: keep it beside the model")
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
        g, names = self.graph, Names()
        final: dict[int, str] = {}
        for wanted, value in (*g.stored.items(), *g.inputs.items()):
            if value.id in self.walk.used or wanted in g.inputs:
                final.setdefault(value.id, self._told(wanted, names.take(wanted)))
        for wanted, value in self.walk.outputs:
            final[value.id] = self._told(wanted, names.take(wanted))
        for item, wanted in g.fixed.items():
            if item in self.walk.used and names.take(wanted) != wanted:
                raise UsageError(f"two values would be called {wanted!r} in the file")
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

    def _told(self, wanted: str, name: str) -> str:
        if wanted != name:
            self.notes.append(f"{wanted!r} is called {name!r} in the file: the name stands twice")
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
        tied = {name for name in self.walk.tensors if g.kept(name) in written}
        # Those that count training steps have nothing to say in inference.
        left = [
            name
            for name in self.walk.tensors
            if name not in tied and not name.endswith("num_batches_tracked")
        ]
        if left:
            shown = ", ".join(left[:3]) + (", …" if len(left) > 3 else "")
            self.notes.append(f"{len(left)} tensors that no output needs are left out: {shown}")

    def outside(self, location: str) -> dict[str, Place]:
        """Where each large tensor lies in the file beside the model."""
        places, offset = {}, 0
        for array in self.arrays:
            if array.data.nbytes >= _LEAST_OUTSIDE:
                offset += -offset % _ALIGNMENT
                places[array.name] = Place(location, offset)
                offset += array.data.nbytes
        return places

    def message(self, metadata: Mapping[str, str], places: Mapping[str, Place]) -> Message:
        g, names = self.graph, self.names
        graph = Message()
        taken = Names()
        # The operator that gives a node's result bears the node's own name.
        bearers = {item: port[0] for item, port in self.walk.placed.items() if port[1] == 0}
        bearing = {bearers[step.outputs[0]] for step in g.steps if step.outputs[0] in bearers}
        taken.taken |= bearing
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
