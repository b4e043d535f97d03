"""Windows over spatial axes: what they are for Keras, pools, and layers that pad, cut or repeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dlv.adapters.keras.config import dims
from dlv.adapters.keras.graph import Convert, Use
from dlv.adapters.keras.masks import Mask
from dlv.adapters.keras.understood import Unsayable, flag
from dlv.network.fields import whole
from dlv.network.graph import Port
from dlv.network.sizes import Dim, Shape

MOST_SIDE = 1 << 31


def per_axis(value: Any, axes: int, what: str) -> tuple[int, ...]:
    """A number for each axis; Keras writes one number for all of them too."""
    items = [value] * axes if whole(value) else value
    right = isinstance(items, list) and len(items) == axes and all(map(whole, items))
    if right and all(0 <= item < MOST_SIDE for item in items):
        return tuple(items)
    raise Unsayable(f"{what} is {value!r:.40}")


def channels_of(use: Use) -> str:
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
        raise Unsayable("the number of its input's channels is not known")
    return depth


def pads(
    padding: Any,
    lengths: Shape,
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    *,
    causal: bool = False,
) -> list[tuple[int, int]]:
    """`same` puts the odd one behind; how much it is depends on the length and the stride."""
    found = []
    for n, k, s, d in zip(lengths, kernel, stride, dilation, strict=True):
        reach = d * (k - 1)
        if padding == "valid":
            found.append((0, 0))
        elif padding == "causal" and causal:
            found.append((reach, 0))
        elif padding == "same":
            total = same_pad(n, reach, s)
            found.append((total // 2, total - total // 2))
        else:
            raise Unsayable(f"padding is {padding!r:.40}")
    return found


def same_pad(length: Dim, reach: int, stride: int) -> int:
    if stride == 1:
        return reach
    if not isinstance(length, int) or not stride:
        raise Unsayable("padding 'same' with a stride, over an axis of unknown length")
    return max((-(-length // stride) - 1) * stride + reach + 1 - length, 0)


def pool(use: Use) -> Port:
    kind = use.layer.kind
    axes, channels = int(kind[-2]), channels_of(use)
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


def global_pool(use: Use) -> Port:
    kind = use.layer.kind
    axes, channels, keep = int(kind[-2]), channels_of(use), flag(use.config, "keepdims", False)
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
        raise Unsayable("the mask of its input is not known")
    kind: dict[str, Any] = {"kind": "to", "dtype": use.graph.dtype or "float32"}
    counts = use.add("RESHAPE", None, kind, inputs=[counts], word="counts")
    kind = {"kind": "unsqueeze", "axis": 2}
    counts = use.add("RESHAPE", None, kind, inputs=[counts], word="steps")
    held = use.add("MUL", inputs=[use.one, counts], word="counted")
    mean = {"axis": (1,), "keep": keep}
    pair = [
        use.add("POOL", "MEAN", mean, inputs=[port], word=word)
        for port, word in ((held, "mean"), (counts, "share"))
    ]
    shape = use.graph.shapes.get(pair[0])
    return use.aten("div.Tensor", {"n": 0}, {"n": 1}, shape=shape, inputs=pair)


def repeated(
    use: Use, shape: Shape, axis: int, times: int, at: Port, word: str
) -> tuple[Port, Shape]:
    """Every entry of an axis `times` over."""
    length = shape[axis]
    after = (*shape[:axis], length * times if isinstance(length, int) else None, *shape[axis + 1 :])
    args = ({"n": 0}, {"c": times}, {"c": axis})
    name = "repeat_interleave.self_int"
    return use.aten(name, *args, shape=after, inputs=[at], word=word), after


def upsampling(use: Use) -> Port:
    axes, shape = int(use.layer.kind[-2]), use.shape()
    channels = channels_of(use) if axes > 1 else "last"
    if use.config.get("interpolation", "nearest") != "nearest":
        raise Unsayable("it interpolates")
    size = per_axis(use.config.get("size", 2), axes, "size")
    lengths_of(shape, axes, channels)
    at, start = use.one, 1 if channels == "last" else 2
    for axis, times in enumerate(size, start):
        # The last one bears the name of the layer.
        word = f"axis{axis}" if axis < start + axes - 1 else ""
        at, shape = repeated(use, shape, axis, times, at, word)
    return at


def padding(use: Use) -> Port:
    axes, shape = int(use.layer.kind[-2]), use.shape()
    pairs = _pairs(use.config.get("padding", 1), axes)
    channels = channels_of(use)
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


def cropping(use: Use) -> Port:
    axes, channels = int(use.layer.kind[-2]), channels_of(use)
    pairs = _pairs(use.config.get("cropping", 1), axes)
    lengths_of(use.shape(), axes, channels)
    at, start = use.one, 1 if channels == "last" else 2
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


def _pairs(value: Any, axes: int) -> list[tuple[int, int]]:
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


WINDOWS: Mapping[str, Convert] = {
    **{f"{kind}Pooling{axes}D": pool for kind in ("Max", "Average") for axes in (1, 2, 3)},
    **{
        f"Global{kind}Pooling{axes}D": global_pool
        for kind in ("Max", "Average")
        for axes in (1, 2, 3)
    },
    **{f"ZeroPadding{axes}D": padding for axes in (1, 2, 3)},
    **{f"Cropping{axes}D": cropping for axes in (1, 2, 3)},
    **{f"UpSampling{axes}D": upsampling for axes in (1, 2, 3)},
}
