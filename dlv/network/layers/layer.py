"""What every layer family says about its operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from dlv.network.graph import Node
from dlv.network.sizes import Shape, ShapeError, text
from dlv.network.vocabulary import OPS, Slot, slots

Shapes = Sequence[Shape | None]


class Layer:
    """One operation: shapes, parameters, cost. Its instances hold no state.

    A method gets the node and the shapes of its inputs, None where one is not known.
    Shapes that do not fit raise ShapeError.
    """

    op: ClassVar[str]
    # Whether weight and bias must have one dtype; normalisation may keep wider statistics.
    one_dtype: ClassVar[bool] = True

    def arity(self, node: Node) -> tuple[int, int | None]:
        """Least and most inputs."""
        return OPS[node.op].arity

    def ports(self, node: Node) -> int | None:  # noqa: ARG002
        """Number of outputs; None if it is not known."""
        return 1

    def slots(self, node: Node) -> tuple[Slot, ...] | None:
        """Parameter slots of this node; None: any."""
        return slots(node.op, node.variant, node.attrs)

    def required(self, node: Node) -> frozenset[str]:
        """The slots that must be filled."""
        bias = node.attrs.get("bias", False)
        return frozenset(
            slot.name
            for slot in self.slots(node) or ()
            if slot.when == "always" or (slot.when == "bias" and bias)
        )

    def faults(self, node: Node) -> list[str]:  # noqa: ARG002
        """What is wrong with the attributes beyond the range of each alone."""
        return []

    def shape(self, node: Node, inputs: Shapes) -> tuple[Shape | None, ...]:
        """Output shapes, one per port."""
        raise NotImplementedError

    def parameter_shapes(self, node: Node, inputs: Shapes) -> Mapping[str, Shape | None]:  # noqa: ARG002
        """Shape of the tensor in each slot that the node fills or must fill."""
        return {}

    def flops(self, node: Node, inputs: Shapes, outputs: Shapes) -> int | None:  # noqa: ARG002
        """Multiply-adds x 2 of a forward pass over these shapes; None if not known.

        Counted are the operations that multiply matrices; the rest is 0.
        """
        return 0


class Elementwise(Layer):
    """An operation with one input whose output has the same shape."""

    def shape(self, node: Node, inputs: Shapes) -> tuple[Shape | None, ...]:  # noqa: ARG002
        return (inputs[0],)


def with_rank(shape: Shape, rank: int, what: str) -> Shape:
    if len(shape) != rank:
        raise ShapeError(f"{what} takes {rank} axes", seen=text(shape), wanted=f"{rank} axes")
    return shape
