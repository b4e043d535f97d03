"""Numbers less their mean, divided by their spread: values, and a sound bound on their error."""

from __future__ import annotations

import math

import numpy as np

from dlv.kinds import Array, Floats
from dlv.network.bounds.ball import UNIT, UP, Ball, Reference, gamma
from dlv.network.bounds.grains import count, grains, largest, level, most, norm, settled, slip

_DOWN = 1 - 1e-8  # norms are rounded up; what divides must not be


def values(x: Array, axes: tuple[int, ...], eps: float, *, mean: bool = True) -> Array:
    """Over these axes: x less its mean, by the root of its mean square and eps."""
    if mean:
        x = x - x.mean(axis=axes, keepdims=True)
    square = (x * x).mean(axis=axes, keepdims=True)
    return np.asarray(x / np.sqrt(square + eps), x.dtype)


def bounds(
    ball: Ball,
    lead: int,
    eps: float,
    gain: Array | None,
    bias: Array | None,
    reference: Reference,
    *,
    mean: bool = True,
) -> Ball:
    """Groups are what shares the first `lead` axes; gain and bias are shaped like a group.

    With v = x less its mean and s = sqrt(|v|^2 + n eps), the result is sqrt(n) v / s: a part
    of a vector (v, sqrt(n eps)) of length s put on a sphere. Two vectors a and b on a sphere are
    at most 2 |a - b| / (|a| + |b|) apart, and taking off the mean makes no error longer.
    """
    x = ball.centre
    n = max(count(x.shape, lead), 1)
    root = math.sqrt(n)
    centred = x - x.mean(axis=tuple(range(lead, x.ndim)), keepdims=True) if mean else x
    size = norm(x, lead)
    # The centre's mean is rounded, so that what is left of it is not known better than this.
    known = np.maximum(norm(centred, lead) * _DOWN - 2 * gamma(n + 2, UNIT) * size, 0)
    spread = np.sqrt(known * known + n * eps) * _DOWN
    least = math.sqrt(n * eps) * _DOWN

    all_grains = grains(ball)
    radius = level([grid for _, grid in all_grains], x.shape, lead)
    low = np.maximum(spread - radius, least)
    steepest = 2 * root / (spread + low)
    theirs = _lost(n, size + radius, low, reference.unit, reference.tiny)
    theirs = np.where(size + radius < largest(reference), theirs, np.inf)
    ours = _lost(n, size, spread, UNIT, 2.0**-1022)

    made = values(x, tuple(range(lead, x.ndim)), eps, mean=mean)
    result, scaled = made, np.abs(made)
    factor = np.ones((1,) * x.ndim)
    if gain is not None:
        wide = np.broadcast_to(gain, x.shape)
        result, scaled = made * gain, np.abs(made * gain)
        factor = most(wide, lead)
    if bias is not None:
        result, scaled = result + bias, scaled + np.abs(bias)
    reach = np.minimum(steepest * radius, 2 * root) + theirs + ours
    rounded = slip(reference, 4, norm(scaled, lead), factor * reach, n)
    rest = factor * (theirs + ours) + rounded

    found = [(factor * reach + rounded) * UP]
    _, rows = all_grains[0]
    found.append((most(steepest * factor, 1) * rows + norm(rest, 1)) * UP)
    if ball.box is not None:
        # Each number moves by what it moves itself, and by what the spread of all changes.
        moved = ball.box
        if mean:
            moved = moved + np.minimum(
                radius / root, ball.box.mean(axis=tuple(range(lead, x.ndim)), keepdims=True) * UP
            )
        each = root * (moved / low + np.abs(centred) * radius / (low * spread))
        each = each * np.abs(gain) if gain is not None else each
        found.append((each + rest) * UP)
    return settled(np.asarray(result, np.float64), found, box=ball.box is not None)


def _lost(n: int, size: Floats, low: Floats, unit: float, tiny: float) -> Floats:
    """What one side rounds, as a norm over a group, before gain and bias.

    `size` is the norm of the numbers, `low` bounds their spread from below. The mean is a sum of
    n terms; the mean square may be had from differences, or as a difference of two squares.
    """
    root = math.sqrt(n)
    away = (2 * gamma(n + 2, unit) * size + 2 * root * tiny) / low
    share = (4 * gamma(2 * n + 8, unit) * size * size + 4 * n * tiny) / (low * low)
    # 1 / sqrt(1 - q) is at most 1 + q up to one half; beyond that nothing is known.
    share = np.where(share <= 0.5, share, np.inf)
    found: Floats = root * (away + share + gamma(8, unit)) + root * tiny
    return found
