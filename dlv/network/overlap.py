"""Which entries of an axis are which of the axis that it was before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dlv.network.axes import Axis, Part, length


class Run(NamedTuple):
    """A stretch of entries: `size` of them from `new` on are those from `old` on."""

    new: int
    old: int
    size: int


def overlap(old: Axis, new: Axis) -> tuple[Run, ...] | None:
    """The entries that both have, or None if nothing says which ones these are.

    Features grow and shrink at the end. Of a product each factor does, so that of a flattened
    map whole channels stay. Joined axes go stretch by stretch. Places do not change their number.
    """
    a, b = _matched(old, new)
    if a is None or b is None:
        return _unlike(old, new)
    runs: list[Run] = [Run(0, 0, 1)]
    rest_old = rest_new = 1
    for before, after in zip(reversed(a), reversed(b), strict=True):
        had, has = before.length, after.length
        if not isinstance(had, int) or not isinstance(has, int):
            if had != has:
                return None
            continue
        own = _own(before, after, had, has)
        if own is None:
            return None
        runs = _product(own, runs, rest_new, rest_old)
        rest_old, rest_new = rest_old * had, rest_new * has
    return tuple(_merged(runs))


def _matched(old: Axis, new: Axis) -> tuple[Axis | None, Axis | None]:
    """The factors of both, one beside the other, if they are called the same."""
    if [part.key for part in old] == [part.key for part in new]:
        return old, new
    a, b = _larger(old), _larger(new)
    if [part.key for part in a] == [part.key for part in b]:
        return a, b
    return None, None


def _larger(axis: Axis) -> Axis:
    return tuple(part for part in axis if part.length != 1)


def _unlike(old: Axis, new: Axis) -> tuple[Run, ...] | None:
    """Of axes with other factors. A cut-off part does not know what a map was made of."""
    a, b = _larger(old), _larger(new)
    keys = [{part.key for part in axis} for axis in (a, b)]
    if keys[0] <= keys[1] or keys[1] <= keys[0]:
        return None  # the same factors turned round, or some of them gone
    sizes = length(old), length(new)
    if not isinstance(sizes[0], int) or not isinstance(sizes[1], int):
        return None
    if sizes[0] == sizes[1]:
        return (Run(0, 0, sizes[0]),)
    if len(a) == len(b) == 1 and not (a[0].fixed or b[0].fixed):
        return (Run(0, 0, min(sizes[0], sizes[1])),)
    return None


def _own(before: Part, after: Part, had: int, has: int) -> list[Run] | None:
    if before.pieces and after.pieces:
        return _stretches(before, after)
    if had == has:
        return [Run(0, 0, had)]
    return None if before.fixed or after.fixed else [Run(0, 0, min(had, has))]


def _stretches(before: Part, after: Part) -> list[Run] | None:
    places: dict[str, tuple[int, Axis]] = {}
    start = 0
    for tag, axis in before.pieces:
        places.setdefault(tag, (start, axis))
        size = length(axis)
        if not isinstance(size, int):
            return None
        start += size
    tags = [tag for tag, _ in after.pieces]
    if not set(tags) & set(places) and len(tags) == len(before.pieces):
        tags = [tag for tag, _ in before.pieces]  # all of them were renamed
    found: list[Run] = []
    start = 0
    for tag, (_, axis) in zip(tags, after.pieces, strict=True):
        size = length(axis)
        if not isinstance(size, int):
            return None
        if tag in places:
            at, other = places[tag]
            inner = overlap(other, axis)
            found += [Run(start + run.new, at + run.old, run.size) for run in inner or ()]
        start += size
    return found


def _product(outer: Sequence[Run], inner: Sequence[Run], size_new: int, size_old: int) -> list[Run]:
    """Runs of an axis whose every entry of the outer factor is a whole inner one."""
    if len(inner) == 1 and inner[0] == Run(0, 0, size_new) and size_new == size_old:
        return [Run(run.new * size_new, run.old * size_old, run.size * size_new) for run in outer]
    return [
        Run((run.new + i) * size_new + part.new, (run.old + i) * size_old + part.old, part.size)
        for run in outer
        for i in range(run.size)
        for part in inner
    ]


def _merged(runs: Sequence[Run]) -> list[Run]:
    found: list[Run] = []
    for run in sorted(runs):
        if not run.size:
            continue
        if found:
            last = found[-1]
            if (last.new + last.size, last.old + last.size) == (run.new, run.old):
                found[-1] = last._replace(size=last.size + run.size)
                continue
        found.append(run)
    return found
