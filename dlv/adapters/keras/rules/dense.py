"""Dense layers, embeddings and norms, both ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dlv.adapters.checkpoint import Tensor
from dlv.adapters.keras.build import (
    Held,
    Model,
    Write,
    arranged,
    channels_last,
    held,
    refuse,
    sharing_key,
)
from dlv.adapters.keras.config import Settings, Unsayable, flag
from dlv.adapters.keras.graph import Convert, Use
from dlv.adapters.keras.rules.activations import number_of, with_activation
from dlv.adapters.keras.rules.windows import count_of, kernel_and_bias
from dlv.network.fields import whole
from dlv.network.graph import Node, Port


def read_dense(use: Use) -> Port:
    shape = use.graph.shapes.get(use.only_input)
    if shape is not None and len(shape) < 2:
        raise Unsayable("its input has one axis")
    attrs = {"out": count_of(use, "units"), "layout": "in_out"}
    return with_activation(use, use.add("FULL", None, attrs, params=kernel_and_bias(use)))


def read_time_distributed(use: Use) -> Port:
    """A dense layer works on the last axis anyway, at every step alike."""
    inner = use.layer.inner.get("layer")
    if inner is None or inner.kind != "Dense" or not inner.known:
        raise Unsayable("what it repeats is not a dense layer")
    settings = Settings(inner.config)
    use.config.get("layer")
    use.graph.check_dtype(settings)
    port = read_dense(replace(use, layer=inner, path=(*use.path, inner.name), config=settings))
    settings.finish(inner.kind)
    return port


def read_einsum_dense(use: Use) -> Port:
    """The equation of a plain dense layer over the last axis, no other."""
    equation = str(use.config.get("equation", "")).replace(" ", "").replace("...", "")
    left, _, result = equation.partition("->")
    given, _, kernel = left.partition(",")
    plain = len(kernel) == 2 and kernel[0] == given[-1:] and result == given[:-1] + kernel[1]
    size = use.config.get("output_shape")
    out = size[-1] if isinstance(size, list) and size else size
    bias = use.config.get("bias_axes")
    if not plain or kernel[1] in given or not whole(out) or bias not in (None, kernel[1]):
        raise Unsayable(f"the equation {equation!r:.40}")
    params = {"weight": use.tensor("kernel")}
    if bias:
        params["bias"] = use.tensor("bias")
    return with_activation(
        use, use.add("FULL", None, {"out": out, "layout": "in_out"}, params=params)
    )


def write_full(model: Model, node: Node) -> Held:
    [port] = node.inputs
    if len(model.known_shape(node, port)) < 2:
        refuse(node, "its input has no batch")
    weight, bias, layout = model.tensor(node, "weight"), model.bias(node), node.attrs["layout"]
    if layout == "out_in":
        weight = arranged(weight, (1, 0))
    elif layout != "in_out":
        out = node.attrs["out"]
        weight = arranged(weight, (0, 1, 2), (weight.elements // out, out))
        bias = [arranged(each, range(len(each.shape)), (out,)) for each in bias]
    config = {"units": node.attrs["out"], "activation": "linear", "use_bias": node.attrs["bias"]}
    out = model.layer(
        "Dense",
        node.name,
        config,
        [model.plain(port)],
        model.shape((node.name, 0)),
        weights={"": [weight, *bias]},
        share=sharing_key(node),
    )
    return Held(plain=out)


def read_embedding(use: Use) -> Port:
    flag(use.config, "mask_zero", False)  # the mask is an input of the layers that use it
    attrs = {"out": count_of(use, "output_dim"), "rows": count_of(use, "input_dim")}
    rows = use.only_input
    if use.graph.dtypes.get(rows, "int32").startswith("float"):  # Keras' own default for inputs
        rows = use.add("RESHAPE", None, {"kind": "to", "dtype": "int32"}, word="rows")
    return use.add("EMBED", None, attrs, inputs=[rows], params={"weight": use.tensor("embeddings")})


def write_embed(model: Model, node: Node) -> Held:
    [port] = node.inputs
    config = {"input_dim": node.attrs["rows"], "output_dim": node.attrs["out"], "mask_zero": False}
    out = model.layer(
        "Embedding",
        node.name,
        config,
        [model.plain(port)],
        model.shape((node.name, 0)),
        weights={"": [model.tensor(node, "weight")]},
        share=sharing_key(node),
    )
    return Held(plain=out)


def _norm_axes(use: Use, default: Any = -1) -> list[int]:
    """The axes of a norm, counted from the front."""
    value = use.config.get("axis", default)
    items = [value] if whole(value) else value
    if items == [-1] and use.graph.shapes.get(use.only_input) is None:
        return items  # the last one, whatever their number
    rank = len(use.shape())
    if not isinstance(items, list) or not items or not all(whole(n) for n in items):
        raise Unsayable(f"axis is {value!r:.40}")
    if not all(-rank <= n < rank for n in items):
        raise Unsayable(f"axis is {value!r:.40} of {rank}")
    found = [n % rank for n in items]
    if found != sorted(set(found)):
        raise Unsayable(f"axis is {value!r:.40}")
    return found


def _scale_and_shift(use: Use) -> dict[str, str]:
    params = {}
    if flag(use.config, "scale", True):
        params["weight"] = use.tensor("gamma")
    if flag(use.config, "center", True):
        params["bias"] = use.tensor("beta")
    return params


def read_batch_norm(use: Use) -> Port:
    axis, momentum = _norm_axes(use), number_of(use, "momentum", default=0.99)
    if len(axis) > 1 or not 0 <= momentum <= 1:
        raise Unsayable("it is not over one axis of channels")
    params = _scale_and_shift(use)
    params["running_mean"] = use.tensor("moving_mean")
    params["running_var"] = use.tensor("moving_variance")
    attrs = {
        "eps": number_of(use, "epsilon", default=1e-3),
        "axis": axis[0],
        # Keras says how much of the old value stays; the rest of 1 - 0.99 is rounding.
        "momentum": round(1 - momentum, 12),
    }
    return use.add("NORM", "BATCH", attrs, params=params)


_FITTED = "statistics that `adapt` found are fixed in Keras; training the network updates them"
_SHORTEST = 1e-12  # shorter vectors do not get the length one
_LEAST = 1e-14  # the square of the least deviation that Keras divides by


def read_normalization(use: Use) -> Port:
    """What `adapt` was told of the data: a norm by kept statistics, over the last axis."""
    axis, shape = use.config.get("axis", -1), use.shape()
    axes = axis if isinstance(axis, list) else [axis]
    if axes not in ([-1], [len(shape) - 1]) or flag(use.config, "invert", False):
        raise Unsayable("it is not over the last axis, or the other way round")
    if use.config.get("mean") is not None or use.config.get("variance") is not None:
        raise Unsayable("its statistics are settings")
    use.graph.note(_FITTED, use.name)
    params = {"running_mean": use.tensor("mean"), "running_var": use.tensor("variance")}
    attrs = {"eps": _LEAST, "axis": len(shape) - 1, "momentum": 0.0}
    return use.add("NORM", "BATCH", attrs, params=params)


def read_unit_norm(use: Use) -> Port:
    """x by its length: by its root mean square, and by the root of how many numbers it has."""
    axes, shape = _norm_axes(use), use.shape()
    width = shape[-1]
    if axes == [len(shape) - 1] and isinstance(width, int):
        attrs = {"eps": _SHORTEST**2 / width, "axis": -1}
        unit = use.add("NORM", "RMS", attrs, word="rms")
        return use.add("MUL", None, {"const": width**-0.5}, inputs=[unit])
    squares = use.aten("square.default", {"n": 0}, shape=shape, word="squares")
    after = tuple(1 if axis in axes else length for axis, length in enumerate(shape))
    places = {"l": [{"c": axis} for axis in axes]}
    args = ({"n": 0}, places, {"c": True})
    total = use.aten("sum.dim_IntList", *args, shape=after, inputs=[squares], word="sum")
    root = use.aten("rsqrt.default", {"n": 0}, shape=after, inputs=[total], word="root")
    most = {"c": 1 / _SHORTEST}
    factor = use.aten("clamp_max.default", {"n": 0}, most, shape=after, inputs=[root], word="by")
    return use.add("MUL", inputs=[use.only_input, factor])


def read_layer_norm(use: Use) -> Port:
    axis = _norm_axes(use)
    if axis != [-1]:
        rank = len(use.shape())
        if axis != list(range(axis[0], rank)):
            raise Unsayable("it is not over the last axes")
        axis = [axis[0] - rank]
    attrs = {"eps": number_of(use, "epsilon", default=1e-3), "axis": axis[0]}
    return use.add("NORM", "LAYER", attrs, params=_scale_and_shift(use))


def read_rms_norm(use: Use) -> Port:
    axis, rank = _norm_axes(use), len(use.shape())
    if axis != [rank - 1]:
        raise Unsayable("it is not over the last axis")
    attrs = {"eps": number_of(use, "epsilon", default=1e-6), "axis": -1}
    return use.add("NORM", "RMS", attrs, params={"weight": use.tensor("scale")})


def read_group_norm(use: Use) -> Port:
    axis, groups = _norm_axes(use), use.config.get("groups", 32)
    if len(axis) > 1 or axis[0] == 0:
        raise Unsayable("it is not over one axis of channels")
    if groups == -1:
        groups = use.shape()[axis[0]]
    attrs = {"eps": number_of(use, "epsilon", default=1e-3), "axis": axis[0], "groups": groups}
    return use.add("NORM", "GROUP", attrs, params=_scale_and_shift(use))


def _ones(model: Model, node: Node, count: Any) -> Tensor:
    if not isinstance(count, int):
        refuse(node, "the number of its channels is unknown")
    dtype = model.dtype if model.dtype in ("float16", "float64") else "float32"
    raw = np.ones(count, dtype).tobytes()
    return Tensor(f"{node.name}.scale", dtype, (count,), len(raw), lambda: raw)


_SHORT = {"float32": 1.1920928955078125e-07, "float64": 2.220446049250313e-16}


def write_norm(model: Model, node: Node) -> Held:
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
    elif variant == "RMS" and axis == rank - 1:
        kind = "RMSNormalization"
        if not weight:  # Keras has none without a scale
            weight = variables = [_ones(model, node, shape[-1])]
        if config["epsilon"] is None:
            config["epsilon"] = _SHORT.get(weight[0].dtype) or refuse(node, "its eps is open")
    else:
        refuse(node, "Keras has no such norm")
    after = channels_last(model.shape((node.name, 0)), turned)
    out = model.layer(
        kind, node.name, config, [x], after, weights={"": variables}, share=sharing_key(node)
    )
    return held(out, turned)


READERS: Mapping[str, Convert] = {
    "Dense": read_dense,
    "TimeDistributed": read_time_distributed,
    "EinsumDense": read_einsum_dense,
    "Embedding": read_embedding,
    "BatchNormalization": read_batch_norm,
    "Normalization": read_normalization,
    "LayerNormalization": read_layer_norm,
    "UnitNormalization": read_unit_norm,
    "RMSNormalization": read_rms_norm,
    "GroupNormalization": read_group_norm,
}
WRITERS: Mapping[str, Write] = {"FULL": write_full, "EMBED": write_embed, "NORM": write_norm}
