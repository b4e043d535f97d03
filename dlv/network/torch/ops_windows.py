"""Convolutions and pools in torch, over windows that it may not have."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from dlv.network.graph import Node
from dlv.network.torch.types import Call, Run, functional, refuse, torch

Pairs = Sequence[tuple[int, int]]


def channels_first(x: Any, channels: str) -> Any:
    if channels == "last" and x.shape[-1] == 1:
        # Moved, one channel keeps the stride 1, and float32 convolutions with a stride of their
        # own then read beside the map (torch 2.13 on a CPU).
        return x.squeeze(-1).unsqueeze(1)
    return x.movedim(-1, 1) if channels == "last" else x


def channels_back(x: Any, channels: str) -> Any:
    return x.movedim(1, -1) if channels == "last" else x


def _even(pad: Pairs) -> bool:
    return all(before == after for before, after in pad)


def _padded(x: Any, pad: Pairs, value: float = 0.0) -> Any:
    """torch names the last axis first."""
    return functional.pad(x, [side for pair in reversed(pad) for side in pair], value=value)


def _axes(node: Node, count: int) -> int:
    if not 1 <= count <= 3:
        raise refuse(node, f"torch has windows over 1 to 3 axes, not {count}")
    return count


def _weight(call: Call, layout: str, axes: int) -> Any:
    weight = call.param("weight")
    if layout == "depthwise":
        turned = weight.permute(axes, axes + 1, *range(axes))
        return turned.reshape(-1, 1, *turned.shape[2:])
    if layout == "kernel_first":
        return weight.permute(axes + 1, axes, *range(axes))
    return weight


def conv(node: Node) -> Run:
    attrs = node.attrs
    axes = _axes(node, len(attrs["kernel"]))
    function = getattr(functional, f"conv{axes}d")
    stride, dilation, groups = attrs["stride"], attrs["dilation"], attrs["groups"]
    pad, layout, channels = attrs["pad"], attrs["layout"], attrs["channels"]
    even = tuple(before for before, _ in pad) if _even(pad) else None

    def run(call: Call) -> Any:
        x = channels_first(call.inputs[0], channels)
        if even is None:
            x = _padded(x, pad)
        weight = _weight(call, layout, axes)
        x = function(x, weight, call.param("bias"), stride, even or 0, dilation, groups)
        return channels_back(x, channels)

    return run


def deconv(node: Node) -> Run:
    attrs = node.attrs
    axes = _axes(node, len(attrs["kernel"]))
    function = getattr(functional, f"conv_transpose{axes}d")
    stride, dilation, groups = attrs["stride"], attrs["dilation"], attrs["groups"]
    pad, layout, channels = attrs["pad"], attrs["layout"], attrs["channels"]
    extra = attrs["output_pad"]
    even = tuple(before for before, _ in pad) if _even(pad) else None

    def run(call: Call) -> Any:
        x = channels_first(call.inputs[0], channels)
        weight, bias = _weight(call, layout, axes), call.param("bias")
        x = function(x, weight, bias, stride, even or 0, extra, groups, dilation)
        if even is None:
            for place, (before, after) in enumerate(pad, 2):
                x = x.narrow(place, before, x.shape[place] - before - after)
        return channels_back(x, channels)

    return run


def pool(node: Node, *, positions: bool = False) -> Run:
    """POOL; with `positions`, those of the largest values are a second output."""
    attrs = node.attrs
    if node.variant == "MEAN":
        return _mean(attrs)
    largest, channels = node.variant == "MAX", attrs["channels"]
    if attrs["size"] is not None:
        inner = _adaptive(node, attrs["size"], largest, positions)
    elif largest:
        inner = _most(node, attrs, positions)
    else:
        inner = _average(node, attrs)

    def run(call: Call) -> Any:
        found = inner(channels_first(call.inputs[0], channels))
        if positions and largest:
            return tuple(channels_back(each, channels) for each in found)
        return channels_back(found, channels)

    return run


def _mean(attrs: Mapping[str, Any]) -> Run:
    axis, keep = attrs["axis"], attrs["keep"]

    def run(call: Call) -> Any:
        x = call.inputs[0]
        return x.mean(tuple(range(x.dim())) if axis is None else axis, keepdim=keep)

    return run


def _adaptive(node: Node, size: Sequence[int | None], largest: bool, positions: bool) -> Any:
    axes = _axes(node, len(size))
    name = f"adaptive_{'max' if largest else 'avg'}_pool{axes}d"
    function = getattr(functional, name)

    def run(x: Any) -> Any:
        wanted = [x.shape[place] if n is None else n for place, n in enumerate(size, 2)]
        options = {"return_indices": True} if positions and largest else {}
        return function(x, wanted, **options)

    return run


def _windows(x: Any, attrs: Mapping[str, Any]) -> list[Any]:
    """Output lengths; the last window never begins in the padding behind the input."""
    result = []
    rows = zip(
        x.shape[2:], attrs["kernel"], attrs["stride"], attrs["pad"], attrs["dilation"], strict=True
    )
    for length, kernel, stride, (before, after), dilation in rows:
        room = length + before + after - dilation * (kernel - 1) - 1
        count = -(-room // stride) + 1 if attrs["ceil"] else room // stride + 1
        if attrs["ceil"] and (count - 1) * stride >= length + before:
            count -= 1
        result.append(count)
    return result


def _cut(x: Any, lengths: Sequence[Any]) -> Any:
    for place, length in enumerate(lengths, 2):
        x = x.narrow(place, 0, length)
    return x


def _plain(attrs: Mapping[str, Any]) -> bool:
    """Whether torch itself pads so: evenly, and by half a kernel at most."""
    sides = zip(attrs["pad"], attrs["kernel"], strict=True)
    return _even(attrs["pad"]) and all(2 * pair[0] <= kernel for pair, kernel in sides)


def _most(node: Node, attrs: Mapping[str, Any], positions: bool) -> Any:
    axes = _axes(node, len(attrs["kernel"]))
    function = getattr(functional, f"max_pool{axes}d")
    kernel, stride, dilation = attrs["kernel"], attrs["stride"], attrs["dilation"]
    pad, ceil = attrs["pad"], attrs["ceil"]
    even = tuple(before for before, _ in pad)

    def plain(x: Any) -> Any:
        return function(x, kernel, stride, even, dilation, ceil, positions)

    def padded(x: Any) -> Any:
        wide = _padded(x, pad, -torch.inf)
        found = function(wide, kernel, stride, 0, dilation, ceil, positions)
        if not positions:
            return _cut(found, _windows(x, attrs))
        values, places = (_cut(each, _windows(x, attrs)) for each in found)
        return values, _without_padding(places, x.shape[2:], pad)

    return plain if _plain(attrs) else padded


def _without_padding(places: Any, lengths: Sequence[Any], pad: Pairs) -> Any:
    """Positions in a padded map as positions in the map itself."""
    result, scale = 0, 1
    for length, (before, after) in zip(reversed(lengths), reversed(pad), strict=True):
        wide = length + before + after
        result = result + (places % wide - before) * scale
        places, scale = places // wide, scale * length
    return result


def _average(node: Node, attrs: Mapping[str, Any]) -> Any:
    axes = _axes(node, len(attrs["kernel"]))
    function = getattr(functional, f"avg_pool{axes}d")
    kernel, stride = attrs["kernel"], attrs["stride"]
    even = tuple(before for before, _ in attrs["pad"])
    plain = _plain(attrs) and all(step == 1 for step in attrs["dilation"])

    def run(x: Any) -> Any:
        # avg_pool3d refuses a map smaller than the kernel, even if padding makes it large enough.
        if plain and (axes < 3 or all(map(operator.ge, x.shape[2:], kernel))):
            return function(x, kernel, stride, even, attrs["ceil"], attrs["count_pad"])
        return _weighed(x, attrs, getattr(functional, f"conv{axes}d"))

    return run


def _weighed(x: Any, attrs: Mapping[str, Any], convolve: Any) -> Any:
    """Sums over windows, divided by how many of their places count."""
    pad, lengths = attrs["pad"], _windows(x, attrs)
    ones = torch.ones((1, 1, *x.shape[2:]), dtype=x.dtype, device=x.device)
    counted = _padded(ones, pad, 1.0 if attrs["count_pad"] else 0.0)
    wide, options = _padded(x, pad), {"stride": attrs["stride"], "dilation": attrs["dilation"]}
    rows = zip(lengths, attrs["kernel"], attrs["stride"], attrs["dilation"], strict=True)
    # What a rounded-up last window reaches beyond the padding counts for nothing.
    missing = [
        max((count - 1) * stride + dilation * (kernel - 1) + 1 - wide.shape[place], 0)
        for place, (count, kernel, stride, dilation) in enumerate(rows, 2)
    ]
    beyond = [(0, length) for length in missing]
    kernel = torch.ones((1, 1, *attrs["kernel"]), dtype=x.dtype, device=x.device)
    batch, depth = x.shape[:2]
    flat = _padded(wide, beyond).flatten(0, 1).unsqueeze(1)
    sums = _cut(convolve(flat, kernel, **options), lengths)
    counts = _cut(convolve(_padded(counted, beyond), kernel, **options), lengths)
    return sums.unflatten(0, (batch, depth)).squeeze(2) / counts.clamp(min=1)
