"""The reader's side of the suffix metric: one number per row, added up along the centre's run.

Weight after weight is replaced, in thought, by what was read of it, the exact network behind it:
R is the sum of what each of these steps, and each rounding, can change of the scores, and
`pairs[k, j] * R` bounds how far `o_k - o_j` may be off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import prod, sqrt

import numpy as np
from numpy.typing import NDArray

from dlv.dataclass import dataclass
from dlv.kinds import Array, Floats
from dlv.network.bounds.ball import (
    F64,
    UNIT,
    UP,
    Ball,
    BallRun,
    Norms,
    Reference,
    gamma,
    l2,
    root_of,
)
from dlv.network.bounds.grains import largest
from dlv.network.bounds.interval import Balls, Passing
from dlv.network.graph import Port
from dlv.network.ops.linear import Reach, norms_of, roundings, unread
from dlv.network.ops.op import Run, op_of
from dlv.network.program import Program, Step
from dlv.network.sizes import axis_of
from dlv.network.suffix.plan import window_of
from dlv.network.suffix.record import Correction, Suffix, SuffixLevel, SuffixNode

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


# By the result of each linear step: planes read of its weight; None: all.
Depths = Mapping[str, int | None]

LINEAR = ("CONV", "FULL")
WEIGHTED = (*LINEAR, "DECONV", "EMBED")


@dataclass(frozen=True)
class Read:
    """A suffix, and how much of the weight of each linear step has been read."""

    suffix: Suffix
    depths: Depths

    def level(self, result: str) -> SuffixLevel | None:
        held, depth = self.suffix.nodes.get(result), self.depths.get(result)
        return None if held is None or depth is None else held.level(depth)


class SuffixBalls(Balls):
    """Balls beside the suffix metric; the smaller bound counts."""

    def __init__(
        self,
        program: Program,
        tensor: Callable[[str], Array],
        norms: Mapping[str, Norms],
        read: Read,
        reference: Reference = F64,
    ) -> None:
        corrections = corrections_of(program, read)

        def centre(name: str) -> Array:
            found = tensor(name)
            if name not in corrections:
                return found
            added = corrections[name]()
            added += found
            return added

        super().__init__(program, centre, norms, reference)
        self.read = read
        self.norms = {**norms, **_loosened(program, read, norms, tensor)}
        self._total: Floats | float = 0.0
        self._biases: dict[str, float] = {}

    def take(self, step: Step, passing: Passing) -> None:
        self._total = passing.total
        super().take(step, passing)
        passing.total = self._total

    def bounded(self, step: Step, run: BallRun) -> tuple[Ball, ...]:
        node = self.read.suffix.nodes.get(step.result)
        if (step.result, 0) == self.program.scores:
            return super().bounded(step, run)
        if step.node.op in LINEAR and node is not None and node.a is not None:
            return self._weighed(step, node, run)
        if node is not None and step.node.op == "ADD" and addable(run):
            ball, rounding = added(run)
            self._total = (self._total + node.reach * rounding) * UP
            return (ball,)
        found = super().bounded(step, run)
        if step.node.op in WEIGHTED or (node is None and not exact(step)):
            self._total = np.inf  # nothing is told of it
        elif node is not None:
            rounding = rounding_of(step, run, found[0])
            self._total = (self._total + node.reach * rounding) * UP
        return found

    def _weighed(self, step: Step, node: SuffixNode, run: BallRun) -> tuple[Ball, ...]:
        """Behind a weight: the shares of what is not read of it and of rounding, and the balls.

        Radii of rows alone need no more of the input than the shares do.
        """
        given, norms = run.inputs[0], norms_of(step.node, run)
        if found := None if plain(run) else super().bounded(step, run):
            centre = found[0].centre
        else:
            made = Run([given.centre], run.params, run.sizes)
            centre = op_of(step.node).forward(step.node, made)[0]
        seen = Seen.of(step, given.centre)
        reach = seen.reach(step, centre)
        bias = sqrt(reach.places) * self._bias(step, run)
        rounding = roundings(norms, run, reach, given.radius, bias)
        if self.read.depths.get(step.result) is not None:
            self._total = self._total + seen.share(node, self.read.level(step.result))
        self._total = (self._total + node.reach * rounding) * UP
        moved = norms.opn * given.radius + unread(norms, reach)
        return found or (Ball(centre, (moved + rounding) * UP),)

    def _bias(self, step: Step, run: BallRun) -> float:
        if step.result not in self._biases:
            bias = run.params.get("bias")
            self._biases[step.result] = 0.0 if bias is None else float(l2(bias[None])[0])
        return self._biases[step.result]

    def spread(self, known: Mapping[Port, Ball]) -> Floats:
        """R, and what stands for it of the last weight's unread part."""
        found = self._spread(known)
        pairs, last = self.read.suffix.pairs, self._last
        if last is None or not pairs.any():
            return found
        own = self._own_errors(last, known[last.inputs[0]]).max(axis=1)
        typical: Floats = found + 2 * own / pairs[pairs > 0].mean()
        return typical

    def _spread(self, known: Mapping[Port, Ball]) -> Floats:
        rows = len(known[self.program.scores].radius)
        return np.broadcast_to(np.asarray(self._total), (rows,))

    def allowances(self, known: Mapping[Port, Ball], tops: NDArray[np.intp]) -> Floats:
        found = super().allowances(known, tops)
        last, pairs = self._last, self.read.suffix.pairs
        if last is None or len(pairs) != found.shape[1]:
            return found
        e = self._own_errors(last, known[last.inputs[0]])
        total = self._spread(known)[:, None]
        share = pairs[tops] * total + np.take_along_axis(e, tops[:, None], 1) + e
        # Either bound alone is sound; one that is NaN says nothing.
        return np.fmin(found, share * UP)

    def _own_errors(self, last: Step, behind: Ball) -> Floats:
        """Of each score alone: the last weight's unread part, and rounding on both sides.

        The centre's input is known, so what is not read of this weight meets no radius.
        """
        params, norms = self.params(last), self.norms.get(last.node.name)
        weight = op_of(last.node).by_rows(last.node, params["weight"])
        unread = np.zeros(len(weight)) if norms is None else norms.drows
        if unread is None:
            unread = np.full(len(weight), norms.dn if norms else 0.0)
        size = l2(behind.centre)
        terms = weight.shape[1] + 3
        rows = (l2(weight) + unread) * UP
        bias = np.abs(params.get("bias", np.zeros(len(weight))))
        ours = gamma(terms, UNIT) * (np.outer(size, rows) + bias)
        theirs = gamma(terms, self.reference.unit) * (np.outer(size + behind.radius, rows) + bias)
        tiny = terms * (self.reference.tiny + 2.0**-1021)
        tiny = tiny + terms * self.reference.tiny * (size[:, None] + behind.radius[:, None] + rows)
        found: Floats = (np.outer(size, unread) + ours + theirs + tiny) * UP
        return found


