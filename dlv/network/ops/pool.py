"""POOL: largest or mean value of windows, and means over whole axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from dlv.kinds import Array, Floats
from dlv.network.fields import Kind
from dlv.network.ops import linear
from dlv.network.ops.axes import (
    Attrs,
    Axes,
    PortAxes,
    axis_key,
    axis_length,
    feature_axis,
    map_axes,
)
from dlv.network.ops.conv import feature_map, spatial
from dlv.network.ops.op import (
    CHANNELS,
    Attribute,
    Default,
    Node,
    NoRule,
    Op,
    Run,
    Shapes,
    with_rank,
)
from dlv.network.ops.windows import (
    Window,
    adaptive,
    divisors,
    largest,
    largest_and_places,
    mean_norm,
    means,
    most_places,
    overlap,
    sliding,
)
from dlv.network.sizes import Dim, Shape, axis_of, window

if TYPE_CHECKING:
    from dlv.network.bounds import ball as balls
    from dlv.network.bounds.ball import Form, Passed

_WINDOWED = ("MAX", "AVG")


def _window(name: str, kind: Kind, default: Any, minimum: int) -> Attribute:
    return Attribute(name, kind, default, minimum=minimum, variants=_WINDOWED, unless="size")


class Pool(Op):
    name = "POOL"
    variants = (*_WINDOWED, "MEAN")
    attributes = (
        _window("kernel", Kind.PER_AXIS, Default.REQUIRED, 1),
        _window("stride", Kind.PER_AXIS, 1, 1),
        _window("pad", Kind.PAIRS, 0, 0),
        _window("dilation", Kind.PER_AXIS, 1, 1),
        Attribute("ceil", Kind.BOOL, False, variants=_WINDOWED),
        Attribute("count_pad", Kind.BOOL, True, variants=("AVG",)),
        Attribute(
            "size", Kind.PER_AXIS_OR_NULL, None, nullable=True, minimum=1, variants=_WINDOWED
        ),
        replace(CHANNELS, variants=_WINDOWED),
        Attribute("axis", Kind.AXES, None, nullable=True, variants=("MEAN",)),
        Attribute("keep", Kind.BOOL, False, variants=("MEAN",)),
    )

    def ports(self, node: Node) -> int | None:
        # The positions of the largest values are a second output.
        return 2 if node.variant == "MAX" else 1

    def faults(self, node: Node) -> list[str]:
        attrs = node.attrs
        if attrs.get("kernel") is None:
            return []
        return [
            f"pad {before, after} is not below the window of {dilation * (kernel - 1) + 1}"
            for kernel, (before, after), dilation in zip(
                attrs["kernel"], attrs["pad"], attrs["dilation"], strict=True
            )
            if max(before, after) > dilation * (kernel - 1)
        ]

    def shape(self, node: Node, inputs: Shapes) -> tuple[Shape | None, ...]:
        result: Shape | None = None
        if inputs[0] is not None:
            pool = self._mean if node.variant == "MEAN" else self._windows
            result = pool(node, inputs[0])
        return (result,) * (self.ports(node) or 1)

    def _mean(self, node: Node, shape: Shape) -> Shape:
        axis, rank = node.attrs["axis"], len(shape)
        gone = set(range(rank)) if axis is None else {axis_of(a, rank, "axis") for a in axis}
        if node.attrs["keep"]:
            return tuple(1 if place in gone else dim for place, dim in enumerate(shape))
        return tuple(dim for place, dim in enumerate(shape) if place not in gone)

    def _windows(self, node: Node, shape: Shape) -> Shape:
        attrs = node.attrs
        size = attrs["size"]
        axes = len(attrs["kernel"] if size is None else size)
        batch, depth, lengths = spatial(shape, axes, attrs["channels"], node.op)
        if size is not None:
            lengths = tuple(
                length if wanted is None else wanted
                for length, wanted in zip(lengths, size, strict=True)
            )
        else:
            lengths = tuple(
                window(length, kernel, stride, pad, dilation, attrs["ceil"])
                for length, kernel, stride, pad, dilation in zip(
                    lengths,
                    attrs["kernel"],
                    attrs["stride"],
                    attrs["pad"],
                    attrs["dilation"],
                    strict=True,
                )
            )
        return feature_map(batch, depth, lengths, attrs["channels"])

    def output_axes(self, node: Node, port: int, inputs: PortAxes, shape: Shape) -> Axes | None:
        first = inputs[0] if inputs else None
        if first is None:
            return None
        if node.variant != "MEAN":
            if len(first) != len(shape):
                return None
            channels = first[feature_axis(node.attrs, len(shape))]
            return map_axes(node.attrs, first[0], channels, shape)
        axis, rank = node.attrs["axis"], len(first)
        gone = set(range(rank)) if axis is None else {a % rank for a in axis}
        if not node.attrs["keep"]:
            return tuple(a for place, a in enumerate(first) if place not in gone)
        return tuple(
            tuple(replace(part, length=1, pieces=()) for part in a) if place in gone else a
            for place, a in enumerate(first)
        )

    def comparable(
        self, node: Node, attrs: Attrs, inputs: PortAxes, outputs: PortAxes
    ) -> tuple[str | None, Attrs]:
        """Windows rather than sizes; a mean over the whole map as such."""
        first = inputs[0] if inputs else None
        if first is None:
            return node.variant, attrs
        if node.variant == "MEAN":
            axis = attrs["axis"]
            places = range(len(first)) if axis is None else [a % len(first) for a in axis]
            return "MEAN", {"axis": tuple(sorted(axis_key(first[place]) for place in places))}
        if len(first) != len(attrs["kernel"] or attrs["size"]) + 2:
            return node.variant, attrs
        feature = feature_axis(node.attrs, len(first))
        beside = [axis for place, axis in enumerate(first) if place not in (0, feature)]
        lengths = [axis_length(axis) for axis in beside]
        if attrs["size"] is not None:
            attrs = _sized_windows(attrs, lengths)
        if attrs["size"] is None:
            attrs = {**attrs, **_rounding(attrs, lengths)}
            whole = list(attrs["kernel"]) == lengths and not any(map(any, attrs["pad"]))
            if whole and node.variant == "AVG" and set(attrs["dilation"]) == {1}:
                return "MEAN", {"axis": tuple(sorted(map(axis_key, beside)))}
        return node.variant, attrs

    def forward(self, node: Node, run: Run) -> tuple[Array, ...]:
        x = run.inputs[0]
        if node.variant == "MEAN":
            return (x.mean(axis=_axes(node, x.ndim), keepdims=node.attrs["keep"]),)
        windows, first = _windows(node, x)
        if node.variant == "AVG":
            return (_average(node, x, windows, first),)
        if 1 in run.ports:
            return largest_and_places(x, windows, first)
        return (largest(x, windows, first),)

    def bounds(self, node: Node, run: balls.BallRun) -> tuple[balls.Ball, ...]:
        given = linear.batch_of(node, run.inputs[0])
        if node.variant == "MEAN":
            return (_mean_ball(node, run, given),)
        windows, first = _windows(node, given.centre)
        if node.variant == "AVG":
            return (_average_ball(node, run, given, windows, first),)
        return (_largest_ball(given, windows, first),)

    def adjoint(self, node: Node, form: Form) -> Passed | None:
        if node.variant == "MEAN":
            return _mean_adjoint(node, form)
        return (_average_adjoint if node.variant == "AVG" else _largest_adjoint)(node, form)


def _sized_windows(attrs: dict[str, Any], lengths: Sequence[Dim]) -> dict[str, Any]:
    """An adaptive pool as the windows that it has, if they are all of one size."""
    steps = []
    for size, have in zip(attrs["size"], lengths, strict=True):
        if size is None:
            steps.append(1)
        elif isinstance(have, int) and have % size == 0:
            steps.append(have // size)
        else:
            return attrs
    return {
        **attrs,
        "size": None,
        "kernel": tuple(steps),
        "stride": tuple(steps),
        "pad": ((0, 0),) * len(steps),
        "dilation": (1,) * len(steps),
    }


def _rounding(attrs: Mapping[str, Any], lengths: Sequence[Dim]) -> dict[str, Any]:
    """`ceil` where it matters, `count_pad` where there is something to count, strides that do."""
    ceil = False
    strides = []
    names = ("kernel", "stride", "pad", "dilation")
    for have, kernel, stride, pad, dilation in zip(
        lengths, *(attrs[name] for name in names), strict=True
    ):
        if not isinstance(have, int):
            ceil = ceil or attrs["ceil"]
            strides.append(stride)
            continue
        room = have + sum(pad) - dilation * (kernel - 1) - 1
        up = window(have, kernel, stride, pad, dilation, True) if room >= 0 else None
        down = window(have, kernel, stride, pad, dilation, False) if room >= 0 else None
        ceil = ceil or (attrs["ceil"] and up != down)
        only = (up if attrs["ceil"] else down) == 1
        strides.append(1 if only else stride)  # a single window goes nowhere
    found: dict[str, Any] = {"ceil": ceil, "stride": tuple(strides)}
    if "count_pad" in attrs and not ceil and not any(map(any, attrs["pad"])):
        found["count_pad"] = True
    return found


def _axes(node: Node, rank: int) -> tuple[int, ...]:
    axis = node.attrs["axis"]
    places = range(rank) if axis is None else {axis_of(each, rank, "axis") for each in axis}
    return tuple(sorted(places))


def _windows(node: Node, x: Array) -> tuple[tuple[Window, ...], int]:
    """The windows over a map, and the first of the axes they slide over."""
    attrs = node.attrs
    count = len(attrs["kernel"] if attrs["size"] is None else attrs["size"])
    with_rank(x.shape, count + 2, node.op)
    first = 1 if attrs["channels"] == "last" else 2
    lengths = x.shape[first : first + count]
    if attrs["size"] is None:
        return sliding(attrs, lengths, ceil=attrs["ceil"]), first
    sizes = zip(lengths, attrs["size"], strict=True)
    return tuple(adaptive(n, n if wanted is None else wanted) for n, wanted in sizes), first


def _padding(node: Node, windows: Sequence[Window]) -> list[tuple[Window, int, bool]]:
    """Each axis's windows, the padding behind it, and whether padding counts in means."""
    if node.attrs["size"] is not None:
        return [(each, 0, False) for each in windows]
    pads = zip(windows, node.attrs["pad"], strict=True)
    return [(each, after, node.attrs["count_pad"]) for each, (_, after) in pads]


