"""Activations, both ways: fused into a layer, layers of their own, and functions of keras.ops."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dlv.adapters.keras.build import (
    MATH,
    NN,
    OPS,
    Held,
    Model,
    Write,
    arranged,
    channels_last,
    held,
)
from dlv.adapters.keras.config import Unsayable, flag
from dlv.adapters.keras.graph import Convert, Use
from dlv.network.fields import whole
from dlv.network.graph import Node, Port

_PLAIN: Mapping[str, tuple[str, str | None, Mapping[str, Any]]] = {
    "relu": ("RELU", None, {}),
    "leaky_relu": ("RELU", None, {"slope": 0.2}),
    "relu6": ("ACT", "RELU6", {}),
    "sigmoid": ("ACT", "SIGMOID", {}),
    "tanh": ("ACT", "TANH", {}),
    "silu": ("ACT", "SILU", {}),
    "swish": ("ACT", "SILU", {}),
    "gelu": ("ACT", "GELU", {}),
    "softmax": ("SOFTMAX", None, {"axis": -1}),
    "log_softmax": ("SOFTMAX", None, {"axis": -1, "log": True}),
}


# Beyond the vocabulary, but operations of aten; each takes the tensor alone. Keras' name -> aten's.
_ACTIVATIONS = {
    "elu": "elu",
    "selu": "selu",
    "softplus": "softplus",
    "exponential": "exp",
    "mish": "mish",
    "hard_sigmoid": "hardsigmoid",
    "hard_silu": "hardswish",
    "log_sigmoid": "log_sigmoid",
    "celu": "celu",
}
_FUNCTIONS = {
    "sqrt": "sqrt",
    "square": "square",
    "absolute": "abs",
    "negative": "neg",
    "log": "log",
    "rsqrt": "rsqrt",
    "sin": "sin",
    "cos": "cos",
}
_ATEN = {
    **_ACTIVATIONS,
    **_FUNCTIONS,
    "exp": "exp",
    "hard_swish": "hardswish",
    "abs": "abs",
    "erf": "erf",
}
NAMES = frozenset((*_PLAIN, *_ATEN))


_SCALE = ("scale", "offset")


def name_of(value: Any) -> str | None:
    """The name of one of Keras' own functions; None: no activation at all."""
    if value is None or value == "linear":
        return None
    if isinstance(value, dict):
        registered, module = value.get("registered_name"), value.get("module", "keras")
        own = module == "builtins" or str(module).split(".")[0] == "keras"
        if not own or (isinstance(registered, str) and ">" in registered):
            raise Unsayable(f"the function {registered!r:.60} is not Keras' own")
        config = value.get("config")
        function = value.get("class_name") == "function"
        value = config if function else f"a layer {value.get('class_name')}"
    if value == "linear":
        return None
    if not isinstance(value, str):
        raise Unsayable("its activation is unknown by name")
    return value


def with_activation(use: Use, port: Port) -> Port:
    """A layer's own activation as a second node, named behind the layer."""
    name = name_of(use.config.get("activation"))
    return port if name is None else _apply_activation(use, name, port, name)


def _apply_activation(use: Use, name: str, port: Port, word: str) -> Port:
    if name == "hard_sigmoid" and not (use.graph.version or "").startswith("3."):
        raise Unsayable("the older Keras meant another function by hard_sigmoid")
    if name in _PLAIN:
        op, variant, attrs = _PLAIN[name]
        return use.add(op, variant, attrs, inputs=[port], word=word)
    if name in _ATEN:
        shape = use.graph.shapes.get(port)
        return use.aten(f"{_ATEN[name]}.default", {"n": 0}, shape=shape, inputs=[port], word=word)
    raise Unsayable(f"the activation {name!r:.40}")


def read_activation(use: Use) -> Port:
    name = name_of(use.config.get("activation"))
    return use.only_input if name is None else _apply_activation(use, name, use.only_input, "")


def number_of(use: Use, *keys: str, default: float) -> float:
    for key in keys:
        value = use.config.get(key)
        if isinstance(value, dict) and is_array(value):  # of one element
            value = value["config"].get("value", value)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
        if value is not None:
            raise Unsayable(f"{key} is {value!r:.40}")
    return default


