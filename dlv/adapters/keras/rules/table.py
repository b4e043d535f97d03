"""The tables of layers, functions and operators: what reads each, and what writes each.

Operations without a word in the vocabulary are written here: Keras' own layers as they were, and
those of aten that Keras has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dlv.adapters.checkpoint import Tensor
from dlv.adapters.keras.build import OPS, Held, Model, Out, Write, refuse
from dlv.adapters.keras.config import Layer, Unsayable, policy
from dlv.adapters.keras.graph import Convert
from dlv.adapters.keras.rules import activations, arithmetic, attention, dense, recurrent, windows
from dlv.adapters.keras.rules.activations import write_aten_activation
from dlv.adapters.keras.rules.arithmetic import write_aten_arithmetic, write_stack
from dlv.adapters.keras.rules.windows import UPSAMPLINGS, write_upsample
from dlv.adapters.keras.weights import layer_leaves
from dlv.network.graph import Node

# Layers of Keras 3 that are made of their settings and tensors alone. What is not here (text
# tables, code, masks that Keras hands on by itself) would come back as something else, or not.
OWN = frozenset(
    (
        *("Activation", "ActivityRegularization", "Add", "AdditiveAttention", "AlphaDropout"),
        *("Attention", "Average", "BatchNormalization", "Bidirectional", "CategoryEncoding"),
        *("CenterCrop", "Concatenate", "Dense", "Dot", "Dropout", "ELU", "EinsumDense"),
        *("Embedding", "Flatten", "GRU", "GaussianDropout", "GaussianNoise", "GroupNormalization"),
        *("GroupQueryAttention", "Identity", "LSTM", "LayerNormalization", "LeakyReLU", "Maximum"),
        *("Minimum", "MultiHeadAttention", "Multiply", "Normalization", "PReLU", "Permute", "RNN"),
        *("RMSNormalization", "RandomBrightness", "RandomContrast", "RandomCrop", "RandomFlip"),
        *("RandomRotation", "RandomTranslation", "RandomZoom", "ReLU", "RepeatVector"),
        *("Rescaling", "Reshape", "Resizing", "SimpleRNN", "Softmax", "SpectralNormalization"),
        *("Subtract", "TimeDistributed", "UnitNormalization"),
        *(
            f"{kind}{axes}D"
            for axes in (1, 2, 3)
            for kind in (
                *("AdaptiveAveragePooling", "AdaptiveMaxPooling", "AveragePooling", "Conv"),
                *("ConvLSTM", "Cropping", "DepthwiseConv", "GlobalAveragePooling"),
                *("GlobalMaxPooling", "MaxPooling", "SeparableConv", "SpatialDropout"),
                *("UpSampling", "ZeroPadding"),
            )
        ),
        *(f"Conv{axes}DTranspose" for axes in (1, 2, 3)),
    )
)


_OPERATIONS = re.compile(r"keras\.src\.ops\.[a-z]{1,20}")


def write_raw(model: Model, node: Node) -> Held:
    source = node.source or {}
    if source.get("dialect") == "keras":
        return write_keras_layer(model, node, source)
    if source.get("dialect") != "aten":
        refuse(node, f"it is an operation of {source.get('dialect')}")
    name = str(source.get("op")).removeprefix("aten.")
    args = source.get("args", [])
    plain = source.get("kwargs") in (None, {}) and all(isinstance(arg, dict) for arg in args)
    if plain and name == "stack.default":
        return write_stack(model, node, args)
    if plain and args[:1] == [{"n": 0}]:
        if name in UPSAMPLINGS:
            return write_upsample(model, node, UPSAMPLINGS[name], args[1:])
        written = [write_aten_arithmetic]
        if not any(model.array(port) is not None for port in node.inputs):
            written = [write_aten_activation, write_aten_arithmetic, write_pad_or_repeat]
        found = next(filter(None, (write(model, node, name, args) for write in written)), None)
        if found is not None:
            return found
    return refuse(node, f"{name} has no counterpart")


def write_pad_or_repeat(model: Model, node: Node, name: str, args: Sequence[Any]) -> Held | None:
    """Padding with zeros, and entries repeated, over any axes but the batch."""
    x, args = model.plain(node.inputs[0]), args[1:]
    values = [arg.get("c") for arg in args]
    if name == "repeat_interleave.self_int" and len(args) == 2:
        times, axis = values
        if isinstance(times, int) and isinstance(axis, int):
            repeat = {"repeats": times, "axis": axis}
            return model.op_of(node, (OPS, "Repeat"), repeat, [x])
    if name == "constant_pad_nd.default" and args and isinstance(args[0].get("l"), list):
        flat = [item.get("c") for item in args[0]["l"]]
        rank = len(x.shape or ())
        pairs = [list(pair) for pair in zip(flat[::2], flat[1::2], strict=False)][::-1]
        whole = all(isinstance(n, int) and n >= 0 for n in flat)
        value = values[1] if len(values) > 1 else 0.0
        if whole and len(flat) % 2 == 0 and len(pairs) <= rank and isinstance(value, (int, float)):
            width = [[0, 0]] * (rank - len(pairs)) + pairs
            config: dict[str, Any] = {"pad_width": width, "mode": "constant"}
            keyed = {"constant_values": value}
            return model.op_of(node, (OPS, "Pad"), config, [x], keyed)
    return None


def write_keras_layer(model: Model, node: Node, source: Mapping[str, Any]) -> Held:
    """A layer of Keras' own that the vocabulary has no word for, with its settings."""
    kind, given = source.get("op"), source.get("kwargs", {})
    keyed = dict(given) if isinstance(given, Mapping) else {}
    text = keyed.pop("config", {}).get("c")
    if not isinstance(kind, str) or ">" in kind or kind == "Lambda" or not isinstance(text, str):
        refuse(node, f"{str(kind)[:60]} is code of its author's")
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        refuse(node, "its settings are not JSON")
    if not isinstance(config, dict):
        refuse(node, "its settings are not JSON object")
    inputs = [model.plain(port) for port in node.inputs]
    args = [_argument(node, item, inputs) for item in source.get("args", [])]
    module = keyed.pop("module", {}).get("c")
    named = {key: _argument(node, item, inputs) for key, item in keyed.items()}
    for key, value in named.items():
        if key.endswith("mask") and isinstance(value, str):
            refuse(node, "it uses a mask that comes with its input")
    after = model.shape((node.name, 0))
    for odd in _foreign_objects(config):
        refuse(node, f"it holds {odd}")
    if module is not None:
        if not isinstance(module, str) or not _OPERATIONS.fullmatch(module) or not kind.isalnum():
            refuse(node, f"{str(module)[:40]}.{kind[:40]} is not a function of Keras")
        settings = {key: value for key, value in config.items() if key != "name"}
        out = model.op(module, kind, node.name, settings, args, after, named, parents=inputs)
        return _hold_outputs(model, node, out, masked=False)
    if kind not in OWN:
        refuse(node, f"{kind[:60]} is not a layer that comes back from its settings alone")
    if kind == "Embedding" and config.get("mask_zero"):
        refuse(node, "it hands on a mask")
    weights = _layer_weights(model, node, kind, config)
    try:
        told = policy(config, any_float=True)
    except Unsayable as error:
        refuse(node, str(error))
    config = {key: value for key, value in config.items() if key not in ("name", "dtype")}
    if told is not None:
        config["dtype"] = told
    out = model.layer(
        kind, node.name, config, inputs, after, weights=weights, args=args, kwargs=named, own=True
    )
    return _hold_outputs(model, node, out, masked=named.get("mask") is not None)


