"""A Keras model as a network: its calls in order, each turned into nodes by `rules`.

What a layer's converter cannot say becomes OP{raw} with the layer's settings; code in them
(Lambda) is left out and never looked at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from dlv.adapters.checkpoint import Tensor
from dlv.adapters.engine_runs import in_memory
from dlv.adapters.keras.config import (
    GATED,
    INPUT,
    MODEL,
    Call,
    Layer,
    Model,
    Ref,
    Settings,
    Unsayable,
    asks_nothing,
    batch_shape,
    check_call,
    in_training,
    policy,
    references_in,
)
from dlv.adapters.keras.weights import Names, Path
from dlv.dataclass import dataclass
from dlv.dtypes import DTYPES
from dlv.errors import Damaged, UnsafeInput
from dlv.kinds import Array
from dlv.network.fields import FieldError, whole
from dlv.network.graph import Input, Network, Node, Port
from dlv.network.inference import attribute_faults, enough
from dlv.network.ops.op import op_of
from dlv.network.order import FreeNames, topological
from dlv.network.sizes import Dim, Shape, ShapeError, fits, text
from dlv.network.vocabulary import complete


def calls_in_order(
    model: Model, known: Iterable[tuple[str, int, int]], label: str
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
    keys = ({ref.key[:2] for ref in layer.calls[number].refs} for layer, number in calls)
    order = topological([[place[key] for key in read if key in place] for read in keys])
    if len(order) < len(calls):
        done = set(order)
        names = [layer.name for at, (layer, _) in enumerate(calls) if at not in done]
        raise Damaged(f"the model {model.name!r} in {label} has a cycle", why=", ".join(names[:5]))
    return [calls[at] for at in order]


def symbolic_shape(shape: Sequence[int | None] | None) -> Shape | None:
    """A shape of Keras: the first axis is the batch, free ones have no length."""
    if shape is None:
        return None
    dims: list[Dim] = list(shape)
    if dims and dims[0] is None:
        dims[0] = "B"
    return tuple(dims)


def dtype_of(policy: Any) -> str:
    """The dtype that a name or a policy means; float32 if it is unknown."""
    if isinstance(policy, dict):
        inner = policy.get("config")
        policy = inner.get("name") if isinstance(inner, dict) else None
    return policy if isinstance(policy, str) and policy in DTYPES else "float32"


def check_input(layer: Layer) -> None:
    """Unsayable where an input is more than numbers of a shape."""
    for key, value in layer.config.items():
        off = key in INPUT and (key not in ("sparse", "ragged", "optional") or not value)
        if not off:
            raise Unsayable(f"the input {layer.name!r} has {key[:40]} {value!r:.40}")


def check_model(model: Model) -> None:
    odd = sorted(model.settings - MODEL)
    if odd:
        raise Unsayable(f"the model {model.name!r} has the setting {odd[0]!r:.40}")


def refs_of(call: Call, model: Model) -> list[Ref]:
    """The tensors that a model is called with, in the order of its inputs."""
    odd = [
        key
        for key, value in call.kwargs.items()
        if not asks_nothing(key, value) and not (key == "mask" and isinstance(value, Ref))
    ]
    if odd:
        raise Unsayable(f"the model {model.name!r} is called with {odd[0]!r:.40}")
    [first, *more] = call.args or [None]
    if isinstance(first, dict):
        keys = model.keys or [ref.layer for ref in model.inputs]
        if more or sorted(first) != sorted(keys):
            raise Unsayable(f"the model {model.name!r} is called with other keys than its own")
        return list(references_in([first[key] for key in keys]))
    if model.keys:
        raise Unsayable(f"the model {model.name!r} has keys, it is called without")
    refs = list(references_in(call.args))
    if any(not isinstance(item, Ref) for item in _flat(call.args)):
        raise Unsayable(f"the model {model.name!r} is called with more than tensors")
    return refs


def _flat(value: Any) -> Iterator[Any]:
    for item in value:
        if isinstance(item, list):
            yield from _flat(item)
        else:
            yield item


def count_calls(model: Model) -> int:
    """How often layers are called in it, those of models in it as often as these are.

    A model without layers counts as one: to call it takes time too.
    """
    total = 0
    for layer in model.layers:
        inside = 1 if layer.model is None else count_calls(layer.model)
        total += max(1, len(layer.calls)) * inside
    return max(1, total)


def input_layers(model: Model) -> list[Layer]:
    """The layers of a model through which its inputs come, in the order of its inputs."""
    by_name = {layer.name: layer for layer in model.layers if layer.kind == "InputLayer"}
    if model.sequential or not model.inputs:
        return list(by_name.values())[: 1 if model.sequential else None]
    missing = [ref.layer for ref in model.inputs if ref.layer not in by_name]
    if missing:
        raise Unsayable(f"the input {missing[0]!r} has no layer")
    return [by_name[ref.layer] for ref in model.inputs]


_MOST_TEXT = 1 << 20
_MOST_ARGUMENTS = 3  # levels of lists in a call that are kept apart
_CODE = ("function", "output_shape", "mask")


def source_of(layer: Layer, call: Call) -> dict[str, Any]:
    """The `Node.source` of a call; tensors are numbered in the order of `Call.refs`."""
    counter = iter(range(len(call.refs)))
    args = [_tagged(value, counter, 0) for value in call.args]
    kwargs = {_text(key): _tagged(value, counter, 0) for key, value in call.kwargs.items()}
    kwargs["config"] = {"c": settings_text(layer)}
    if layer.function and layer.module:
        kwargs["module"] = {"c": _text(layer.module)}
    name = layer.registered or layer.kind
    return {"dialect": "keras", "op": _text(name), "args": args, "kwargs": kwargs}


def settings_text(layer: Layer) -> str:
    """The settings as canonical JSON, without code."""
    config = layer.config
    if layer.kind == "Lambda":
        config = {key: value for key, value in config.items() if key not in _CODE}
    text = json.dumps(_without_code(config), sort_keys=True, separators=(",", ":"))
    if len(text) > _MOST_TEXT:
        raise UnsafeInput(f"the settings of the layer {layer.name!r} are too large")
    return text


def _without_code(value: Any) -> Any:
    """The depth of what comes in was bounded when it was parsed."""
    if isinstance(value, dict):
        if value.get("class_name") == "__lambda__":
            return {"class_name": "__lambda__"}
        return {key: _without_code(item) for key, item in value.items()}
    return [_without_code(item) for item in value] if isinstance(value, list) else value


def _tagged(value: Any, counter: Iterator[int], depth: int) -> dict[str, Any]:
    if isinstance(value, Ref):
        return {"n": next(counter)}
    if isinstance(value, (list, dict)):
        items = value if isinstance(value, list) else list(value.values())
        if any(True for _ in references_in(items)) and depth < _MOST_ARGUMENTS:
            return {"l": [_tagged(item, counter, depth + 1) for item in items]}
        for _ in references_in(items):
            next(counter)
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=lambda _: None)
        return {"c": text[:_MOST_TEXT]}
    if isinstance(value, str):
        return {"c": _text(value)}
    if isinstance(value, int) and not isinstance(value, bool) and not whole(value):
        return {"c": str(value)[:80]}
    return {"c": value}


def _text(value: str) -> str:
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


IMPORTER = {"importer": "keras", "version": 1}
MOST_NODES = 30_000
MOST_OUTPUTS = 1024
_KEPT = "not in the vocabulary, stored as it is"


@dataclass(frozen=True)
class Mask:
    """A mask: the steps of a tensor count where the value at `port` is not zero."""

    port: Port | None  # None: not known
    truth: bool = False  # what is there is true and false already


UNKNOWN_MASK = Mask(None)

# They hand on the mask of their input as it is.
PASSES_MASK = frozenset(
    (
        *("Activation", "ActivityRegularization", "AlphaDropout", "BatchNormalization", "Dense"),
        *("Dropout", "ELU", "GaussianDropout", "GaussianNoise", "GroupNormalization", "Identity"),
        *("LayerNormalization", "LeakyReLU", "PReLU", "ReLU", "Rescaling"),
        *("Softmax", "TimeDistributed", "UnitNormalization"),
        *(f"SpatialDropout{axes}D" for axes in (1, 2, 3)),
    )
)
# Behind them there is none, whatever came in.
DROPS_MASK = frozenset(
    (
        *("EinsumDense", "Flatten", "Permute", "RMSNormalization", "RepeatVector", "Reshape"),
        *(
            f"{kind}{axes}D"
            for axes in (1, 2, 3)
            for kind in (
                *("Conv", "DepthwiseConv", "SeparableConv", "MaxPooling", "AveragePooling"),
                *("GlobalMaxPooling", "GlobalAveragePooling", "ZeroPadding", "Cropping"),
                "UpSampling",
            )
        ),
        *(f"Conv{axes}DTranspose" for axes in (1, 2, 3)),
    )
)
_RECURRENT = frozenset(("LSTM", "GRU", "SimpleRNN", "Bidirectional"))
MERGES_MASKS = frozenset(("Add", "Average", "Subtract", "Concatenate"))
# What they compute is another thing with a mask; GlobalAveragePooling1D is written out.
USES_MASK = frozenset(("Softmax", "Multiply", "Maximum", "Minimum"))
# In functional models Keras hands these their mask as an argument, too.
HANDED_MASK = frozenset(
    (
        *("BatchNormalization", "GlobalAveragePooling1D", "TimeDistributed"),
        *("LSTM", "GRU", "Bidirectional"),
    )
)
# Their readers look at all arguments of a call.
READS_CALL = frozenset(("LSTM", "GRU", "Bidirectional", "MultiHeadAttention"))
# They take a mask by that name, which says the same as one that comes with the tensor.
TAKES_MASK = frozenset((*_RECURRENT, "RNN", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"))


def ignores_mask(kind: str) -> bool:
    """Whether a layer computes the same with a mask as without."""
    alike = PASSES_MASK | DROPS_MASK | MERGES_MASKS
    return kind in alike - USES_MASK - {"GlobalAveragePooling1D", "TimeDistributed"}


def handed_mask(call: Call, ports: Sequence[Port]) -> Mask | None:
    """The mask that a layer is called with, of all the tensors of the call."""
    given = call.kwargs.get("mask")
    if given is None:
        return None
    return Mask(ports[call.refs.index(given)], True) if isinstance(given, Ref) else UNKNOWN_MASK


def names_masks(call: Call) -> bool:
    """Whether a call names the masks of its tensors."""
    return any(
        isinstance(value, Ref) and key.endswith("mask") and key != "attention_mask"
        for key, value in call.kwargs.items()
    )


def mask_behind(
    layer: Layer, call: Call, input_masks: Sequence[Mask | None], ports: Sequence[Port]
) -> Mask | None:
    """The mask that the layer's result has. `input_masks` are those of the tensors of its call."""
    kind, own = layer.kind, layer.config
    if not layer.known:
        return UNKNOWN_MASK
    if layer.function:
        return None
    if kind == "Embedding":
        return Mask(ports[0]) if own.get("mask_zero") and len(ports) == 1 else None
    if kind in ("Masking", "ReversibleEmbedding", "Lambda"):
        return UNKNOWN_MASK
    argument = handed_mask(call, ports)
    if not any(input_masks) and argument is None:
        return None
    if kind in DROPS_MASK:
        return None
    first = argument or input_masks[0]
    if kind in _RECURRENT:
        inner: Mapping[str, object] = layer.inner["layer"].config if "layer" in layer.inner else own
        if own.get("merge_mode", "") is None:
            return UNKNOWN_MASK
        return first if inner.get("return_sequences") is True else None
    if kind == "MultiHeadAttention":
        named = call.kwargs.get("query_mask")
        return Mask(ports[call.refs.index(named)], True) if isinstance(named, Ref) else first
    if kind in PASSES_MASK:
        return first
    if kind in MERGES_MASKS and argument is None and len(set(input_masks)) == 1:
        rank = {"axis": own.get("axis", -1)} if kind == "Concatenate" else {}
        return first if rank.get("axis", -1) == -1 else UNKNOWN_MASK
    return UNKNOWN_MASK


