"""Linear forms in a node's outputs, which become forms in its inputs, less what is lost on the way.

With e = x_ref - xc at each place: a . e_out >= sum of a' . e_in - loss, for all weights with the
planes that were read, and with the rounding of the reference and of the centre.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlv.dataclass import dataclass
from dlv.kinds import Array, Floats, Places
from dlv.network.bounds.ball import UP, Ball, BallRun, l2

# Slopes and gaps are rounded themselves, by a few units each.
SLACK = 2.0**-48


@dataclass(frozen=True)
class Form:
    """The balls around a node, and linear forms `a` in its output, one for each pair.

    `rows`: the row of the batch that each pair belongs to.
    """

    run: BallRun
    output: Ball
    a: Floats
    rows: Places

    def of(self, values: Array) -> Array:
        """What belongs to the row of each pair."""
        return values[self.rows]

    def reach(self, ball: Ball) -> Floats:
        """How far each coordinate may be from the centre, for each pair."""
        if ball.box is not None:
            return self.of(ball.box)
        radius = self.of(ball.radius)
        return np.broadcast_to(
            radius.reshape(-1, *(1 for _ in ball.centre.shape[1:])),
            (len(radius), *ball.centre.shape[1:]),
        )


# Per input: its form, or None where nothing of it counts. And the loss of each pair.
Passed = tuple[Sequence[Floats | None], Floats]


def total(x: Floats) -> Floats:
    """The sum of each pair's non-negative numbers, rounded up."""
    count = max(x[:1].size, 1)
    found: Floats = x.sum(axis=tuple(range(1, x.ndim))) * (1 + max(1e-9, count * 2.0**-52))
    return found


def least_of(form: Floats, reach: Floats, radius: Floats) -> Floats:
    """What a . e may take away at most, by coordinates or by norms."""
    found: Floats = np.minimum(total(np.abs(form) * reach), l2(form) * radius) * UP
    return found


def filled(ball: Ball) -> Floats:
    """The box; without one, the radius in each coordinate."""
    if ball.box is not None:
        return ball.box
    return np.broadcast_to(along(ball.radius, ball.centre), ball.centre.shape)


def along(values: Floats, like: Array) -> Floats:
    """One number for each row, to be multiplied with what has further axes."""
    return values.reshape(-1, *(1 for _ in like.shape[1:]))
