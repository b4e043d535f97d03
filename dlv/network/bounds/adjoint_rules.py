"""How a linear form in a node's outputs becomes one in its inputs, and what is lost on the way.

With e = x_ref - xc at each place: a . e_out >= sum of a' . e_in - loss, for all weights with the
planes that were read, and with the rounding of the reference and of the centre.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod, sqrt

import numpy as np

import dlv.network.bounds.grains as grains
from dlv.kinds import Array, Floats, Places
from dlv.network.bounds.ball import UNIT, UP, Ball, BallRun, gamma, l2
from dlv.network.graph import Node
from dlv.network.ops import linear
from dlv.network.ops.pooling import adaptive, divisors, most_places, sums
from dlv.network.ops.windows import (
    Window,
    channels_back,
    channels_last,
    kernel_first,
    overlap,
    sliding,
    spread,
)
from dlv.network.sizes import axis_of

# Slopes and gaps are rounded themselves, by a few units each.
_SLACK = 2.0**-48
# Products too small to be told from 0 change a form by less than this.
_TINY = 2.0**-900
_SAME_ORDER = ("flatten", "view", "reshape", "squeeze", "unsqueeze", "contiguous")


@dataclass(frozen=True)
class Form:
    """A node with the balls around it, and linear forms `a` in its output, one for each pair.

    `rows`: the row of the batch that each pair belongs to.
    """

    node: Node
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


def passed(form: Form) -> Passed | None:
    """The forms in the inputs; None where there is no rule."""
    rule = _RULES.get((form.node.op, form.node.variant))
    return None if rule is None else rule(form)


def total(x: Floats) -> Floats:
    """The sum of each pair's non-negative numbers, rounded up."""
    count = max(x[:1].size, 1)
    found: Floats = x.sum(axis=tuple(range(1, x.ndim))) * (1 + max(1e-9, count * 2.0**-52))
    return found


def least_of(form: Floats, reach: Floats, radius: Floats) -> Floats:
    """What a . e may take away at most, by coordinates or by norms."""
    found: Floats = np.minimum(total(np.abs(form) * reach), l2(form) * radius) * UP
    return found


def _full(form: Form) -> Passed | None:
    node, run, given = form.node, form.run, form.run.inputs[0]
    weight = run.params["weight"]
    matrix = weight if node.attrs["layout"] == "out_in" else weight.T
    terms = given.centre.shape[-1]
    patch = linear.root(_by_group(given.centre, 1), terms)
    whole = l2(patch)
    places = prod(given.centre.shape[1:-1])
    reach = linear.Reach(terms, places, form.output.centre[:1].size, 1, whole, whole)
    moved = linear.root(_by_group(_filled(given), 1), terms)
    loss = _unread(form, reach, l2(matrix)[None], patch, moved, "last")
    back = np.matmul(form.a, matrix)
    return [back], loss + _backwards(form, len(matrix), 1)


def _conv(form: Form) -> Passed | None:
    node, run, given = form.node, form.run, form.run.inputs[0]
    channels, groups = node.attrs["channels"], node.attrs["groups"]
    x = channels_last(given.centre, channels)
    axes = sliding(node.attrs, x.shape[1:-1])
    weight = kernel_first(node.attrs["layout"], run.params["weight"])
    terms, held = prod(weight.shape[:-1]), overlap(axes)
    patch = linear.root(sums(_by_group(x, groups), axes, 1), terms)
    outputs = form.output.centre[:1].size
    places = outputs // max(weight.shape[-1], 1)
    reach = linear.Reach(terms, places, outputs, held, l2(patch), l2(x))
    box = channels_last(_filled(given), channels)
    moved = linear.root(sums(_by_group(box, groups), axes, 1), terms)
    flat = weight.reshape(-1, weight.shape[-1])
    rows = l2(flat.T).reshape(groups, -1)
    loss = _unread(form, reach, rows, patch, moved, channels)
    a = np.ascontiguousarray(channels_last(form.a, channels))
    back = channels_back(spread(a, weight, axes, groups), channels)
    most = weight.shape[-1] // groups * prod(weight.shape[:-2])
    return [back], loss + _backwards(form, most, held)


