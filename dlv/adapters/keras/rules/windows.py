"""Windows over spatial axes: convolutions, pools, and layers that pad, cut or repeat; both ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dlv.adapters.keras.build import (
    OPS,
    Held,
    Model,
    Out,
    Write,
    arranged,
    channels_last,
    held,
    refuse,
    sharing_key,
)
from dlv.adapters.keras.config import Unsayable, dims, flag
from dlv.adapters.keras.graph import Convert, Mask, Use
from dlv.adapters.keras.rules.activations import with_activation
from dlv.network.fields import whole
from dlv.network.graph import Node, Port
from dlv.network.sizes import Shape

MOST_SIDE = 1 << 31

Pairs = Sequence[tuple[int, int]]


def per_axis(value: Any, axes: int, label: str) -> tuple[int, ...]:
    """A number for each axis; Keras writes one number for all of them too."""
    items = [value] * axes if whole(value) else value
    right = isinstance(items, list) and len(items) == axes and all(map(whole, items))
    if right and all(0 <= item < MOST_SIDE for item in items):
        return tuple(items)
    raise Unsayable(f"{label} is {value!r:.40}")


def channels_setting(use: Use) -> str:
    form = use.config.get("data_format", "channels_last")
    if form not in ("channels_last", "channels_first", None):
        raise Unsayable(f"data_format is {form!r:.40}")
    return "first" if form == "channels_first" else "last"


def count_of(use: Use, key: str) -> int:
    value: Any = use.config.get(key)
    if whole(value) and 0 < value < MOST_SIDE:
        return int(value)
    raise Unsayable(f"{key} is {value!r:.40}")


def lengths_of(shape: Shape, axes: int, channels: str) -> Shape:
    if len(shape) != axes + 2:
        raise Unsayable(f"its input has {len(shape)} axes")
    return shape[1:-1] if channels == "last" else shape[2:]


def depth_of(shape: Shape, channels: str) -> int:
    depth = shape[-1 if channels == "last" else 1]
    if not isinstance(depth, int):
        raise Unsayable("the number of its input's channels is unknown")
    return depth


def pads(
    padding: Any,
    lengths: Shape,
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    *,
    causal: bool = False,
) -> Pairs:
    """Zeros before and behind each axis, for a `padding` as Keras names it."""
    reach = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    if padding == "valid":
        return [(0, 0)] * len(reach)
    if padding == "causal" and causal:
        return [(r, 0) for r in reach]
    if padding != "same":
        raise Unsayable(f"padding is {padding!r:.40}")
    pairs = same_pads(lengths, stride, reach)
    if pairs is None:
        raise Unsayable("padding 'same' with a stride, over an axis of unknown length")
    return pairs


def same_pads(lengths: Shape, stride: Sequence[int], reach: Sequence[int]) -> Pairs | None:
    """The pads of `same`, the odd zero behind; None if they hang on an unknown length."""
    pairs = []
    for n, s, r in zip(lengths, stride, reach, strict=True):
        if s == 1:
            total = r
        elif isinstance(n, int) and s:
            total = max((-(-n // s) - 1) * s + r + 1 - n, 0)
        else:
            return None
        pairs.append((total // 2, total - total // 2))
    return pairs


def _spatial_axes(node: Node) -> int:
    axes = len(node.attrs["kernel"])
    if not 1 <= axes <= 3:
        refuse(node, f"it has {axes} spatial axes")
    return axes


def _input_channels_last(model: Model, node: Node) -> tuple[Out, Shape, bool]:
    """The input with its channels last, its shape so, and whether the network has them first."""
    [port] = node.inputs
    first = node.attrs["channels"] == "first"
    shape = model.known_shape(node, port)
    if first:
        shape = (shape[0], *shape[2:], shape[1])
    return (model.last(node, port) if first else model.plain(port)), shape, first


def _write_zero_padding(model: Model, node: Node, x: Out, shape: Shape, pad: Pairs) -> Out:
    """Zeros around the spatial axes."""
    axes = len(pad)
    amounts: Any = [list(pair) for pair in pad]
    after = (shape[0], *_padded_lengths(shape[1:-1], pad), shape[-1])
    if axes == 1:
        amounts = amounts[0]
    config: dict[str, Any] = {"padding": amounts}
    if axes > 1:
        config["data_format"] = "channels_last"
    return model.layer(f"ZeroPadding{axes}D", f"{node.name}.pad", config, [x], after)


def _padded_lengths(lengths: Shape, pad: Pairs) -> Shape:
    return tuple(
        n + before + after if isinstance(n, int) else n
        for n, (before, after) in zip(lengths, pad, strict=True)
    )


def kernel_and_bias(use: Use, kernel: str = "kernel") -> dict[str, str]:
    params = {"weight": use.tensor(kernel)}
    if flag(use.config, "use_bias", True):
        params["bias"] = use.tensor("bias")
    return params


def _strides_of(use: Use, axes: int) -> list[tuple[int, ...]]:
    """Kernel, stride and dilation of a layer, a number for each axis."""
    keys = ("kernel_size", "strides", "dilation_rate")
    return [per_axis(use.config.get(key, 1), axes, key) for key in keys]


def _conv_attrs(use: Use, axes: int, *, causal: bool) -> dict[str, Any]:
    channels = channels_setting(use)
    kernel, stride, dilation = _strides_of(use, axes)
    lengths = lengths_of(use.shape(), axes, channels)
    padding = use.config.get("padding", "valid")
    return {
        "kernel": kernel,
        "stride": stride,
        "dilation": dilation,
        "pad": pads(padding, lengths, kernel, stride, dilation, causal=causal),
        "channels": channels,
    }


def _depthwise_attrs(use: Use, channels: str) -> dict[str, Any]:
    depth, times = depth_of(use.shape(), channels), count_of(use, "depth_multiplier")
    return {"out": depth * times, "groups": depth, "layout": "depthwise"}


def read_conv(use: Use) -> Port:
    kind = use.layer.kind
    attrs = _conv_attrs(use, int(kind[-2]), causal=kind == "Conv1D")
    if kind.startswith("Depthwise"):
        attrs |= _depthwise_attrs(use, attrs["channels"])
    else:
        groups = count_of(use, "groups") if "groups" in use.config else 1
        attrs |= {"out": count_of(use, "filters"), "groups": groups, "layout": "kernel_first"}
    # Keras 2 called the depthwise kernel otherwise; `tensor` knows what the file has.
    return with_activation(use, use.add("CONV", None, attrs, params=kernel_and_bias(use)))


def read_separable(use: Use) -> Port:
    axes = int(use.layer.kind[-2])
    attrs = _conv_attrs(use, axes, causal=axes == 1)
    attrs |= _depthwise_attrs(use, attrs["channels"])
    params = {"weight": use.tensor("depthwise_kernel")}
    first = use.add("CONV", None, attrs, params=params, word="depthwise")
    point = {
        "out": count_of(use, "filters"),
        "layout": "kernel_first",
        "kernel": (1,) * axes,
        "channels": attrs["channels"],
    }
    params = kernel_and_bias(use, "pointwise_kernel")
    second = use.add("CONV", None, point, inputs=[first], params=params, word="pointwise")
    return with_activation(use, second)


def write_conv(model: Model, node: Node) -> Held:
    attrs, axes = node.attrs, _spatial_axes(node)
    x, shape, first = _input_channels_last(model, node)
    kernel, stride, dilation = (attrs[key] for key in ("kernel", "stride", "dilation"))
    reach = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    if any(s > 1 for s in stride) and any(d > 1 for d in dilation):
        refuse(node, "it has both a stride and a dilation")
    padding = "valid"
    if any(map(any, attrs["pad"])):
        if list(attrs["pad"]) == same_pads(shape[1:-1], stride, reach):
            padding = "same"
        elif list(attrs["pad"]) == [(reach[0], 0)]:
            padding = "causal"
        else:
            x = _write_zero_padding(model, node, x, shape, attrs["pad"])
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
    after = channels_last(model.shape((node.name, 0)), first)
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
    out = model.layer(
        kind, node.name, config, [x], after, weights=variables, share=sharing_key(node)
    )
    return held(out, first)


def read_deconv(use: Use) -> Port:
    axes, channels = int(use.layer.kind[4]), channels_setting(use)
    kernel, stride, dilation = _strides_of(use, axes)
    extra = use.config.get("output_padding")
    extras: Sequence[int | None] = (
        (None,) * axes if extra is None else per_axis(extra, axes, "output_padding")
    )
    crops, more = [], []
    for k, s, d, e in zip(kernel, stride, dilation, extras, strict=True):
        before, after = _deconv_crop(use.config.get("padding", "valid"), d * (k - 1) + 1, s, e)
        crops.append((before, max(after, 0)))
        more.append(max(-after, 0))
        if more[-1] >= max(s, d):
            raise Unsayable("it pads more than a step at the end")
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
    return with_activation(use, use.add("DECONV", None, attrs, params=kernel_and_bias(use)))


def _deconv_crop(padding: Any, reach: int, stride: int, extra: int | None) -> tuple[int, int]:
    """Entries cut off the full result before and behind; below zero: added behind.

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


