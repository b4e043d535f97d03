"""From a graph of aten calls to a network: what nobody needs left out, names given, nodes made."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from dlv.adapters.aten.functional import Written, functionalise, in_place
from dlv.adapters.aten.ops import match
from dlv.adapters.aten.record import (
    BUFFER,
    CONSTANT,
    INPUT,
    RESPONSE_NORM,
    STATE,
    Argument,
    Call,
    Given,
    Graph,
    Match,
    Reading,
    Ref,
    Tagged,
    Unmatched,
    check,
    join,
    refs,
    rename_symbols,
    unfold,
)
from dlv.adapters.checkpoint import Tensor
from dlv.canonical import number
from dlv.dataclass import dataclass
from dlv.network.fields import FieldError
from dlv.network.graph import Input, Network, Node, Port
from dlv.network.inference import attribute_faults, enough
from dlv.network.ops.op import op_of
from dlv.network.order import FreeNames
from dlv.network.sizes import Shape, ShapeError, fits
from dlv.network.vocabulary import complete


@dataclass(frozen=True)
class Named:
    """A call to be named; `main` if it is more than plumbing."""

    call: Call
    main: bool


def name_calls(items: Sequence[Named], tensors: Iterable[str], names: FreeNames) -> list[str]:
    """One name for each call, in their order. `tensors` are those of the module."""
    inner = _inner_modules((item.call.path for item in items), tensors)
    wanted = _wanted(items, inner)
    # Modules come first, so that `l`, called twice, does not take the name of a module `l_1`.
    first: dict[str, int] = {}
    for place, (name, whole) in enumerate(wanted):
        if whole:
            first.setdefault(name, place)
    given = {place: names.take(name) for name, place in first.items()}
    return [
        given[place] if place in given else names.take(name)
        for place, (name, _) in enumerate(wanted)
    ]


def _wanted(items: Sequence[Named], inner: Collection[str]) -> list[tuple[str, bool]]:
    """The name each would like, and whether it is that of its module."""
    mains: dict[tuple[str, str], int] = {}
    alls: dict[tuple[str, str], int] = {}
    for item in items:
        key = (item.call.path, item.call.visit)
        alls[key] = alls.get(key, 0) + 1
        mains[key] = mains.get(key, 0) + item.main
    result = []
    for item in items:
        path, key = item.call.path, (item.call.path, item.call.visit)
        alone = mains[key] == 1 if item.main else alls[key] == 1
        word = item.call.base.rstrip("_") or item.call.base
        if path and path not in inner and alone:
            result.append((path, True))
        else:
            result.append((f"{path}.{word}" if path else word, False))
    return result


def _inner_modules(paths: Iterable[str], tensors: Iterable[str]) -> set[str]:
    """Modules that hold other modules."""
    found: set[str] = set()
    modules = {*paths, *(name.rpartition(".")[0] for name in tensors)}
    for path in modules:
        above = path.rpartition(".")[0]
        while above and above not in found:
            found.add(above)
            above = above.rpartition(".")[0]
    return found


# Constants of these dtypes are read where they are one number.
_NUMBERS = frozenset({"float16", "float32", "float64", "int32", "int64", "bool"})
_COPIES = ("clone", "lift_fresh_copy", "alias")
_BUFFERS = "forward changes {}: kept as an operation that cannot be edited"
_PARAMETERS = (
    "forward changes {}: the network computes with what it becomes and leaves the tensor as it is,"
    " so that training it is not the same"
)


@dataclass
class Converted:
    """`recorded` are the shapes that were seen while exporting, by node and port."""

    network: Network
    constants: list[Tensor]
    notes: list[str]
    recorded: dict[str, tuple[Shape, ...]]


@dataclass
class _Step:
    """A call on its way to a node."""

    call: Call
    op: str
    match: Match | None
    name: str = ""
    # Of an OP: the outputs that are read, and the nodes that take them out.
    getters: dict[int, str] = field(default_factory=dict)


def convert(graph: Graph, constants: Mapping[str, Tensor], origin: Mapping[str, Any]) -> Converted:
    """The network of a graph; `constants` holds the tensors that are in no state dict."""
    return converted(graph, plain(graph, constants), constants, origin)


def converted(
    graph: Graph, written: Written, constants: Mapping[str, Tensor], origin: Mapping[str, Any]
) -> Converted:
    """The network of a graph that `plain` has been made of."""
    return _Conversion(graph, constants).run(written, origin)


def plain(graph: Graph, constants: Mapping[str, Tensor]) -> Written:
    """Make a graph one whose calls read and never write, buffers' new content at its end apart."""
    unfold(graph)
    check(graph)
    targets = {p.name: p.target for p in graph.placeholders if p.kind == CONSTANT}

    def number_of(name: str) -> float | int | bool | None:
        tensor = constants.get(targets.get(name, ""))
        if tensor is None or math.prod(tensor.shape) != 1 or tensor.dtype not in _NUMBERS:
            return None
        raw = b"".join(bytes(part) for part in tensor.parts())
        value: float | int | bool = np.frombuffer(raw, tensor.dtype)[0].item()
        return value

    written = functionalise(graph, number_of)
    join(graph)
    return written