def _hold_outputs(model: Model, node: Node, out: Out, *, masked: bool) -> Held:
    """Record the outputs of the layer that the network uses."""
    used = {port for each in model.network.nodes for port in each.inputs}
    for name, place in {*used, *model.network.outputs}:
        if name == node.name and place:
            given = replace(out, tensor=place, shape=model.shape((name, place)))
            model.values[name, place] = Held(plain=given)
    if masked and (node.name, 0) in used:
        # What follows has its masks as inputs: none may come with the tensor beside these.
        out = model.op(OPS, "Add", f"{node.name}.unmasked", {}, [out, 0.0], out.shape)
    return Held(plain=out)


def _foreign_objects(value: Any) -> Iterator[str]:
    """Return the objects in the settings that are not Keras' own."""
    if isinstance(value, list):
        for item in value:
            yield from _foreign_objects(item)
    if not isinstance(value, dict):
        return
    if "class_name" in value:
        module, registered = value.get("module", "keras"), value.get("registered_name")
        kind = str(value["class_name"])
        own = str(module).split(".")[0] in ("keras", "builtins") and ">" not in str(registered)
        if not own or kind in ("__lambda__", "Lambda", "function"):
            yield f"{kind[:40]}, code of its author's"
    for item in value.values():
        yield from _foreign_objects(item)