def write_deconv(model: Model, node: Node) -> Held:
    attrs, axes = node.attrs, _spatial_axes(node)
    if attrs["groups"] > 1:
        refuse(node, "its channels are in groups")
    x, _, first = _input_channels_last(model, node)
    stride, dilation = attrs["stride"], attrs["dilation"]
    if any(d > 1 and s > 1 for d, s in zip(dilation, stride, strict=True)):
        refuse(node, "it has both a stride and a dilation")
    rows = list(zip(attrs["pad"], attrs["output_pad"], strict=True))
    reach = [d * (k - 1) + 1 for k, d in zip(attrs["kernel"], dilation, strict=True)]
    extra: list[int] | None = None
    cut = [[0, 0]] * axes
    same = [_deconv_crop("same", r, s, None) for r, s in zip(reach, stride, strict=True)]
    if same != [(before, after - more) for (before, after), more in rows]:
        # All that is added behind, beyond what is cut there; the rest is cut off afterwards.
        same, extra = [], [max(more - after, 0) for (_, after), more in rows]
        cut = [[before, max(after - more, 0)] for (before, after), more in rows]
        if any(more >= max(s, 1) for more, s in zip(extra, stride, strict=True) if more):
            refuse(node, "it pads a whole step at the end")
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
    after = channels_last(model.shape((node.name, 0)), first)
    crops = any(map(any, cut))
    out = model.layer(
        f"Conv{axes}DTranspose",
        f"{node.name}.full" if crops else node.name,
        config,
        [x],
        (None,) * (axes + 2) if crops else after,
        weights={"": [weight, *model.bias(node)]},
        share=sharing_key(node),
    )
    if crops:
        settings: dict[str, Any] = {"cropping": cut[0] if axes == 1 else cut}
        if axes > 1:
            settings["data_format"] = "channels_last"
        out = model.layer(f"Cropping{axes}D", node.name, settings, [out], after)
    return held(out, first)


