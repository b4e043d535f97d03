"""Nodes of the vocabulary as Keras layers: convolutions, dense layers, norms, activations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlv.adapters.checkpoint import Tensor
from dlv.adapters.keras.layers import crop
from dlv.adapters.keras.writing.model import NN, Held, Model, arranged, refuse
from dlv.adapters.keras.writing.windows import (
    Write,
    channels_of,
    held,
    moved,
    padded,
    pool,
    same_pads,
    spatial,
)
from dlv.network.graph import Node

_SHORT = {"float32": 1.1920928955078125e-07, "float64": 2.220446049250313e-16}


def conv(model: Model, node: Node) -> Held:
    attrs, axes = node.attrs, spatial(node)
    x, shape, first = channels_of(model, node)
    kernel, stride, dilation = (attrs[key] for key in ("kernel", "stride", "dilation"))
    reach = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    if any(s > 1 for s in stride) and any(d > 1 for d in dilation):
        refuse(node, "it has both a stride and a dilation")
    padding = "valid"
    if any(map(any, attrs["pad"])):
        if list(attrs["pad"]) == same_pads(shape, stride, reach):
            padding = "same"
        elif list(attrs["pad"]) == [(reach[0], 0)]:
            padding = "causal"
        else:
            x = padded(model, node, x, shape, attrs["pad"])
    weight, groups = model.tensor(node, "weight"), attrs["groups"]
    config: dict[str, Any] = {
        "kernel_size": list(kernel),
        "strides": list(stride),
        "padding": padding,
        "data_format": "channels_last",
        "dilation_rate": list(dilation),
        "activation": "linear",
        "use_bias": attrs["bias"],
    }
    after = moved(model.shape((node.name, 0)), first)
    sides_of = range(axes)
    each = attrs["layout"] == "depthwise" or (groups > 1 and groups == shape[-1])
    # Not all backends take uneven strides there.
    if each and axes < 3 and len(set(stride)) == 1:
        kind = f"DepthwiseConv{axes}D"
        config["depth_multiplier"] = attrs["out"] // groups
        sides = (*kernel, groups, attrs["out"] // groups)
        if attrs["layout"] == "kernel_last":
            weight = arranged(weight, (*(axis + 2 for axis in sides_of), 0, 1), sides)
        elif attrs["layout"] == "kernel_first":
            weight = arranged(weight, range(axes + 2), sides)
    else:
        kind = f"Conv{axes}D"
        config |= {"filters": attrs["out"], "groups": groups}
        if attrs["layout"] == "depthwise":
            weight = arranged(weight, range(axes + 2), (*kernel, 1, attrs["out"]))
        elif attrs["layout"] == "kernel_last":
            weight = arranged(weight, (*(axis + 2 for axis in sides_of), 1, 0))
    variables = {"": [weight, *model.bias(node)]}
    out = model.layer(kind, node.name, config, [x], after, weights=variables, share=shared(node))
    return held(out, first)


def shared(node: Node) -> Any:
    """Nodes of equal settings over the same tensors are one layer, called several times."""
    settings = tuple(sorted((key, repr(value)) for key, value in node.attrs.items()))
    params = tuple(sorted(node.params.items()))
    return (node.op, node.variant, settings, params) if params else None


def deconv(model: Model, node: Node) -> Held:
    attrs, axes = node.attrs, spatial(node)
    if attrs["groups"] > 1:
        refuse(node, "its channels are in groups")
    x, _, first = channels_of(model, node)
    stride, dilation = attrs["stride"], attrs["dilation"]
    if any(d > 1 and s > 1 for d, s in zip(dilation, stride, strict=True)):
        refuse(node, "it has both a stride and a dilation")
    rows = list(zip(attrs["pad"], attrs["output_pad"], strict=True))
    reach = [d * (k - 1) + 1 for k, d in zip(attrs["kernel"], dilation, strict=True)]
    extra: list[int] | None = None
    cut = [[0, 0]] * axes
    same = [crop("same", r, s, None) for r, s in zip(reach, stride, strict=True)]
    if same != [(before, after - more) for (before, after), more in rows]:
        # All that is added behind, beyond what is cut there; the rest is cut off afterwards.
        same, extra = [], [max(more - after, 0) for (_, after), more in rows]
        cut = [[before, max(after - more, 0)] for (before, after), more in rows]
        if any(more >= max(s, 1) for more, s in zip(extra, stride, strict=True) if more):
            refuse(node, "it adds a whole step behind")
    weight = model.tensor(node, "weight")
    if attrs["layout"] == "kernel_last":
        weight = arranged(weight, (*(axis + 2 for axis in range(axes)), 1, 0))
    config = {
        "filters": attrs["out"],
        "kernel_size": list(attrs["kernel"]),
        "strides": list(attrs["stride"]),
        "padding": "same" if same else "valid",
        "output_padding": extra,
        "data_format": "channels_last",
        "dilation_rate": list(attrs["dilation"]),
        "activation": "linear",
        "use_bias": attrs["bias"],
    }
    after = moved(model.shape((node.name, 0)), first)
    crops = any(map(any, cut))
    out = model.layer(
        *(f"Conv{axes}DTranspose", f"{node.name}.full" if crops else node.name, config, [x]),
        (None,) * (axes + 2) if crops else after,
        weights={"": [weight, *model.bias(node)]},
        share=shared(node),
    )
    if crops:
        settings: dict[str, Any] = {"cropping": cut[0] if axes == 1 else cut}
        if axes > 1:
            settings["data_format"] = "channels_last"
        out = model.layer(f"Cropping{axes}D", node.name, settings, [out], after)
    return held(out, first)


def full(model: Model, node: Node) -> Held:
    [port] = node.inputs
    if len(model.known_shape(node, port)) < 2:
        refuse(node, "its input has no batch")
    weight = model.tensor(node, "weight")
    if node.attrs["layout"] == "out_in":
        weight = arranged(weight, (1, 0))
    config = {"units": node.attrs["out"], "activation": "linear", "use_bias": node.attrs["bias"]}
    out = model.layer(
        *("Dense", node.name, config, [model.plain(port)], model.shape((node.name, 0))),
        weights={"": [weight, *model.bias(node)]},
        share=shared(node),
    )
    return Held(plain=out)


def embed(model: Model, node: Node) -> Held:
    [port] = node.inputs
    config = {
        "input_dim": node.attrs["rows"],
        "output_dim": node.attrs["out"],
        "mask_zero": False,
    }
    out = model.layer(
        *("Embedding", node.name, config, [model.plain(port)], model.shape((node.name, 0))),
        weights={"": [model.tensor(node, "weight")]},
        share=shared(node),
    )
    return Held(plain=out)


def norm(model: Model, node: Node) -> Held:
    [port] = node.inputs
    shape, attrs, variant = model.known_shape(node, port), node.attrs, node.variant
    rank, axis = len(shape), node.attrs["axis"] % len(shape)
    # The order at hand is kept: nothing is turned for a norm.
    turned = model.values[port].last is not None and axis == 1 and variant not in ("LAYER", "RMS")
    x = model.last(node, port) if turned else model.plain(port)
    place = -1 if turned or axis == rank - 1 else axis
    weight = [model.tensor(node, "weight")] if "weight" in node.params else []
    bias = [model.tensor(node, "bias")] if "bias" in node.params else []
    config: dict[str, Any] = {"epsilon": attrs.get("eps"), "axis": place}
    variables: list[Tensor] = [*weight, *bias]
    if variant != "RMS":
        config |= {"scale": bool(weight), "center": bool(bias)}
    if variant == "BATCH" and "running_mean" in node.params:
        kind, momentum = "BatchNormalization", attrs["momentum"]
        config["momentum"] = 0.99 if momentum is None else round(1 - momentum, 12)
        variables += [model.tensor(node, "running_mean"), model.tensor(node, "running_var")]
    elif variant == "GROUP" or (variant == "INSTANCE" and "running_mean" not in node.params):
        kind, config["groups"] = "GroupNormalization", attrs.get("groups", -1)
    elif variant == "LAYER":
        kind, config["axis"] = "LayerNormalization", list(range(axis, rank))
    elif variant == "RMS" and weight and axis == rank - 1:
        kind = "RMSNormalization"
        if config["epsilon"] is None:
            config["epsilon"] = _SHORT.get(weight[0].dtype) or refuse(node, "its eps is open")
    else:
        refuse(node, "Keras has no such norm")
    after = moved(model.shape((node.name, 0)), turned)
    out = model.layer(
        *(kind, node.name, config, [x], after), weights={"": variables}, share=shared(node)
    )
    return held(out, turned)


def elementwise(model: Model, node: Node, kind: str, config: Mapping[str, Any]) -> Held:
    """In whichever order the value stands."""
    [port] = node.inputs
    turned = model.values[port].plain is None
    x = model.last(node, port) if turned else model.plain(port)
    after = moved(model.shape((node.name, 0)), turned)
    return held(model.layer(kind, node.name, config, [x], after), turned)


def relu(model: Model, node: Node) -> Held:
    slope = node.attrs["slope"]
    if slope:
        return elementwise(model, node, "LeakyReLU", {"negative_slope": slope})
    return elementwise(model, node, "ReLU", {})


def act(model: Model, node: Node) -> Held:
    if node.variant == "GELU" and node.attrs["approximate"] == "tanh":
        x = model.plain(node.inputs[0])
        config = {"approximate": True}
        after = model.shape((node.name, 0))
        return Held(plain=model.op(NN, "Gelu", node.name, config, [x], after))
    word = (node.variant or "").lower()
    return elementwise(model, node, "Activation", {"activation": word})


def softmax(model: Model, node: Node) -> Held:
    x, after = model.plain(node.inputs[0]), model.shape((node.name, 0))
    config = {"axis": node.attrs["axis"]}
    if node.attrs["log"]:
        return Held(plain=model.op(NN, "LogSoftmax", node.name, config, [x], after))
    return Held(plain=model.layer("Softmax", node.name, config, [x], after))


def dropout(model: Model, node: Node) -> Held:
    return elementwise(model, node, "Dropout", {"rate": node.attrs["p"]})


LAYERS: Mapping[str, Write] = {
    "CONV": conv,
    "DECONV": deconv,
    "FULL": full,
    "EMBED": embed,
    "POOL": pool,
    "NORM": norm,
    "RELU": relu,
    "ACT": act,
    "SOFTMAX": softmax,
    "DROPOUT": dropout,
}