def is_array(value: Mapping[str, Any]) -> bool:
    return value.get("class_name") == "__numpy__" and isinstance(value.get("config"), dict)


def read_relu(use: Use) -> Port:
    slope, threshold = (number_of(use, k, default=0.0) for k in ("negative_slope", "threshold"))
    if threshold:
        raise Unsayable("it has a threshold")
    if use.config.get("max_value") is None:
        return use.add("RELU", None, {"slope": slope})
    if number_of(use, "max_value", default=0.0) == 6 and not slope:
        return use.add("ACT", "RELU6")
    raise Unsayable("it has a greatest value")


def read_elu(use: Use) -> Port:
    alpha = {"c": number_of(use, "alpha", default=1.0)}
    return use.aten("elu.default", {"n": 0}, alpha, shape=use.shape())


def read_prelu(use: Use) -> Port:
    shared: Any = use.config.get("shared_axes")
    shared = [] if shared is None else [shared] if whole(shared) else shared
    if not isinstance(shared, list) or not all(map(whole, shared)):
        raise Unsayable(f"shared_axes is {shared!r:.40}")
    sides = use.shape()[1:]
    slopes = tuple(1 if axis in shared else side for axis, side in enumerate(sides, 1))
    return use.add("RELU", None, {}, params={"slope": use.tensor_of(slopes, "alpha")})


def read_layer_scale(use: Use) -> Port:
    """A factor for each channel, as ConvNeXt has it."""
    width, number = use.config.get("projection_dim"), use.shape()[-1]
    number_of(use, "init_values", default=0.0)  # which it began with
    if not whole(width) or width != number:
        raise Unsayable(f"projection_dim is {width!r:.40}")
    return use.add("MUL", None, {"shape": (width,)}, params={"value": use.tensor("gamma")})


def read_softmax(use: Use) -> Port:
    axis = use.config.get("axis", -1)
    if isinstance(axis, list) and len(axis) == 1:
        axis = axis[0]
    return use.add("SOFTMAX", None, {"axis": _axis(axis)})


def _axis(value: Any) -> int:
    if not whole(value):
        raise Unsayable(f"axis is {value!r:.40}")
    return int(value)


def read_rescaling(use: Use) -> Port:
    scale, offset = (number_of(use, key, default=1.0 - place) for place, key in enumerate(_SCALE))
    scaled = use.add("MUL", None, {"const": scale}, word="scale" if offset else "")
    return use.add("ADD", None, {"const": offset}, inputs=[scaled]) if offset else scaled


def read_identity(use: Use) -> Port:
    """A layer that is not there when the model is used, or at all."""
    return use.only_input


def read_function(use: Use) -> Port:
    """A function of keras.ops over one tensor."""
    if use.call.kwargs or len(use.call.args) != 1:
        raise Unsayable("it has more arguments")
    kind = use.layer.kind
    name = {"LogSigmoid": "log_sigmoid", "HardSigmoid": "hard_sigmoid", "HardSilu": "hard_silu"}
    if kind == "Gelu":
        words = {"approximate": "tanh" if flag(use.config, "approximate", True) else "none"}
        return use.add("ACT", "GELU", words)
    if kind in ("Softmax", "LogSoftmax"):
        attrs = {"axis": _axis(use.config.get("axis", -1)), "log": kind == "LogSoftmax"}
        return use.add("SOFTMAX", None, attrs)
    if kind == "LeakyRelu":
        return use.add("RELU", None, {"slope": number_of(use, "negative_slope", default=0.2)})
    return _apply_activation(use, name.get(kind, kind.lower()), use.only_input, "")


_ATEN_ACTIVATIONS = {
    **{aten: name for name, aten in _ACTIVATIONS.items()},
    **{name: name for name in ("relu", "silu", "sigmoid", "tanh", "softsign")},
}
_ATEN_FUNCTIONS = {aten: name for name, aten in _FUNCTIONS.items()}


def _write_elementwise(model: Model, node: Node, kind: str, config: Mapping[str, Any]) -> Held:
    """An elementwise layer; the axes of its input stay in the order that they have."""
    [port] = node.inputs
    turned = model.values[port].plain is None
    x = model.last(node, port) if turned else model.plain(port)
    after = channels_last(model.shape((node.name, 0)), turned)
    return held(model.layer(kind, node.name, config, [x], after), turned)


