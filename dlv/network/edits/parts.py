"""What an axis is a product of, each factor with what is known of its entries."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import dlv.network.edits.marks as marks
from dlv.network.edits.marks import Marks
from dlv.network.sizes import Dim, dim_of, product


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


def length(axis: Axis) -> Dim:
    return dim_of(product(part.length for part in axis))


def cut(axis: Axis, start: int, end: int) -> Axis | None:
    """The entries from `start` to `end`; None where they are not whole ones of the first factor."""
    inner = length(axis[1:]) if len(axis) > 1 else 1
    if not axis or not isinstance(inner, int) or not inner or start % inner or end % inner:
        return None
    outer, low, high = axis[0], start // inner, end // inner
    pieces: list[tuple[str, Axis]] = []
    at = 0
    for tag, piece in outer.pieces:
        size = length(piece)
        if not isinstance(size, int):
            return None
        first, last = max(low - at, 0), min(high - at, size)
        if first < last:
            part = piece if (first, last) == (0, size) else cut(piece, first, last)
            if part is None:
                return None
            pieces.append((tag, part))
        at += size
    begin = None if pieces else (outer.start or 0) + low
    return (replace(outer, length=high - low, pieces=tuple(pieces), start=begin), *axis[1:])


def marked(axes: Axes, given: Marks, *, inside: bool = False) -> Axes:
    """The same with marks on its entries; `inside`: on the stretches of joined ones, too."""
    return tuple(tuple(_marked(part, given, inside) for part in axis) for axis in axes)


def _marked(part: Part, given: Marks, inside: bool) -> Part:
    if part.key == "b":
        return part
    if not part.pieces:
        return replace(part, marks=given)
    # They all came the same way: what made each of them is its own.
    way = {mark: at for mark, at in given.items() if not mark.startswith(marks.TENSOR)}
    return _further(part, way) if inside else part


def _further(part: Part, way: Marks) -> Part:
    if not part.pieces:
        return replace(part, marks=marks.joined((part.marks, way)))
    pieces = tuple((tag, tuple(_further(each, way) for each in axis)) for tag, axis in part.pieces)
    return replace(part, pieces=pieces)
