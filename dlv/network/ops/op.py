"""What is true of an operator everywhere: attributes, slots, shapes, cost, how to run and bound."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

from dlv.dataclass import dataclass
from dlv.errors import UsageError
from dlv.kinds import Array
from dlv.network.fields import Kind
from dlv.network.ops.axes import Attrs, Axes, PortAxes
from dlv.network.sizes import Shape, ShapeError, text

if TYPE_CHECKING:
    from dlv.network.bounds.ball import Ball, BallRun, Form, Passed

Shapes = Sequence[Shape | None]
Port = tuple[str, int]  # a producer, and which of its outputs


@dataclass(frozen=True)
class Node:
    """One operation. `attrs` is complete and in normal form (`vocabulary.complete`).

    `inputs` are (producer, its output port); the position is this node's port. `params`
    maps slots to tensor names. `out_shape` is inferred (of port 0), but recorded for OP.
    """

    name: str
    op: str
    variant: str | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[Port, ...] = ()
    params: Mapping[str, str] = field(default_factory=dict)
    source: Mapping[str, Any] | None = None
    out_shape: Shape | None = None

    @property
    def plumbing(self) -> bool:
        """Whether the node moves tensors or asks their sizes, and is no layer."""
        return op_of(self).plumbing

    @property
    def picks(self) -> bool:
        """Whether the node takes one of several outputs of another one, and does nothing else."""
        return bool(self.inputs) and op_of(self).picks(self)

    @property
    def sizes_only(self) -> bool:
        """Whether what comes out depends on the shapes, not the values, of what goes in."""
        return op_of(self).sizes_only(self)


class Default(enum.Enum):
    """Defaults that are not values."""

    REQUIRED = "required"
    FROM_SLOTS = "from slots"  # true if a bias tensor is there


@dataclass(frozen=True)
class Attribute:
    """One attribute: what it holds, what stands for it when it is left out, what it may be."""

    name: str
    kind: Kind
    default: Any = Default.REQUIRED
    nullable: bool = False
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()  # empty: all
    unless: str | None = None  # null, and not required, where that attribute is given
    silent: bool = False  # stored where it is not the default alone: older networks lack it


BIAS = Attribute("bias", Kind.BOOL, Default.FROM_SLOTS)
CHANNELS = Attribute("channels", Kind.TEXT, "first", choices=("first", "last"))


@dataclass(frozen=True)
class Slot:
    """One parameter tensor; `when` is always, bias (the attribute says so) or optional.

    `fresh`: the variants in which a new node has an optional one.
    """

    name: str
    when: str = "always"
    buffer: bool = False
    variants: tuple[str, ...] = ()
    fresh: tuple[str, ...] = ()


WEIGHT_AND_BIAS = (Slot("weight"), Slot("bias", "bias"))


class NotRunnable(UsageError):
    """A node that dlv's own engine cannot run."""

    def __init__(self, node: Node, why: str, *, hint: str | None = None) -> None:
        super().__init__(f"layer {title(node)} cannot be run", why=why, hint=hint)
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
    something needs, the rest may be left out behind them; `dtype`: that of all floats.
    """

    inputs: Sequence[Array]
    params: Mapping[str, Array]
    sizes: Mapping[str, int]
    ports: Collection[int] = (0,)
    dtype: str = "float64"


class Op:
    """One operator: what is true of it wherever a node of it is met. Instances hold no state.

    A method gets the node and the shapes of its inputs, None where one is not known.
    Shapes that do not fit raise ShapeError.
    """

    name: ClassVar[str]
    inputs: ClassVar[tuple[int, int | None]] = (1, 1)  # least and most; None: any number
    variants: ClassVar[tuple[str, ...]] = ()
    attributes: ClassVar[tuple[Attribute, ...]] = ()
    slots: ClassVar[tuple[Slot, ...]] = ()
    # Attributes that nodes have besides, by the value of their attribute `kind`.
    kinds: ClassVar[Mapping[str, tuple[Attribute, ...]]] = {}

    # Outside the vocabulary: known by the recorded call and its shape alone.
    raw: ClassVar[bool] = False
    # Stands for a value that the user hands in.
    placeholder: ClassVar[bool] = False
    # Needed for its own sake, whether an output reads it or not.
    always_needed: ClassVar[bool] = False
    # Moves tensors or asks their sizes; no layer.
    plumbing: ClassVar[bool] = False
    # Its outputs are features of its own making, not those that it was given.
    makes_features: ClassVar[bool] = False
    # Its slot `weight` is a matrix, or filters: multiplied with the input, or looked up by row.
    matrix: ClassVar[bool] = False
    # Applies its matrix to the last axis, whatever axes stand before it.
    dense: ClassVar[bool] = False
    # Its weight is that of the convolution whose transpose it is.
    transposed: ClassVar[bool] = False
    # Its inputs behind the first are the states from which it starts.
    recurrent: ClassVar[bool] = False
    # Takes rows out of the matrix, by their numbers.
    lookup: ClassVar[bool] = False
    # Drops values at random in training, and does nothing after it.
    dropout: ClassVar[bool] = False
    # Turns scores along one axis into probabilities, or their logarithms; their order stays.
    gives_probabilities: ClassVar[bool] = False
    # Puts its inputs side by side along one axis.
    joins: ClassVar[bool] = False
    # The recorded call in `source` may name lengths of the input: void once its shape changes.
    source_has_lengths: ClassVar[bool] = False
    # Nodes of the same attributes may fill different slots, which a comparison has to list.
    optional_tensors: ClassVar[bool] = False
    # The order of its inputs does not matter.
    commutes: ClassVar[bool] = False
    # Whether weight and bias must have one dtype; normalisation may keep wider statistics.
    one_dtype: ClassVar[bool] = True

    @property
    def word(self) -> str:
        """The word that aliases of this operator begin with."""
        return self.name.lower()

    def attributes_of(self, variant: str | None, kind: str | None) -> Mapping[str, Attribute]:
        """The attributes of its nodes of that variant and kind, by name."""
        found = [each for each in self.attributes if not each.variants or variant in each.variants]
        return {each.name: each for each in (*found, *self.kinds.get(kind or "", ()))}

    def slots_of(self, variant: str | None, attrs: Mapping[str, Any]) -> tuple[Slot, ...]:
        """The parameter slots that such a node may have, in the order of its definition."""
        return tuple(slot for slot in self.slots if not slot.variants or variant in slot.variants)

    def fresh_slots(self, variant: str | None, attrs: Mapping[str, Any]) -> list[str]:
        """The slots in which a new node has a tensor."""
        return [
            slot.name
            for slot in self.slots_of(variant, attrs)
            if slot.when == "always"
            or (slot.when == "bias" and attrs.get("bias"))
            or (slot.when == "optional" and variant in slot.fresh)
        ]

    def arity(self, node: Node) -> tuple[int, int | None]:
        """Least and most inputs of the node."""
        return self.inputs

    def ports(self, node: Node) -> int | None:
        """Number of outputs; None if it is not known."""
        return 1

    def node_slots(self, node: Node) -> tuple[Slot, ...] | None:
        """Parameter slots of this node; None: any."""
        return self.slots_of(node.variant, node.attrs)

    def picks(self, node: Node) -> bool:
        """Whether it takes one of several outputs of the node before, and does nothing else."""
        return False

    def sizes_only(self, node: Node) -> bool:
        """Whether what comes out depends on the shapes, not the values, of what goes in."""
        return False

    def gives_number(self, node: Node) -> bool:
        """Whether a plain number comes out, no tensor."""
        return False

    def passes(self, node: Node) -> bool:
        """Whether the first input's numbers go out as they are when a model is tested."""
        return False

    def keeps_order(self, node: Node) -> bool:
        """Whether scores [batch, classes] keep their order, though not their values."""
        return False

    def within_loss(self, node: Node) -> str | None:
        """The loss that computes this activation of the scores itself."""
        return None

    def batch_statistics(self, node: Node) -> bool:
        """Whether it normalises by statistics of the batch, or by those kept from training."""
        return False

    def required(self, node: Node) -> frozenset[str]:
        """The slots that must be filled."""
        bias = node.attrs.get("bias", False)
        return frozenset(
            slot.name
            for slot in self.node_slots(node) or ()
            if slot.when == "always" or (slot.when == "bias" and bias)
        )

    def faults(self, node: Node) -> list[str]:
        """What is wrong with the attributes beyond the range of each alone."""
        return []

    def shape(self, node: Node, inputs: Shapes) -> tuple[Shape | None, ...]:
        """Output shapes, one per port."""
        raise NotImplementedError

    def parameter_shapes(self, node: Node, inputs: Shapes) -> Mapping[str, Shape | None]:
        """Shape of the tensor in each slot that the node fills or must fill."""
        return {}

    def output_axes(self, node: Node, port: int, inputs: PortAxes, shape: Shape) -> Axes | None:
        """What the axes of an output of that shape are made of; None where that is not known."""
        return None

    def parameter_axes(self, node: Node, inputs: PortAxes, outputs: PortAxes) -> dict[str, Axes]:
        """What the axes of the tensor in each slot are made of, where that is known."""
        return {}

    def following(self, node: Node, old: Shape, new: Shape) -> dict[str, Any]:
        """Attributes that said what the input's old shape was, as they are for the new one."""
        return {}

    def adopted(self, node: Node, slot: str, shape: Shape) -> dict[str, Any]:
        """The attributes with which the tensor in that slot has that shape."""
        return {}

    def habits(self, node: Node) -> Mapping[str, str]:
        """The layouts, by operator, that new nodes take over from this one."""
        return {}

    def turned(self, variant: str | None) -> bool:
        """Whether its attribute `axis` names the channels unless something else is said."""
        return False

    def initial(self, node: Node, slot: str, shape: Sequence[int]) -> tuple[str, int]:
        """How a new tensor begins: uniform, one or zero; for uniform the number of inputs."""
        if not slot.startswith("weight") or len(shape) < 2:
            return "zero", 0
        return "uniform", self.fan_in(node, shape)

    def fan_in(self, node: Node, shape: Sequence[int]) -> int:
        """How many numbers of a weight of that shape meet in one output."""
        return prod(shape[1:])

    def comparable(
        self, node: Node, attrs: Attrs, inputs: PortAxes, outputs: PortAxes
    ) -> tuple[str | None, Attrs]:
        """Variant and attributes, the same for nodes that do the same to what they read.

        `attrs`: the node's own, less those that only say how numbers are stored.
        """
        return node.variant, attrs

    def flops(self, node: Node, inputs: Shapes, outputs: Shapes) -> int | None:
        """Multiply-adds x 2 of a forward pass over these shapes; None if not known.

        Counted are the operations that multiply matrices; the rest is 0.
        """
        return 0

    def forward(self, node: Node, run: Run) -> tuple[Array, ...]:
        """What the node computes when a model is tested, one array per port."""
        raise NotRunnable(node, "dlv has no numpy form of it", hint="dlv eval --engine torch")

    def bounds(self, node: Node, run: BallRun) -> tuple[Ball, ...]:
        """Balls that surely hold what the reference computes, one per port; NoRule."""
        raise NoRule(node)

    def adjoint(self, node: Node, form: Form) -> Passed | None:
        """The forms in the inputs that one in the output becomes; None where there is no rule."""
        return None

    # Of the slot `weight`, where it is a matrix; layouts are known here alone.

    def weight_by_group(self, node: Node, weight: Array) -> Array:
        """The weight as (groups, out, in, taps), a transposed one as the other convolution's."""
        raise NotImplementedError

    def by_rows(self, node: Node, weight: Array) -> Array:
        """The weight of a dense operator as [out, in]."""
        raise NotImplementedError

    def along_out(self, node: Node, weight: Array, scale: Array) -> Array:
        """A number per output channel, shaped to be multiplied with the weight."""
        raise NotImplementedError

    def folds(self, node: Node) -> bool:
        """Whether one factor per output channel can be taken into its weight."""
        return False

    def row_axis(self, node: Node) -> str:
        """Which axis of the stored weight counts its outputs: first or last."""
        return "first"

    def map_lengths(self, node: Node, shape: Shape | None) -> tuple[int, ...] | None:
        """The lengths of the map that its windows slide over, if they are all known."""
        return None

    def most_windows(self, node: Node, shape: Shape | None) -> int | None:
        """The most windows that hold one place of a map of this size; None: not known."""
        return None

    def windows_anywhere(self, node: Node) -> int:
        """The most windows that hold one place of a map of any size."""
        return 1


class Elementwise(Op):
    """An operation with one input whose output has the same shape."""

    def output_axes(self, node: Node, port: int, inputs: PortAxes, shape: Shape) -> Axes | None:
        return inputs[0] if inputs else None

    def shape(self, node: Node, inputs: Shapes) -> tuple[Shape | None, ...]:
        return (inputs[0],)


def with_rank(shape: Shape, rank: int, label: str) -> Shape:
    if len(shape) != rank:
        raise ShapeError(f"{label} takes {rank} axes", seen=text(shape), wanted=f"{rank} axes")
    return shape


OPERATORS: dict[str, Op] = {}  # all of them by name, filled by `dlv.network.vocabulary`
_UNKNOWN = Op()


def op_of(node: Node) -> Op:
    """The operator of a node; of one that has no known name, one of which nothing is true."""
    return OPERATORS.get(node.op, _UNKNOWN)