def _argument(node: Node, item: Any, inputs: Sequence[Out]) -> Any:
    if isinstance(item, dict) and len(item) == 1:
        [(tag, value)] = item.items()
        if tag == "n" and type(value) is int and 0 <= value < len(inputs):
            return inputs[value].as_json()
        if tag == "l" and isinstance(value, list):
            return [_argument(node, each, inputs) for each in value]
        if tag == "c" and not (isinstance(value, str) and value[:1] in ("[", "{")):
            return value
    return refuse(node, "its arguments are not plain")


def _layer_weights(
    model: Model, node: Node, kind: str, config: dict[str, Any]
) -> dict[str, Sequence[Tensor]]:
    """The tensors in the groups of the layer's parts, in Keras' order."""
    layer = Layer.from_settings(kind, node.name, config)
    found: dict[str, Sequence[Tensor]] = {}
    used = 0
    for leaf in layer_leaves(layer):
        slots = [".".join((*leaf.path[1:], variable)) for variable in leaf.variables]
        if slots:
            found[leaf.group.removeprefix("/")] = [model.tensor(node, slot) for slot in slots]
            used += len(slots)
    numbered = sorted(slot for slot in node.params if slot.isdecimal())
    if numbered and not used:  # variables of the layer itself, known by their numbers
        found[""] = [model.tensor(node, slot) for slot in sorted(numbered, key=int)]
        used = len(numbered)
    if used != len(node.params):
        refuse(node, "where its tensors belong is unknown")
    return found


LAYERS: Mapping[str, Convert] = {
    **windows.READERS,
    **dense.READERS,
    **recurrent.READERS,
    **attention.READERS,
    **activations.READERS,
    **arithmetic.READERS,
}
FUNCTIONS: Mapping[str, Convert] = {
    **activations.FUNCTION_READERS,
    **arithmetic.FUNCTION_READERS,
    **attention.FUNCTION_READERS,
}
WRITERS: Mapping[str, Write] = {
    **windows.WRITERS,
    **dense.WRITERS,
    **recurrent.WRITERS,
    **attention.WRITERS,
    **activations.WRITERS,
    **arithmetic.WRITERS,
    "OP": write_raw,
}


def converter(layer: Layer) -> Convert | None:
    """The reader of a layer; `layer.function` is set, as layers and functions share names."""
    functions = layer.module.startswith(("keras.src.ops", "keras.ops"))
    if not layer.module and layer.kind in FUNCTIONS and layer.calls:
        # The older form says no module: merging layers take one list, functions do not.
        args = layer.calls[0].args
        merges = len(args) == 1 and isinstance(args[0], list)
        functions = layer.kind not in LAYERS or (layer.kind in arithmetic.MERGES and not merges)
    layer.function = functions
    return (FUNCTIONS if functions else LAYERS).get(layer.kind)
