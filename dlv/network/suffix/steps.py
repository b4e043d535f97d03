"""What single steps add to the suffix metric's sum, from one look at the numbers they take in."""

from __future__ import annotations

from math import prod, sqrt

import numpy as np

from dlv.dataclass import dataclass
from dlv.kinds import Array, Floats
from dlv.network.bounds.ball import UNIT, UP, Ball, BallRun, gamma, l2, root_of
from dlv.network.bounds.grains import largest
from dlv.network.ops.linear import Reach
from dlv.network.program import Step
from dlv.network.sizes import axis_of
from dlv.network.suffix.plan import window_of
from dlv.network.suffix.record import SuffixLevel, SuffixNode

_ROUNDED = 1e-9
_VANISHING = 2.0**-900  # of squares that are too small to be told from zero


@dataclass(frozen=True)
class Seen:
    """What a weight takes in: (rows, places, channels), and (rows, channels) sums of squares."""

    flat: Floats
    squares: Floats

    @classmethod
    def of(cls, step: Step, x: Array) -> Seen:
        attrs = step.node.attrs
        if step.node.op == "CONV" and attrs["channels"] == "first":
            x = np.moveaxis(x, 1, -1)
        flat = x.reshape(len(x), -1, x.shape[-1])
        squares = flat * flat
        if flat.shape[1] == 1:
            return cls(flat, squares[:, 0])
        # A product with ones is the fastest way to sum over the middle axis.
        return cls(flat, np.matmul(np.ones((1, flat.shape[1])), squares)[:, 0])

    def reach(self, step: Step, centre: Array) -> Reach:
        node, channels = step.node, self.flat.shape[-1]
        size = root_of(self.squares.sum(axis=1), self.flat[:1].size)
        outputs = centre[:1].size
        overlap, terms = 1, channels
        if node.op == "CONV":
            window = window_of(node)
            overlap = window.overlap()
            terms = prod(window.kernel) * channels // node.attrs["groups"]
        patches = size * sqrt(overlap) * UP
        return Reach(terms, outputs // node.attrs["out"], outputs, overlap, patches, size)

    def share(self, node: SuffixNode, level: SuffixLevel | None) -> Floats | float:
        """sqrt(e^H M e) at most, of what is not read of the weight."""
        if level is None:
            return np.inf
        rank = 0 if level.correction is None else level.correction.rank
        size, along = self.split(node, rank)
        found: Floats = (level.dn * size + level.rest * along) * UP
        return found

    def split(self, node: SuffixNode, rank: int) -> tuple[Floats, Floats]:
        """||y - Q^T c|| and ||c|| of each row, with y = A x and c = Q y; rounded up."""
        flat, scale = self.flat, node.scale
        squares: Floats = self.squares @ scale**2
        lost = flat[:1].size * _VANISHING * float(scale.max()) ** 2
        if not rank:
            return np.sqrt(squares * UP + lost) * UP, np.zeros(len(flat))
        usual = node.usual[:rank]
        c = flat @ (usual * scale).T
        pairs = np.matmul(np.swapaxes(c, 1, 2), c)
        taken = np.einsum("nii->n", pairs)
        left = squares - 2 * taken + np.einsum("nij,ij->n", pairs, usual @ usual.T)
        # What these sums, and c itself, were rounded by; c enters as it was computed.
        most = squares + (1 + rank) ** 2 * taken
        left = np.maximum(left, 0) + _ROUNDED * most * (1 + flat[:1].size * 2.0**-22)
        return np.sqrt(left + lost) * UP, np.sqrt(taken * UP + lost) * UP


def plain(run: BallRun) -> bool:
    """Whether all inputs are batches of which nothing but radii of rows is known."""
    return all(
        ball.box is None
        and ball.tokens is None
        and not ball.groups
        and ball.centre.ndim > 1
        and len(ball.radius) == len(ball.centre)
        for ball in run.inputs
    )


def exact(step: Step) -> bool:
    """Whether a step rounds nothing: zeros, choices and moves."""
    node = step.node
    return node.op in ("RELU", "DROPOUT", "RESHAPE") or node.variant in ("RELU6", "MAX")


def addable(run: BallRun) -> bool:
    """Whether they are two maps of one shape."""
    shapes = [ball.centre.shape for ball in run.inputs]
    return plain(run) and len(shapes) == 2 and shapes[0] == shapes[1]


def added(run: BallRun) -> tuple[Ball, Floats]:
    """A sum of two maps, and how far both sides together may be from the exact one."""
    one, other = run.inputs
    centre = one.centre + other.centre
    rounding = _added(run, centre)
    return Ball(centre, (one.radius + other.radius + rounding) * UP), rounding


def _added(run: BallRun, centre: Array) -> Floats:
    tiny = (run.reference.tiny + 2.0**-1021) * sqrt(centre[:1].size)
    whole: Floats = np.sum([l2(each.centre) + each.radius for each in run.inputs], axis=0)
    both = sum(gamma(len(run.inputs), unit) for unit in (run.reference.unit, UNIT))
    found = (both * whole + tiny) * UP
    # Where the reference may overflow nothing is known.
    return np.where(whole < largest(run.reference), found, np.inf)


def rounding_of(step: Step, run: BallRun, made: Ball) -> Floats:
    """How far both sides together may be from exact sums, at the result of one step."""
    node, units = step.node, (run.reference.unit, UNIT)
    if node.op == "ADD":
        return _added(run, made.centre)
    x, radius = run.inputs[0].centre, run.inputs[0].radius
    size = l2(x)
    outputs = made.centre[:1].size
    tiny = (run.reference.tiny + 2.0**-1021) * sqrt(outputs)
    if node.op == "POOL":
        terms = x[:1].size // max(outputs, 1)
        factor = 1 / sqrt(terms)
        if node.variant == "AVG":
            window = window_of(node)
            terms = prod(window.kernel)
            factor = sqrt(window.overlap() / terms)
        both = sum(gamma(terms + 2, unit) for unit in units)
        found: Floats = (both * factor * (size + radius) + tiny * terms) * UP
        return found
    axis = axis_of(node.attrs["axis"], x.ndim, "axis")
    params = run.params
    scale = np.abs(params.get("weight", np.ones(1))) / np.sqrt(
        params["running_var"] + node.attrs["eps"]
    )
    shift = np.abs(params["running_mean"]) * scale + np.abs(params.get("bias", np.zeros(1)))
    places = outputs // x.shape[axis]
    moved = float(scale.max(initial=0.0)) * (size + radius) + sqrt(places) * float(
        l2(shift[None])[0]
    )
    result: Floats = (sum(gamma(16, unit) for unit in units) * moved + 4 * tiny) * UP
    return result
