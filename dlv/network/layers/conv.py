"""CONV and DECONV: convolutions over any number of spatial axes."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from dlv.network.graph import Node
from dlv.network.layers.layer import Layer, Shapes, with_rank
from dlv.network.sizes import Dim, Shape, ShapeError, elements, text, transposed, window


def spatial(shape: Shape, axes: int, channels: str, what: str) -> tuple[Dim, Dim, Shape]:
    """Batch, channels and the spatial axes of a feature map."""
    with_rank(shape, axes + 2, what)
    if channels == "last":
        return shape[0], shape[-1], shape[1:-1]
    return shape[0], shape[1], shape[2:]


def feature_map(batch: Dim, depth: Dim, lengths: Shape, channels: str) -> Shape:
    return (batch, *lengths, depth) if channels == "last" else (batch, depth, *lengths)


class Conv(Layer):
    op = "CONV"

    def faults(self, node: Node) -> list[str]:
        out, groups = node.attrs["out"], node.attrs["groups"]
        return [f"groups {groups} does not divide out {out}"] if groups > 0 and out % groups else []

    def shape(self, node: Node, inputs: Shapes) -> tuple[Shape | None, ...]:
        if inputs[0] is None:
            return (None,)
        attrs = node.attrs
        batch, depth, lengths = spatial(inputs[0], len(attrs["kernel"]), attrs["channels"], node.op)
        if isinstance(depth, int) and depth % attrs["groups"]:
            raise ShapeError(
                f"groups {attrs['groups']} does not divide the channels",
                seen=text(inputs[0]),
                wanted=f"a multiple of {attrs['groups']} channels",
            )
        if attrs["layout"] == "depthwise" and isinstance(depth, int) and depth != attrs["groups"]:
            raise ShapeError(
                "a depthwise kernel has one group for each channel",
                seen=f"{attrs['groups']} groups, {text(inputs[0])}",
                wanted=f"{depth} groups",
            )
        return (feature_map(batch, attrs["out"], self._lengths(node, lengths), attrs["channels"]),)

    def _lengths(self, node: Node, lengths: Shape) -> Shape:
        attrs = node.attrs
        return tuple(
            window(length, kernel, stride, pad, dilation, False)
            for length, kernel, stride, pad, dilation in zip(
                lengths,
                attrs["kernel"],
                attrs["stride"],
                attrs["pad"],
                attrs["dilation"],
                strict=True,
            )
        )

    def parameter_shapes(self, node: Node, inputs: Shapes) -> Mapping[str, Shape | None]:
        attrs = node.attrs
        depth: Dim = None
        if inputs and inputs[0] is not None:
            depth = spatial(inputs[0], len(attrs["kernel"]), attrs["channels"], node.op)[1]
        weight = self._weight(node, depth)
        return {"weight": weight, "bias": (attrs["out"],)} if attrs["bias"] else {"weight": weight}

    def _weight(self, node: Node, depth: Dim) -> Shape:
        attrs = node.attrs
        each = depth // attrs["groups"] if isinstance(depth, int) else None
        if attrs["layout"] == "depthwise":
            return (*attrs["kernel"], attrs["groups"], attrs["out"] // attrs["groups"])
        if attrs["layout"] == "kernel_first":
            return (*attrs["kernel"], each, attrs["out"])
        return (attrs["out"], each, *attrs["kernel"])

    def flops(self, node: Node, inputs: Shapes, outputs: Shapes) -> int | None:
        shape, positions, attrs = inputs[0], elements(outputs[0]), node.attrs
        if shape is None or positions is None:
            return None
        depth = spatial(shape, len(attrs["kernel"]), attrs["channels"], node.op)[1]
        if not isinstance(depth, int):
            return None
        each: int = (depth // attrs["groups"]) * prod(attrs["kernel"])
        return 2 * positions * each


class Deconv(Conv):
    op = "DECONV"

    def faults(self, node: Node) -> list[str]:
        attrs = node.attrs
        found = super().faults(node)
        for extra, stride, dilation in zip(
            attrs["output_pad"], attrs["stride"], attrs["dilation"], strict=True
        ):
            if extra >= max(stride, dilation):
                found.append(f"output_pad {extra} is not below stride {stride} or dilation")
        return found

    def _lengths(self, node: Node, lengths: Shape) -> Shape:
        attrs = node.attrs
        return tuple(
            transposed(length, kernel, stride, pad, dilation, extra)
            for length, kernel, stride, pad, dilation, extra in zip(
                lengths,
                attrs["kernel"],
                attrs["stride"],
                attrs["pad"],
                attrs["dilation"],
                attrs["output_pad"],
                strict=True,
            )
        )

    def _weight(self, node: Node, depth: Dim) -> Shape:
        attrs = node.attrs
        each = attrs["out"] // attrs["groups"]
        if attrs["layout"] == "kernel_first":
            return (*attrs["kernel"], each, depth)
        return (depth, each, *attrs["kernel"])

    def flops(self, node: Node, inputs: Shapes, outputs: Shapes) -> int | None:  # noqa: ARG002
        # Every input element is multiplied with a whole kernel of its group.
        count = elements(inputs[0])
        if count is None:
            return None
        attrs = node.attrs
        each: int = (attrs["out"] // attrs["groups"]) * prod(attrs["kernel"])
        return 2 * count * each
