"""What trials vary: dimensions with their values, and the points that they span."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from itertools import product
from typing import Any, TypeAlias

from dlv.dataclass import dataclass

Key: TypeAlias = tuple[str, ...]
Lookup: TypeAlias = Callable[[Key], Any]
Row: TypeAlias = tuple[Any, ...]
Point: TypeAlias = tuple[Row | None, ...]  # by dimension: its values, None where it is absent


@dataclass(frozen=True)
class Choices:
    """Rows of values, in each of them one for every key of the dimension.

    `scale`: the values are factors of what this key is.
    """

    rows: tuple[Row, ...]
    scale: Key | None = None


@dataclass(frozen=True)
class Uniform:
    """Any number between two; `log`: its logarithm is what is uniform."""

    low: float
    high: float
    log: bool = False


@dataclass(frozen=True)
class Whole:
    """Any whole number between two, both included."""

    low: int
    high: int


Domain: TypeAlias = Choices | Uniform | Whole


@dataclass(frozen=True)
class Dimension:
    """Keys that get their values together. `when`: asked of other keys, which `reads` names."""

    keys: tuple[Key, ...]
    domain: Domain
    when: Callable[[Lookup], bool] | None = None
    reads: frozenset[Key] = frozenset()

    def rows(self) -> Sequence[Row] | None:
        """All that it can be; None where that is a continuum."""
        if isinstance(self.domain, Choices):
            return self.domain.rows
        if isinstance(self.domain, Whole):
            return [(value,) for value in range(self.domain.low, self.domain.high + 1)]
        return None

    @property
    def count(self) -> int | None:
        if isinstance(self.domain, Choices):
            return len(self.domain.rows)
        if isinstance(self.domain, Whole):
            return self.domain.high - self.domain.low + 1
        return None


@dataclass(frozen=True)
class Space:
    """`base`: what a key is where no dimension says so."""

    dimensions: tuple[Dimension, ...]
    base: Lookup = lambda _: None

    @property
    def count(self) -> int | None:
        """How many points at most; None where a dimension is continuous."""
        counts = [dimension.count for dimension in self.dimensions]
        known = [count for count in counts if count is not None]
        return math.prod(known) if len(known) == len(counts) else None

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The dimensions so that each comes behind those that its condition reads."""
        return tuple(ordered(self.dimensions))

    def point(self, choose: Callable[[int, Dimension], Row]) -> Point:
        """The point that comes of choosing for each dimension that is there."""
        chosen: dict[int, Row] = {}
        for place in self.order:
            dimension = self.dimensions[place]
            if dimension.when is None or dimension.when(self._lookup(chosen)):
                chosen[place] = choose(place, dimension)
        return tuple(chosen.get(place) for place in range(len(self.dimensions)))

    def grid(self) -> Iterator[Point]:
        """Every point once; the first dimension changes slowest."""
        rows = [dimension.rows() for dimension in self.dimensions]
        finite = [each for each in rows if each is not None]
        if len(finite) < len(rows):
            raise ValueError("a continuous dimension has no grid")
        seen: set[str] = set()
        for taken in product(*finite):
            made = self.point(lambda place, _, taken=taken: taken[place])  # type: ignore[misc]
            name = named(made)
            if name not in seen:
                seen.add(name)
                yield made

    def settings(self, point: Point) -> list[tuple[Key, Any]]:
        """The keys and values of a point, in the order of the dimensions."""
        chosen = {place: row for place, row in enumerate(point) if row is not None}
        lookup = self._lookup(chosen)
        found: list[tuple[Key, Any]] = []
        for place, row in chosen.items():
            dimension = self.dimensions[place]
            found += zip(dimension.keys, _scaled(dimension, row, lookup), strict=True)
        return found

    def _lookup(self, chosen: Mapping[int, Row]) -> Lookup:
        def value(key: Key) -> Any:
            for place in sorted(chosen, reverse=True):
                dimension = self.dimensions[place]
                if key in dimension.keys:
                    row = _scaled(dimension, chosen[place], value)
                    return row[dimension.keys.index(key)]
            return self.base(key)

        return value


def _scaled(dimension: Dimension, row: Row, lookup: Lookup) -> Row:
    domain = dimension.domain
    if not isinstance(domain, Choices) or domain.scale is None:
        return row
    base = lookup(domain.scale)
    return tuple(times(base, factor) for factor in row)


def times(base: Any, factor: Any) -> float:
    """The product of two numbers as they are written: 0.1 x 0.1 is 0.01."""
    return float(Decimal(repr(base)) * Decimal(repr(factor)))


def named(point: Point) -> str:
    """A text that only equal points have: 1, 1.0 and true are three things."""
    return json.dumps(point, sort_keys=True)


class Circular(Exception):
    """Conditions that wait for each other; the places of these dimensions."""

    def __init__(self, places: Sequence[int]) -> None:
        super().__init__("conditions wait for each other")
        self.places = tuple(places)


def ordered(dimensions: Sequence[Dimension]) -> list[int]:
    """Places of the dimensions, each behind those whose keys it reads; else as they stand."""
    sets = [
        {
            other
            for other, one in enumerate(dimensions)
            if other != place and dimension.reads & set(one.keys)
        }
        for place, dimension in enumerate(dimensions)
    ]
    found: list[int] = []
    waiting = list(range(len(dimensions)))
    while waiting:
        ready = [place for place in waiting if sets[place] <= set(found)]
        if not ready:
            raise Circular(waiting)
        found.append(ready[0])
        waiting.remove(ready[0])
    return found