def read_pool(use: Use) -> Port:
    kind = use.layer.kind
    axes, channels = int(kind[-2]), channels_setting(use)
    kernel = per_axis(use.config.get("pool_size", 2), axes, "pool_size")
    strides = use.config.get("strides")
    stride = kernel if strides is None else per_axis(strides, axes, "strides")
    lengths = lengths_of(use.shape(), axes, channels)
    attrs: dict[str, Any] = {
        "kernel": kernel,
        "stride": stride,
        "pad": pads(use.config.get("padding", "valid"), lengths, kernel, stride, (1,) * axes),
        "channels": channels,
    }
    if kind.startswith("Max"):
        return use.add("POOL", "MAX", attrs)
    return use.add("POOL", "AVG", attrs | {"count_pad": not any(map(any, attrs["pad"]))})


def read_global_pool(use: Use) -> Port:
    kind = use.layer.kind
    axes, channels, keep = int(kind[-2]), channels_setting(use), flag(use.config, "keepdims", False)
    lengths_of(use.shape(), axes, channels)
    if kind == "GlobalAveragePooling1D" and use.mask is not None:
        if channels == "first":  # the mask is of the first axis behind the batch
            raise Unsayable("its input has a mask and its channels first")
        return _mean_of_counted(use, use.mask, keep)
    places = tuple(range(1, axes + 1) if channels == "last" else range(2, axes + 2))
    if "Average" in kind:
        return use.add("POOL", "MEAN", {"axis": places, "keep": keep})
    attrs = {"size": (1,) * axes, "channels": channels}
    largest = use.add("POOL", "MAX", attrs)
    if keep:
        return largest
    return use.add(
        "RESHAPE", None, {"kind": "squeeze", "axis": places}, inputs=[largest], word="squeeze"
    )


