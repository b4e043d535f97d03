"""NORM: batch, layer, root mean square, group, instance and local response normalisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dlv.kinds import Array
from dlv.network.fields import Kind
from dlv.network.ops.axes import Attrs, Axes, PortAxes, named_axis
from dlv.network.ops.op import Attribute, Elementwise, Node, NoRule, NotRunnable, Run, Shapes, Slot
from dlv.network.sizes import Shape, ShapeError, axis_of, text

if TYPE_CHECKING:
    from dlv.network.bounds.ball import Ball, BallRun

Params = Mapping[str, "Array"]
_STATISTICS = ("BATCH", "INSTANCE")
_SCALED = ("BATCH", "LAYER", "RMS", "GROUP", "INSTANCE")
_SHIFTED = ("BATCH", "LAYER", "GROUP", "INSTANCE")
_TO_THE_LAST = ("LAYER", "RMS")  # over all axes from `axis` on
_FRESH = ("BATCH", "LAYER", "GROUP")


class Norm(Elementwise):
    name = "NORM"
    variants = ("BATCH", "LAYER", "RMS", "GROUP", "INSTANCE", "LRN")
    attributes = (
        Attribute("eps", Kind.FLOAT, 1e-5, minimum=0, variants=_SHIFTED),
        # RMS without eps: the rounding unit of the dtype at hand.
        Attribute("eps", Kind.FLOAT, None, nullable=True, minimum=0, variants=("RMS",)),
        Attribute("axis", Kind.INT, 1, variants=("BATCH", "GROUP", "INSTANCE", "LRN")),
        # The first of the normalised axes, which reach to the last one.
        Attribute("axis", Kind.INT, -1, variants=_TO_THE_LAST),
        Attribute("groups", Kind.INT, minimum=1, variants=("GROUP",)),
        Attribute("momentum", Kind.FLOAT, 0.1, nullable=True, variants=_STATISTICS),
        Attribute("size", Kind.INT, 5, minimum=1, variants=("LRN",)),
        Attribute("alpha", Kind.FLOAT, 1e-4, variants=("LRN",)),
        Attribute("beta", Kind.FLOAT, 0.75, variants=("LRN",)),
        Attribute("k", Kind.FLOAT, 1.0, variants=("LRN",)),
    )
    slots = (
        Slot("weight", "optional", variants=_SCALED, fresh=(*_FRESH, "RMS")),
        Slot("bias", "optional", variants=_SHIFTED, fresh=_FRESH),
        Slot("running_mean", "optional", buffer=True, variants=_STATISTICS, fresh=("BATCH",)),
        Slot("running_var", "optional", buffer=True, variants=_STATISTICS, fresh=("BATCH",)),
    )
    one_dtype = False
    source_has_lengths = True
    optional_tensors = True

    def batch_statistics(self, node: Node) -> bool:
        return node.variant == "BATCH"

    def faults(self, node: Node) -> list[str]:
        if ("running_mean" in node.params) != ("running_var" in node.params):
            return ["running_mean and running_var require each other"]
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
            end = None if node.variant in _TO_THE_LAST else axis + 1
            wanted = inputs[0][axis:end]
        known = self.slots_of(node.variant, node.attrs)
        return {slot.name: wanted for slot in known if slot.name in node.params}

    def parameter_axes(self, node: Node, inputs: PortAxes, outputs: PortAxes) -> dict[str, Axes]:
        first = inputs[0] if inputs else None
        if first is None:
            return {}
        place = node.attrs["axis"] % len(first)
        end = len(first) if node.variant in _TO_THE_LAST else place + 1
        return {slot: tuple(first[place:end]) for slot in node.params}

    def turned(self, variant: str | None) -> bool:
        return variant not in _TO_THE_LAST

    def initial(self, node: Node, slot: str, shape: Sequence[int]) -> tuple[str, int]:
        return ("one" if slot in ("weight", "running_var") else "zero"), 0

    def comparable(
        self, node: Node, attrs: Attrs, inputs: PortAxes, outputs: PortAxes
    ) -> tuple[str | None, Attrs]:
        if inputs and inputs[0] is not None:
            onwards = node.variant in _TO_THE_LAST
            attrs["axis"] = named_axis(inputs[0], attrs["axis"], onwards)
        return node.variant, attrs

    def forward(self, node: Node, run: Run) -> tuple[Array, ...]:
        x, variant = run.inputs[0], node.variant
        axis = axis_of(node.attrs["axis"], x.ndim, "axis")
        if variant == "LRN":
            return (local_response(node, x, axis),)
        if "running_mean" in run.params:
            scale, shift = affine(node, run.params, x.ndim, axis)
            return (x * scale + shift,)
        import dlv.network.ops.standardised as standardised

        if variant in _TO_THE_LAST:
            import numpy as np

            eps = node.attrs["eps"]
            eps = float(np.finfo(x.dtype).eps) if eps is None else eps
            axes = tuple(range(axis, x.ndim))
            made = standardised.values(x, axes, eps, mean=variant == "LAYER")
            return (_scaled(made, run.params),)
        if variant == "BATCH":
            axes = tuple(place for place in range(x.ndim) if place != axis)
            made = standardised.values(x, axes, node.attrs["eps"])
            return (_scaled(made, _along(run.params, x.ndim, axis)),)
        grouped = _grouped(node, x, axis)
        made = standardised.values(grouped, (2,), node.attrs["eps"])
        made = _ungrouped(made, x.shape, axis)
        return (_scaled(made, _along(run.params, x.ndim, axis)),)

    def bounds(self, node: Node, run: BallRun) -> tuple[Ball, ...]:
        ball, variant = run.inputs[0], node.variant
        x = ball.centre
        axis = axis_of(node.attrs["axis"], x.ndim, "axis")
        if variant == "LRN":
            return (_local_bounds(node, ball, axis, run),)
        if "running_mean" in run.params:
            return (_affine_bounds(node, ball, axis, run),)
        if variant == "BATCH" or not axis:
            raise NoRule(node, "it takes its statistics from the batch")
        import dlv.network.ops.standardised as standardised

        eps = node.attrs["eps"]
        if variant in _TO_THE_LAST:
            # Without a number it is the unit of the precision at hand: that of the reference.
            eps = 2 * run.reference.unit if eps is None else eps
            gain, bias = (run.params.get(slot) for slot in ("weight", "bias"))
            mean = variant == "LAYER"
            return (standardised.bounds(ball, axis, eps, gain, bias, run.reference, mean=mean),)
        import numpy as np

        import dlv.network.bounds.grains as grains

        turned = grains.carried(
            ball,
            lambda a: _grouped(node, a, axis),
            lambda grid: _grouped_grids(node, grid, x.shape, axis),
        )
        channels = _along(run.params, x.ndim, axis)
        full = {slot: np.broadcast_to(each, (1, *x.shape[1:])) for slot, each in channels.items()}
        gain, bias = (
            _grouped(node, full[slot], axis) if slot in full else None
            for slot in ("weight", "bias")
        )
        made = standardised.bounds(turned, 2, eps, gain, bias, run.reference)
        return (
            grains.carried(
                made,
                lambda a: _ungrouped(a, x.shape, axis),
                lambda grid: _ungrouped_grids(node, grid, x.shape, axis),
            ),
        )


def affine(node: Node, params: Params, rank: int, axis: int) -> tuple[Array, Array]:
    """Kept statistics as one factor and one summand per channel."""
    import numpy as np

    found = _along(params, rank, axis)
    scale = 1 / np.sqrt(found["running_var"] + node.attrs["eps"])
    scale = scale * found["weight"] if "weight" in found else scale
    shift = -found["running_mean"] * scale
    return scale, shift + found["bias"] if "bias" in found else shift


def _along(params: Params, rank: int, axis: int) -> dict[str, Array]:
    shape = [-1 if place == axis else 1 for place in range(rank)]
    return {slot: value.reshape(shape) for slot, value in params.items()}


def _scaled(x: Array, params: Params) -> Array:
    x = x * params["weight"] if "weight" in params else x
    return x + params["bias"] if "bias" in params else x


def _groups(node: Node, channels: int) -> int:
    return channels if node.variant == "INSTANCE" else int(node.attrs["groups"])


def _grouped(node: Node, x: Array, axis: int) -> Array:
    """Batch, groups, and all that is normalised together."""
    if axis == 0 or x.ndim < 2:
        raise NotRunnable(node, "its channels are the axis of the batch")
    import numpy as np

    return np.moveaxis(x, axis, 1).reshape(x.shape[0], _groups(node, x.shape[axis]), -1)


def _ungrouped(x: Array, shape: tuple[int, ...], axis: int) -> Array:
    import numpy as np

    return np.moveaxis(x.reshape(_moved(shape, axis)), 1, axis)


def _moved(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    rest = [length for place, length in enumerate(shape) if place not in (0, axis)]
    return (shape[0], shape[axis], *rest)


def _grouped_grids(node: Node, grid: Array, shape: tuple[int, ...], axis: int) -> list[Array]:
    import numpy as np

    import dlv.network.bounds.grains as grains

    old, groups = _moved(shape, axis), _groups(node, shape[axis])
    new = (shape[0], groups, grains.count(old, 1) // groups)
    return grains.reshaped(np.moveaxis(grid, axis, 1), old, new)


def _ungrouped_grids(node: Node, grid: Array, shape: tuple[int, ...], axis: int) -> list[Array]:
    import numpy as np

    import dlv.network.bounds.grains as grains

    new, groups = _moved(shape, axis), _groups(node, shape[axis])
    old = (shape[0], groups, grains.count(new, 1) // groups)
    return [np.moveaxis(each, 1, axis) for each in grains.reshaped(grid, old, new)]


def _affine_bounds(node: Node, ball: Ball, axis: int, run: BallRun) -> Ball:
    if run.reference.tiny:
        raise NoRule(node, "batch normalization may be folded or not, and rounds differently")
    import numpy as np

    import dlv.network.bounds.grains as grains

    x = ball.centre
    scale, shift = affine(node, run.params, x.ndim, axis)
    along = _along(run.params, x.ndim, axis)
    # What is rounded: x s, mean s and the bias, whichever way they are put together.
    size = np.abs(x * scale) + np.abs(along["running_mean"] * scale)
    size = size + np.abs(along["bias"]) if "bias" in along else size
    found = []
    for lead, grid in grains.grains(ball):
        steepest = grains.most(np.broadcast_to(scale, x.shape), lead)
        reach = steepest * grid
        n = grains.count(x.shape, lead)
        rounding = grains.slip(run.reference, 10, grains.norm(size, lead), reach, n)
        found.append((reach + rounding) * grains.RAISED)
    return grains.settled(x * scale + shift, found, box=ball.box is not None)


def _window_sums(node: Node, x: Array, axis: int) -> Array:
    """Sums over neighbouring channels, as many before as torch takes."""
    import numpy as np

    size = node.attrs["size"]
    pads = [(0, 0)] * x.ndim
    pads[axis] = (size // 2, (size - 1) // 2)
    wide = np.moveaxis(np.pad(x, pads), axis, 0)
    length = x.shape[axis]
    total = wide[:length]
    for place in range(1, size):
        total = total + wide[place : place + length]
    return np.moveaxis(total, 0, axis)


def local_response(node: Node, x: Array, axis: int) -> Array:
    """x / (k + alpha * mean of squares of neighbouring channels) ** beta."""
    import numpy as np

    attrs = node.attrs
    mean = _window_sums(node, x * x, axis) * (attrs["alpha"] / attrs["size"])
    return np.asarray(x / (mean + attrs["k"]) ** attrs["beta"], x.dtype)


def _local_bounds(node: Node, ball: Ball, axis: int, run: BallRun) -> Ball:
    """Its derivative is a band: the diagonal, and size - 1 neighbours of at most beta E / (k + E).

    E bounds the mean of squares in the ball; d y_i / d x_j has 2 alpha / size |x_i x_j| in it,
    which is at most the sum of both squares.
    """
    attrs, x = node.attrs, ball.centre
    k, alpha, beta, size = attrs["k"], attrs["alpha"], attrs["beta"], attrs["size"]
    if not (k > 0 and alpha >= 0 and beta >= 0):
        raise NoRule(node, "its numbers allow a division by zero")
    if not axis:
        raise NoRule(node, "its channels are the axis of the batch")
    import numpy as np

    import dlv.network.bounds.grains as grains

    _, grid = grains.grains(ball)[0]
    near = np.sqrt(_window_sums(node, x * x, axis))
    energy = alpha / size * (near * grains.RAISED + grid) ** 2 * grains.RAISED
    least = k + alpha / size * np.maximum(near / grains.RAISED - grid, 0) ** 2
    falling = least**-beta * grains.RAISED
    steepest = grains.most(falling, 1) * max(1.0, 2 * beta - 1)
    steepest = steepest + (size - 1) * beta * grains.most(falling * energy / (k + energy), 1)
    flattest = k**-beta
    n = grains.count(x.shape, 1)
    terms = (size + 40) * (1 + beta)
    reached = flattest * (grains.norm(x, 1) + grid)
    rounding = grains.slip(run.reference, terms, reached, 0.0, n)
    # Squares that are flushed to zero are missing from sums that are k at least.
    rounding = rounding + beta * size * run.reference.tiny / k * reached
    return grains.settled(
        local_response(node, x, axis), [(steepest * grid + rounding) * grains.RAISED]
    )
