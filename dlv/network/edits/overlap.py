"""Which entries of an axis are which of the axis that it was before."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import dlv.network.edits.marks as marks
from dlv.network.ops.axes import Axis, Marks, Part, axis_length

_INPUT = re.compile(r"i\d+(@\d+)?")  # an axis of an input, by its place
_FEATURES = ("c", "g", "m")  # channels, their groups, and what each of them is multiplied to


class Run(NamedTuple):
    """A stretch of entries: `size` of them from `new` on are those from `old` on."""

    new: int
    old: int
    size: int


def overlap(old: Axis, new: Axis) -> tuple[Run, ...] | None:
    """The entries that both have, or None if nothing says which ones these are.

    Features grow and shrink at the end. Of a product each factor does, so that of a flattened
    map whole channels stay. Joined axes go stretch by stretch, each by what made it. Places do
    not change their number.
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
        own = _own(before, after)
        if own is None:
            return None
        runs = _product(own, runs, rest_new, rest_old)
        rest_old, rest_new = rest_old * had, rest_new * has
    return tuple(merged(runs))


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
    sizes = axis_length(old), axis_length(new)
    if not isinstance(sizes[0], int) or not isinstance(sizes[1], int):
        return None
    if 1 in (len(a), len(b)) and _features(a) and _features(b):
        return (Run(0, 0, min(sizes[0], sizes[1])),)  # in groups or not, they are channels
    keys = [{part.key for part in axis} for axis in (a, b)]
    if keys[0] <= keys[1] or keys[1] <= keys[0]:
        return None  # the same factors turned round, or some of them gone
    if len(a) == len(b) == 1:
        own = None if "*" in a[0].key and "*" in b[0].key else _own(a[0], b[0])
        return None if own is None else tuple(merged(own))
    return (Run(0, 0, sizes[0]),) if sizes[0] == sizes[1] else None


def _features(axis: Axis) -> bool:
    keys = [part.key.rpartition(".")[2] for part in axis]
    whole = not any(part.fixed or part.start is not None for part in axis)
    return whole and all(key in _FEATURES for key in keys) and keys[-1:] != ["g"]


def _own(before: Part, after: Part) -> list[Run] | None:
    """Of one factor; None if nothing says which entries are which."""
    if before.pieces or after.pieces:
        return _stretches(before, after)
    had, has = before.length, after.length
    if not isinstance(had, int) or not isinstance(has, int):
        return None
    away = (after.start or 0) - (before.start or 0)
    if (before.start, after.start) != (None, None) and had == has and not away:
        return [Run(0, 0, had)]
    if (before.start, after.start) != (None, None) and not _of_one(before, after):
        return []  # cut out of something else
    if (before.fixed or after.fixed) and not _given(before, after):
        return [Run(0, 0, had)] if had == has and not away else None
    first, last = max(0, away), min(had, has + away)
    return [Run(first - away, first, last - first)] if first < last else []


def _of_one(before: Part, after: Part) -> bool:
    """Whether one thing made both; if nothing says what made either, that is taken to be so."""
    made = marks.makers(before.marks), marks.makers(after.marks)
    return made[0] == made[1] or not made[0].isdisjoint(made[1])


def _given(before: Part, after: Part) -> bool:
    """Whether one is channels, and the other an input of which no more is known."""
    names = sorted(part.key.rpartition(".")[2] for part in (before, after))
    return names[0] == "c" and _INPUT.fullmatch(names[1]) is not None


def _stretches(before: Part, after: Part) -> list[Run] | None:
    """Of joined axes. What is joined on one side alone is a stretch of its own on the other."""
    if _cut_off(before, after):
        return _plainly(before, after)
    old, new = _leaves(before), _leaves(after)
    places = marks.pairs([each for each, _ in old], [each for each, _ in new])
    starts = [0]
    for _, axis in old:
        size = axis_length(axis)
        if not isinstance(size, int):
            return None
        starts.append(starts[-1] + size)
    found: list[Run] = []
    start = 0
    for place, (_, axis) in enumerate(new):
        size = axis_length(axis)
        if not isinstance(size, int):
            return None
        if place in places:
            at = starts[places[place]]
            inner = overlap(old[places[place]][1], axis)
            found += [Run(start + run.new, at + run.old, run.size) for run in inner or ()]
        start += size
    return found


def _cut_off(before: Part, after: Part) -> bool:
    """Whether one is what the other has joined, as the input of a slice is."""
    if before.pieces and after.pieces:
        return False
    plain, joined = (after, before) if before.pieces else (before, after)
    made = marks.makers(plain.marks)
    return not made or all(marks.makers(each) != made for each, _ in _leaves(joined))


def _plainly(before: Part, after: Part) -> list[Run] | None:
    had, has = before.length, after.length
    if not isinstance(had, int) or not isinstance(has, int):
        return None
    outside = any(mark.startswith(marks.OUTSIDE) for mark in marks.makers(after.marks))
    if had != has and outside:
        return None  # nobody knows what was joined in it
    return [Run(0, 0, min(had, has))]


def _leaves(part: Part, tag: str = "") -> list[tuple[Marks, Axis]]:
    """What is joined in a joined one is as if it were joined at once."""
    if not part.pieces:
        return [(part.marks or {marks.NODE + tag: 0}, (part,))]
    found: list[tuple[Marks, Axis]] = []
    for name, axis in part.pieces:
        if len(axis) == 1:
            found += _leaves(axis[0], name)
        else:
            told = marks.joined(each.marks for each in axis)
            found.append((told or {marks.NODE + name: 0}, axis))
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


def merged(runs: Sequence[Run]) -> list[Run]:
    """In the order of what is new, those that go on where another ends put together."""
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