def write_relu(model: Model, node: Node) -> Held:
    slope = node.attrs["slope"]
    if node.params:
        return _write_prelu(model, node)
    if slope:
        return _write_elementwise(model, node, "LeakyReLU", {"negative_slope": slope})
    return _write_elementwise(model, node, "ReLU", {})


def _write_prelu(model: Model, node: Node) -> Held:
    """Slopes of length one along an axis are shared by its entries."""
    [port] = node.inputs
    slopes, rank = model.tensor(node, "slope"), len(model.known_shape(node, port))
    sides = (*(1,) * (rank - 1 - len(slopes.shape)), *slopes.shape)
    shared = [axis for axis, side in enumerate(sides, 1) if side == 1]
    weight = arranged(slopes, range(len(slopes.shape)), sides)
    after = model.shape((node.name, 0))
    config = {"shared_axes": shared or None}
    inputs, weights = [model.plain(port)], {"": [weight]}
    return Held(plain=model.layer("PReLU", node.name, config, inputs, after, weights=weights))


def write_act(model: Model, node: Node) -> Held:
    if node.variant == "GELU" and node.attrs["approximate"] == "tanh":
        x = model.plain(node.inputs[0])
        config = {"approximate": True}
        return model.op_of(node, (NN, "Gelu"), config, [x])
    word = (node.variant or "").lower()
    return _write_elementwise(model, node, "Activation", {"activation": word})


def write_softmax(model: Model, node: Node) -> Held:
    x = model.plain(node.inputs[0])
    config = {"axis": node.attrs["axis"]}
    if node.attrs["log"]:
        return model.op_of(node, (NN, "LogSoftmax"), config, [x])
    return model.layer_of(node, "Softmax", config, [x])


def write_aten_activation(model: Model, node: Node, name: str, args: Sequence[Any]) -> Held | None:
    """A function of one tensor; None if Keras has no such function."""
    base, inputs = name.partition(".")[0], [model.plain(port) for port in node.inputs]
    if len(args) == 1 and base in _ATEN_ACTIVATIONS:
        config: dict[str, Any] = {"activation": _ATEN_ACTIVATIONS[base]}
        return model.layer_of(node, "Activation", config, inputs)
    if len(args) == 1 and base in _ATEN_FUNCTIONS:
        kind = _ATEN_FUNCTIONS[base].capitalize()
        return model.op_of(node, (MATH if kind == "Rsqrt" else OPS, kind), {}, inputs)
    if name == "elu.default" and len(args) == 2 and isinstance(args[1].get("c"), float):
        config = {"alpha": args[1]["c"]}
        return model.layer_of(node, "ELU", config, inputs)
    return None


READERS: Mapping[str, Convert] = {
    "Activation": read_activation,
    "ReLU": read_relu,
    "LeakyReLU": lambda use: use.add(
        "RELU", None, {"slope": number_of(use, "negative_slope", "alpha", default=0.3)}
    ),
    "ELU": read_elu,
    "PReLU": read_prelu,
    "LayerScale": read_layer_scale,
    "Softmax": read_softmax,
    "Dropout": lambda use: use.add("DROPOUT", None, {"p": number_of(use, "rate", default=0.5)}),
    "Rescaling": read_rescaling,
    "Identity": read_identity,
    "ActivityRegularization": read_identity,
}
FUNCTION_READERS: Mapping[str, Convert] = dict.fromkeys(
    (
        *("Relu", "Relu6", "Sigmoid", "Tanh", "Silu", "Gelu", "Softmax", "LogSoftmax", "LeakyRelu"),
        *("Selu", "Softplus", "Exp", "Mish", "HardSigmoid", "HardSilu", "LogSigmoid"),
        *("Sqrt", "Square", "Absolute", "Negative", "Log", "Rsqrt", "Sin", "Cos", "Erf"),
    ),
    read_function,
)
WRITERS: Mapping[str, Write] = {
    "RELU": write_relu,
    "ACT": write_act,
    "SOFTMAX": write_softmax,
    "DROPOUT": lambda model, node: _write_elementwise(
        model, node, "Dropout", {"rate": node.attrs["p"]}
    ),
}