def _by_group(x: Array, groups: int) -> Floats:
    split = x.reshape(*x.shape[:-1], groups, x.shape[-1] // groups)
    found: Floats = np.einsum("...c,...c->...", split, split)
    return found


def _filled(ball: Ball) -> Floats:
    """The box; without one, the radius in each coordinate."""
    if ball.box is not None:
        return ball.box
    return np.broadcast_to(_along(ball.radius, ball.centre), ball.centre.shape)


def _along(values: Floats, like: Array) -> Floats:
    """One number for each row, to be multiplied with what has further axes."""
    return values.reshape(-1, *(1 for _ in like.shape[1:]))


def _unread(
    form: Form, reach: linear.Reach, rows: Floats, patch: Floats, moved: Floats, channels: str
) -> Floats:
    """What unread bits and rounding take away: dW P(x_ref), and both sides' rounding of z.

    `rows`: norms of the rows of Wc, by group; `patch`, `moved`: norms of what each window holds
    of xc, and of x_ref - xc at most, by group.
    """
    run, given = form.run, form.run.inputs[0]
    norms, bias = linear.norms_of(form.node, run), run.params.get("bias")
    alone = min(norms.dn * sqrt(reach.overlap), norms.dopn)
    together = linear.radii(replace(norms, opn=alone), run, reach, given.radius, bias)
    moved = np.minimum(moved, _along(given.radius, moved))
    unread = np.full(rows.shape, norms.dn)
    if norms.drows is not None:
        unread = norms.drows.reshape(rows.shape)
    theirs, ours = gamma(reach.terms + 3, run.reference.unit), gamma(reach.terms + 3, UNIT)
    small = linear.flushed(run, reach)
    by_moved = unread + theirs * (rows + unread) + small
    each = moved[..., None] * by_moved + patch[..., None] * (by_moved + ours * rows)
    single = linear.lost(run, reach) + small * (rows + unread)
    if bias is not None:
        single += (theirs + ours) * np.abs(bias).reshape(rows.shape)
    each = ((each + single) * UP).reshape(*each.shape[:-2], -1)
    each = channels_back(each, channels)
    return least_of(form.a, form.of(each), form.of(together))


def _backwards(form: Form, terms: int, held: int) -> Floats:
    """What the rounding of Wc^T a takes away."""
    norms = linear.norms_of(form.node, form.run)
    share = gamma(terms + 3, UNIT) * sqrt(held) * (norms.fro + norms.dfro)
    found: Floats = (share * l2(form.a) + _TINY) * form.of(form.run.inputs[0].radius) * UP
    return found


def _relu(form: Form) -> Passed | None:
    """a >= 0: a tangent below; a < 0: the chord above."""
    if form.node.attrs["slope"]:
        return None
    given, a = form.run.inputs[0], form.a
    centre, far = form.of(given.centre), form.reach(given)
    bent = np.abs(centre) < far
    chord = (centre + far) / np.where(bent, 2 * far, 1.0)
    slope = np.where(bent & (a < 0), chord, np.where(bent, centre >= 0, centre > 0))
    lost = np.where(bent & (a < 0), (far - np.abs(centre)) / 2 + _SLACK * far, 0.0)
    lost = lost + form.run.reference.tiny
    return [a * slope], total(np.abs(a) * lost)


def _largest(form: Form) -> Passed | None:
    """To the place of the centre's largest; a < 0 loses what another place may be above it."""
    given, a = form.run.inputs[0], form.a
    windows, first = _windows(form.node, given.centre)
    centre, far = given.centre, _filled(given)
    upper, lower = centre + far, centre - far
    shape = form.output.centre.shape
    best, chosen = np.full(shape, -np.inf), np.zeros(shape, np.int64)
    for tap, outputs, places in _taps(windows, first):
        better = centre[places] > best[outputs]
        best[outputs] = np.where(better, centre[places], best[outputs])
        chosen[outputs] = np.where(better, tap, chosen[outputs])
    other, own = np.full(shape, -np.inf), np.full(shape, np.nan)
    for tap, outputs, places in _taps(windows, first):
        is_own = chosen[outputs] == tap
        own[outputs] = np.where(is_own, lower[places], own[outputs])
        rest = np.where(is_own, -np.inf, upper[places])
        other[outputs] = np.maximum(other[outputs], rest)
    alone = other == -np.inf
    gap = np.where(alone, 0.0, other) - own
    gap += _SLACK * (np.abs(np.where(alone, 0.0, other)) + np.abs(own))
    gap = np.where(alone, 0.0, np.maximum(gap, 0.0)) + form.run.reference.tiny
    loss = total(np.where(a < 0, -a, 0.0) * form.of(gap))
    back = np.zeros((len(a), *centre.shape[1:]))
    mine = form.of(chosen)
    for tap, outputs, places in _taps(windows, first):
        back[places] += np.where(mine[outputs] == tap, a[outputs], 0.0)
    # Windows that overlap add up, with a rounding each.
    held = overlap(windows)
    rounding = gamma(held, UNIT) * held if held > 1 else 0.0
    return [back], loss + rounding * l2(a) * form.of(given.radius) * UP


def _average(form: Form) -> Passed | None:
    node, given, a = form.node, form.run.inputs[0], form.a
    windows, first = _windows(node, given.centre)
    pads = [(0, 0)] * len(windows) if node.attrs["size"] is not None else node.attrs["pad"]
    count_pad = node.attrs["size"] is None and node.attrs["count_pad"]
    share = np.ones((1,) * a.ndim)
    for axis, (window, (_, after)) in enumerate(zip(windows, pads, strict=True), first):
        counts = np.maximum(divisors(window, after, count_pad), 1)
        share = share * counts.reshape([-1 if place == axis else 1 for place in range(a.ndim)])
    back = np.zeros((len(a), *given.centre.shape[1:]))
    for _, outputs, places in _taps(windows, first):
        back[places] += (a / share)[outputs]
    return [back], _of_means(form, most_places(windows), sqrt(overlap(windows)))


def _mean(form: Form) -> Passed | None:
    given, a = form.run.inputs[0], form.a
    shape, axis = given.centre.shape, form.node.attrs["axis"]
    rank = len(shape)
    axes = range(rank) if axis is None else {axis_of(each, rank, "axis") for each in axis}
    if 0 in axes:
        return None
    kept = [1 if place in axes else length for place, length in enumerate(shape)]
    terms = prod(shape[place] for place in axes)
    back = np.broadcast_to(a.reshape(len(a), *kept[1:]) / terms, (len(a), *shape[1:]))
    return [back], _of_means(form, terms, 1.0)


def _of_means(form: Form, terms: int, share: float) -> Floats:
    """Rounding of means of so many places, as a matrix of norm `share` at most, both ways."""
    run, given = form.run, form.run.inputs[0]
    ours, theirs = gamma(terms + 3, UNIT), gamma(terms + 3, run.reference.unit)
    alone = (terms + 3) * (run.reference.tiny + 2.0**-1021) * sqrt(form.output.centre[:1].size)
    size = share * (l2(given.centre) * (ours + theirs) + given.radius * theirs) + alone
    back = ours * (terms + 1) * share * given.radius
    found: Floats = l2(form.a) * form.of((size + back) * UP) * UP
    return found


def _add(form: Form) -> Passed | None:
    node, run, a = form.node, form.run, form.a
    shape = form.output.centre.shape
    if any(ball.centre.shape != shape and not ball.exact for ball in run.inputs):
        return None
    size, extra = np.zeros(shape[0]), np.zeros(shape[0])
    for ball in run.inputs:
        size = size + l2(np.broadcast_to(ball.centre, shape))
        extra = extra + ball.radius
    terms = len(run.inputs) + 1
    side = node.attrs["const"]
    if "value" in node.params or side is not None:
        value = np.asarray(run.params["value"] if "value" in node.params else side, np.float64)
        size = size + l2(np.broadcast_to(value, shape))
        terms += 1
    lost = grains.slip(run.reference, terms, size, extra, form.output.centre[:1].size)
    return [None if ball.exact else a for ball in run.inputs], l2(a) * form.of(lost) * UP


def _concat(form: Form) -> Passed | None:
    given = form.run.inputs
    axis = axis_of(form.node.attrs["axis"], form.a.ndim, "axis")
    if axis == 0 or any(len(ball.centre) != len(form.output.centre) for ball in given):
        return None
    ends = np.cumsum([ball.centre.shape[axis] for ball in given])[:-1]
    return np.split(form.a, ends, axis), np.zeros(len(form.a))


def _reshape(form: Form) -> Passed | None:
    kind, a = form.node.attrs["kind"], form.a
    shape = form.run.inputs[0].centre.shape
    nothing: list[None] = [None] * (len(form.run.inputs) - 1)
    if len(form.output.centre) != shape[0]:
        return None
    if kind in _SAME_ORDER and form.output.centre.size == prod(shape):
        return [a.reshape(len(a), *shape[1:]), *nothing], np.zeros(len(a))
    if kind not in ("transpose", "permute"):
        return None
    order = list(range(a.ndim))
    axes = [axis_of(each, a.ndim, "axis") for each in form.node.attrs["axes"]]
    if kind == "transpose":
        one, other = axes
        order[one], order[other] = other, one
    else:
        order = [axes.index(place) for place in range(a.ndim)]
    if order[0]:
        return None
    return [a.transpose(order), *nothing], np.zeros(len(a))


def _dropout(form: Form) -> Passed | None:
    return [form.a], np.zeros(len(form.a))


def _windows(node: Node, x: Array) -> tuple[tuple[Window, ...], int]:
    """The windows of a pool, and the first of the axes they slide over."""
    attrs = node.attrs
    count = len(attrs["kernel"] if attrs["size"] is None else attrs["size"])
    first = 1 if attrs["channels"] == "last" else 2
    lengths = x.shape[first : first + count]
    if attrs["size"] is None:
        return sliding(attrs, lengths, ceil=attrs["ceil"]), first
    sizes = zip(lengths, attrs["size"], strict=True)
    return tuple(adaptive(n, n if wanted is None else wanted) for n, wanted in sizes), first


def _taps(
    windows: Sequence[Window], first: int
) -> Iterator[tuple[int, tuple[slice, ...], tuple[slice, ...]]]:
    """Each place within a window: its number, the windows that have it, and where it lies."""
    before = (slice(None),) * first
    for number, place in enumerate(product(*(each.taps() for each in windows))):
        outputs = tuple(each for _, each, _ in place)
        yield number, (*before, *outputs), (*before, *(each for _, _, each in place))


_RULES: dict[tuple[str, str | None], Callable[[Form], Passed | None]] = {
    ("FULL", None): _full,
    ("CONV", None): _conv,
    ("RELU", None): _relu,
    ("POOL", "MAX"): _largest,
    ("POOL", "AVG"): _average,
    ("POOL", "MEAN"): _mean,
    ("ADD", None): _add,
    ("CONCAT", None): _concat,
    ("RESHAPE", None): _reshape,
    ("DROPOUT", None): _dropout,
}
