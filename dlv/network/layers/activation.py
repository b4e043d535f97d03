"""RELU, ACT, SOFTMAX and DROPOUT: one value in, one value out, along every axis but one."""

from __future__ import annotations

from dlv.network.graph import Node
from dlv.network.layers.layer import Elementwise, Layer, Shapes
from dlv.network.sizes import Shape, axis_of


class Relu(Elementwise):
    op = "RELU"


class Act(Elementwise):
    op = "ACT"


class Dropout(Elementwise):
    op = "DROPOUT"


class Softmax(Elementwise):
    op = "SOFTMAX"

    def shape(self, node: Node, inputs: Shapes) -> tuple[Shape | None, ...]:
        if inputs[0]:
            axis_of(node.attrs["axis"], len(inputs[0]), "axis")
        return (inputs[0],)


class Loss(Layer):
    op = "LOSS"

    def shape(self, node: Node, inputs: Shapes) -> tuple[Shape | None, ...]:  # noqa: ARG002
        return ((),)


class Placeholder(Layer):
    """INPUT: a node that stands for what a cut-off part would have given."""

    op = "INPUT"

    def shape(self, node: Node, inputs: Shapes) -> tuple[Shape | None, ...]:  # noqa: ARG002
        shape: Shape = node.attrs["shape"]
        return (shape,)


class Raw(Layer):
    """OP: an operation outside the vocabulary, known by its recorded shape alone."""

    op = "OP"

    def ports(self, node: Node) -> int | None:  # noqa: ARG002
        return None

    def slots(self, node: Node) -> None:  # noqa: ARG002
        return None

    def shape(self, node: Node, inputs: Shapes) -> tuple[Shape | None, ...]:  # noqa: ARG002
        return (node.out_shape,)

    def flops(self, node: Node, inputs: Shapes, outputs: Shapes) -> int | None:  # noqa: ARG002
        return None