def _average(node: Node, x: Array, windows: Sequence[Window], first: int) -> Array:
    import numpy as np

    dtype = x.dtype if x.dtype.kind == "f" else np.dtype(np.float64)
    counts = [divisors(*each) for each in _padding(node, windows)]
    return means(x, windows, first, counts, dtype)


def _largest_ball(given: balls.Ball, windows: Sequence[Window], first: int) -> balls.Ball:
    """Largest values move no more than the largest move in their windows."""
    from dlv.network.bounds import ball as balls

    centre = largest(given.centre, windows, first)
    radius = given.radius * (overlap(windows) ** 0.5 * balls.UP)
    found: Floats | None = None
    if given.box is not None:
        import numpy as np

        found = largest(given.box, windows, first)
        upper = largest(given.centre + given.box, windows, first)
        lower = largest(given.centre - given.box, windows, first)
        ends = np.maximum(upper - centre, centre - lower) * balls.UP
        # The ends and their distances are rounded.
        ends += (np.abs(upper) + np.abs(lower)) * 2.0**-51
        found = np.minimum(found, ends)
    return linear.ball(centre, radius, found)


def _average_ball(
    node: Node, run: balls.BallRun, given: balls.Ball, windows: Sequence[Window], first: int
) -> balls.Ball:
    def average(x: Floats) -> Floats:
        return _average(node, x, windows, first)

    share = prod(mean_norm(*each) for each in _padding(node, windows))
    return _linear_ball(run, given, average, share, most_places(windows))


