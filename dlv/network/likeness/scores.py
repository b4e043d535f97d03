"""How well two layers fit each other, and the best way to align two rows of them."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dlv.network.graph import Node, plain
from dlv.network.likeness.normal import Normal
from dlv.network.ops.op import op_of

MOST_CELLS = 1_500_000  # of the alignment's table; longer rows are compared near its diagonal

# Of one operation: any; of one variant; with these attributes, each with its share; with all of
# them; with operations like these before it, and behind it; called the same.
_OP, _VARIANT, _ATTRIBUTES, _ALL, _CONTEXT, _NAME = 1.0, 1.0, 1.0, 1.0, 0.4, 1.3
_COUNTED_NAME = 0.45  # called the same by a name that only counts
_COUNTED = re.compile(r"(.*[a-z])?[_.]?[0-9]+\Z", re.IGNORECASE | re.DOTALL)


def counted(name: str) -> bool:
    """Whether the name ends with a number, which may be only a place in a row."""
    return _COUNTED.match(name.rpartition(".")[2]) is not None


def name_score(old: str, new: str) -> float:
    """What names say for a pair."""
    if old != new:
        return 0.0
    return _COUNTED_NAME if counted(old) else _NAME


class Near(Protocol):
    """The layers right before and behind each layer."""

    @property
    def before(self) -> Mapping[str, list[Node]]: ...

    @property
    def behind(self) -> Mapping[str, list[Node]]: ...


@dataclass(frozen=True)
class _Sample:
    """All that counts of a node, its name aside."""

    op: str
    variant: str | None
    raw: object
    kind: Hashable
    around: tuple[tuple[str, ...], ...]
    attrs: Mapping[str, object]


class Sequencer:
    """Scores of pairs of nodes of two networks; what was worked out once is kept."""

    def __init__(self, old: Normal, new: Normal, near_old: Near, near_new: Near) -> None:
        self._sides = (old, new)
        self._near = (near_old, near_new)
        self._numbers: dict[Hashable, int] = {}
        self._of: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self._samples: list[_Sample] = []
        self._known: dict[tuple[int, int], float] = {}

    def fit(self, a: Node, b: Node) -> float:
        """How well two nodes fit, their names aside; 0: they are not the same layer."""
        return self._fit(self._number(0, a), self._number(1, b))

    def _number(self, side: int, node: Node) -> int:
        """Nodes with one number are alike, and stand beside the same operations."""
        known = self._of[side]
        if id(node) not in known:
            kind, around = self._sides[side].kind(node), self._around(side, node)
            attrs = {name: plain(value) for name, value in sorted(node.attrs.items())}
            key = (kind, around, repr(attrs))
            if key not in self._numbers:
                self._numbers[key] = len(self._samples)
                raw = None if node.source is None or not op_of(node).raw else node.source.get("op")
                self._samples.append(_Sample(node.op, node.variant, raw, kind, around, attrs))
            known[id(node)] = self._numbers[key]
        return known[id(node)]

    def _around(self, side: int, node: Node) -> tuple[tuple[str, ...], ...]:
        near = self._near[side]
        return tuple(
            tuple(sorted(f"{each.op} {each.variant}" for each in which.get(node.name, ())))
            for which in (near.before, near.behind)
        )

    def _fit(self, one: int, other: int) -> float:
        found = self._known.get((one, other))
        if found is None:
            found = self._known[one, other] = _score(self._samples[one], self._samples[other])
        return found

    def pairs(self, before: Sequence[Node], after: Sequence[Node]) -> list[tuple[int, int]]:
        """The pairs, none of them crossing, whose scores have the largest sum."""
        if not before or not after:
            return []
        rows, columns = len(before), len(after)
        reach = columns if rows * columns <= MOST_CELLS else max(1, MOST_CELLS // rows // 2)
        old = [self._number(0, node) for node in before]
        new = [self._number(1, node) for node in after]
        places: dict[str, list[int]] = {}
        for j, node in enumerate(after):
            places.setdefault(node.name, []).append(j)
        kept: dict[int, list[float]] = {}
        best = [0.0] * (columns + 1)
        steps: list[tuple[int, bytearray]] = []
        for i, kind in enumerate(old):
            fits = kept.get(kind)
            if fits is None:
                fits = kept[kind] = [self._fit(kind, each) for each in new]
            named = [j for j in places.get(before[i].name, ()) if fits[j]]
            if named:
                fits = fits[:]
                for j in named:
                    fits[j] += name_score(before[i].name, after[j].name)
            middle = i * columns // rows
            low, high = max(0, middle - reach), min(columns, middle + reach + 1)
            best, moves = _row(best, fits, low, high, columns)
            steps.append((low, moves))
        return _walk_back(steps, columns)


def _row(
    best: list[float], fits: Sequence[float], low: int, high: int, columns: int
) -> tuple[list[float], bytearray]:
    """The next row of the table, and how each of its cells was reached."""
    row = best[:]  # outside the band: this node is left out
    moves = bytearray(high - low)
    left = row[low]
    for j in range(low, high):
        value, move = best[j + 1], 1
        if left > value:
            value, move = left, 2
        fit = fits[j]
        if fit and best[j] + fit >= value:
            value, move = best[j] + fit, 3
        row[j + 1] = left = value
        moves[j - low] = move
    for j in range(high, columns):
        row[j + 1] = max(row[j + 1], row[j])
    return row, moves


def _walk_back(steps: Sequence[tuple[int, bytearray]], columns: int) -> list[tuple[int, int]]:
    found = []
    i, j = len(steps) - 1, columns - 1
    while i >= 0 and j >= 0:
        low, moves = steps[i]
        if j >= low + len(moves):
            j -= 1
        elif j < low or moves[j - low] == 1:
            i -= 1
        elif moves[j - low] == 2:
            j -= 1
        else:
            found.append((i, j))
            i, j = i - 1, j - 1
    return found[::-1]


def _score(a: _Sample, b: _Sample) -> float:
    if a.op != b.op:
        return 0.0
    found = _OP + _CONTEXT * ((a.around[0] == b.around[0]) + (a.around[1] == b.around[1]))
    if a.kind == b.kind:
        return found + _VARIANT + _ATTRIBUTES + _ALL
    if a.variant != b.variant or a.raw != b.raw:
        return found
    names = a.attrs.keys() | b.attrs.keys()
    alike = sum(a.attrs.get(name) == b.attrs.get(name) for name in names)
    return found + _VARIANT + _ATTRIBUTES * (alike / len(names) if names else 1.0)
