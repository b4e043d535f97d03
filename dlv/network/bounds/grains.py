"""Radii at three grains, rows, tokens and coordinates, through what moves numbers and maps them.

A grid is an array of the rank of a centre in which each axis is whole, or 1: an entry bounds the
norm of the error over the axes of length 1. So the radii of a ball are one grid, its tokens
another, its box a third, and what only moves numbers moves every grid in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from dlv.kinds import Array, Floats
from dlv.network.bounds.ball import UNIT, UP, Ball, Reference, gamma, squares

Shape = tuple[int, ...]

RAISED = UP  # what every new radius is multiplied by
_MOST_GROUPS = 4
_TINY = 2.0**-1022  # what a product in binary64 may lose, and more


def norm(x: Array, lead: int) -> Floats:
    """The norm over the axes behind the first `lead`, which keep length 1, rounded up."""
    axes = tuple(range(lead, x.ndim))
    if not axes:
        return np.abs(x)
    count = 1
    for axis in axes:
        count *= x.shape[axis]
    with np.errstate(all="ignore"):
        if lead == 1:
            found = np.sqrt(squares(x)).reshape(-1, *(1 for _ in axes))
        else:
            found = np.sqrt((x * x).sum(axis=axes, keepdims=True))
        found = found * (1 + max(1e-9, count * 2.0**-52))
    # Squares of tiny numbers vanish; what they would have added to a tiny sum is below this.
    result: Floats = np.where(found < 2.0**-400, found + count * 2.0**-500, found)
    return result


def most(x: Array, lead: int) -> Floats:
    """The largest size over the axes behind the first `lead`, which keep length 1."""
    axes = tuple(range(lead, x.ndim))
    return np.abs(x).max(axis=axes, keepdims=True, initial=0.0) if axes else np.abs(x)


def count(shape: Sequence[int], lead: int) -> int:
    """How many numbers a group has."""
    result = 1
    for length in shape[lead:]:
        result *= length
    return result


def grains(ball: Ball) -> list[tuple[int, Floats]]:
    """The grids of a ball, the coarsest first, each with the number of axes that it keeps."""
    shape = ball.centre.shape
    rank = len(shape)
    ones = (1,) * (rank - 1)
    if not rank:
        return [(0, ball.radius.reshape(()) if ball.radius.size == 1 else ball.radius.max())]
    # One radius may stand for all rows.
    rows = np.broadcast_to(ball.radius.reshape(-1, *ones), (shape[0], *ones))
    found = [(1, rows)]
    if ball.tokens is not None and rank > 2:
        found.append((rank - 1, ball.tokens[..., None]))
    if ball.box is not None and rank > 1:
        found.append((rank, ball.box))
    return found


def grids(ball: Ball) -> list[Floats]:
    return [*(grid for _, grid in grains(ball)), *ball.groups]


def level(grids: Iterable[Floats], shape: Sequence[int], lead: int) -> Floats:
    """The least bound on the groups that share the first `lead` axes; the others have length 1."""
    wanted = (*shape[:lead], *(1,) * (len(shape) - lead))
    best: Floats | None = None
    for grid in grids:
        whole = any(grid.shape[axis] != 1 for axis in range(lead, grid.ndim))
        each = np.broadcast_to(norm(grid, lead) if whole else grid, wanted)
        # NaN is kept: nothing is certain there.
        best = each if best is None else np.minimum(best, each)
    assert best is not None
    return best


def settled(centre: Floats, grids: Sequence[Floats], *, box: bool = False) -> Ball:
    """The ball of all that the grids tell; `box`: of single coordinates, too."""
    shape = centre.shape
    rank = len(shape)
    if not rank:
        return Ball(centre, level(grids, shape, 0).reshape(1))
    radius = level(grids, shape, 1).reshape(-1)
    tokens = None
    if rank > 2 and any(max(grid.shape[1:]) > 1 for grid in grids):
        tokens = level(grids, shape, rank - 1)[..., 0]
    whole = level(grids, shape, rank) if box and rank > 1 else None
    return Ball(centre, radius, whole, tokens, _others(grids, shape))


def _others(grids: Sequence[Floats], shape: Shape) -> tuple[Floats, ...]:
    """The grids that are neither rows nor tokens nor coordinates: such as tokens of all heads."""
    rank = len(shape)
    long = {axis for axis in range(rank) if shape[axis] > 1}
    known = [set(range(lead)) & long for lead in (0, 1, rank - 1, rank)]
    kept: dict[frozenset[int], Floats] = {}
    for grid in grids:
        whole = frozenset(axis for axis in long if grid.shape[axis] > 1)
        if whole not in known:
            kept[whole] = np.minimum(kept[whole], grid) if whole in kept else grid
    return tuple(kept.values())[:_MOST_GROUPS]


def widest(balls: Iterable[Ball]) -> tuple[bool, bool]:
    """Whether any ball knows its tokens, and its coordinates."""
    balls = list(balls)
    return any(b.tokens is not None for b in balls), any(b.box is not None for b in balls)


def leads(balls: Sequence[Ball], rank: int) -> list[int]:
    """The numbers of leading axes at which an operation on these is bounded."""
    if not rank:
        return [0]
    tokens, box = widest(balls)
    found = [1]
    if tokens and rank > 2:
        found.append(rank - 1)
    if box and rank > 1:
        found.append(rank)
    return found


def spread(ball: Ball, shape: Shape) -> list[Floats]:
    """Its grids as they are once the centre is repeated to a larger shape."""
    new = len(shape) - ball.centre.ndim
    own = (*(1,) * new, *ball.centre.shape)
    result = []
    for grid in grids(ball):
        grid = grid.reshape((1,) * new + grid.shape)
        # An axis that is repeated becomes whole: each copy has the error once more.
        wanted = tuple(
            length if have != length else kept
            for have, length, kept in zip(own, shape, grid.shape, strict=True)
        )
        result.append(np.broadcast_to(grid, wanted))
    return result


def slip(
    reference: Reference, terms: float, size: Array | float, extra: Array | float, n: int
) -> Floats:
    """What `terms` roundings lose on both sides, as a norm over `n` numbers.

    `size` is the norm of what is rounded at the centre, `size + extra` of the reference's. Where
    numbers are so large that the reference may overflow on its way, nothing is known.
    """
    theirs, ours = gamma(terms, reference.unit), gamma(terms, UNIT)
    lost = (theirs + ours) * size + theirs * extra
    found = (lost + terms * (reference.tiny + _TINY) * np.sqrt(n)) * UP
    if terms:
        found = np.where(size + extra < largest(reference), found, np.inf)
    return np.asarray(found, np.float64)


def largest(reference: Reference) -> float:
    """Numbers below this have squares and cubes that do not overflow."""
    return 2.0**40 if reference.tiny else 2.0**300


def whole_numbers(balls: Sequence[Ball], centre: Array) -> bool:
    """Whether they are exact and whole, so that every precision computes the same from them."""
    given = [ball.centre for ball in balls]
    return all(ball.exact for ball in balls) and all(
        bool((np.abs(x) < 2.0**24).all() and (x == np.rint(x)).all()) for x in (*given, centre)
    )


def held_by(reference: Reference, x: Array) -> Array:
    """Which numbers the reference's precision has exactly."""
    if not reference.tiny:
        return np.ones(x.shape, bool)
    with np.errstate(all="ignore"):
        single = x.astype(np.float32)
        normal = (np.abs(x) >= reference.tiny) | (x == 0)
    return np.asarray((single == x) & np.isfinite(single) & normal)