@dataclass
class Use:
    """One call of a layer while it is turned into nodes."""

    graph: Graph
    layer: Layer
    path: Path
    name: str
    call: Call
    inputs: list[Port]
    config: Settings

    handed: Mask | None = None

    @property
    def mask(self) -> Mask | None:
        """The mask that it is called with, or that comes with its input."""
        return self.handed or self.mask_at(self.only_input)

    def mask_at(self, port: Port) -> Mask | None:
        """The mask that comes with a tensor.

        Keras 3 writes into the calls of a functional model what masks there are: behind layers
        of which dlv knows nothing there is none that a call does not name.
        """
        mask, refs = self.graph.mask(port), self.call.refs
        told = bool(refs) and not any(ref.listed for ref in refs)
        return None if mask == UNKNOWN_MASK and told else mask

    def shape(self, port: Port | None = None) -> Shape:
        """The shape that comes in; Unsayable if it is not known."""
        port = port or self.only_input
        shape = self.graph.shapes.get(port) or self._needed_shape(port)
        if shape is None:
            raise Unsayable("the shape of its input is unknown")
        return shape

    def _needed_shape(self, port: Port) -> Shape | None:
        """The shape that a layer says it needs: how many axes, and the depth of its kernel."""
        axes = re.search(r"([123])D(Transpose)?$", self.layer.kind)
        rank = int(axes[1]) + 2 if axes else 3 if self.layer.kind in _RECURRENT else None
        if rank is None or port not in self.inputs:
            return None
        kernels = [self.graph.stored.get(self.tensor(name)) for name in _KERNELS]
        sides = next((kernel for kernel in kernels if kernel is not None), None)
        at = -1 if self.layer.kind.endswith("Transpose") else -2
        depth = None if sides is None or len(sides) < 2 else sides[at]
        free: Shape = (None,) * (rank - 2)
        first = self.config.get("data_format") == "channels_first"
        shape: Shape = ("B", depth, *free) if first else ("B", *free, depth)
        self.graph.record(port, shape)
        self.graph.shapes[port] = shape
        return shape

    @property
    def only_input(self) -> Port:
        if len(self.inputs) != 1:
            raise Unsayable(f"it takes one input, not {len(self.inputs)}")
        return self.inputs[0]

    def tensor(self, variable: str, *inside: str) -> str:
        return self.graph.names((*self.path, *inside), variable)

    def tensor_of(self, shape: Shape, variable: str, *inside: str) -> str:
        """The tensor of a variable; Unsayable where the file has it in another shape."""
        name = self.tensor(variable, *inside)
        stored = self.graph.stored.get(name)
        if not fits(stored, shape):
            raise Unsayable(f"its {variable} has the shape {text(stored)}, not {text(shape)}")
        return name

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
        name = self.graph.node_names.take(f"{self.name}.{word}" if word else self.name)
        given = [self.only_input] if inputs is None else inputs
        made = complete(op, variant, attrs or {}, axes=axes, params=params or {})
        node = Node(name, op, variant, made, tuple(given), dict(params or {}))
        return self.graph.add_node(node)

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
        name = self.graph.node_names.take(f"{self.name}.{word}" if word else self.name)
        given = tuple([self.only_input] if inputs is None else inputs)
        return self.graph.add_node(
            Node(name, "OP", "raw", {}, given, dict(params or {}), source, out_shape=shape)
        )

    def constant(self, array: Array, word: str) -> Port:
        """Numbers within the settings of a layer, as a constant of the network."""
        graph = self.graph
        name = graph.node_names.take(f"{self.name}.{word}")
        graph.constants[name] = in_memory(name, array)
        graph.shapes[name, 0] = array.shape
        return name, 0


