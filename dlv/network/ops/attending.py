"""Attention: softmax of scaled query-key products applied to the values, and its error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dlv.dataclass import dataclass
from dlv.kinds import Array, Floats
from dlv.network.bounds.ball import UNIT, UP, Ball, Reference, gamma
from dlv.network.bounds.grains import carried, grids, largest, level, norm, reshaped, settled

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
    scores = (query * _factor(how, query)) @ key.swapaxes(-1, -2)
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
    joint = [_of_all_heads(ball, query) for ball in balls[:3]] if query.ndim == 4 else []
    centres, radii, together = [], [], []
    inner = replace(how, heads=None)
    for rows in _chunks(query, key):
        part = Part(*(_rows(x, rows, query) for x in (query, key, value, rq, rk, rv)))
        masks = [None if x is None else _rows(x, rows, query) for x in (mask_centre, mask_radius)]
        heads = [_rows(x, rows, query) for x in joint]
        centre, *found = _bounded(inner, part, masks, heads, reference)
        centres.append(centre)
        radii.append(found[0])
        together += found[1:]
    grown = [np.concatenate(each) for each in (radii, together) if each]
    result = settled(np.concatenate(centres), grown)
    return _merged_ball(result) if split else result


def _of_all_heads(ball: Ball, query: Floats) -> Floats:
    """A bound for each token on the norm over all heads, (N, 1, T, 1)."""
    shape = ball.centre.shape
    turned = [np.moveaxis(grid, 1, 2) for grid in grids(ball)]
    found = level(turned, (shape[0], shape[2], shape[1], shape[3]), 2)
    # Shared by several heads of queries, the error is there once for each.
    return np.moveaxis(found, 2, 1) * (math.sqrt(query.shape[1] / shape[1]) * UP)


@dataclass(frozen=True)
class Part:
    """Some rows of the batch: queries, keys and values, and a radius for each of them."""

    query: Floats
    key: Floats
    value: Floats
    rq: Floats
    rk: Floats
    rv: Floats


def _bounded(
    how: How,
    part: Part,
    masks: Sequence[Floats | None],
    joint: Sequence[Floats],
    reference: Reference,
) -> list[Floats]:
    """The centre, the radius of each vector of it, and that of all heads together.

    What goes into a result is how far the shares of keys move, of which three bounds are known,
    the values' own error, and rounding.
    """
    mask, mask_radius = masks
    value = part.value
    scores = _scores(how, part.query, part.key, mask)
    e, rounded = _score_errors(how, part, scores, mask, reference)
    if mask_radius is not None and mask is not None and mask.dtype.kind != "b":
        e, rounded = e + mask_radius, rounded + mask_radius
    least = (scores - e).max(axis=-1, keepdims=True)
    live = ~(scores + e <= least - _DEAD)
    e = np.where(live, e, 0)
    p = _weights(scores)
    centre = np.asarray(p @ value, np.float64)
    worst = e.max(axis=-1, keepdims=True)
    change, factor = _changes(p, np.minimum(e, _STEEP))
    change = np.where(worst > _STEEP, np.minimum(live, 1.0), change)
    moved = _moved_apart(value, live, change, worst)
    weights = factor * _distances(centre, value)
    growth = np.where(worst <= 1, np.expm1(worst) / np.maximum(worst, 1e-300), np.inf) * UP
    growth = np.where(worst > 0, growth, 1)
    moved = np.minimum(moved, growth * (weights * e).sum(axis=-1, keepdims=True))
    theirs = np.where(live, part.rv.swapaxes(-1, -2), 0)
    shares = np.where(live, np.minimum(p * UP + change, 1), 0)
    carried_on = np.minimum(
        (shares * theirs).sum(axis=-1, keepdims=True), theirs.max(axis=-1, keepdims=True)
    )
    lost = _lost(value, theirs, live, scores.shape[-1], reference)
    # What comes of a query that may look at nothing, frameworks disagree about.
    blind = ~live.any(axis=-1, keepdims=True)
    found = [centre, np.where(blind, np.inf, (moved + carried_on + lost) * UP)]
    if joint:
        rq, rk, rv = joint
        size = abs(_factor(how, part.query))
        long, wide = norm(part.query, 3), norm(part.key, 3).swapaxes(-1, -2)
        keys = (weights * (long + part.rq)).max(axis=1, keepdims=True) * rk.swapaxes(-1, -2)
        queries = (weights * wide).sum(axis=-1, keepdims=True).max(axis=1, keepdims=True) * rq
        rest = (weights * rounded).sum(axis=-1, keepdims=True)
        reach = size * (keys.sum(axis=-1, keepdims=True) + queries) + _over_heads(rest)
        reach = np.minimum(growth.max(axis=1, keepdims=True) * reach, _over_heads(moved))
        own = (shares.max(axis=1, keepdims=True) * rv.swapaxes(-1, -2)).sum(axis=-1, keepdims=True)
        own = np.minimum(own, _over_heads(carried_on))
        whole = np.minimum((reach + own + _over_heads(lost)) * UP, _over_heads(found[1]))
        found.append(np.where(blind.any(axis=1, keepdims=True), np.inf, whole))
    return found


def _over_heads(x: Floats) -> Floats:
    found: Floats = np.sqrt((x * x).sum(axis=1, keepdims=True)) * UP
    return found


def _moved_apart(value: Floats, live: Array, change: Floats, worst: Floats) -> Floats:
    """How far changed shares move the mixture.

    As their sum does not change, values count by their distance from any one point; and all
    shares together change by 2 tanh(worst / 2).
    """
    away = norm(value - value.mean(axis=-2, keepdims=True), value.ndim - 1)
    beside = np.where(live, away.swapaxes(-1, -2), 0)
    total = 2 * np.tanh(worst / 2) * UP
    found: Floats = np.minimum(
        (change * beside).sum(axis=-1, keepdims=True), total * beside.max(axis=-1, keepdims=True)
    )
    return found


def _distances(centre: Floats, value: Floats) -> Floats:
    """Of each value from each mixture, rounded up: (..., queries, keys)."""
    width = value.shape[-1]
    both = (centre * centre).sum(axis=-1)[..., :, None] + (value * value).sum(axis=-1)[..., None, :]
    squares = both - 2 * (centre @ value.swapaxes(-1, -2))
    # Of equal vectors the squares cancel: what is left is rounding.
    found: Floats = np.sqrt(np.maximum(squares, 0) + 8 * (width + 8) * UNIT * both + 1e-300) * UP
    return found


def _lost(value: Floats, theirs: Floats, live: Array, keys: int, reference: Reference) -> Floats:
    """What both sides round in the shares and in the mixture."""
    size = np.where(live, norm(value, value.ndim - 1).swapaxes(-1, -2), 0)
    largest = (size + theirs).max(axis=-1, keepdims=True)
    terms, width = 4 * keys + 40, value.shape[-1]
    lost = (gamma(terms, reference.unit) + gamma(terms, UNIT)) * largest
    tiny = reference.tiny + 2.0**-1022
    found: Floats = lost + terms * math.sqrt(width) * tiny * (1 + largest)
    return found


def _factor(how: How, query: Floats) -> float:
    return 1 / math.sqrt(query.shape[-1]) if how.scale is None else how.scale


def _score_errors(
    how: How, part: Part, scores: Floats, mask: Floats | None, reference: Reference
) -> tuple[Floats, Floats]:
    """How far each score may be off; and the share of it that both sides round."""
    query, key = part.query, part.key
    width, factor = query.shape[-1], abs(_factor(how, query))
    long, wide = norm(query, query.ndim - 1), norm(key, key.ndim - 1).swapaxes(-1, -2)
    ours, theirs = gamma(width + 8, UNIT), gamma(width + 8, reference.unit)
    across = part.rk.swapaxes(-1, -2)
    reach = long * across + part.rq * wide + part.rq * across
    rounded = factor * ((ours + theirs) * long * wide + theirs * reach)
    rounded = rounded + (width + 8) * (1 + factor) * (reference.tiny + 2.0**-1022)
    # Products of numbers as large as that may overflow.
    most = largest(reference)
    fits = (long + part.rq < most) & (wide + across < most)
    rounded = np.where(fits, rounded, np.inf)
    if mask is not None and mask.dtype.kind != "b":
        both = np.where(np.isfinite(scores), np.abs(scores), 0) + factor * reach + rounded
        added = np.where(np.isfinite(mask), np.abs(mask), 0)
        rounded = rounded + (gamma(3, UNIT) + gamma(3, reference.unit)) * (both + 2 * added)
    return np.asarray((factor * reach + rounded) * UP), np.asarray(rounded * UP)


def _changes(p: Floats, e: Floats) -> tuple[Floats, Floats]:
    """How far each share may be off, where score j may be by e_j; and the most that it can be.

    A share p changes by a factor between exp(e_j) / Z and exp(-e_j) / Z', with Z the least that
    the sum of all can become, and Z' the largest.
    """
    up, down = np.expm1(e), -np.expm1(-e)
    p = p * UP
    # In the numerators only positive terms are added, so that nothing cancels.
    fall = (p * down).sum(axis=-1, keepdims=True)
    rise = (p * up).sum(axis=-1, keepdims=True)
    least = (p * np.exp(-e)).sum(axis=-1, keepdims=True) / (UP * UP * UP)
    found: Floats = p * np.maximum((up + fall) / least, rise + down) * UP
    return np.minimum(found, 1), p * np.exp(e) / least * UP


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
