"""The configuration of a Keras model, in the words of Keras 2 and 3: data, never run.

`Model` has layers; a layer has calls, in which `Ref` stands for what another call gives. `Settings`
remembers what a converter asked for: what nobody asked for has to be known to say nothing about
what the layer computes, or the layer stays raw.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from dlv.canonical import read_json
from dlv.dataclass import dataclass
from dlv.errors import Damaged, UnsafeInput
from dlv.network.fields import whole

MOST_BYTES = 16 << 20
MOST_VALUES = 1_500_000
MOST_DEPTH = 100
MOST_NESTED = 16
MOST_LAYERS = 30_000
MOST_NAME = 512

MODELS = ("Sequential", "Functional", "Model")


@dataclass(frozen=True)
class Ref:
    """Output `tensor` of the call number `call` of a layer."""

    layer: str
    call: int
    tensor: int
    shape: tuple[int | None, ...] | None = None
    listed: bool = True  # written as a list, not as a tensor with a history

    @property
    def key(self) -> tuple[str, int, int]:
        return self.layer, self.call, self.tensor


@dataclass(frozen=True)
class Call:
    """One use of a layer; `args` and `kwargs` hold `Ref`s, plain values, lists and objects."""

    args: list[Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def refs(self) -> list[Ref]:
        return [*references_in(self.args), *references_in(list(self.kwargs.values()))]


@dataclass
class Layer:
    kind: str
    name: str
    config: dict[str, Any]
    calls: list[Call]
    module: str = ""
    registered: str | None = None
    built: tuple[int | None, ...] | None = None  # the shape it was built for
    model: Model | None = None  # where the layer is a model
    inner: dict[str, Layer] = field(default_factory=dict)  # layers that it wraps, by key
    function: bool = False  # of keras.ops; these share names with layers

    @staticmethod
    def from_settings(kind: str, name: str, config: dict[str, Any]) -> Layer:
        """One of Keras' own layers by its settings, with the layers that it wraps."""
        data = {"class_name": kind, "config": {**config, "name": name}, "name": name}
        return _Reader("the settings of a layer").layer(data, 0)

    @property
    def known(self) -> bool:
        """Whether it is one of Keras' own, whose meaning is known from its name."""
        own = self.module == "" or self.module.split(".")[0] == "keras"
        return own and ">" not in (self.registered or "")


@dataclass
class Model:
    kind: str
    name: str
    layers: list[Layer]
    inputs: list[Ref]
    outputs: list[Ref]
    build: tuple[int | None, ...] | None = None
    keys: list[str] = field(
        default_factory=list
    )  # of its inputs, where it is called with an object
    settings: frozenset[str] = frozenset()  # what else it says about itself

    @property
    def sequential(self) -> bool:
        return self.kind == "Sequential"

    def settled(self) -> Model:
        """The same with calls of models in it counted from zero.

        Their making counts as a call, which references written as lists include.
        """
        models = {layer.name: layer for layer in self.layers if layer.model is not None}
        numbers: dict[str, list[int]] = {}
        calls = [call for layer in self.layers for call in layer.calls]
        for ref in (*self.outputs, *(ref for call in calls for ref in call.refs)):
            if ref.listed and ref.layer in models:
                numbers.setdefault(ref.layer, []).append(ref.call)
        shifted = {
            name
            for name, seen in numbers.items()
            if max(seen) >= len(models[name].calls)
            or (models[name].kind != "Sequential" and min(seen) > 0)
        }
        if not shifted:
            return self

        def settle(value: Any) -> Any:
            if isinstance(value, Ref):
                moved = value.listed and value.layer in shifted and value.call
                return replace(value, call=value.call - 1) if moved else value
            if isinstance(value, dict):
                return {key: settle(item) for key, item in value.items()}
            return [settle(item) for item in value] if isinstance(value, list) else value

        layers = [
            replace(
                layer, calls=[Call(settle(c.args), settle(dict(c.kwargs))) for c in layer.calls]
            )
            for layer in self.layers
        ]
        return replace(self, layers=layers, outputs=settle(self.outputs))


