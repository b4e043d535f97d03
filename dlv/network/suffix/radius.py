"""The reader's side of the suffix metric: one number per row, added up along the centre's run.

Weight after weight is replaced, in thought, by what was read of it, the exact network behind it:
R is the sum of what each of these steps, and each rounding, can change of the scores, and
`pairs[k, j] * R` bounds how far `o_k - o_j` may be off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from dlv.dataclass import dataclass
from dlv.kinds import Array, Floats
from dlv.network.bounds.ball import F64, UNIT, UP, Ball, BallRun, Norms, Reference, gamma, l2
from dlv.network.bounds.interval import Balls
from dlv.network.graph import Port
from dlv.network.ops.linear import norms_of, roundings, unread
from dlv.network.ops.op import Run, op_of
from dlv.network.program import Program, Step
from dlv.network.suffix.record import Correction, Suffix, SuffixLevel, SuffixNode
from dlv.network.suffix.steps import Seen, addable, added, exact, plain, rounding_of

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

    def balls(self, inputs: Mapping[str, Array]) -> dict[Port, Ball]:
        self._total = 0.0
        return super().balls(inputs)

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
        weight = params["weight"]
        weight = weight if last.node.attrs["layout"] == "out_in" else weight.T
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
