"""A Keras model as a network: its calls in order, each turned into nodes by `keras_layers`.

What a layer's converter cannot say becomes OP{raw} with the layer's settings; code in them
(Lambda) is left out and never looked at.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dlv.adapters.keras.config import Call, Layer, Model, Ref, batch_shape
from dlv.adapters.keras.raw import source_of
from dlv.errors import Damaged, UnsafeInput
from dlv.network.fields import DTYPES, FieldError
from dlv.network.graph import Input, Network, Node, Port
from dlv.network.inference import attribute_faults, enough
from dlv.network.layers.registry import layer_of
from dlv.network.sizes import Dim, Shape, ShapeError
from dlv.network.vocabulary import complete

IMPORTER = {"importer": "keras", "version": 1}
MOST_NODES = 30_000
MOST_OUTPUTS = 1024
_GATED = ("Dropout", "BatchNormalization")

Path = tuple[str, ...]


class Names:
    """Which tensor holds a variable of a layer; by convention where the file has none."""

    def __init__(self, known: Mapping[Path, Mapping[str, str]]) -> None:
        self.known = known
        self.below: dict[Path, dict[str, str]] = {}
        for path, variables in known.items():
            for end in range(1, len(path) + 1):
                below = self.below.setdefault(path[:end], {})
                for variable, tensor in variables.items():
                    below[".".join((*path[end:], variable))] = tensor

    def __call__(self, path: Path, variable: str) -> str:
        tensor = self.known.get(path, {}).get(variable)
        return tensor if tensor is not None else ".".join((*path, variable))

    def slots(self, path: Path) -> dict[str, str]:
        return dict(self.below.get(path, {}))


class Unsayable(Exception):
    """What a layer does is not in the vocabulary; the text says what."""


@dataclass
class Use:
    """One call of a layer while it is turned into nodes."""

    graph: Graph
    layer: Layer
    path: Path
    name: str
    call: Call
    inputs: list[Port]

    @property
    def config(self) -> Mapping[str, Any]:
        return self.layer.config

    def shape(self, port: Port | None = None) -> Shape:
        """The shape that comes in; Unsayable if it is not known."""
        shape = self.graph.shapes.get(port or self.one)
        if shape is None:
            raise Unsayable("the shape of its input is not known")
        return shape

    @property
    def one(self) -> Port:
        if len(self.inputs) != 1:
            raise Unsayable(f"it takes one input, not {len(self.inputs)}")
        return self.inputs[0]

    def tensor(self, variable: str, *inside: str) -> str:
        return self.graph.names((*self.path, *inside), variable)

    def add(
        self,
        op: str,
        variant: str | None = None,
        attrs: Mapping[str, Any] | None = None,
        *,
        inputs: Sequence[Port] | None = None,
        params: Mapping[str, str] | None = None,
        word: str = "",
        axes: int | None = None,
    ) -> Port:
        """A node of this layer; `word` behind its name where it is not the main one."""
        name = self.graph.free(f"{self.name}.{word}" if word else self.name)
        given = [self.one] if inputs is None else inputs
        made = complete(op, variant, attrs or {}, axes=axes, params=params or {})
        node = Node(name, op, variant, made, tuple(given), dict(params or {}))
        return self.graph.put(node)

    def aten(
        self,
        op: str,
        *args: Any,
        shape: Shape | None = None,
        inputs: Sequence[Port] | None = None,
        params: Mapping[str, str] | None = None,
        word: str = "",
    ) -> Port:
        """A raw node that torch and ONNX can run: what it computes is an operation of aten."""
        source = {"dialect": "aten", "op": f"aten.{op}", "args": list(args), "kwargs": {}}
        name = self.graph.free(f"{self.name}.{word}" if word else self.name)
        given = tuple([self.one] if inputs is None else inputs)
        return self.graph.put(
            Node(name, "OP", "raw", {}, given, dict(params or {}), source, out_shape=shape)
        )


Convert = Callable[[Use], list[Port] | Port]


@dataclass
class Graph:
    """The network while it grows. `shapes` of ports are inferred as nodes are put in."""

    names: Names
    converter: Callable[[Layer], Convert | None]
    what: str
    nodes: list[Node] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    shapes: dict[Port, Shape | None] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    raws: set[str] = field(default_factory=set)

    def _too_many(self) -> UnsafeInput:
        why = f"there are more than {MOST_NODES}"
        return UnsafeInput(f"the model in {self.what} has too many nodes", why=why)

    def free(self, name: str) -> str:
        """`name`, or with the first number that makes it new."""
        count = self.taken.get(name)
        if count is None:
            self.taken[name] = 0
            return name
        while f"{name}_{count + 1}" in self.taken:
            count += 1
        self.taken[name] = count + 1
        fresh = f"{name}_{count + 1}"
        self.taken[fresh] = 0
        return fresh

    def put(self, node: Node) -> Port:
        if len(self.nodes) == MOST_NODES:
            raise self._too_many()
        self.nodes.append(node)
        if node.op == "OP":
            self.raws.add(node.name)
        for port, shape in enumerate(self._inferred(node)):
            self.shapes[node.name, port] = shape
        return node.name, 0

    def _inferred(self, node: Node) -> tuple[Shape | None, ...]:
        if node.op == "OP":
            return (node.out_shape,)
        if attribute_faults(node) or not enough(node):
            return (None,)
        try:
            return layer_of(node).shape(node, [self.shapes.get(port) for port in node.inputs])
        except ShapeError:  # `verify` names it
            return (None,)

    def record(self, port: Port, shape: Shape | None) -> None:
        """What the file says comes out of a raw node."""
        if shape is None or self.shapes.get(port) is not None or port[1]:
            return
        for place in range(len(self.nodes) - 1, -1, -1):
            if self.nodes[place].name == port[0]:
                if self.nodes[place].op == "OP":
                    self.nodes[place] = replace(self.nodes[place], out_shape=shape)
                    self.shapes[port] = shape
                return

    def note(self, text: str, name: str) -> None:
        self.notes.setdefault(text, []).append(name)

    # Models and their calls

    def top(self, model: Model) -> Network:
        if _calls(model) > MOST_NODES:  # known before any of them is made
            raise self._too_many()
        arguments = [self._input(layer) for layer in _given(model)]
        if model.sequential and not arguments:
            shape = model.build or (model.layers[0].built if model.layers else None)
            shape = shape or batch_shape(model.layers[0].config if model.layers else {})
            if shape is None:
                raise Unsayable("the model was never built: the shape of its input is not known")
            arguments = [self._declare(f"{model.name}.input", shape, "float32")]
        outputs = self._model(model, (), arguments, "")
        return Network(
            *(tuple(self.inputs), tuple(self.nodes), tuple(outputs)), origin=dict(IMPORTER)
        )

    def _input(self, layer: Layer) -> Port:
        shape = batch_shape(layer.config)
        if shape is None:
            raise Unsayable(f"the shape of the input {layer.name!r} is not known")
        return self._declare(layer.name, shape, _dtype(layer.config.get("dtype")))

    def _declare(self, name: str, shape: Sequence[int | None], dtype: str) -> Port:
        name = self.free(name)
        self.inputs.append(Input(name, symbolic(shape) or (), dtype))
        self.shapes[name, 0] = symbolic(shape)
        return name, 0

    def _model(self, model: Model, path: Path, arguments: list[Port], suffix: str) -> list[Port]:
        if model.sequential:
            return self._sequence(model, path, arguments, suffix)
        known: dict[tuple[str, int, int], Port] = {}
        places = model.inputs or [Ref(layer.name, 0, 0) for layer in _given(model)]
        if len(places) != len(arguments):
            raise Damaged(
                f"the model {model.name!r} in {self.what} is called wrongly",
                why=f"with {len(arguments)} tensors, it has {len(places)} inputs",
            )
        for ref, port in zip(places, arguments, strict=True):
            known[ref.key] = port
        recorded = {
            ref.key: ref.shape
            for layer in model.layers
            for call in layer.calls
            for ref in call.refs
        }
        for layer, number in self._order(model, known):
            call = layer.calls[number]
            ports = [self._known(known, ref, layer, model) for ref in call.refs]
            made = self._call(layer, (*path, layer.name), call, ports, suffix)
            for tensor, port in enumerate(made):
                known[layer.name, number, tensor] = port
                self.record(port, symbolic(recorded.get((layer.name, number, tensor))))
        return [self._known(known, ref, None, model) for ref in model.outputs]

    def _known(
        self,
        known: Mapping[tuple[str, int, int], Port],
        ref: Ref,
        layer: Layer | None,
        model: Model,
    ) -> Port:
        if ref.key in known:
            return known[ref.key]
        # Only raw nodes give more than their converter says.
        first = known.get((ref.layer, ref.call, 0))
        if first is not None and first[0] in self.raws and ref.tensor < MOST_OUTPUTS:
            return first[0], ref.tensor
        where = f"the layer {layer.name!r}" if layer else f"the model {model.name!r}"
        raise Damaged(
            f"the configuration in {self.what} is wrong at {where}",
            why=f"it needs output {ref.tensor} of call {ref.call} of {ref.layer!r}: there is none",
        )

    def _order(
        self, model: Model, known: Mapping[tuple[str, int, int], Port]
    ) -> list[tuple[Layer, int]]:
        """All calls, each behind those that it needs, otherwise as written."""
        fed = {key[:2] for key in known}
        calls = [
            (layer, number)
            for layer in model.layers
            for number in range(len(layer.calls))
            if (layer.name, number) not in fed
        ]
        place = {(layer.name, number): at for at, (layer, number) in enumerate(calls)}
        waits = [0] * len(calls)
        users: list[list[int]] = [[] for _ in calls]
        for at, (layer, number) in enumerate(calls):
            for key in {ref.key[:2] for ref in layer.calls[number].refs}:
                if key in place:
                    users[place[key]].append(at)
                    waits[at] += 1
        ready = [at for at, count in enumerate(waits) if not count]
        order: list[tuple[Layer, int]] = []
        while ready:
            at = heapq.heappop(ready)
            order.append(calls[at])
            for user in users[at]:
                waits[user] -= 1
                if not waits[user]:
                    heapq.heappush(ready, user)
        if len(order) < len(calls):
            names = [calls[at][0].name for at, count in enumerate(waits) if count]
            raise Damaged(
                f"the model {model.name!r} in {self.what} has a cycle", why=", ".join(names[:5])
            )
        return order

    def _sequence(self, model: Model, path: Path, arguments: list[Port], suffix: str) -> list[Port]:
        ports = arguments
        layers = [layer for layer in model.layers if layer.kind != "InputLayer"]
        for place, layer in enumerate(layers):
            ports = self._call(layer, (*path, layer.name), Call([Ref("", 0, 0)]), ports[:1], suffix)
            after = layers[place + 1].built if place + 1 < len(layers) else None
            if ports:
                self.record(ports[0], symbolic(after))
        return ports

    def _call(
        self, layer: Layer, path: Path, call: Call, ports: list[Port], suffix: str
    ) -> list[Port]:
        if layer.kind == "InputLayer" and not ports:
            raise Damaged(
                f"the configuration in {self.what} is wrong at {layer.name!r}",
                why="it is an input that its model does not list",
            )
        if layer.model is not None:
            name = self.free(".".join(path) + suffix)
            return self._model(layer.model, path, ports, name[len(".".join(path)) :])
        use = Use(self, layer, path, ".".join(path) + suffix, call, ports)
        nodes, names = len(self.nodes), len(self.taken)
        if layer.kind in _GATED and call.kwargs.get("training") is not None:
            self.note("called with a fixed training flag, which is not kept", use.name)
        convert = self.converter(layer) if layer.known else None
        if convert is not None:
            try:
                made = convert(use)
                return made if isinstance(made, list) else [made]
            except (Unsayable, FieldError, ShapeError):
                # What was put in before it turned out is taken out again.
                del self.nodes[nodes:]
                while len(self.taken) > names:
                    self.taken.popitem()
        self.note("not in the vocabulary, kept as it is", f"{use.name} ({layer.kind})")
        params = self.names.slots(path)
        source = source_of(layer, call)
        name = self.free(use.name)
        return [self.put(Node(name, "OP", "raw", {}, tuple(ports), params, source))]


def symbolic(shape: Sequence[int | None] | None) -> Shape | None:
    """A shape of Keras: the first axis is the batch, free ones have no length."""
    if shape is None:
        return None
    dims: list[Dim] = list(shape)
    if dims and dims[0] is None:
        dims[0] = "B"
    return tuple(dims)


def _dtype(told: Any) -> str:
    """By its name or by that of a policy; what is not known counts as float32."""
    if isinstance(told, dict):
        inner = told.get("config")
        told = inner.get("name") if isinstance(inner, dict) else None
    return told if isinstance(told, str) and told in DTYPES else "float32"


def _calls(model: Model) -> int:
    """How often layers are called in it, those of models in it as often as these are.

    A model without layers counts as one: to call it takes time too.
    """
    total = 0
    for layer in model.layers:
        inside = 1 if layer.model is None else _calls(layer.model)
        total += max(1, len(layer.calls)) * inside
    return max(1, total)


def _given(model: Model) -> list[Layer]:
    """The layers of a model through which its inputs come, in the order of its inputs."""
    by_name = {layer.name: layer for layer in model.layers if layer.kind == "InputLayer"}
    if model.sequential or not model.inputs:
        return list(by_name.values())[: 1 if model.sequential else None]
    missing = [ref.layer for ref in model.inputs if ref.layer not in by_name]
    if missing:
        raise Unsayable(f"the input {missing[0]!r} has no layer")
    return [by_name[ref.layer] for ref in model.inputs]