def references_in(value: Any) -> Iterator[Ref]:
    """All references in arguments, first to last."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Ref):
            yield item
        elif isinstance(item, dict):
            waiting += reversed(list(item.values()))
        elif isinstance(item, list):
            waiting += reversed(item)


def parse(data: bytes, label: str) -> dict[str, Any]:
    """A JSON object with every key once, not too much of it, not too deep."""
    if sum(map(data.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise UnsafeInput(f"{label} is too large", why=f"more than {MOST_VALUES} values")
    read_json(data, label, limit=MOST_BYTES, depth=MOST_DEPTH)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            raise UnsafeInput(f"{label} names a key twice")
        return result

    value = json.loads(data.decode("utf-8"), object_pairs_hook=unique)
    if not isinstance(value, dict):
        raise Damaged(f"{label} is not a JSON object")
    return value


def read_model(data: Mapping[str, Any], label: str) -> Model | None:
    """The model of a configuration; None where it has no graph, but code."""
    kind = _kind(data)
    if kind not in MODELS or not _own(data):
        return None
    return _Reader(label).model(data, 0)


def is_model(data: Any) -> bool:
    return isinstance(data, dict) and "class_name" in data and "config" in data


def _kind(data: Mapping[str, Any]) -> str:
    kind = data.get("class_name")
    return kind if isinstance(kind, str) else ""


def _own(data: Mapping[str, Any]) -> bool:
    """Not a class of the user's with a name like one of Keras'; it has the keys of a graph."""
    config = data.get("config")
    module = data.get("module")
    own = module is None or (isinstance(module, str) and module.split(".")[0] == "keras")
    layers = isinstance(config, list) or (isinstance(config, dict) and "layers" in config)
    return own and layers


class _Reader:
    """Reads one configuration; every complaint names the file and the layer."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.layers = 0

    def wrong(self, where: str, why: str) -> Damaged:
        return Damaged(f"the configuration in {self.label} is wrong at {where}", why=why)

    def model(self, data: Mapping[str, Any], depth: int) -> Model:
        if depth > MOST_NESTED:
            raise UnsafeInput(f"the models in {self.label} are nested too deeply")
        kind, config = _kind(data), data.get("config")
        if isinstance(config, list):  # the first Keras 2 wrote the layers alone
            config = {"name": "sequential", "layers": config}
        if not isinstance(config, dict) or not isinstance(config.get("layers"), list):
            raise self.wrong(kind, "a model has a list of layers")
        name = self.name(config.get("name", kind.lower()), kind)
        layers = [self.layer(item, depth) for item in config["layers"]]
        names = [layer.name for layer in layers]
        if len(set(names)) != len(names):
            twice = next(each for each in names if names.count(each) > 1)
            raise self.wrong(twice, "two layers have this name")
        build = config.get("build_input_shape") or self.config_of(data, "build_config").get(
            "input_shape"
        )
        inputs = config.get("input_layers", [])
        return Model(
            kind,
            name,
            layers,
            list(self.triples(inputs, "input_layers")),
            list(self.triples(config.get("output_layers", []), "output_layers")),
            _dims(build),
            sorted(inputs) if isinstance(inputs, dict) else [],
            frozenset(config),
        ).settled()

    def config_of(self, data: Mapping[str, Any], key: str) -> dict[str, Any]:
        value = data.get(key)
        return value if isinstance(value, dict) else {}

    def name(self, value: Any, where: str) -> str:
        if not isinstance(value, str) or not 0 < len(value) <= MOST_NAME:
            raise self.wrong(where, f"its name is {value!r:.60}")
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise self.wrong(where, "its name is not a string") from error
        return value

    def layer(self, data: Any, depth: int) -> Layer:
        self.layers += 1
        if self.layers > MOST_LAYERS:
            raise UnsafeInput(f"{self.label} has too many layers", why=f"more than {MOST_LAYERS}")
        if not isinstance(data, dict) or not _kind(data):
            raise self.wrong("a layer", f"{data!r:.80} has no class_name")
        kind, config = _kind(data), self.config_of(data, "config")
        name = self.name(data.get("name", config.get("name", kind.lower())), kind)
        module, registered = data.get("module"), data.get("registered_name")
        layer = Layer(
            kind,
            name,
            config,
            self.calls(data.get("inbound_nodes", []), name),
            # No module at all is the older form; None is a class that only the user has.
            module if isinstance(module, str) else ("" if "module" not in data else "?"),
            registered if isinstance(registered, str) else None,
            _dims(self.config_of(data, "build_config").get("input_shape")),
        )
        if kind in MODELS and _own(data):
            layer.model = self.model(data, depth + 1)
        elif layer.known:
            for key in ("layer", "backward_layer", "cell"):
                inner = config.get(key)
                if is_model(inner):
                    if depth >= MOST_NESTED:
                        raise UnsafeInput(f"the layers in {self.label} are nested too deeply")
                    layer.inner[key] = self.layer(inner, depth + 1)
        return layer

    def triples(self, value: Any, where: str) -> Iterator[Ref]:
        """Each [layer, call, tensor] of a list, an object (in the order of its keys) or nested."""
        waiting = [value]
        while waiting:
            item = waiting.pop()
            if isinstance(item, dict):
                waiting += [item[key] for key in sorted(item, reverse=True)]
            elif isinstance(item, list) and item and isinstance(item[0], str):
                yield self.ref(item, where)
            elif isinstance(item, list):
                waiting += reversed(item)
            else:
                raise self.wrong(where, f"{item!r:.60} is not [layer, call, tensor]")

    def ref(self, item: list[Any], where: str, shape: Any = None, *, listed: bool = True) -> Ref:
        if len(item) < 3 or not all(whole(n) and n >= 0 for n in item[1:3]):
            raise self.wrong(where, f"{item!r:.60} is not [layer, call, tensor]")
        return Ref(self.name(item[0], where), item[1], item[2], _dims(shape), listed=listed)

    def calls(self, nodes: Any, where: str) -> list[Call]:
        if not isinstance(nodes, list):
            raise self.wrong(where, "its inbound_nodes is not a list")
        return [self.call(node, where) for node in nodes]

    def call(self, node: Any, where: str) -> Call:
        if isinstance(node, dict):
            args, kwargs = node.get("args", []), node.get("kwargs", {})
            if not isinstance(args, list) or not isinstance(kwargs, dict):
                raise self.wrong(where, "a call needs args and kwargs")
            return Call(
                [self.value(item, where) for item in args],
                {key: self.value(item, where) for key, item in kwargs.items()},
            )
        if not isinstance(node, list) or not node:
            raise self.wrong(where, f"{node!r:.60} is not a call")
        if isinstance(node[0], str):
            return self.old_call([node], where, single=True)
        return self.old_call(node, where, single=len(node) == 1)

    def old_call(self, entries: list[Any], where: str, *, single: bool) -> Call:
        """Keras 2: [layer, call, tensor, keyword arguments] for each tensor."""
        tensors: list[Any] = []
        kwargs: dict[str, Any] = {}
        for entry in entries:
            if not isinstance(entry, list) or not entry or not isinstance(entry[0], str):
                raise self.wrong(where, f"{entry!r:.60} is not a call")
            if entry[0] == "_CONSTANT_VALUE":
                tensors.append(entry[2] if len(entry) > 2 else None)
            else:
                tensors.append(self.ref(entry, where))
            if len(entry) > 3 and isinstance(entry[3], dict):
                kwargs.update({key: self.old_value(v, where) for key, v in entry[3].items()})
        return Call(tensors if single else [tensors], kwargs)

    def old_value(self, item: Any, where: str) -> Any:
        """Keyword arguments of Keras 2 name tensors as [layer, call, tensor] too."""
        if isinstance(item, list) and len(item) == 3 and isinstance(item[0], str):
            if item[0] == "_CONSTANT_VALUE":
                return item[2]
            if whole(item[1]) and whole(item[2]):
                return self.ref(item, where)
        return item

    def value(self, item: Any, where: str) -> Any:
        """An argument with references in place of what stands for them; depth is bounded."""
        if isinstance(item, list):
            return [self.value(each, where) for each in item]
        if not isinstance(item, dict):
            return item
        config = item.get("config")
        if item.get("class_name") == "__keras_tensor__" and isinstance(config, dict):
            history = config.get("keras_history")
            if not isinstance(history, list):
                raise self.wrong(where, "a tensor without history")
            if not history or not isinstance(history[0], str):
                raise self.wrong(where, f"{history!r:.60} is not [layer, call, tensor]")
            return self.ref(history, where, config.get("shape"), listed=False)
        return {key: self.value(each, where) for key, each in item.items()}


