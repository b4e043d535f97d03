"""NORM: batch, layer, root mean square, group, instance and local response normalisation."""

from __future__ import annotations

from collections.abc import Mapping

from dlv.network.graph import Node
from dlv.network.layers.layer import Elementwise, Shapes
from dlv.network.sizes import Shape, ShapeError, axis_of, text


class Norm(Elementwise):
    op = "NORM"
    one_dtype = False

    def faults(self, node: Node) -> list[str]:
        if ("running_mean" in node.params) != ("running_var" in node.params):
            return ["running_mean and running_var go together"]
        return []

    def shape(self, node: Node, inputs: Shapes) -> tuple[Shape | None, ...]:
        shape = inputs[0]
        if shape is None:
            return (None,)
        axis = axis_of(node.attrs["axis"], len(shape), "axis")
        depth, groups = shape[axis], node.attrs.get("groups", 1)
        if isinstance(depth, int) and depth % groups:
            raise ShapeError(
                f"groups {groups} does not divide the channels",
                seen=text(shape),
                wanted=f"a multiple of {groups} channels",
            )
        return (shape,)

    def parameter_shapes(self, node: Node, inputs: Shapes) -> Mapping[str, Shape | None]:
        wanted: Shape | None = None
        if inputs and inputs[0] is not None:
            axis = axis_of(node.attrs["axis"], len(inputs[0]), "axis")
            end = None if node.variant in ("LAYER", "RMS") else axis + 1
            wanted = inputs[0][axis:end]
        return {slot.name: wanted for slot in self.slots(node) or () if slot.name in node.params}
