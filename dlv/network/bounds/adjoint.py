"""The bound of single pairs of classes, followed backwards through the network.

Balls bound each activation for all that may come after it. Here the difference of two scores is
taken back layer by layer as a linear form, so that what cannot matter to it is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dlv.kinds import Array, Floats, Places
from dlv.network.bounds.ball import UP, Ball, BallRun, Form, Norms, Reference, l2, least_of
from dlv.network.bounds.interval import Balls, certain
from dlv.network.forward import sizes_of
from dlv.network.graph import Port
from dlv.network.ops.op import op_of
from dlv.network.program import Program, Step

Known = Mapping[Port, Ball]

AT_ONCE = 64  # pairs that are followed together
MOST_PAIRS = 64  # a row with more of them open is left alone


class _Boxes(Balls):
    """Balls with a radius for each coordinate, from the first layer on."""

    def _given(self, x: Array) -> Ball:
        ball = super()._given(x)
        return replace(ball, box=np.zeros(ball.centre.shape))


class Adjoint:
    """A program with what was read of its weights, for rows that balls leave open."""

    def __init__(
        self,
        program: Program,
        tensor: Callable[[str], Array],
        norms: Mapping[str, Norms],
        reference: Reference,
    ) -> None:
        steps = tuple(replace(step, last=()) for step in program.steps)
        self._program = replace(program, steps=steps)
        self._balls = _Boxes(self._program, tensor, norms, reference)

    def known(self, inputs: Mapping[str, Array]) -> Known:
        """The balls of all activations."""
        return self._balls.balls(inputs)

    def told(self, inputs: Mapping[str, Array], top_k: int = 1) -> tuple[Array, Array]:
        """(rows, top_k) the first classes, and for which rows they surely are the reference's."""
        known = self.known(inputs)
        sure = certain(self._balls, known, top_k)[1]
        scores = known[self._program.scores].centre
        with np.errstate(all="ignore"):
            tops = np.argsort(-scores, axis=1, kind="stable")[:, :top_k]
            least = self._least(known, tops)
            worst = np.argsort(least, axis=1, kind="stable")
            alive = ~sure & np.isfinite(least).all(axis=1)
            alive &= np.isfinite(known[self._program.scores].radius)
            alive &= (least <= 0).sum(axis=1) <= MOST_PAIRS
            classes, turn = scores.shape[1], 0
            while turn < least.shape[1]:
                # The worst pair first: most rows that stay open need no other.
                pair = worst[:, turn]
                rows = np.flatnonzero(alive & ~(least[np.arange(len(pair)), pair] > 0))
                if not len(rows):
                    break
                place, other = np.divmod(pair[rows], classes)
                bound = self.apart(inputs, known, rows, tops[rows, place], other)
                alive[rows[~(bound > 0)]] = False
                turn += 1
        return tops, sure | alive

    def _least(self, known: Known, tops: NDArray[np.intp]) -> Floats:
        """(rows, tops * classes): what balls say of each pair; 1 where there is none."""
        scores = known[self._program.scores].centre
        inside = np.zeros(scores.shape, bool)
        np.put_along_axis(inside, tops, True, axis=1)
        found = []
        for place in range(tops.shape[1]):
            top = tops[:, place]
            apart = np.take_along_axis(scores, top[:, None], 1) - scores
            apart -= self._balls.allowances(known, top) + _slack(scores)[:, None]
            found.append(np.where(inside, 1.0, apart))
        return np.concatenate(found, axis=1)

    def apart(
        self,
        inputs: Mapping[str, Array],
        known: Known,
        rows: Places,
        top: NDArray[np.intp],
        other: NDArray[np.intp],
    ) -> Floats:
        """The least that the reference's scores of two classes can be apart, row by row."""
        with np.errstate(all="ignore"):
            return self._apart(inputs, known, rows, top, other)

    def _apart(
        self,
        inputs: Mapping[str, Array],
        known: Known,
        rows: Places,
        top: NDArray[np.intp],
        other: NDArray[np.intp],
    ) -> Floats:
        scores = known[self._program.scores].centre
        margin = scores[rows, top] - scores[rows, other] - _slack(scores)[rows]
        sizes = sizes_of(self._program.network, inputs)
        found = np.empty(len(rows))
        for start in range(0, len(rows), AT_ONCE):
            at = slice(start, start + AT_ONCE)
            form = np.zeros((len(rows[at]), scores.shape[1]))
            each = np.arange(len(form))
            form[each, top[at]], form[each, other[at]] = 1.0, -1.0
            found[at] = margin[at] - self._loss(known, sizes, rows[at], form)
        return found

    def _loss(self, known: Known, sizes: Mapping[str, int], rows: Places, form: Floats) -> Floats:
        """How much less a form of the scores may be than the centre's, at the best cut."""
        live: dict[Port, Floats] = {self._program.scores: form}
        lost = np.zeros(len(form))
        best = _live(known, rows, live)
        for step in reversed(self._program.steps):
            port = (step.result, 0)
            if any(name == step.result and number for name, number in live):
                break
            if port not in live:
                continue
            a = live.pop(port)
            run = self._run(known, step, sizes)
            found = op_of(step.node).adjoint(step.node, Form(run, known[port], a, rows))
            if found is None:
                break
            lost = lost + found[1]
            for source, part in zip(step.inputs, found[0], strict=True):
                if part is None or known[source].exact:
                    continue
                if source in live:
                    part = live[source] + part
                    rounded = 2.0**-52 * l2(part) * known[source].radius[rows]
                    lost = lost + rounded * UP
                live[source] = part
            best = np.fmin(best, (lost + _live(known, rows, live)) * UP)
        return best

    def _run(self, known: Known, step: Step, sizes: Mapping[str, int]) -> BallRun:
        balls = self._balls
        given = [known[port] for port in step.inputs]
        norms = balls.norms.get(step.node.name)
        return BallRun(given, balls.params(step), norms, balls.reference, sizes)


def _slack(scores: Array) -> Floats:
    found: Floats = 1e-9 * (1 + np.abs(scores).max(axis=1))
    return found


def _live(known: Known, rows: Places, live: Mapping[Port, Floats]) -> Floats:
    """What forms that have not gone further back may take away."""
    found = np.zeros(len(rows))
    for port, form in live.items():
        ball = known[port]
        radius = ball.radius[rows]
        if ball.box is None:
            found = found + l2(form) * radius * UP
        else:
            found = found + least_of(form, ball.box[rows], radius)
    return found