def _dims(value: Any) -> tuple[int | None, ...] | None:
    """A shape, where it is one."""
    if not isinstance(value, list) or len(value) > 32:
        return None
    if all(dim is None or (whole(dim) and 0 <= dim < 1 << 40) for dim in value):
        return tuple(value)
    return None


def dims(value: Any) -> tuple[int | None, ...] | None:
    """The same for shapes in a layer's own settings."""
    return _dims(list(value)) if isinstance(value, (list, tuple)) else None


def batch_shape(config: Mapping[str, Any]) -> tuple[int | None, ...] | None:
    """The shape of an input, its batch in front."""
    return dims(config.get("batch_shape")) or dims(config.get("batch_input_shape"))


# Of any layer: its name, and how its tensors begin and are held back while it is trained.
OF_TRAINING = ("_initializer", "_regularizer", "_constraint")
_HARMLESS = frozenset(("name", "trainable", "dtype", "batch_input_shape"))
_HARMLESS_IN: Mapping[str, frozenset[str]] = {
    "ActivityRegularization": frozenset(("l1", "l2")),
    "BatchNormalization": frozenset(
        ("renorm_clipping", "renorm_momentum", "synchronized", "fused")
    ),
    "Dense": frozenset(("lora_alpha",)),
    "Dropout": frozenset(("seed",)),
    "EinsumDense": frozenset(("lora_alpha",)),
    "Embedding": frozenset(("input_length", "lora_alpha", "sparse")),
}
# What may be there as long as it asks for nothing.
_OFF: Mapping[str, tuple[Any, ...]] = {
    "adjustment": (None,),
    "gptq_unpacked_column_size": (None,),
    "groups": (1,),
    "lora_rank": (None,),
    "noise_shape": (None,),
    "quantization_config": (None,),
    "renorm": (None, False),
    "rms_scaling": (None, False),
    "virtual_batch_size": (None,),
}
_OFF_IN: Mapping[str, frozenset[str]] = {
    "BatchNormalization": frozenset(("adjustment", "renorm", "virtual_batch_size")),
    "Conv1DTranspose": frozenset(("groups",)),
    "Conv2DTranspose": frozenset(("groups",)),
    "Conv3DTranspose": frozenset(("groups",)),
    "Dense": frozenset(("lora_rank", "quantization_config")),
    "DepthwiseConv1D": frozenset(("groups",)),
    "DepthwiseConv2D": frozenset(("groups",)),
    "Dropout": frozenset(("noise_shape",)),
    "EinsumDense": frozenset(("gptq_unpacked_column_size", "lora_rank", "quantization_config")),
    "Embedding": frozenset(("lora_rank", "quantization_config")),
    "LayerNormalization": frozenset(("rms_scaling",)),
    "SeparableConv1D": frozenset(("groups",)),
    "SeparableConv2D": frozenset(("groups",)),
}
INPUT = frozenset(
    (
        "name",
        "trainable",
        "dtype",
        "batch_shape",
        "batch_input_shape",
        "sparse",
        "ragged",
        "optional",
    )
)
MODEL = frozenset(
    (
        *("name", "trainable", "dtype", "layers", "input_layers", "output_layers"),
        "build_input_shape",
    )
)
# What these layers compute depends on whether the model is trained.
GATED = frozenset(
    (
        *("Dropout", "AlphaDropout", "GaussianDropout", "GaussianNoise", "BatchNormalization"),
        *(f"SpatialDropout{axes}D" for axes in (1, 2, 3)),
    )
)
_FLOATS = ("float32", "float64")
_NARROW = ("float16", "bfloat16", "mixed_float16", "mixed_bfloat16")


