"""What every layer family says about its operations: shapes, cost, how to run, how to bound."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dlv.errors import UsageError
from dlv.kinds import Array
from dlv.network.graph import Node
from dlv.network.sizes import Shape, ShapeError, text
from dlv.network.vocabulary import OPS, Slot, slots

if TYPE_CHECKING:
    from dlv.network.bounds.ball import Ball, BallRun


Shapes = Sequence[Shape | None]


class NotRunnable(UsageError):
    """A node that dlv's own engine cannot run."""

    def __init__(self, node: Node, why: str, *, hint: str | None = None) -> None:
        super().__init__(f"node {title(node)} cannot be run", why=why, hint=hint)
        self.node = node


class NoRule(Exception):
    """An operation whose error dlv knows no bound for."""

    def __init__(self, node: Node, why: str = "no bound is known for it") -> None:
        super().__init__(f"{title(node)}: {why}")
        self.node = node
        self.why = why


def title(node: Node) -> str:
    """A node as messages call it."""
    return f"`{node.name}` ({node.op if node.variant is None else f'{node.op} {node.variant}'})"


@dataclass(frozen=True)
class Run:
    """What one node is run with. Arrays have the axes that the network says, batch first.

    They may lie in memory in any order. `params` has the filled slots only, as they are stored;
    `sizes`: what the symbols of the network's inputs stand for; `ports`: the outputs that
    something needs, the rest may be left out behind them.
    """

    inputs: Sequence[Array]
    params: Mapping[str, Array]
    sizes: Mapping[str, int]
    ports: Collection[int] = (0,)


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

    def forward(self, node: Node, run: Run) -> tuple[Array, ...]:  # noqa: ARG002
        """What the node computes when a model is tested, one array per port."""
        raise NotRunnable(node, "dlv has no numpy form of it", hint="dlv eval --engine torch")

    def bounds(self, node: Node, run: BallRun) -> tuple[Ball, ...]:  # noqa: ARG002
        """Balls that surely hold what the reference computes, one per port; NoRule."""
        raise NoRule(node)


class Elementwise(Layer):
    """An operation with one input whose output has the same shape."""

    def shape(self, node: Node, inputs: Shapes) -> tuple[Shape | None, ...]:  # noqa: ARG002
        return (inputs[0],)


def with_rank(shape: Shape, rank: int, what: str) -> Shape:
    if len(shape) != rank:
        raise ShapeError(f"{what} takes {rank} axes", seen=text(shape), wanted=f"{rank} axes")
    return shape