def _mean_of_counted(use: Use, mask: Mask, keep: bool) -> Port:
    """The mean over the steps that count: the mean of these by the share of them."""
    counts = use.graph.counted(mask, use)
    if counts is None:
        raise Unsayable("the mask of its input is unknown")
    kind: dict[str, Any] = {"kind": "to", "dtype": use.graph.dtype or "float32"}
    counts = use.add("RESHAPE", None, kind, inputs=[counts], word="counts")
    kind = {"kind": "unsqueeze", "axis": 2}
    counts = use.add("RESHAPE", None, kind, inputs=[counts], word="steps")
    held = use.add("MUL", inputs=[use.only_input, counts], word="counted")
    mean = {"axis": (1,), "keep": keep}
    pair = [
        use.add("POOL", "MEAN", mean, inputs=[port], word=word)
        for port, word in ((held, "mean"), (counts, "share"))
    ]
    shape = use.graph.shapes.get(pair[0])
    return use.aten("div.Tensor", {"n": 0}, {"n": 1}, shape=shape, inputs=pair)


_LOWEST = -3.4028234663852886e38  # what JSON can hold in place of minus infinity


def write_pool(model: Model, node: Node) -> Held:
    attrs = node.attrs
    if node.variant == "MEAN":
        return _write_mean(model, node)
    if attrs["size"] is not None:
        return _write_adaptive_pool(model, node)
    axes = _spatial_axes(node)
    if any(d > 1 for d in attrs["dilation"]):
        refuse(node, "it has a dilation")
    x, shape, first = _input_channels_last(model, node)
    kernel, stride = attrs["kernel"], attrs["stride"]
    pad, largest = _pads_rounded_up(node, shape), node.variant == "MAX"
    padding = "valid"
    if any(map(any, pad)):
        counted = not largest and attrs["count_pad"]
        reach = [k - 1 for k in kernel]
        even = all(before == after for before, after in pad)
        if not counted and list(pad) == same_pads(shape[1:-1], stride, reach):
            padding = "same"
            if not largest and not even:
                model.notes.append(
                    f"{node.name}: Keras' torch backend counts padding in uneven average pools"
                )
        elif counted:
            x = _write_zero_padding(model, node, x, shape, pad)
        elif largest:
            width = [[0, 0], *(list(pair) for pair in pad), [0, 0]]
            after = (shape[0], *_padded_lengths(shape[1:-1], pad), shape[-1])
            config = {"pad_width": width, "mode": "constant"}
            x = model.op(
                OPS, "Pad", f"{node.name}.pad", config, [x], after, {"constant_values": _LOWEST}
            )
        else:
            refuse(node, "its padding is neither counted nor what Keras calls same")
    settings = {
        "pool_size": list(kernel),
        "padding": padding,
        "strides": list(stride),
        "data_format": "channels_last",
    }
    kind = f"{'Max' if largest else 'Average'}Pooling{axes}D"
    after_pool = channels_last(model.shape((node.name, 0)), first)
    return held(model.layer(kind, node.name, settings, [x], after_pool), first)


