"""Keras' convolutions, dense layers, pools and norms as nodes of the vocabulary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dlv.adapters.keras.activations import activated, number_of
from dlv.adapters.keras.graph import Convert, Use
from dlv.adapters.keras.understood import Settings, Unsayable, flag
from dlv.adapters.keras.windows import (
    channels_of,
    count_of,
    depth_of,
    lengths_of,
    pads,
    per_axis,
)
from dlv.network.fields import whole
from dlv.network.graph import Port


def weights(use: Use, kernel: str = "kernel") -> dict[str, str]:
    params = {"weight": use.tensor(kernel)}
    if flag(use.config, "use_bias", True):
        params["bias"] = use.tensor("bias")
    return params


def conv(use: Use) -> Port:
    kind = use.layer.kind
    depthwise = kind.startswith("Depthwise")
    axes, channels, shape = int(kind[-2]), channels_of(use), use.shape()
    kernel, stride, dilation = (
        per_axis(use.config.get(key, 1), axes, key)
        for key in ("kernel_size", "strides", "dilation_rate")
    )
    attrs: dict[str, Any] = {
        "kernel": kernel,
        "stride": stride,
        "dilation": dilation,
        "pad": pads(
            use.config.get("padding", "valid"),
            *(lengths_of(shape, axes, channels), kernel, stride, dilation),
            causal=kind == "Conv1D",
        ),
        "channels": channels,
    }
    if depthwise:
        depth, times = depth_of(shape, channels), count_of(use, "depth_multiplier")
        attrs |= {"out": depth * times, "groups": depth, "layout": "depthwise"}
        # Keras 2 called it otherwise; `tensor` knows what the file has.
        params = weights(use)
    else:
        groups = count_of(use, "groups") if "groups" in use.config else 1
        attrs |= {"out": count_of(use, "filters"), "groups": groups}
        attrs["layout"] = "kernel_first"
        params = weights(use)
    return activated(use, use.add("CONV", None, attrs, params=params))


def separable(use: Use) -> Port:
    axes, channels, shape = int(use.layer.kind[-2]), channels_of(use), use.shape()
    kernel, stride, dilation = (
        per_axis(use.config.get(key, 1), axes, key)
        for key in ("kernel_size", "strides", "dilation_rate")
    )
    depth, times = depth_of(shape, channels), count_of(use, "depth_multiplier")
    padding = pads(
        use.config.get("padding", "valid"),
        *(lengths_of(shape, axes, channels), kernel, stride, dilation),
        causal=axes == 1,
    )
    first = use.add(
        "CONV",
        None,
        {
            "out": depth * times,
            "groups": depth,
            "layout": "depthwise",
            "kernel": kernel,
            "stride": stride,
            "dilation": dilation,
            "pad": padding,
            "channels": channels,
        },
        params={"weight": use.tensor("depthwise_kernel")},
        word="depthwise",
    )
    second = use.add(
        "CONV",
        None,
        {
            "out": count_of(use, "filters"),
            "layout": "kernel_first",
            "kernel": (1,) * axes,
            "channels": channels,
        },
        inputs=[first],
        params=weights(use, "pointwise_kernel"),
        word="pointwise",
    )
    return activated(use, second)


def deconv(use: Use) -> Port:
    axes, channels = int(use.layer.kind[4]), channels_of(use)
    kernel, stride, dilation = (
        per_axis(use.config.get(key, 1), axes, key)
        for key in ("kernel_size", "strides", "dilation_rate")
    )
    extra = use.config.get("output_padding")
    extras: Sequence[int | None] = (
        (None,) * axes if extra is None else per_axis(extra, axes, "output_padding")
    )
    crops, more = [], []
    for k, s, d, e in zip(kernel, stride, dilation, extras, strict=True):
        before, after = crop(use.config.get("padding", "valid"), d * (k - 1) + 1, s, e)
        crops.append((before, max(after, 0)))
        more.append(max(-after, 0))
        if more[-1] >= max(s, d):
            raise Unsayable("it adds more behind than a step")
    attrs = {
        "out": count_of(use, "filters"),
        "kernel": kernel,
        "stride": stride,
        "dilation": dilation,
        "pad": crops,
        "output_pad": more,
        "layout": "kernel_first",
        "channels": channels,
    }
    return activated(use, use.add("DECONV", None, attrs, params=weights(use)))


def crop(padding: Any, reach: int, stride: int, extra: int | None) -> tuple[int, int]:
    """What is cut off the full result before and behind; below zero: added behind.

    As the first backends of Keras do it, and torch's since 3.15.
    """
    if padding == "valid":
        added = max(stride - reach, 0) if extra is None else extra
        return 0, -added
    if padding != "same":
        raise Unsayable(f"padding is {padding!r:.40}")
    total = stride + reach - 2 if extra is None else reach + reach % 2 - 2 + extra
    left = min(total // 2 + total % 2, reach - 1)
    return reach - 1 - left, reach - 1 - (total - left)


def dense(use: Use) -> Port:
    if len(use.shape()) < 2:
        raise Unsayable("its input has one axis")
    attrs = {"out": count_of(use, "units"), "layout": "in_out"}
    return activated(use, use.add("FULL", None, attrs, params=weights(use)))


def time_distributed(use: Use) -> Port:
    """A dense layer works on the last axis anyway, at every step alike."""
    inner = use.layer.inner.get("layer")
    if inner is None or inner.kind != "Dense" or not inner.known:
        raise Unsayable("what it repeats is no dense layer")
    settings = Settings(inner.config)
    use.config.get("layer")
    use.graph.check_dtype(settings)
    port = dense(replace(use, layer=inner, path=(*use.path, inner.name), config=settings))
    settings.finish(inner.kind)
    return port


def einsum_dense(use: Use) -> Port:
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
    return activated(use, use.add("FULL", None, {"out": out, "layout": "in_out"}, params=params))


def embedding(use: Use) -> Port:
    flag(use.config, "mask_zero", False)  # the mask is an input of the layers that use it
    attrs = {"out": count_of(use, "output_dim"), "rows": count_of(use, "input_dim")}
    rows = use.one
    if use.graph.dtypes.get(rows, "int32").startswith("float"):  # Keras' own default for inputs
        rows = use.add("RESHAPE", None, {"kind": "to", "dtype": "int32"}, word="rows")
    return use.add("EMBED", None, attrs, inputs=[rows], params={"weight": use.tensor("embeddings")})


def axes_of(use: Use, default: Any = -1) -> list[int]:
    """The axes of a norm, counted from the front."""
    value, rank = use.config.get("axis", default), len(use.shape())
    items = [value] if whole(value) else value
    if not isinstance(items, list) or not items or not all(whole(n) for n in items):
        raise Unsayable(f"axis is {value!r:.40}")
    if not all(-rank <= n < rank for n in items):
        raise Unsayable(f"axis is {value!r:.40} of {rank}")
    found = [n % rank for n in items]
    if found != sorted(set(found)):
        raise Unsayable(f"axis is {value!r:.40}")
    return found


def _affine(use: Use) -> dict[str, str]:
    params = {}
    if flag(use.config, "scale", True):
        params["weight"] = use.tensor("gamma")
    if flag(use.config, "center", True):
        params["bias"] = use.tensor("beta")
    return params


def batch_norm(use: Use) -> Port:
    axis, momentum = axes_of(use), number_of(use, "momentum", default=0.99)
    if len(axis) > 1 or not 0 <= momentum <= 1:
        raise Unsayable("it is not over one axis of channels")
    params = _affine(use)
    params["running_mean"] = use.tensor("moving_mean")
    params["running_var"] = use.tensor("moving_variance")
    attrs = {
        "eps": number_of(use, "epsilon", default=1e-3),
        "axis": axis[0],
        # Keras says how much of the old value stays; the rest of 1 - 0.99 is rounding.
        "momentum": round(1 - momentum, 12),
    }
    return use.add("NORM", "BATCH", attrs, params=params)


def layer_norm(use: Use) -> Port:
    axis, rank = axes_of(use), len(use.shape())
    if axis != list(range(axis[0], rank)):
        raise Unsayable("it is not over the last axes")
    attrs = {"eps": number_of(use, "epsilon", default=1e-3), "axis": axis[0] - rank}
    return use.add("NORM", "LAYER", attrs, params=_affine(use))


def rms_norm(use: Use) -> Port:
    axis, rank = axes_of(use), len(use.shape())
    if axis != [rank - 1]:
        raise Unsayable("it is not over the last axis")
    attrs = {"eps": number_of(use, "epsilon", default=1e-6), "axis": -1}
    return use.add("NORM", "RMS", attrs, params={"weight": use.tensor("scale")})


def group_norm(use: Use) -> Port:
    axis, groups = axes_of(use), use.config.get("groups", 32)
    if len(axis) > 1 or axis[0] == 0:
        raise Unsayable("it is not over one axis of channels")
    if groups == -1:
        groups = use.shape()[axis[0]]
    attrs = {"eps": number_of(use, "epsilon", default=1e-3), "axis": axis[0], "groups": groups}
    return use.add("NORM", "GROUP", attrs, params=_affine(use))


LAYERS: Mapping[str, Convert] = {
    **{f"Conv{axes}D": conv for axes in (1, 2, 3)},
    **{f"DepthwiseConv{axes}D": conv for axes in (1, 2)},
    **{f"SeparableConv{axes}D": separable for axes in (1, 2)},
    **{f"Conv{axes}DTranspose": deconv for axes in (1, 2, 3)},
    "Dense": dense,
    "TimeDistributed": time_distributed,
    "EinsumDense": einsum_dense,
    "Embedding": embedding,
    "BatchNormalization": batch_norm,
    "LayerNormalization": layer_norm,
    "RMSNormalization": rms_norm,
    "GroupNormalization": group_norm,
}
