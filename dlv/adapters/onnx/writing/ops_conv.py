"""CONV and DECONV as ONNX operators: channels first, kernels last, whatever is stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlv.adapters.onnx.graph import Graph, Item, Value
from dlv.network.graph import Node


def channels_first(g: Graph, x: Value, axes: int) -> Value:
    return g.transpose(x, (0, axes + 1, *range(1, axes + 1)))


def channels_last(g: Graph, x: Value, axes: int) -> Value:
    return g.transpose(x, (0, *range(2, axes + 2), 1))


def pads(pairs: Sequence[tuple[int, int]]) -> list[int]:
    """All that comes before, then all that comes behind."""
    return [before for before, _ in pairs] + [after for _, after in pairs]


def conv(g: Graph, node: Node, inputs: Sequence[Item]) -> Value:
    x, weight, bias = _given(g, node, inputs)
    made = g.op("Conv", [x, weight, bias], _attributes(node, node.attrs["pad"]), shape=None)
    return _laid_out(g, node, made)


def deconv(g: Graph, node: Node, inputs: Sequence[Item]) -> Value:
    x, weight, bias = _given(g, node, inputs)
    pad, extra = list(node.attrs["pad"]), list(node.attrs["output_pad"])
    for axis, (stride, (before, after)) in enumerate(zip(node.attrs["stride"], pad, strict=True)):
        # Where dilation allows more than runtimes take, less is cut off instead.
        if extra[axis] >= stride:
            kept = min(extra[axis], after)
            pad[axis], extra[axis] = (before, after - kept), extra[axis] - kept
    attrs = _attributes(node, pad)
    edge = [more if more >= at else 0 for more, at in zip(extra, node.attrs["stride"], strict=True)]
    attrs["output_padding"] = [more - left for more, left in zip(extra, edge, strict=True)]
    if not any(edge):
        return _laid_out(g, node, g.op("ConvTranspose", [x, weight, bias], attrs, shape=None))
    # An edge that no kernel reaches: zeros, and the bias. Nothing is cut off before it is there.
    cut = [before if more else 0 for more, (before, _) in zip(edge, pad, strict=True)]
    held = [(before - less, after) for less, (before, after) in zip(cut, pad, strict=True)]
    attrs["pads"] = pads(held)
    made = g.op("ConvTranspose", [x, weight], attrs, shape=None)
    sides = [(-less, more) for less, more in zip(cut, edge, strict=True)]
    amounts = g.ints(*pads([(0, 0), (0, 0), *sides]))
    made = g.op("Pad", [made, amounts], shape=None)
    if bias is not None:
        made = g.op("Add", [made, g.unsqueeze(bias, *range(1, len(pad) + 1))], shape=None)
    return _laid_out(g, node, made)


def _given(g: Graph, node: Node, inputs: Sequence[Item]) -> tuple[Value, Value, Value | None]:
    attrs, x = node.attrs, g.value(inputs[0])
    axes = len(attrs["kernel"])
    weight = g.weight(node, "weight", x.dtype)
    if attrs["layout"] == "depthwise":
        weight = g.transpose(weight, (axes, axes + 1, *range(axes)))
        weight = g.reshape(weight, [attrs["out"], 1, *attrs["kernel"]])
    elif attrs["layout"] == "kernel_first":
        weight = g.transpose(weight, (axes + 1, axes, *range(axes)))
    bias = g.weight(node, "bias", x.dtype) if attrs["bias"] else None
    return channels_first(g, x, axes) if attrs["channels"] == "last" else x, weight, bias


def _attributes(node: Node, pad: Sequence[tuple[int, int]]) -> dict[str, Any]:
    attrs = node.attrs
    return {
        "kernel_shape": list(attrs["kernel"]),
        "strides": list(attrs["stride"]),
        "pads": pads(pad),
        "dilations": list(attrs["dilation"]),
        "group": attrs["groups"],
    }


def _laid_out(g: Graph, node: Node, made: Value) -> Value:
    last = node.attrs["channels"] == "last"
    return channels_last(g, made, len(node.attrs["kernel"])) if last else made
