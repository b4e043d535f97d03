"""Where the boxes of a directed graph go: in ranks, with few crossings, and never over each other.

Ranks are longest paths. A value that is read further down passes the ranks between in a lane of
its own, one for all its readers; lanes are ordered and placed like boxes, so no line runs
through a box. Places are the least moved ones (in squares) that keep order and distance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

from dlv.dataclass import dataclass

LANE = 14.0  # width of a line that passes a rank
ROOM = 22.0  # between boxes of a rank
GAP = 26.0  # between ranks
SWEEPS = 6
LONGEST = 60  # ranks that a line may pass in a lane of its own
MARGIN = 12.0


class Size(NamedTuple):
    width: float
    height: float


class Box(NamedTuple):
    """The upper left corner, and the size."""

    x: float
    y: float
    width: float
    height: float


@dataclass
class Layout:
    """Boxes by name and the course of each line: points from its source down to its target."""

    boxes: dict[str, Box]
    lines: list[tuple[str, str, list[tuple[float, float]]]]
    width: float
    height: float


@dataclass
class _Item:
    """A box, or a piece of a lane, in one rank."""

    name: str
    rank: int
    width: float
    above: list[_Item] = field(default_factory=list)
    below: list[_Item] = field(default_factory=list)
    place: float = 0.0
    x: float = 0.0  # of its middle


def ranks_of(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, int] | None:
    """Return the longest path to each node from a source; None if the graph has a cycle."""
    waiting = dict.fromkeys(names, 0)
    readers: dict[str, list[str]] = {name: [] for name in names}
    for source, target in edges:
        waiting[target] += 1
        readers[source].append(target)
    rank = dict.fromkeys(names, 0)
    ready = [name for name in names if not waiting[name]]
    done = 0
    while ready:
        name = ready.pop()
        done += 1
        for target in readers[name]:
            rank[target] = max(rank[target], rank[name] + 1)
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    if done < len(names):
        return None
    # What nothing leads to stands just above its first reader.
    leads = {target for _, target in edges}
    for name in names:
        if name not in leads and readers[name]:
            rank[name] = min(rank[target] for target in readers[name]) - 1
    top = min(rank.values(), default=0)
    return {name: place - top for name, place in rank.items()}


def layout(
    sizes: Mapping[str, Size],
    edges: Sequence[tuple[str, str]],
    ranks: Mapping[str, int] | None = None,
) -> Layout:
    """Place boxes of these sizes; `ranks` are given where two drawings must agree.

    Edges that lead upwards, as in a cycle, are drawn beside the boxes.
    """
    names = list(sizes)
    known = dict(ranks or ranks_of(names, edges) or {name: i for i, name in enumerate(names)})
    items = {name: _Item(name, known[name], sizes[name].width) for name in names}
    rows: list[list[_Item]] = [[] for _ in range(max(known.values(), default=-1) + 1)]
    for item in items.values():
        rows[item.rank].append(item)
    lanes = _lanes(items, edges, rows)
    _order(rows)
    _place(rows)
    heights = [
        max((sizes[item.name].height for item in row if item.name in sizes), default=0.0)
        for row in rows
    ]
    tops: list[float] = []
    y = MARGIN
    for height in heights:
        tops.append(y)
        y += height + (GAP if height else 0.0)
    least = min((item.x - item.width / 2 for row in rows for item in row), default=0.0)
    boxes = {}
    for name, item in items.items():
        width, height = sizes[name]
        top = tops[item.rank] + (heights[item.rank] - height) / 2
        boxes[name] = Box(item.x - width / 2 - least + MARGIN, top, width, height)
    right = max((box.x + box.width for box in boxes.values()), default=0.0)
    right = max([right, *(i.x - least + MARGIN for row in rows for i in row)])
    lines, aside = [], 0
    for source, target in edges:
        start, end = boxes[source], boxes[target]
        first = (start.x + start.width / 2, start.y + start.height)
        last = (end.x + end.width / 2, end.y)
        if (source, target) in lanes:
            points = [first]
            for item in lanes[source, target]:
                x = item.x - least + MARGIN
                points += [(x, tops[item.rank]), (x, tops[item.rank] + heights[item.rank])]
            points.append(last)
        else:  # far or upwards: beside everything
            aside += 1
            x = right + 10 + 6 * (aside % 8)
            points = [first, (x, first[1] + GAP / 2), (x, last[1] - GAP / 2), last]
        lines.append((source, target, points))
    width = max([right, *(x for *_, points in lines for x, _ in points)]) + MARGIN
    return Layout(boxes, lines, width, max(y - GAP, MARGIN) + MARGIN)


def _lanes(
    items: Mapping[str, _Item], edges: Sequence[tuple[str, str]], rows: list[list[_Item]]
) -> dict[tuple[str, str], list[_Item]]:
    """Link what lies in neighboring ranks, and make the lanes between others."""
    chains: dict[str, list[_Item]] = {}
    found: dict[tuple[str, str], list[_Item]] = {}
    for source, target in sorted(edges, key=lambda edge: items[edge[1]].rank):
        above, below = items[source], items[target]
        span = below.rank - above.rank
        if not 1 <= span <= LONGEST:
            continue
        chain = chains.setdefault(source, [])
        while len(chain) < span - 1:
            last = chain[-1] if chain else above
            lane = _Item("", last.rank + 1, LANE)
            rows[lane.rank].append(lane)
            _link(last, lane)
            chain.append(lane)
        _link(chain[span - 2] if span > 1 else above, below)
        found[source, target] = chain[: span - 1]
    return found


def _link(above: _Item, below: _Item) -> None:
    above.below.append(below)
    below.above.append(above)


def _order(rows: list[list[_Item]]) -> None:
    """Sort each rank by the middle of its neighbors, down and up again; keep the best order."""
    for row in rows:
        for place, item in enumerate(row):
            item.place = place
    best, least = [list(row) for row in rows], _crossings(rows)
    for sweep in range(SWEEPS):
        if not least:
            break
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            wanted = {}
            for item in row:
                beside = item.above if down else item.below
                middle = sum(other.place for other in beside) / len(beside) if beside else None
                wanted[id(item)] = item.place if middle is None else middle
            row.sort(key=lambda item: wanted[id(item)])
            for place, item in enumerate(row):
                item.place = place
        crossings = _crossings(rows)
        if crossings < least:
            best, least = [list(row) for row in rows], crossings
    for row, kept in zip(rows, best, strict=True):
        row[:] = kept
        for place, item in enumerate(row):
            item.place = place


def _crossings(rows: list[list[_Item]]) -> int:
    """How often lines between neighboring ranks cross."""
    total = 0
    for row in rows:
        ends = [(item.place, other.place) for item in row if len(row) > 1 for other in item.below]
        ends.sort()
        seen: list[float] = []
        for _, end in ends:
            total += sum(1 for other in seen[-64:] if other > end)
            seen.append(end)
    return total


def _place(rows: list[list[_Item]]) -> None:
    """Horizontal places: each under the middle of what it reads, then above what reads it."""
    for row in rows:
        x = 0.0
        for item in row:
            item.x = x + item.width / 2
            x += item.width + ROOM
        for item in row:
            item.x -= x / 2
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            wanted = []
            for item in row:
                beside = item.above if down else item.below
                if not beside and not down:
                    beside = item.above
                elif not beside:
                    beside = item.below
                if item.name:  # boxes stay below boxes, and lanes go around them
                    beside = [other for other in beside if other.name] or beside
                middle = sum(other.x for other in beside) / len(beside) if beside else item.x
                wanted.append(middle)
            for item, x in zip(row, _apart(row, wanted), strict=True):
                item.x = x


def _apart(row: Sequence[_Item], wanted: Sequence[float]) -> list[float]:
    """The nearest places (least squares) in this order with room between: pooled neighbors."""
    offsets: list[float] = []
    total = 0.0
    for place, item in enumerate(row):
        if place:
            total += row[place - 1].width / 2 + ROOM + item.width / 2
        offsets.append(total)
    pools: list[list[float]] = []  # sum of what is wanted less its offset, weight, count
    for item, goal, offset in zip(row, wanted, offsets, strict=True):
        weight = 1.0 if item.name else 0.02  # lanes give way
        pools.append([(goal - offset) * weight, weight, 1.0])
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
            last = pools.pop()
            for at, value in enumerate(last):
                pools[-1][at] += value
    starts = [pool[0] / pool[1] for pool in pools for _ in range(int(pool[2]))]
    return [start + offset for start, offset in zip(starts, offsets, strict=True)]