def live_calls(graph: Graph) -> tuple[set[str], list[Call]]:
    """Values that somebody reads, and the calls that have to be there for it."""
    values = {ref.name for ref in refs(graph.outputs)}
    kept: list[Call] = []
    for call in reversed(graph.calls):
        if in_place(call) or any(name in values for name in call.outputs):
            kept.append(call)
            values.update(ref.name for ref in call.refs())
    return values, kept[::-1]


class _Conversion:
    def __init__(self, graph: Graph, constants: Mapping[str, Tensor]) -> None:
        self.graph = graph
        self.constants = constants
        self.state = {p.name: p.target for p in graph.placeholders if p.kind in STATE}
        self.ports: dict[str, Port] = {}
        self.same: dict[str, str] = {}  # values that are only another one's copy
        self.notes: list[str] = []
        self.recorded: dict[str, tuple[Shape, ...]] = {}

    def run(self, written: Written, origin: Mapping[str, Any]) -> Converted:
        self._tell(written)
        rename_symbols(self.graph)
        steps = self._steps()
        inputs = [
            Input(p.name, self.graph.values[p.name].shape, self._dtype(p.name))
            for p in self.graph.placeholders
            if p.kind == INPUT
        ]
        self.ports = {item.name: (item.name, 0) for item in inputs}
        read = self._read(steps)
        names = FreeNames(self.ports)
        used = []
        for p in self.graph.placeholders:
            if p.kind == CONSTANT and p.name in read:
                kept = names.take(p.target)
                used.append((kept, self.constants[p.target]))
                self.ports[p.name] = (kept, 0)
        self._name(steps, names)
        nodes = [node for step in steps for node in self._nodes(step)]
        outputs = tuple(self._output(item, names, nodes) for item in self._outputs())
        hashed = {name: tensor.content_hash() for name, tensor in used}
        network = Network(
            tuple(inputs),
            tuple(nodes),
            outputs,
            constants=hashed,
            aliases=dict(self.graph.ties),
            origin={**origin, **self._untrained(nodes)},
            constant_shapes={name: tensor.shape for name, tensor in used},
        )
        self._unknown(nodes)
        kept_tensors = [
            replace(tensor, name=name, role="buffer", tied=None) for name, tensor in used
        ]
        return Converted(network, kept_tensors, self.notes, self.recorded)

    def _tell(self, written: Written) -> None:
        for names, words in ((written.buffers, _BUFFERS), (written.parameters, _PARAMETERS)):
            if names:
                self.notes.append(words.format(", ".join(dict.fromkeys(names))))

    def _untrained(self, nodes: Sequence[Node]) -> dict[str, list[str]]:
        """Buffers that no slot tells; a state dict does not say what is trained."""
        told = {
            name
            for node in nodes
            for slot, name in node.params.items()
            if node.op == "NORM" and slot in ("running_mean", "running_var")
        }
        names = [
            p.target
            for p in self.graph.placeholders
            if p.kind == BUFFER
            and (self.graph.values[p.name].dtype or "").startswith(("float", "bfloat", "complex"))
            and p.target not in told
        ]
        return {"buffers": names} if names else {}

    def _dtype(self, name: str) -> str:
        return self.graph.values[name].dtype or "int64"

    def _steps(self) -> list[_Step]:
        live, kept = live_calls(self.graph)
        training = self.graph.training or any(_trains(call) for call in self.graph.calls)
        constant = {p.name for p in self.graph.placeholders if p.kind == CONSTANT}
        steps = []
        for call in kept:
            if not in_place(call):
                source = call.arguments[0].value if call.arguments else None
                copied = call.base in _COPIES and call.aten
                if call.aten and call.base.rstrip("_") == "detach" and isinstance(source, Ref):
                    # Of a constant nothing is detached; elsewhere it stops gradients.
                    copied = self._source(source).name in constant
                if call.op == "aten.dropout.default" and training and call.get("train") is False:
                    # Among layers that are told to train, this one never drops anything.
                    copied = True
                if copied and isinstance(source, Ref) and source.name not in self.state:
                    for name in filter(None, call.outputs):
                        self.same[name] = self._source(source).name
                    continue
            call = self._resolved(call)
            found = None
            if not in_place(call):
                found = self._match(Reading(call, self.graph, self.state, live), call.op)
            steps.append(_Step(call, call.op, found))
        return steps

    def _source(self, ref: Ref) -> Ref:
        return Ref(self.same.get(ref.name, ref.name))

    def _resolved(self, call: Call) -> Call:
        if not any(ref.name in self.same for ref in call.refs()):
            return call
        arguments = tuple(
            Given(given.name, self._through(given.value), given.keyword) for given in call.arguments
        )
        return replace(call, arguments=arguments)

    def _through(self, value: Argument) -> Argument:
        if isinstance(value, Ref):
            return self._source(value)
        return [self._through(item) for item in value] if isinstance(value, list) else value

    def _match(self, call: Reading, op: str) -> Match | None:
        """The vocabulary's operation, if it explains everything that was recorded."""
        try:
            found = match(call, op)
            attrs = complete(found.op, found.variant, found.attrs, params=found.params)
            told = sorted(ref.name for ref in (*found.inputs, *found.params.values()))
            if told != sorted(ref.name for ref in call.call.refs()):
                return None
        except (Unmatched, FieldError):
            return None
        names = {slot: slot for slot in found.params}
        node = Node("", found.op, found.variant, attrs, (("", 0),) * len(found.inputs), names)
        inputs = [self._shape(ref) for ref in found.inputs]
        if attribute_faults(node) or not enough(node):
            return None
        try:
            layer = op_of(node)
            shapes = layer.shape(node, inputs)
            wanted = layer.parameter_shapes(node, inputs)
        except ShapeError:
            return None
        for name, shape in zip(call.call.outputs, shapes, strict=False):
            if name is not None and not fits(shape, self._recorded(name)):
                return None
        for slot, ref in found.params.items():
            if not fits(self._shape(ref), wanted.get(slot)):
                return None
        return Match(found.op, attrs, found.inputs, found.params, found.variant)

    def _recorded(self, name: str) -> Shape | None:
        """The shape of a value, a number being a scalar."""
        value = self.graph.values.get(name)
        if value is None:
            return None
        return () if value.dtype is None else value.shape

    def _shape(self, ref: Ref) -> Shape | None:
        return self._recorded(ref.name)

    def _outputs(self) -> list[Ref]:
        return [self._source(ref) for ref in refs(self.graph.outputs)]

    def _read(self, steps: list[_Step]) -> set[str]:
        read = {ref.name for step in steps for ref in step.call.refs()}
        return read | {ref.name for ref in self._outputs()}

    def _name(self, steps: list[_Step], names: FreeNames) -> None:
        """Names of all nodes, and where each value comes out."""
        items = [
            Named(step.call, step.match is None or step.match.op != "RESHAPE") for step in steps
        ]
        read = self._read(steps)
        given = name_calls(items, self.graph.state, names)
        for step, name in zip(steps, given, strict=True):
            step.name = name
        for step in steps:
            for port, value in enumerate(step.call.outputs):
                if value is None:
                    continue
                self.ports[value] = (step.name, port)
                if step.match is None and step.call.several and value in read:
                    step.getters[port] = names.take(f"{step.name}.{port}")
                    self.ports[value] = (step.getters[port], 0)

    def _nodes(self, step: _Step) -> list[Node]:
        call, found = step.call, step.match
        outputs = [self._recorded(name) if name else None for name in call.outputs]
        node = None if found is None else self._vocabulary(step, found)
        if node is None:
            node = self._raw(step, outputs[0] if outputs else None)
        self.recorded[node.name] = tuple(shape if shape is not None else () for shape in outputs)
        result = [node]
        for port, name in step.getters.items():
            attrs = complete("RESHAPE", None, {"kind": "getitem", "index": port})
            source = _source("operator.getitem", [{"n": 0}, {"c": port}], {})
            result.append(Node(name, "RESHAPE", None, attrs, ((node.name, 0),), source=source))
            self.recorded[name] = (outputs[port] or (),)
        return result

    def _vocabulary(self, step: _Step, matched: Match) -> Node | None:
        places: dict[str, list[int]] = {}
        for place, ref in enumerate(matched.inputs):
            places.setdefault(ref.name, []).append(place)
        slots: dict[str, list[str]] = {}
        for slot, ref in matched.params.items():
            slots.setdefault(ref.name, []).append(slot)

        def tag(ref: Ref, name: str) -> dict[str, Any]:  # noqa: ARG001
            if ref.name in self.state:
                return {"p": slots[ref.name].pop(0)}
            return {"n": places[ref.name].pop(0)}

        source = None if step.op == RESPONSE_NORM else _encoded(step, tag)
        return Node(
            step.name,
            matched.op,
            matched.variant,
            matched.attrs,
            tuple(self.ports[ref.name] for ref in matched.inputs),
            {slot: self._tensor(ref, step.call.path) for slot, ref in matched.params.items()},
            source,
        )

    def _raw(self, step: _Step, shape: Shape | None) -> Node:
        inputs: list[Port] = []
        params: dict[str, str] = {}

        def tag(ref: Ref, name: str) -> dict[str, Any]:
            if ref.name not in self.state:
                inputs.append(self.ports[ref.name])
                return {"n": len(inputs) - 1}
            slot = name if name and name not in params else f"p{len(params)}"
            params[slot] = self._tensor(ref, step.call.path)
            return {"p": slot}

        source = _encoded(step, tag)
        return Node(step.name, "OP", "raw", {}, tuple(inputs), params, source, out_shape=shape)

    def _tensor(self, ref: Ref, path: str) -> str:
        """The name of a tensor of the module; of several, the one that the caller's path has."""
        name = self.state[ref.name]
        own = f"{path}.{name.rpartition('.')[2]}" if path else name
        ties, kept = self.graph.ties, self.graph.ties.get(name, name)
        return own if own == kept or ties.get(own) == kept else name

    def _output(self, ref: Ref, names: FreeNames, nodes: list[Node]) -> Port:
        if ref.name in self.ports:
            return self.ports[ref.name]
        # A tensor of the module that comes out as it is.
        name = names.take("alias")
        nodes.append(
            Node(
                name,
                "OP",
                "raw",
                params={"self": self.state[ref.name]},
                source=_source("aten.alias.default", [{"p": "self"}], {}),
                out_shape=self._shape(ref),
            )
        )
        self.recorded[name] = (self._shape(ref) or (),)
        return name, 0

    def _unknown(self, nodes: list[Node]) -> None:
        raw = sorted({node.source["op"] for node in nodes if node.op == "OP" and node.source})
        if raw:
            shown = ", ".join(raw[:6]) + (", …" if len(raw) > 6 else "")
            self.notes.append(f"stored as they are, beyond the vocabulary: {shown}")


def _trains(call: Call) -> bool:
    """Whether it was exported as a part of training."""
    if call.base in ("dropout", "feature_dropout", "lstm", "gru"):
        return call.get("train") is True
    return (
        call.base == "batch_norm"
        and call.get("training") is True
        and bool(call.get("running_mean"))
    )


def _encoded(step: _Step, tag: Any) -> dict[str, Any]:
    args, kwargs = [], {}
    for given in step.call.arguments:
        value = _json(given.value, given.name, tag)
        if given.keyword:
            kwargs[given.name] = value
        else:
            args.append(value)
    return _source(step.op, args, kwargs)


def _source(op: str, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {"dialect": "aten", "op": op, "args": args, "kwargs": kwargs}


def _json(value: Argument, name: str, tag: Any) -> dict[str, Any]:
    if isinstance(value, Ref):
        found: dict[str, Any] = tag(value, name)
        return found
    if isinstance(value, Tagged):
        return value.json()
    if isinstance(value, list):
        return {"l": [_json(item, "", tag) for item in value]}
    return {"c": number(value) if isinstance(value, float) else value}