def _mean_ball(node: Node, run: balls.BallRun, given: balls.Ball) -> balls.Ball:
    axes = _axes(node, given.centre.ndim)
    if 0 in axes:
        raise NoRule(node, "it is a mean over the batch")
    terms = prod(given.centre.shape[axis] for axis in axes)

    def average(x: Floats) -> Floats:
        found: Floats = x.mean(axis=axes, keepdims=node.attrs["keep"])
        return found

    return _linear_ball(run, given, average, float(max(terms, 1)) ** -0.5, terms)


def _linear_ball(
    run: balls.BallRun,
    given: balls.Ball,
    average: Callable[[Floats], Floats],
    share: float,
    terms: int,
) -> balls.Ball:
    """Means of at most `terms` places, as a matrix of norm at most `share`."""
    from dlv.network.bounds import ball as balls

    centre = average(given.centre)
    ours = balls.gamma(terms + 3, balls.UNIT)
    theirs = balls.gamma(terms + 3, run.reference.unit)
    alone = (terms + 3) * (run.reference.tiny + 2.0**-1021)
    size = balls.l2(given.centre)
    radius = share * (given.radius * (1 + theirs) + size * (ours + theirs))
    radius = (radius + alone * max(centre[:1].size, 1) ** 0.5) * balls.UP
    found: Floats | None = None
    if given.box is not None:
        import numpy as np

        moved, about = average(given.box), average(np.abs(given.centre))
        found = (moved * (1 + theirs) + about * (ours + theirs) + alone) * balls.UP
        # A mean of moves is rounded itself.
        found = found * (1 + ours)
    return linear.ball(centre, radius, found)