def exact(centre: Array) -> Ball:
    """A ball around what the reference has exactly."""
    if centre.dtype.kind != "b":  # a mask of flags means something else than one of numbers
        centre = np.asarray(centre, np.float64)
    return Ball(centre, np.zeros(len(centre) if centre.ndim else 1))


def reshaped(grid: Floats, old: Shape, new: Shape) -> list[Floats]:
    """The grids of a reshaped centre: axes that are cut or joined keep what can be kept."""
    apart: list[int] = []
    joined: list[int] = []
    wide: list[int] = []
    at = 0
    gathered = grid
    for count_old, dims in blocks(old, new):
        mine = range(at, at + count_old)
        at += count_old
        lengths = [grid.shape[axis] for axis in mine]
        wanted = [old[axis] for axis in mine]
        if all(length == 1 for length in lengths):
            apart += lengths
            wide += [1] * len(dims)
            joined += [1] * len(dims)
            continue
        apart += wanted
        wide += dims
        if lengths == wanted:
            joined += dims
        else:
            gathered = _gathered(gathered, mine)
            joined += [1] * len(dims)
    result = [np.broadcast_to(grid, apart).reshape(wide)]
    if joined != wide:
        result.append(gathered.reshape(joined))
    return result


def _gathered(grid: Floats, axes: range) -> Floats:
    lead = len(axes)
    found = norm(np.moveaxis(grid, list(axes), range(-lead, 0)), grid.ndim - lead)
    return np.moveaxis(found, range(-lead, 0), list(axes))


def blocks(old: Shape, new: Shape) -> list[tuple[int, list[int]]]:
    """Runs of old axes and of new ones with equal products, as short as they can be."""
    result: list[tuple[int, list[int]]] = []
    a = b = 0
    while a < len(old) or b < len(new):
        first, second = a, b
        left = right = 1
        if a < len(old):
            left, a = old[a], a + 1
        if b < len(new):
            right, b = new[b], b + 1
        while left != right:
            if left < right and a < len(old):
                left, a = left * old[a], a + 1
            elif right < left and b < len(new):
                right, b = right * new[b], b + 1
            else:  # only ones are left, or there is nothing at all
                left, a, b = right, len(old), len(new)
        result.append((a - first, list(new[second:b])))
    return result


def carried(
    ball: Ball, values: Callable[[Array], Array], move: Callable[[Array], list[Array]]
) -> Ball:
    """The ball of a centre that is only moved."""
    centre = values(ball.centre)
    if not centre.size:
        return exact(centre)
    found = [each for grid in grids(ball) for each in move(grid)]
    return settled(centre, found, box=ball.box is not None)
