"""What an axis is made of: channels, places, gates; who brings which stretch of a joined one.

A flattened feature map is an axis of channels times places. Knowing that, weights can be carried
over when one factor grows, and two ways of storing them can be told from two networks.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from dlv.dataclass import dataclass
from dlv.network.sizes import Dim, Shape, dim_of, product

# What made features, and on what way -> how far away that is (`dlv.network.edits.axes`).
Marks = Mapping[str, int]


@dataclass(frozen=True)
class Part:
    """One factor of an axis.

    `fixed`: entries are places or gates, not a bag of features: of another number nothing can
    be said to be the same. `pieces`: of a joined axis, who brings which stretch; of what was cut
    out, `start` is where it began. `marks`: what made these features. `groups`: so many equal
    stretches has the axis `whole`, and the entries are those of any one of them.
    """

    key: str
    length: Dim
    fixed: bool = False
    pieces: tuple[tuple[str, Axis], ...] = ()
    start: int | None = None
    marks: Marks = field(default_factory=dict, compare=False, repr=False)
    groups: int = 1
    whole: Axis = ()


Axis = tuple[Part, ...]  # slowest first
Axes = tuple[Axis, ...]
PortAxes = Sequence[Axes | None]  # of several ports, None where unknown
Attrs = dict[str, Any]


def axis_length(axis: Axis) -> Dim:
    return dim_of(product(part.length for part in axis))


def cut_axis(axis: Axis, start: int, end: int) -> Axis | None:
    """The entries from `start` to `end`; None where they are not whole ones of the first factor."""
    inner = axis_length(axis[1:]) if len(axis) > 1 else 1
    if not axis or not isinstance(inner, int) or not inner or start % inner or end % inner:
        return None
    outer, low, high = axis[0], start // inner, end // inner
    pieces: list[tuple[str, Axis]] = []
    at = 0
    for tag, piece in outer.pieces:
        size = axis_length(piece)
        if not isinstance(size, int):
            return None
        first, last = max(low - at, 0), min(high - at, size)
        if first < last:
            part = piece if (first, last) == (0, size) else cut_axis(piece, first, last)
            if part is None:
                return None
            pieces.append((tag, part))
        at += size
    begin = None if pieces else (outer.start or 0) + low
    return (replace(outer, length=high - low, pieces=tuple(pieces), start=begin), *axis[1:])


def agrees(axes: Axes, shape: Shape) -> bool:
    """Whether axes may have that shape."""
    return len(axes) == len(shape) and all(
        axis_length(axis) == dim or axis_length(axis) is None
        for axis, dim in zip(axes, shape, strict=True)
    )


def feature_axis(attrs: Mapping[str, Any], rank: int) -> int:
    """The place of the channels among the axes of a map."""
    return rank - 1 if attrs.get("channels") == "last" else 1


def map_axes(attrs: Mapping[str, Any], batch: Axis, channels: Axis, shape: Shape) -> Axes:
    """The axes of a feature map of that shape."""
    place = feature_axis(attrs, len(shape))
    lengths = [dim for i, dim in enumerate(shape) if i not in (0, place)]
    axes: list[Axis] = [(Part(f"s{i}", dim, True),) for i, dim in enumerate(lengths)]
    axes.insert(place - 1, channels)
    return (batch, *axes)


def renamed(axis: Axis, prefix: str) -> Axis:
    """The axis with a prefix to the key of each part."""
    return tuple(replace(part, key=prefix + part.key) for part in axis)


def axis_key(axis: Axis) -> str:
    """The keys of all parts in one word."""
    return "*".join(part.key for part in axis)


def factors(axis: Axis) -> tuple[tuple[str, Hashable], ...]:
    """An axis as the set of its factors; one that holds the batch is called so."""
    if len(axis) == 1 and axis[0].key == "b":
        return (("b", "batch"),)
    return tuple(sorted((part.key, part.length) for part in axis if part.length != 1))


def named_axis(axes: Axes, axis: int, onwards: bool) -> Hashable:
    """An axis by what it is made of, so that its place does not matter."""
    if not -len(axes) <= axis < len(axes):
        return axis
    place = axis % len(axes)
    chosen = axes[place:] if onwards else axes[place : place + 1]
    return tuple(
        sorted("*".join(sorted(part.key for part in each if part.length != 1)) for each in chosen)
    )