def corrections_of(program: Program, read: Read) -> Mapping[str, Callable[[], Floats]]:
    """By tensor: what is added to its centre, in the order of axes that it is stored in."""
    found = {}
    for step in program.linear:
        level = read.level(step.result)
        if level is not None and level.correction is not None:
            node = read.suffix.nodes[step.result]
            found[step.node.params["weight"]] = partial(correction_of, step, node, level.correction)
    return found


def correction_of(step: Step, node: SuffixNode, correction: Correction) -> Floats:
    """A new array of it."""
    attrs = step.node.attrs
    along = _along(node, correction)
    taps = (correction.floats @ along).reshape(attrs["out"], -1, len(node.scale))
    taps = np.moveaxis(taps, 1, 2)
    if step.node.op == "FULL":
        return taps[:, :, 0] if attrs["layout"] == "out_in" else taps[:, :, 0].T
    added: Floats = taps.reshape(*taps.shape[:2], *attrs["kernel"])
    return added if attrs["layout"] == "kernel_last" else np.moveaxis(added, (0, 1), (-1, -2))


def size_of(node: SuffixNode, correction: Correction) -> float:
    """||K L||_F at most, by the small products K^T K and L L^T."""
    left, along = correction.floats, _along(node, correction)
    inner, outer = left.T @ left, along @ along.T
    # Where they nearly cancel the sum may be off by as much as rounding takes from its terms.
    rounding = 1e-12 * float(np.trace(inner)) * float(np.trace(outer))
    return sqrt(max(float((inner * outer).sum()), 0.0) + rounding) * UP


def _along(node: SuffixNode, correction: Correction) -> Floats:
    found: Floats = node.usual[: correction.rank] * node.scale
    return found


def _loosened(
    program: Program, read: Read, norms: Mapping[str, Norms], tensor: Callable[[str], Array]
) -> dict[str, Norms]:
    """Norms of what was not read hold of centres before they are corrected: of these here."""
    found = {}
    for step in program.linear:
        level, known = read.level(step.result), norms.get(step.node.name)
        if level is None or level.correction is None or known is None:
            continue
        node = read.suffix.nodes[step.result]
        more = size_of(node, level.correction)
        if step.fold is not None:
            params = {slot: tensor(name) for slot, name in step.fold.params.items()}
            scale = params.get("weight", np.ones(1)) / np.sqrt(
                params["running_var"] + step.fold.attrs["eps"]
            )
            more *= float(np.abs(scale).max(initial=0.0)) * UP
        found[step.node.name] = replace(
            known, dn=(known.dn + more) * UP, dfro=(known.dfro + more) * UP, drows=None, dopn=np.inf
        )
    return found