Convert = Callable[[Use], list[Port] | Port]
_KERNELS = ("kernel", "depthwise_kernel")


@dataclass
class Graph:
    """The network while it grows. `shapes` of ports are inferred as nodes are put in."""

    names: Names
    converter: Callable[[Layer], Convert | None]
    label: str
    version: str | None = None  # of the Keras that wrote the file
    stored: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # shapes of tensors
    nodes: list[Node] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    constants: dict[str, Tensor] = field(default_factory=dict)
    shapes: dict[Port, Shape | None] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)
    node_names: FreeNames = field(default_factory=FreeNames)
    raws: set[str] = field(default_factory=set)
    carried: dict[Port, Mask] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)  # nodes whose outputs may have any mask
    dtypes: dict[Port, str] = field(default_factory=dict)  # of inputs
    dtype: str | None = None  # in which all layers compute

    def _too_many(self) -> UnsafeInput:
        why = f"there are more than {MOST_NODES}"
        return UnsafeInput(f"the model in {self.label} has too many nodes", why=why)

    def add_node(self, node: Node) -> Port:
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
            return op_of(node).shape(node, [self.shapes.get(port) for port in node.inputs])
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

    def mask(self, port: Port) -> Mask | None:
        return UNKNOWN_MASK if port[0] in self.unsure else self.carried.get(port)

    def note(self, text: str, name: str) -> None:
        self.notes.setdefault(text, []).append(name)

    # Models and their calls

    def top(self, model: Model) -> Network:
        if count_calls(model) > MOST_NODES:  # known before any of them is made
            raise self._too_many()
        arguments = [self._input(layer) for layer in input_layers(model)]
        if model.sequential and not arguments:
            shape = model.build or (model.layers[0].built if model.layers else None)
            shape = shape or batch_shape(model.layers[0].config if model.layers else {})
            if shape is None:
                raise Unsayable("the model was never built: the shape of its input is unknown")
            arguments = [self._declare(f"{model.name}.input", shape, "float32")]
        outputs = self._model(model, (), arguments, "", training=False)
        read = {name for node in self.nodes for name, _ in node.inputs}
        self.constants = {name: held for name, held in self.constants.items() if name in read}
        return Network(
            tuple(self.inputs),
            tuple(self.nodes),
            tuple(outputs),
            {name: held.content_hash() for name, held in self.constants.items()},
            origin=dict(IMPORTER),
            constant_shapes={name: held.shape for name, held in self.constants.items()},
        )

    def _input(self, layer: Layer) -> Port:
        check_input(layer)
        shape = batch_shape(layer.config)
        if shape is None:
            raise Unsayable(f"the shape of the input {layer.name!r} is unknown")
        return self._declare(layer.name, shape, dtype_of(layer.config.get("dtype")))

    def _declare(self, name: str, shape: Sequence[int | None], dtype: str) -> Port:
        name = self.node_names.take(name)
        self.inputs.append(Input(name, symbolic_shape(shape) or (), dtype))
        self.shapes[name, 0] = symbolic_shape(shape)
        self.dtypes[name, 0] = dtype
        return name, 0

    def _model(
        self, model: Model, path: Path, arguments: list[Port], suffix: str, *, training: bool
    ) -> list[Port]:
        check_model(model)
        if model.sequential:
            return self._sequence(model, path, arguments, suffix, training)
        known: dict[tuple[str, int, int], Port] = {}
        places = model.inputs or [Ref(layer.name, 0, 0) for layer in input_layers(model)]
        if len(places) != len(arguments):
            raise Damaged(
                f"the model {model.name!r} in {self.label} is called wrongly",
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
        for layer, number in calls_in_order(model, known, self.label):
            call = layer.calls[number]
            ports = [self._known(known, ref, layer, model) for ref in call.refs]
            made = self._call(layer, (*path, layer.name), call, ports, suffix, training)
            for tensor, port in enumerate(made):
                known[layer.name, number, tensor] = port
                self.record(port, symbolic_shape(recorded.get((layer.name, number, tensor))))
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
            f"the configuration in {self.label} is wrong at {where}",
            why=f"it needs output {ref.tensor} of call {ref.call} of {ref.layer!r}: there is none",
        )

    def _sequence(
        self, model: Model, path: Path, arguments: list[Port], suffix: str, training: bool
    ) -> list[Port]:
        ports = arguments
        layers = [layer for layer in model.layers if layer.kind != "InputLayer"]
        for place, layer in enumerate(layers):
            call = Call([Ref("", 0, 0)])
            ports = self._call(layer, (*path, layer.name), call, ports[:1], suffix, training)
            after = layers[place + 1].built if place + 1 < len(layers) else None
            if ports:
                self.record(ports[0], symbolic_shape(after))
        return ports

    def _call(
        self, layer: Layer, path: Path, call: Call, ports: list[Port], suffix: str, training: bool
    ) -> list[Port]:
        if layer.kind == "InputLayer" and not ports:
            raise Damaged(
                f"the configuration in {self.label} is wrong at {layer.name!r}",
                why="it is an input that its model does not list",
            )
        if layer.model is not None:
            refs = refs_of(call, layer.model)
            if names_masks(call) and not any(map(self.mask, ports)):
                raise Unsayable(f"the model {layer.model.name!r} is called with a mask")
            held = [ports[call.refs.index(ref)] for ref in refs]
            name = self.node_names.take(".".join(path) + suffix)
            inside = in_training(call, training)
            below = name[len(".".join(path)) :]
            return self._model(layer.model, path, held, below, training=inside)
        settings = Settings(layer.config)
        use = Use(self, layer, path, ".".join(path) + suffix, call, ports, settings)
        if layer.kind in HANDED_MASK and layer.known:
            handed = handed_mask(call, ports)
            plain = Call(call.args, {**call.kwargs, "mask": None})
            inputs = [ports[call.refs.index(ref)] for ref in plain.refs]
            use = replace(use, call=plain, inputs=inputs, handed=handed)
        made = self._converted(use, training) or self._raw(
            replace(use, call=call, inputs=ports), training
        )
        mask = mask_behind(layer, call, [self.mask(port) for port in ports], ports)
        for place, port in enumerate(made):
            if mask is not None and port not in ports:
                if place and layer.kind in _RECURRENT and mask != UNKNOWN_MASK:
                    continue  # states have none
                self.carried.setdefault(port, mask)
            if self.carried.get(port) == UNKNOWN_MASK:
                self.unsure.add(port[0])
        return made

    def _converted(self, use: Use, training: bool) -> list[Port] | None:
        """The nodes of a layer; None if a part of it cannot be said in the vocabulary."""
        layer, nodes, names = use.layer, len(self.nodes), len(self.node_names)
        convert = self.converter(layer)
        if convert is None or not layer.known:
            self.note(_KEPT, f"{use.name} ({layer.kind})")
            return None
        try:
            if not layer.function:
                self.check_dtype(use.config, use.inputs)
                if layer.kind not in READS_CALL:
                    check_call(layer, use.call, training)
                if layer.kind in USES_MASK and any(map(use.mask_at, use.inputs)):
                    raise Unsayable("it uses the mask of its input")
            made = convert(use)
            use.config.finish(layer.kind)
        except (Unsayable, FieldError, ShapeError) as error:
            # What was put in before it turned out is taken out again.
            for node in self.nodes[nodes:]:
                self.carried.pop((node.name, 0), None)
            del self.nodes[nodes:]
            self.node_names.forget_after(names)
            why = str(error) if isinstance(error, Unsayable) else "its settings are unusual"
            self.note(_KEPT, f"{use.name} ({layer.kind}: {why})")
            return None
        if use.call.kwargs.get("training") is False and layer.kind in GATED:
            self.note("called with a fixed training flag, which is not kept", use.name)
        return made if isinstance(made, list) else [made]

    def check_dtype(self, config: Mapping[str, Any], ports: Sequence[Port] = ()) -> None:
        dtype = policy(config)
        self.dtype = self.dtype or dtype
        for other in (self.dtype, *(self.dtypes.get(port) for port in ports)):
            if dtype and other != dtype and (other or "").startswith(("float", "bfloat")):
                raise Unsayable(f"it computes in {dtype}, what comes in is {other}")

    def _raw(self, use: Use, training: bool) -> list[Port]:
        """A layer with its settings and its call; a mask that it takes is an input of its own."""
        layer, call, ports = use.layer, use.call, list(use.inputs)
        if training and call.kwargs.get("training") is None:
            call = Call(call.args, {**call.kwargs, "training": True})
        given = [use.mask_at(port) for port in ports]
        plain = layer.function or ignores_mask(layer.kind) or names_masks(call)
        if layer.known and any(given) and not plain:
            [mask, *_] = given
            told: Any = "of its input, which dlv does not support"
            if layer.kind in TAKES_MASK and len(ports) == 1:
                port = None if mask is None else self.counted(mask, use)
                if port is not None:
                    told = Ref("", 0, 0)
                    ports.append(port)
            call = Call(call.args, {**call.kwargs, "mask": told})
        params = self.names.slots(use.path)
        source = source_of(layer, call)
        name = self.node_names.take(use.name)
        return [self.add_node(Node(name, "OP", "raw", {}, tuple(ports), params, source))]

    def counted(self, mask: Mask, use: Use) -> Port | None:
        """Where a step counts, as a node; None where that is not known."""
        if mask.port is None:
            return None
        if mask.truth:
            return mask.port
        shape = self.shapes.get(mask.port)
        inputs = [mask.port]
        return use.aten("ne.Scalar", {"n": 0}, {"c": 0}, shape=shape, inputs=inputs, word="mask")
