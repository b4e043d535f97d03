"""INPUT, LOSS and OP: what a network itself does not compute, or not in dlv's vocabulary."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from dlv.canonical import dumps
from dlv.kinds import Array
from dlv.network.fields import Kind
from dlv.network.ops.axes import Attrs, PortAxes
from dlv.network.ops.op import Attribute, Node, NoRule, NotRunnable, Op, Run, Shapes
from dlv.network.sizes import Shape

if TYPE_CHECKING:
    from dlv.network.bounds.ball import Ball, BallRun

# Recorded operations of which a plain number comes out, by how their names begin.
_NUMBERS = (
    *("operator.", "_operator.", "math.", "builtins.", "torch.sym_"),
    *("aten.sym_", "aten.item.", "aten._local_scalar_dense."),
)


# Layers of Keras that change the data of training alone.
_IN_TRAINING = frozenset(
    (
        *("RandomBrightness", "RandomContrast", "RandomFlip", "RandomRotation"),
        *("RandomTranslation", "RandomZoom", "GaussianNoise", "GaussianDropout", "AlphaDropout"),
        *("Dropout", "StochasticDepth"),  # the first with a shape of its noise
        *(f"SpatialDropout{axes}D" for axes in (1, 2, 3)),
    )
)


_LEAST = 1e-7  # deviation that Keras divides by


def standardising(node: Node) -> tuple[list[float], list[float]] | None:
    """Means and deviations of a Normalization of Keras that has them among its settings.

    They are subtracted from the last axis, and divide it; None for any other node.
    """
    source = node.source or {}
    if source.get("dialect") != "keras" or source.get("op") != "Normalization":
        return None
    try:
        config = json.loads(source["kwargs"]["config"]["c"])
        means, variances = (
            [float(x) for x in (value if isinstance(value, list) else [value])]
            for value in (config["mean"], config["variance"])
        )
        axis, invert = config.get("axis", -1), config.get("invert", False)
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    named = axis if isinstance(axis, list) else [axis]
    rank = len(node.out_shape or ())
    if named not in ([-1], [rank - 1]) or invert or len(node.inputs) != 1:
        return None
    if len(means) != len(variances) or not all(x >= 0 for x in variances):
        return None
    return means, [max(math.sqrt(x), _LEAST) for x in variances]


class Loss(Op):
    """LOSS: part of training, not of what a model answers."""

    name = "LOSS"
    inputs = (1, None)
    attributes = (Attribute("name", Kind.TEXT, ""),)
    always_needed = True

    def passes(self, node: Node) -> bool:
        return True

    def shape(self, node: Node, inputs: Shapes) -> tuple[Shape | None, ...]:
        return ((),)

    def forward(self, node: Node, run: Run) -> tuple[Array, ...]:
        raise NotRunnable(
            node,
            "a loss is part of training, not of what a model answers",
            hint="name another layer, or an output before the loss",
        )


class Placeholder(Op):
    """INPUT: a node that stands for what a cut-off part would have given."""

    name = "INPUT"
    inputs = (0, 0)
    attributes = (Attribute("shape", Kind.SHAPE), Attribute("dtype", Kind.DTYPE, "float32"))
    placeholder = True

    def shape(self, node: Node, inputs: Shapes) -> tuple[Shape | None, ...]:
        shape: Shape = node.attrs["shape"]
        return (shape,)


class Raw(Op):
    """OP: an operation outside the vocabulary, known by its recorded shape alone."""

    name = "OP"
    inputs = (0, None)
    variants = ("raw",)
    raw = True

    def passes(self, node: Node) -> bool:
        source = node.source or {}
        return (
            source.get("dialect") == "keras"
            and source.get("op") in _IN_TRAINING
            and len(node.inputs) == 1
        )

    def gives_number(self, node: Node) -> bool:
        called = (node.source or {}).get("op")
        return isinstance(called, str) and called.startswith(_NUMBERS)

    def comparable(
        self, node: Node, attrs: Attrs, inputs: PortAxes, outputs: PortAxes
    ) -> tuple[str | None, Attrs]:
        source = dict(node.source or {})
        call = dumps([source.get("args"), source.get("kwargs")])
        return source.get("op"), {"call": call}

    def ports(self, node: Node) -> int | None:
        return None

    def node_slots(self, node: Node) -> None:
        return None

    def shape(self, node: Node, inputs: Shapes) -> tuple[Shape | None, ...]:
        return (node.out_shape,)

    def flops(self, node: Node, inputs: Shapes, outputs: Shapes) -> int | None:
        return None

    def forward(self, node: Node, run: Run) -> tuple[Array, ...]:
        from dlv.network.calls import run_call

        if self.passes(node):
            return (run.inputs[0],)
        known = standardising(node)
        if known is None:
            return run_call(node, run)
        import numpy as np

        x = run.inputs[0]
        means, deviations = (np.asarray(each, x.dtype) for each in known)
        return ((x - means) / deviations,)

    def bounds(self, node: Node, run: BallRun) -> tuple[Ball, ...]:
        """Of places and flags, which no precision computes otherwise; of all else nothing."""
        import dlv.network.bounds.grains as grains
        from dlv.network.calls import exact, run_call

        if self.passes(node):
            return (run.inputs[0],)
        nothing = NoRule(node, "it is outside the vocabulary")
        if node.params or not all(
            grains.whole_numbers(run.inputs, ball.centre) for ball in run.inputs
        ):
            raise nothing
        whole_inputs = [
            ball.centre if ball.centre.dtype == bool else ball.centre.astype("int64")
            for ball in run.inputs
        ]
        if not exact(node, whole_inputs):
            raise nothing
        try:
            outputs = run_call(node, Run(whole_inputs, {}, run.sizes))
        except NotRunnable as error:
            raise nothing from error
        if not all(grains.whole_numbers(run.inputs, each) for each in outputs):
            raise nothing
        return tuple(map(grains.exact, outputs))
