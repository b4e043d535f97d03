"""FULL and EMBED: a matrix applied to the last axis, and rows looked up in a matrix."""

from __future__ import annotations

from collections.abc import Mapping

from dlv.network.graph import Node
from dlv.network.layers.layer import Layer, Shapes
from dlv.network.sizes import Dim, Shape, ShapeError, elements


class Full(Layer):
    op = "FULL"

    def shape(self, node: Node, inputs: Shapes) -> tuple[Shape | None, ...]:
        if inputs[0] is None:
            return (None,)
        if not inputs[0]:
            raise ShapeError("FULL takes at least one axis", seen="scalar", wanted="one axis")
        return ((*inputs[0][:-1], node.attrs["out"]),)

    def parameter_shapes(self, node: Node, inputs: Shapes) -> Mapping[str, Shape | None]:
        attrs = node.attrs
        depth: Dim = inputs[0][-1] if inputs and inputs[0] else None
        out: Dim = attrs["out"]
        weight = (out, depth) if attrs["layout"] == "out_in" else (depth, out)
        return {"weight": weight, "bias": (out,)} if attrs["bias"] else {"weight": weight}

    def flops(self, node: Node, inputs: Shapes, outputs: Shapes) -> int | None:  # noqa: ARG002
        count = elements(inputs[0])
        return None if count is None else 2 * count * node.attrs["out"]


class Embed(Layer):
    op = "EMBED"

    def shape(self, node: Node, inputs: Shapes) -> tuple[Shape | None, ...]:
        return (None if inputs[0] is None else (*inputs[0], node.attrs["out"]),)

    def parameter_shapes(self, node: Node, inputs: Shapes) -> Mapping[str, Shape | None]:  # noqa: ARG002
        return {"weight": (node.attrs["rows"], node.attrs["out"])}
