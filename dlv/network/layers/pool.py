"""POOL: largest or mean value of windows, and means over whole axes."""

from __future__ import annotations

from dlv.network.graph import Node
from dlv.network.layers.conv import feature_map, spatial
from dlv.network.layers.layer import Layer, Shapes
from dlv.network.sizes import Shape, axis_of, window


class Pool(Layer):
    op = "POOL"

    def ports(self, node: Node) -> int | None:
        # The positions of the largest values are a second output.
        return 2 if node.variant == "MAX" else 1

    def faults(self, node: Node) -> list[str]:
        attrs = node.attrs
        if attrs.get("kernel") is None:
            return []
        return [
            f"pad {before, after} is not below the window of {dilation * (kernel - 1) + 1}"
            for kernel, (before, after), dilation in zip(
                attrs["kernel"], attrs["pad"], attrs["dilation"], strict=True
            )
            if max(before, after) > dilation * (kernel - 1)
        ]

    def shape(self, node: Node, inputs: Shapes) -> tuple[Shape | None, ...]:
        result: Shape | None = None
        if inputs[0] is not None:
            pool = self._mean if node.variant == "MEAN" else self._windows
            result = pool(node, inputs[0])
        return (result,) * (self.ports(node) or 1)

    def _mean(self, node: Node, shape: Shape) -> Shape:
        axis, rank = node.attrs["axis"], len(shape)
        gone = set(range(rank)) if axis is None else {axis_of(a, rank, "axis") for a in axis}
        if node.attrs["keep"]:
            return tuple(1 if place in gone else dim for place, dim in enumerate(shape))
        return tuple(dim for place, dim in enumerate(shape) if place not in gone)

    def _windows(self, node: Node, shape: Shape) -> Shape:
        attrs = node.attrs
        size = attrs["size"]
        axes = len(attrs["kernel"] if size is None else size)
        batch, depth, lengths = spatial(shape, axes, attrs["channels"], node.op)
        if size is not None:
            lengths = tuple(
                length if wanted is None else wanted
                for length, wanted in zip(lengths, size, strict=True)
            )
        else:
            lengths = tuple(
                window(length, kernel, stride, pad, dilation, attrs["ceil"])
                for length, kernel, stride, pad, dilation in zip(
                    lengths,
                    attrs["kernel"],
                    attrs["stride"],
                    attrs["pad"],
                    attrs["dilation"],
                    strict=True,
                )
            )
        return feature_map(batch, depth, lengths, attrs["channels"])
