"""Attention: softmax of scaled query-key products applied to the values, and its error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.network.ball import UNIT, UP, Ball, Reference, gamma
from dlv.network.grains import carried, grids, level, norm, reshaped, settled

Array = NDArray[Any]
Floats = NDArray[np.float64]

_MOST = 1 << 22  # scores at a time
# A score so far below the largest one has the weight 0 in every precision.
_DEAD = 800.0
_STEEP = 300.0  # beyond, the exponentials of errors say nothing


@dataclass(frozen=True)
class How:
    """The attributes of ATTENTION; `heads` are cut out of the last axis of three."""

    heads: int | None = None
    causal: bool = False
    scale: float | None = None


def values(how: How, inputs: Sequence[Array]) -> Array:
    """What attention gives, rows of the batch by the memory that their scores take."""
    query, key, value = inputs[:3]
    mask = inputs[3] if len(inputs) > 3 else None
    split = how.heads is not None and query.ndim == 3
    if split:
        query, key, value = (_split(x, how.heads or 1) for x in (query, key, value))
        mask = mask[:, None] if mask is not None and mask.ndim == 3 else mask
    key, value = _shared(query, key), _shared(query, value)
    parts = []
    for rows in _chunks(query, key):
        q, k, v = (_rows(x, rows, query) for x in (query, key, value))
        scores = _scores(how, q, k, None if mask is None else _rows(mask, rows, query))
        parts.append(_weights(scores) @ v)
    mixed = np.concatenate(parts) if len(parts) > 1 else parts[0]
    return _merged(mixed) if split else mixed


def _split(x: Array, heads: int) -> Array:
    return x.reshape(*x.shape[:-1], heads, -1).swapaxes(1, 2)


def _merged(x: Array) -> Array:
    turned = x.swapaxes(1, 2)
    return turned.reshape(*turned.shape[:2], -1)


def _shared(query: Array, x: Array) -> Array:
    """Keys and values that several heads of queries share, once for each."""
    if query.ndim >= 4 and x.ndim >= 3 and query.shape[-3] != x.shape[-3] > 1:
        return np.repeat(x, query.shape[-3] // x.shape[-3], axis=-3)
    return x


def _chunks(query: Array, key: Array) -> list[slice]:
    count = query.shape[0] if query.ndim > 2 else 1
    each = max(query[:1].size // max(query.shape[-1], 1) * key.shape[-2], 1)
    step = max(_MOST // each, 1)
    if query.ndim <= 2 or count <= step:
        return [slice(None)]
    return [slice(start, start + step) for start in range(0, count, step)]


def _rows(x: Array, rows: slice, query: Array) -> Array:
    """The part of an array that belongs to these rows of the batch, if it has such an axis."""
    alike = x.ndim == query.ndim and x.ndim > 2 and x.shape[0] == query.shape[0]
    return x[rows] if alike else x


def _scores(how: How, query: Array, key: Array, mask: Array | None) -> Array:
    factor = 1 / math.sqrt(query.shape[-1]) if how.scale is None else how.scale
    scores = (query * factor) @ key.swapaxes(-1, -2)
    if mask is not None and mask.dtype.kind == "b":
        scores = np.where(mask, scores, -np.inf)
    elif mask is not None:
        scores = scores + mask.astype(scores.dtype, copy=False)
    if how.causal:
        before = np.tri(scores.shape[-2], scores.shape[-1], dtype=bool)
        scores = np.where(before, scores, -np.inf)
    return np.asarray(scores, query.dtype)


def _weights(scores: Array) -> Array:
    """Shares of each key; a query that may look at none has 0 of every key, as in torch."""
    top = scores.max(axis=-1, keepdims=True)
    found = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = found.sum(axis=-1, keepdims=True)
    return np.asarray(found / np.where(total == 0, 1, total), scores.dtype)


def bounds(how: How, inputs: Sequence[Ball], reference: Reference) -> Ball:
    """The ball of the result, from a radius for each query, key and value."""
    balls = list(inputs)
    split = how.heads is not None and balls[0].centre.ndim == 3
    if split:
        balls[:3] = [_split_ball(ball, how.heads or 1) for ball in balls[:3]]
        if len(balls) > 3 and balls[3].centre.ndim == 3:
            mask = balls[3]
            balls[3] = carried(mask, lambda x: x[:, None], lambda grid: [grid[:, None]])
    query, key, value = (ball.centre for ball in balls[:3])
    rq, rk, rv = (level(grids(b), b.centre.shape, b.centre.ndim - 1) for b in balls[:3])
    key, value, rk, rv = (_shared(query, x) for x in (key, value, rk, rv))
    mask_centre = mask_radius = None
    if len(balls) > 3:
        mask_centre = balls[3].centre
        mask_radius = level(grids(balls[3]), mask_centre.shape, mask_centre.ndim)
    centres, radii = [], []
    inner = replace(how, heads=None)
    for rows in _chunks(query, key):
        part = [_rows(x, rows, query) for x in (query, key, value, rq, rk, rv)]
        masks = [None if x is None else _rows(x, rows, query) for x in (mask_centre, mask_radius)]
        centre, radius = _bounded(inner, part, masks, reference)
        centres.append(centre)
        radii.append(radius)
    found = settled(np.concatenate(centres), [np.concatenate(radii)])
    return _merged_ball(found) if split else found


def _bounded(
    how: How, part: Sequence[Floats], masks: Sequence[Floats | None], reference: Reference
) -> tuple[Floats, Floats]:
    """For some rows of the batch: the centre, and the radius of each of its vectors.

    A share p changes by a factor between exp(e_j) / Z and exp(-e_j) / Z', where e_j bounds the
    error of score j; all shares together change by 2 tanh(max e / 2). As their sum does not
    change, values count by their distance from any one point.
    """
    query, key, value, *_, rv = part
    mask, mask_radius = masks
    scores = _scores(how, query, key, mask)
    e = _score_errors(how, part, scores, mask, reference)
    if mask_radius is not None and mask is not None and mask.dtype.kind != "b":
        e = e + mask_radius
    least = (scores - e).max(axis=-1, keepdims=True)
    live = ~(scores + e <= least - _DEAD)
    e = np.where(live, e, 0)
    p = _weights(scores)
    worst = e.max(axis=-1, keepdims=True)
    total = 2 * np.tanh(worst / 2) * UP
    change = np.where(worst > _STEEP, np.minimum(live, 1.0), _changes(p, np.minimum(e, _STEEP)))
    away = norm(value - value.mean(axis=-2, keepdims=True), value.ndim - 1)
    beside = np.where(live, away.swapaxes(-1, -2), 0)
    moved = np.minimum(
        (change * beside).sum(axis=-1, keepdims=True), total * beside.max(axis=-1, keepdims=True)
    )
    theirs = np.where(live, rv.swapaxes(-1, -2), 0)
    shares = np.minimum(p * UP + change, 1)
    carried_on = np.minimum(
        (shares * theirs).sum(axis=-1, keepdims=True), theirs.max(axis=-1, keepdims=True)
    )
    size = np.where(live, norm(value, value.ndim - 1).swapaxes(-1, -2), 0)
    largest = (size + theirs).max(axis=-1, keepdims=True)
    terms, width = 4 * scores.shape[-1] + 40, value.shape[-1]
    lost = (gamma(terms, reference.unit) + gamma(terms, UNIT)) * largest
    lost = lost + terms * math.sqrt(width) * (reference.tiny + 2.0**-1022) * (1 + largest)
    radius = (moved + carried_on + lost) * UP
    # What comes of a query that may look at nothing, frameworks disagree about.
    radius = np.where(live.any(axis=-1, keepdims=True), radius, np.inf)
    return np.asarray(p @ value, np.float64), radius


def _score_errors(
    how: How,
    part: Sequence[Floats],
    scores: Floats,
    mask: Floats | None,
    reference: Reference,
) -> Floats:
    """How far each score may be off: what comes in, and what both sides round."""
    query, key, _, rq, rk, _ = part
    width = query.shape[-1]
    factor = abs(1 / math.sqrt(width) if how.scale is None else how.scale)
    long, wide = norm(query, query.ndim - 1), norm(key, key.ndim - 1).swapaxes(-1, -2)
    ours, theirs = gamma(width + 8, UNIT), gamma(width + 8, reference.unit)
    across = rk.swapaxes(-1, -2)
    size = long * wide
    reach = long * across + rq * wide + rq * across
    e = reach + (ours + theirs) * size + theirs * reach
    e = factor * e + (width + 8) * (1 + factor) * (reference.tiny + 2.0**-1022)
    if mask is not None and mask.dtype.kind != "b":
        both = np.where(np.isfinite(scores), np.abs(scores), 0) + e
        added = np.where(np.isfinite(mask), np.abs(mask), 0)
        e = e + (gamma(3, UNIT) + gamma(3, reference.unit)) * (both + 2 * added)
    return np.asarray(e * UP, np.float64)


def _changes(p: Floats, e: Floats) -> Floats:
    """How far each share may be off, where score j may be by e_j."""
    up, down = np.expm1(e), -np.expm1(-e)
    p = p * UP
    # In the numerators only positive terms are added, so that nothing cancels.
    fall = (p * down).sum(axis=-1, keepdims=True)
    rise = (p * up).sum(axis=-1, keepdims=True)
    least = (p * np.exp(-e)).sum(axis=-1, keepdims=True) / (UP * UP * UP)
    found: Floats = p * np.maximum((up + fall) / least, rise + down) * UP
    return np.minimum(found, 1)


def _split_ball(ball: Ball, heads: int) -> Ball:
    old = ball.centre.shape
    new = (*old[:-1], heads, old[-1] // heads)
    return carried(
        ball,
        lambda x: _split(x, heads),
        lambda grid: [each.swapaxes(1, 2) for each in reshaped(grid, old, new)],
    )


def _merged_ball(ball: Ball) -> Ball:
    batch, heads, length, width = ball.centre.shape
    old = (batch, length, heads, width)
    new = (batch, length, heads * width)
    return carried(ball, _merged, lambda grid: reshaped(grid.swapaxes(1, 2), old, new))
