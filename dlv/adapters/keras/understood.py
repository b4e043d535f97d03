"""Settings of layers and arguments of calls that are understood; with any other, a layer stays raw.

`Settings` remembers what a converter asked for. What nobody asked for has to be known to say
nothing about what the layer computes: nothing is passed over because it was not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dlv.adapters.keras.config import Call, Layer, Ref

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