def _largest_adjoint(node: Node, form: Form) -> Passed | None:
    """To the place of the centre's largest; a < 0 loses what another place may be above it."""
    import numpy as np

    from dlv.network.bounds import ball as balls

    given, a = form.run.inputs[0], form.a
    windows, first = _windows(node, given.centre)
    centre, far = given.centre, balls.filled(given)
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
    gap += balls.SLACK * (np.abs(np.where(alone, 0.0, other)) + np.abs(own))
    gap = np.where(alone, 0.0, np.maximum(gap, 0.0)) + form.run.reference.tiny
    loss = balls.total(np.where(a < 0, -a, 0.0) * form.of(gap))
    back = np.zeros((len(a), *centre.shape[1:]))
    mine = form.of(chosen)
    for tap, outputs, places in _taps(windows, first):
        back[places] += np.where(mine[outputs] == tap, a[outputs], 0.0)
    # Windows that overlap add up, with a rounding each.
    held = overlap(windows)
    rounding = balls.gamma(held, balls.UNIT) * held if held > 1 else 0.0
    return [back], loss + rounding * balls.l2(a) * form.of(given.radius) * balls.UP


def _average_adjoint(node: Node, form: Form) -> Passed | None:
    import numpy as np

    given, a = form.run.inputs[0], form.a
    windows, first = _windows(node, given.centre)
    share = np.ones((1,) * a.ndim)
    for axis, padded in enumerate(_padding(node, windows), first):
        counts = np.maximum(divisors(*padded), 1)
        share = share * counts.reshape([-1 if place == axis else 1 for place in range(a.ndim)])
    back = np.zeros((len(a), *given.centre.shape[1:]))
    for _, outputs, places in _taps(windows, first):
        back[places] += (a / share)[outputs]
    return [back], _of_means(form, most_places(windows), math.sqrt(overlap(windows)))


def _mean_adjoint(node: Node, form: Form) -> Passed | None:
    import numpy as np

    given, a = form.run.inputs[0], form.a
    shape = given.centre.shape
    axes = _axes(node, len(shape))
    if 0 in axes:
        return None
    kept = [1 if place in axes else length for place, length in enumerate(shape)]
    terms = prod(shape[place] for place in axes)
    back = np.broadcast_to(a.reshape(len(a), *kept[1:]) / terms, (len(a), *shape[1:]))
    return [back], _of_means(form, terms, 1.0)


def _of_means(form: Form, terms: int, share: float) -> Floats:
    """Rounding of means of so many places, as a matrix of norm `share` at most, both ways."""
    from dlv.network.bounds import ball as balls

    run, given = form.run, form.run.inputs[0]
    ours, theirs = balls.gamma(terms + 3, balls.UNIT), balls.gamma(terms + 3, run.reference.unit)
    alone = (terms + 3) * (run.reference.tiny + 2.0**-1021) * math.sqrt(form.output.centre[:1].size)
    size = share * (balls.l2(given.centre) * (ours + theirs) + given.radius * theirs) + alone
    back = ours * (terms + 1) * share * given.radius
    found: Floats = balls.l2(form.a) * form.of((size + back) * balls.UP) * balls.UP
    return found


def _taps(
    windows: Sequence[Window], first: int
) -> Iterator[tuple[int, tuple[slice, ...], tuple[slice, ...]]]:
    """Each place within a window: its number, the windows that have it, and where it lies."""
    before = (slice(None),) * first
    for number, place in enumerate(product(*(each.taps() for each in windows))):
        outputs = tuple(each for _, each, _ in place)
        yield number, (*before, *outputs), (*before, *(each for _, _, each in place))
