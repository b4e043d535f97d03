"""Aggregates that SQLite lacks, or that fail where numbers grow large."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dlv.lazy import lazy

if TYPE_CHECKING:
    import statistics
else:  # few queries ask for a median
    statistics = lazy("statistics")

LARGEST = 2**63 - 1  # that SQLite has


class Numbers:
    """An aggregate over what is a number."""

    def __init__(self) -> None:
        self.values: list[int | float] = []

    def step(self, value: Any) -> None:
        if isinstance(value, (int, float)):
            self.values.append(value)

    def finalize(self) -> Any:
        raise NotImplementedError


class Sum(Numbers):
    """Whole numbers stay so; SQLite's own sum fails where they grow too large."""

    def finalize(self) -> Any:
        if not self.values:
            return None
        if all(isinstance(value, int) for value in self.values):
            whole = sum(self.values)
            return whole if abs(whole) <= LARGEST else float(whole)
        return _sum(self.values)


class Mean(Numbers):
    def finalize(self) -> Any:
        return _sum(self.values) / len(self.values) if self.values else None


class Deviation(Numbers):
    """That of a sample: with one value there is none."""

    def finalize(self) -> Any:
        if len(self.values) < 2 or not all(map(math.isfinite, self.values)):
            return None
        return statistics.stdev(map(float, self.values))


class Median(Numbers):
    def finalize(self) -> Any:
        return statistics.median(self.values) if self.values else None


def _sum(values: list[int | float]) -> float:
    """fsum refuses infinities of both signs, and sums beyond what a float holds."""
    try:
        return math.fsum(values)
    except (ValueError, OverflowError):
        return sum(map(float, values))


AGGREGATES: dict[str, Callable[[], Any]] = {
    "dql_sum": Sum,
    "dql_avg": Mean,
    "dql_stddev": Deviation,
    "dql_median": Median,
}
