"""A network run in ball arithmetic: centres from the planes that were read, and sound radii."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from dlv.dataclass import dataclass
from dlv.kinds import Array, Floats
from dlv.network.bounds.ball import (
    F64,
    STRICT,
    UNIT,
    UP,
    Ball,
    BallRun,
    Norms,
    Reference,
    constant,
    gamma,
    l2,
    point,
    sealed,
)
from dlv.network.forward import Forward, forget, sizes_of
from dlv.network.graph import Port
from dlv.network.ops.op import NoRule, op_of
from dlv.network.program import Program, Step

MOST_CLASSES = 2048  # beyond, a table of all pairs of classes would be larger than the network


@dataclass
class Passing:
    """An unfinished pass over a batch: the balls that later steps need."""

    known: dict[Port, Ball]
    sizes: Mapping[str, int]
    behind: dict[Port, Ball] = field(default_factory=dict)  # what the last FULL was given
    total: Floats | float = 0.0  # of the errors that the suffix metric sums up

    @property
    def found(self) -> dict[Port, Ball]:
        return {**self.behind, **self.known}

    def copy(self) -> Passing:
        return Passing(dict(self.known), self.sizes, dict(self.behind), self.total)


class Balls(Forward):
    """A program with the centres of its weights at hand, and the norms of what is not read.

    `norms` by the names of linear nodes; None where a weight has no bounds.
    """

    def __init__(
        self,
        program: Program,
        tensor: Callable[[str], Array],
        norms: Mapping[str, Norms],
        reference: Reference = F64,
    ) -> None:
        super().__init__(program, tensor, np.float64)
        self.norms = norms
        self.reference = reference
        self._last = _last_full(program)
        self._apart: Floats | None = None

    def balls(self, inputs: Mapping[str, Array]) -> dict[Port, Ball]:
        """The scores and what the program keeps, and what the last FULL was given; NoRule."""
        passing = self.begin(inputs)
        for step in self.program.steps:
            self.take(step, passing)
        return passing.found

    def begin(self, inputs: Mapping[str, Array]) -> Passing:
        """Start a pass: the inputs and constants are known, no step is done."""
        known = {(name, 0): sealed(self._given(inputs[name])) for name in self.program.input_names}
        known.update({(name, 0): constant(value) for name, value in self.constants().items()})
        return Passing(known, sizes_of(self.program.network, inputs))

    def take(self, step: Step, passing: Passing) -> None:
        """Do one step of a pass, whose earlier steps other balls may have done."""
        known = passing.known
        with np.errstate(all="ignore"):
            given = [known[port] for port in step.inputs]
            norms = self.norms.get(step.node.name)
            run = BallRun(given, self.params(step), norms, self.reference, passing.sizes)
            found = [sealed(ball, given) for ball in self.bounded(step, run)]
            known.update({(step.result, port): ball for port, ball in enumerate(found)})
            if step is self._last:
                passing.behind[step.inputs[0]] = given[0]
            forget(known, step)

    def bounded(self, step: Step, run: BallRun) -> tuple[Ball, ...]:
        """What one step makes of its balls."""
        return op_of(step.node).bounds(step.node, run)

    def spread(self, known: Mapping[Port, Ball]) -> Floats:
        """How far each row's scores may be off, in a unit of its own."""
        return known[self.program.scores].radius

    def _given(self, x: Array) -> Ball:
        if self.reference is STRICT and x.dtype.kind == "f":
            x = x.astype(np.float32)  # what such an evaluation is handed
        return point(x)

    def allowances(self, known: Mapping[Port, Ball], tops: NDArray[np.intp]) -> Floats:
        """(rows, classes): how far `o_k - o_j` may be from its centre, k the row's top."""
        scores = known[self.program.scores]
        last = self._last
        if last is None or scores.centre.shape[1] > MOST_CLASSES:
            share: Floats = (scores.radius * np.sqrt(2.0) * UP)[:, None]
            if scores.box is not None:
                rows = np.arange(len(tops))
                pairs = scores.box[rows, tops][:, None] + scores.box
                share = np.minimum(share, pairs * UP)
            return np.broadcast_to(share, scores.centre.shape)
        behind = known[last.inputs[0]]
        e = self._full_errors(last, behind)
        share = self._pairs(last)[tops] * behind.radius[:, None]
        share += np.take_along_axis(e, tops[:, None], 1) + e
        plain: Floats = (scores.radius * np.sqrt(2.0))[:, None]
        found: Floats = np.minimum(share, plain) * UP
        return found

    def _pairs(self, last: Step) -> Floats:
        """||Wc_k - Wc_j|| of the last layer, the rows subtracted directly."""
        if self._apart is None:
            weight = _rows(last, self.params(last))
            self._apart = np.stack([l2(weight - row) for row in weight])
        return self._apart

    def _full_errors(self, last: Step, behind: Ball) -> Floats:
        """What each score alone may be off: unread bits, and rounding on both sides."""
        params, norms = self.params(last), self.norms.get(last.node.name)
        weight = _rows(last, params)
        unread = np.zeros(len(weight)) if norms is None else norms.drows
        if unread is None:
            unread = np.full(len(weight), norms.dn if norms else 0.0)
        reach = l2(behind.centre) + behind.radius  # of what the reference was given
        terms = weight.shape[1] + 3
        size = np.outer(reach, l2(weight) + unread) * UP
        bias = np.abs(params.get("bias", np.zeros(len(weight))))
        ours, theirs = gamma(terms, UNIT), gamma(terms, self.reference.unit)
        rounding = (ours + theirs) * (size + bias) + self.reference.tiny * terms
        # Numbers below all normal ones may be taken for zero before they are multiplied.
        rounding += self.reference.tiny * terms * (reach[:, None] + l2(weight) + unread)
        found: Floats = (np.outer(reach, unread) + rounding) * UP
        return found


def _last_full(program: Program) -> Step | None:
    """The FULL that makes the scores, where it reads [batch, features]."""
    for step in program.steps:
        if (step.result, 0) == program.scores and op_of(step.node).dense:
            return step
    return None


def _rows(last: Step, params: Mapping[str, Array]) -> Floats:
    return op_of(last.node).by_rows(last.node, params["weight"])


def certain(balls: Balls, known: Mapping[Port, Ball], top_k: int = 1) -> tuple[Array, Array]:
    """Labels as the centres have them, and for which rows the reference surely has the same.

    With `top_k` > 1 the labels are still the first ones; certain is then the set of the
    first k, in any order. NaN is never certain, nor is anything without a finite radius.
    """
    centre = known[balls.program.scores].centre
    bounded = np.isfinite(known[balls.program.scores].radius)
    if centre.ndim != 2:
        raise NoRule(balls.program.steps[-1].node, "its scores are not [batch, classes]")
    slack = 1e-9 * (1 + np.abs(centre).max(axis=1))
    with np.errstate(all="ignore"):
        order = np.argsort(-centre, axis=1, kind="stable")
    labels = order[:, 0]
    sure = np.isfinite(centre).all(axis=1) & bounded
    rows = np.arange(len(centre))
    inside = np.zeros(centre.shape, bool)
    np.put_along_axis(inside, order[:, :top_k], True, axis=1)
    for place in range(min(top_k, centre.shape[1])):
        tops = order[:, place]
        with np.errstate(all="ignore"):
            least = centre[rows, tops][:, None] - centre
            least -= balls.allowances(known, tops) + slack[:, None]
        # Written so that NaN, which compares with nothing, leaves the row open.
        sure &= ((least > 0) | inside).all(axis=1)
    return labels, sure