def _pads_rounded_up(node: Node, shape: Shape) -> list[tuple[int, int]]:
    """The pads, grown behind so that windows are rounded up where the node does so."""
    attrs = node.attrs
    pad = [tuple(pair) for pair in attrs["pad"]]
    if not attrs["ceil"]:
        return pad
    grown = []
    rows = zip(shape[1:-1], attrs["kernel"], attrs["stride"], pad, strict=True)
    for n, k, s, (before, after) in rows:
        if not isinstance(n, int):
            refuse(node, "it rounds up over an axis of unknown length")
        count = -(-(n + before + after - k) // s) + 1
        if (count - 1) * s >= n + before:
            count -= 1
        more = max((count - 1) * s + k - n - before - after, 0)
        if more and node.variant == "AVG":
            refuse(node, "its last window is rounded up and averages what is there")
        grown.append((before, after + more))
    return grown


def _write_mean(model: Model, node: Node) -> Held:
    [port] = node.inputs
    shape, axis, keep = model.known_shape(node, port), node.attrs["axis"], node.attrs["keep"]
    rank = len(shape)
    places = sorted(range(rank) if axis is None else {a % rank for a in axis})
    after = model.shape((node.name, 0))
    config: dict[str, Any] = {"data_format": "channels_last", "keepdims": keep}
    kind = f"GlobalAveragePooling{rank - 2}D"
    if 3 <= rank <= 5 and places == list(range(1, rank - 1)):
        return model.layer_of(node, kind, config, [model.plain(port)])
    if 3 <= rank <= 5 and places == list(range(2, rank)):
        x = model.last(node, port)
        out = model.layer(
            kind, node.name, config, [x], channels_last(after, True) if keep else after
        )
        return held(out, first=keep)
    if 0 in places:
        refuse(node, "it averages over the batch")
    mean = {"axis": places, "keepdims": keep}
    return model.op_of(node, (OPS, "Mean"), mean, [model.plain(port)])


def _write_adaptive_pool(model: Model, node: Node) -> Held:
    size = node.attrs["size"]
    x, shape, first = _input_channels_last(model, node)
    after, axes = channels_last(model.shape((node.name, 0)), first), len(size)
    word = "Max" if node.variant == "MAX" else "Average"
    config: dict[str, Any] = {"data_format": "channels_last"}
    if all(n == 1 for n in size) and axes <= 3:
        config["keepdims"] = True
        out = model.layer(f"Global{word}Pooling{axes}D", node.name, config, [x], after)
        return held(out, first)
    window = []
    for n, wanted in zip(shape[1:-1], size, strict=True):
        if not isinstance(n, int) or (wanted and n % wanted):
            refuse(node, "its size does not divide the length")
        window.append(n // wanted if wanted else 1)
    config |= {"pool_size": window, "strides": window, "padding": "valid"}
    return held(model.layer(f"{word}Pooling{axes}D", node.name, config, [x], after), first)


def read_padding(use: Use) -> Port:
    axes, shape = int(use.layer.kind[-2]), use.shape()
    pairs = _pairs_per_axis(use.config.get("padding", 1), axes)
    channels = channels_setting(use)
    lengths_of(shape, axes, channels)
    start = 1 if channels == "last" else 2
    every = [(0, 0)] * len(shape)
    every[start : start + axes] = pairs
    after = tuple(
        dim + sum(pair) if isinstance(dim, int) else (dim if not any(pair) else None)
        for dim, pair in zip(shape, every, strict=True)
    )
    # torch names the last axis first.
    amounts = [{"c": side} for pair in reversed(every[1:]) for side in pair]
    args = ({"n": 0}, {"l": amounts}, {"c": 0.0})
    return use.aten("constant_pad_nd.default", *args, shape=after)


def read_cropping(use: Use) -> Port:
    axes, channels = int(use.layer.kind[-2]), channels_setting(use)
    pairs = _pairs_per_axis(use.config.get("cropping", 1), axes)
    lengths_of(use.shape(), axes, channels)
    at, start = use.only_input, 1 if channels == "last" else 2
    for axis, (before, after) in enumerate(pairs, start):
        attrs: Mapping[str, Any] = {
            "kind": "slice",
            "axis": axis,
            "start": before,
            "end": -after or None,
        }
        word = f"axis{axis}" if axis < start + axes - 1 else ""
        at = use.add("RESHAPE", None, attrs, inputs=[at], word=word)
    return at


def _pairs_per_axis(value: Any, axes: int) -> list[tuple[int, int]]:
    if axes == 1 and isinstance(value, list) and len(value) == 2 and all(map(whole, value)):
        value = [value]
    items = [value] * axes if whole(value) else value
    found = []
    for item in items if isinstance(items, list) else []:
        pair = dims([item, item] if whole(item) else item)
        if pair is not None and len(pair) == 2 and None not in pair:
            found.append((pair[0] or 0, pair[1] or 0))
    if len(found) != axes:
        raise Unsayable(f"the amount is {value!r:.40}")
    return found


def read_upsampling(use: Use) -> Port:
    axes, shape = int(use.layer.kind[-2]), use.shape()
    channels = channels_setting(use) if axes > 1 else "last"
    interpolation = use.config.get("interpolation", "nearest")
    if interpolation not in ("nearest", "bilinear"):
        # Backends of Keras disagree about the curve of cubes.
        raise Unsayable(f"its interpolation is {interpolation!r:.40}")
    size = per_axis(use.config.get("size", 2), axes, "size")
    lengths_of(shape, axes, channels)
    at, start = use.only_input, 1 if channels == "last" else 2
    if interpolation == "bilinear":
        return _bilinear(use, size, channels)
    for axis, times in enumerate(size, start):
        # The last one bears the name of the layer.
        word = f"axis{axis}" if axis < start + axes - 1 else ""
        length = shape[axis]
        longer = length * times if isinstance(length, int) else None
        shape = (*shape[:axis], longer, *shape[axis + 1 :])
        args = ({"n": 0}, {"c": times}, {"c": axis})
        at = use.aten("repeat_interleave.self_int", *args, shape=shape, inputs=[at], word=word)
    return at


def _bilinear(use: Use, size: Sequence[int], channels: str) -> Port:
    """torch's bilinear upsampling, which has the channels first."""
    at, shape = use.only_input, use.shape()
    if channels == "last":
        turn = {"kind": "permute", "axes": (0, 3, 1, 2)}
        at = use.add("RESHAPE", None, turn, word="channels_first")
        shape = (shape[0], shape[3], *shape[1:3])
    sides = [
        length * times if isinstance(length, int) else None
        for length, times in zip(shape[2:], size, strict=True)
    ]
    factors = {"l": [{"c": float(times)} for times in size]}
    args = ({"n": 0}, {"c": None}, {"c": False}, factors)
    after = (*shape[:2], *sides)
    last, name = channels == "last", "upsample_bilinear2d.vec"
    at = use.aten(name, *args, shape=after, inputs=[at], word="scaled" if last else "")
    back = {"kind": "permute", "axes": (0, 2, 3, 1)}
    return use.add("RESHAPE", None, back, inputs=[at]) if last else at


UPSAMPLINGS = {
    **{f"upsample_nearest{axes}d.vec": "nearest" for axes in (1, 2, 3)},
    "upsample_bilinear2d.vec": "bilinear",
}


def write_upsample(model: Model, node: Node, interpolation: str, args: Sequence[Any]) -> Held:
    """Whole factors, between which is the nearest neighbour or a straight line."""
    if interpolation == "bilinear" and (len(args) != 3 or args[1] != {"c": False}):
        refuse(node, "its corners are aligned")
    last = args[-1].get("l") if args else None
    factors = [item.get("c") for item in last] if isinstance(last, list) else []
    if not factors or any(factor not in range(1, 1 << 20) for factor in factors):
        refuse(node, "it does not repeat entries a whole number of times")
    x = model.last(node, node.inputs[0])
    size: Any = [int(factor) for factor in factors]
    config: dict[str, Any] = {"size": size if len(size) > 1 else size[0]}
    if len(size) > 1:
        config["data_format"] = "channels_last"
        config |= {"interpolation": interpolation} if len(size) == 2 else {}
    after = channels_last(model.shape((node.name, 0)), True)
    kind = f"UpSampling{len(size)}D"
    return Held(last=model.layer(kind, node.name, config, [x], after))


READERS: Mapping[str, Convert] = {
    **{f"Conv{axes}D": read_conv for axes in (1, 2, 3)},
    **{f"DepthwiseConv{axes}D": read_conv for axes in (1, 2)},
    **{f"SeparableConv{axes}D": read_separable for axes in (1, 2)},
    **{f"Conv{axes}DTranspose": read_deconv for axes in (1, 2, 3)},
    **{f"{kind}Pooling{axes}D": read_pool for kind in ("Max", "Average") for axes in (1, 2, 3)},
    **{
        f"Global{kind}Pooling{axes}D": read_global_pool
        for kind in ("Max", "Average")
        for axes in (1, 2, 3)
    },
    **{f"ZeroPadding{axes}D": read_padding for axes in (1, 2, 3)},
    **{f"Cropping{axes}D": read_cropping for axes in (1, 2, 3)},
    **{f"UpSampling{axes}D": read_upsampling for axes in (1, 2, 3)},
}
WRITERS: Mapping[str, Write] = {"CONV": write_conv, "DECONV": write_deconv, "POOL": write_pool}