class Unsayable(Exception):
    """A layer does something that the vocabulary lacks; the message says what."""


class Settings(Mapping[str, Any]):
    """The settings of a layer, and which of them were asked for."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._asked: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self._asked.add(key)
        return self._config[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._config)

    def __len__(self) -> int:
        return len(self._config)

    def finish(self, kind: str) -> None:
        """Raise Unsayable if a setting that may change the result was not read."""
        for key, value in self._config.items():
            if key in self._asked or key in _HARMLESS or key.endswith(OF_TRAINING):
                continue
            if key == "activity_regularizer" or key in _HARMLESS_IN.get(kind, ()):
                continue
            off = key in _OFF_IN.get(kind, ()) and any(
                value == each and type(value) is type(each) for each in _OFF[key]
            )
            if not off:
                raise Unsayable(f"its setting {key[:40]!r} is {value!r:.40}")


def flag(config: Mapping[str, Any], key: str, default: bool) -> bool:
    value = config.get(key, default)
    if not isinstance(value, bool):
        raise Unsayable(f"{key} is {value!r:.40}")
    return value


def policy(config: Mapping[str, Any], *, any_float: bool = False) -> str | None:
    """The dtype in which a layer computes; None if unstated, as in the first files of Keras 2."""
    told = config.get("dtype")
    if isinstance(told, Mapping):
        kind, inner = told.get("class_name"), told.get("config")
        plain = isinstance(inner, Mapping) and set(inner) == {"name"}
        policies = ("DTypePolicy", "FloatDTypePolicy", "Policy")
        told = inner["name"] if plain and inner and kind in policies else str(kind)
    if told is None or told in _FLOATS or (any_float and told in _NARROW):
        return told
    raise Unsayable(f"it computes in {told!r:.40}")


def asks_nothing(key: str, value: Any) -> bool:
    """Whether an argument beside the tensors asks for nothing."""
    if key == "mask" and isinstance(value, (list, dict)):
        return all(each is None for each in (value.values() if isinstance(value, dict) else value))
    return value is None or (key == "training" and isinstance(value, bool))


def check_call(layer: Layer, call: Call, training: bool) -> None:
    """Unsayable where a layer is called with more than its tensors."""
    one = len(call.args) == 1 and isinstance(call.args[0], list)
    tensors = call.args[0] if one else call.args
    if not all(isinstance(value, Ref) for value in tensors):
        raise Unsayable("it is called with more than tensors")
    for key, value in call.kwargs.items():
        if not asks_nothing(key, value):
            raise Unsayable(f"it is called with {key[:40]}={_shown(value)}")
    if layer.kind in GATED and in_training(call, training):
        raise Unsayable("it is called as in training")


def in_training(call: Call, outside: bool) -> bool:
    """Whether a call runs in training mode, which the layers it calls inherit."""
    given = call.kwargs.get("training")
    return outside if given is None else bool(given)


def _shown(value: Any) -> str:
    return "a tensor" if isinstance(value, Ref) else f"{value!r:.40}"
