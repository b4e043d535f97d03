"""Balls, and linear forms of them.

A ball is a computed centre, and how far the reference's computed activation may be from it.
The rounding of both sides is inside every radius: of the reference, in its own precision, and
of the centre, in binary64. So a radius holds for numbers that were really computed.

Linear forms in a node's outputs become forms in its inputs, less what is lost on the way. With
e = x_ref - xc at each place: a . e_out >= sum of a' . e_in - loss, for all weights with the
planes that were read, and with the rounding of the reference and of the centre.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor, inf, isfinite, log10

import numpy as np
from numpy.typing import NDArray

from dlv.dataclass import dataclass
from dlv.kinds import Array, Floats, Places

UNIT = 2.0**-53  # the centre's
# What a sum of up to 2^22 rounded terms may lose, and more: every norm and radius is raised so.
UP = 1 + 1e-9


@dataclass(frozen=True)
class Reference:
    """Whose label is promised: every evaluation in this precision, in any order of summing.

    `tiny`: what a product may lose by flushing to zero.
    """

    name: str
    unit: float
    tiny: float = 0.0


F64 = Reference("f64", 2.0**-53)
STRICT = Reference("strict", 2.0**-24, 2.0**-126)
REFERENCES: Mapping[str, Reference] = {each.name: each for each in (F64, STRICT)}


@dataclass(frozen=True)
class Ball:
    """`||x_ref - centre||_2 <= radius` for each row of the batch.

    `box`, where it is known, bounds each coordinate. `tokens` bounds each position of a
    sequence, in the norm over the last axis: (N, T) for a centre of (N, T, D), (N, heads, T)
    for one of (N, heads, T, D). Each of `groups` has the rank of the centre, and length 1 along
    the axes over which an entry bounds the norm.
    """

    centre: Floats
    radius: Floats
    box: Floats | None = None
    tokens: Floats | None = None
    groups: tuple[Floats, ...] = ()

    @property
    def exact(self) -> bool:
        return not self.radius.any()


def sealed(ball: Ball, inputs: Sequence[Ball] = ()) -> Ball:
    """The ball; infinite in rows where nothing is known of it, of its centre or of an input.

    A radius that is not a number bounds nothing, and an infinite one compares as what it is.
    Where numbers are so large that something overflowed, or may have in the reference, whatever
    is computed from them may be NaN there, also what a curve or a sum makes small again.
    """
    size = len(ball.radius)
    with np.errstate(all="ignore"):
        unknown = [~np.isfinite(each.radius) for each in (ball, *inputs)]
        further = [each for each in (ball.box, ball.tokens) if each is not None]
        unknown += [_by_row(~np.isnan(grid)) for grid in (*further, *ball.groups)]
        if ball.centre.dtype.kind == "f" and not np.isfinite(ball.centre.sum()):
            unknown.append(_by_row(np.isfinite(ball.centre)))
    lost = np.zeros(size, bool)
    for rows in unknown:
        lost |= rows if len(rows) in (1, size) else rows.any()
    if not lost.any():
        return ball

    def without(radii: Floats) -> Floats:
        return np.where(lost.reshape(-1, *(1 for _ in radii.shape[1:])), np.inf, radii)

    return Ball(
        *(ball.centre, without(ball.radius)),
        box=None if ball.box is None else without(ball.box),
        tokens=None if ball.tokens is None else without(ball.tokens),
        groups=tuple(map(without, ball.groups)),
    )


def _by_row(fine: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """In which rows anything is not."""
    rows = fine.reshape(len(fine) if fine.ndim else 1, -1)
    return np.asarray(~rows.all(axis=1))


@dataclass(frozen=True)
class Norms:
    """Of a linear node: its weight W, and dW, what its first planes do not tell of it.

    `opn` >= ||W||_2 as an operator on inputs of the size at hand, `dn` >= ||dW||_2 as a matrix
    of [out, in * kernel]; `rows`, `drows` are norms of the rows of these matrices. `dopn`, where
    it is finite, bounds dW as an operator: of a convolution that may be half as much.
    """

    opn: float
    fro: float
    absmax: float
    dn: float
    dfro: float
    rows: Floats | None = None
    drows: Floats | None = None
    dopn: float = float("inf")


@dataclass(frozen=True)
class BallRun:
    """What the bounds of one node are computed from; `params` hold the centre of its weight.

    `norms` is None for nodes without a weight matrix, and where no record tells them.
    """

    inputs: Sequence[Ball]
    params: Mapping[str, Array]
    norms: Norms | None
    reference: Reference
    sizes: Mapping[str, int]


def gamma(n: float, unit: float) -> float:
    """The relative error of a sum of n rounded products; infinite where there is no bound."""
    share = n * unit
    return share / (1 - share) if share < 1 else float("inf")


def l2(x: Array) -> Floats:
    """The norm of each row of a batch, rounded up."""
    with np.errstate(all="ignore"):
        return root_of(squares(x), max(x[:1].size, 1))


def root_of(squared: Floats, count: int) -> Floats:
    """The norms of rows whose squares were summed, so many of each, rounded up."""
    found: Floats = np.sqrt(squared) * (1 + max(1e-9, count * 2.0**-52))
    # Squares of tiny numbers vanish; what they would have added to a tiny sum is below this.
    return np.where(found < 2.0**-400, found + count * 2.0**-500, found)


def short(value: float, digits: int = 4) -> float:
    """The number of so few digits that is not below this one: a bound that takes less room."""
    if value <= 0 or not isfinite(value):
        return abs(value)
    found = float(f"{value:.{digits - 1}e}")
    if found >= value:
        return found
    unit = 10.0 ** (floor(log10(value)) - digits + 1)
    more = float(f"{found + unit:.{digits - 1}e}")
    return more if value <= more < inf else value


def squares(x: Array) -> Floats:
    """The sum of the squares of each row, in the order in which its numbers lie in memory."""
    order = sorted(range(1, x.ndim), key=lambda axis: -abs(x.strides[axis]))
    flat = x.transpose(0, *order).reshape(len(x), x[:1].size)
    found: Floats = np.einsum("ij,ij->i", flat, flat)
    return found


def point(x: Array) -> Ball:
    """A ball around numbers that the reference has exactly."""
    # A sequence may be known token by token from here on.
    return Ball(_numbers(x), np.zeros(len(x)), None, np.zeros(x.shape[:2]) if x.ndim == 3 else None)


def constant(x: Array) -> Ball:
    """The same for what has no batch axis: its one radius stands for all rows."""
    return Ball(_numbers(x), np.zeros(1))


def _numbers(x: Array) -> Floats:
    """In binary64; flags stay flags, as a mask of them means something else than one of numbers."""
    return x if x.dtype.kind == "b" else np.asarray(x, np.float64)


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
