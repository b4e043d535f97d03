"""What is known only between bounds, as cells, and what was read for it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlv.terminal.table import Cell, Count, Range
from dlv.views.values import percent

if TYPE_CHECKING:
    from dlv.weights.reading.approximation import Reading
    from dlv.weights.reading.interval_statistics import (
        Counts,
        DifferenceBounds,
        Interval,
        StatisticsBounds,
    )


def interval(held: Interval | None) -> Cell:
    return None if held is None else Range(held.low, held.high, 3)


def count(held: Counts) -> Cell:
    return Count(held.low) if held.low == held.high else Range(held.low, held.high)


def statistics(found: StatisticsBounds) -> dict[str, Cell]:
    """Figures of a matrix, all of whose elements are finite."""
    names = {"min": found.min, "max": found.max, "mean": found.mean, "std": found.std}
    return {
        "elements": Count(found.elements),
        **{name: interval(held) for name, held in names.items()},
        "L2": interval(found.l2),
        "zeros": count(found.zeros),
        "NaN": Count(0),
        "infinite": Count(0),
    }


def difference(found: DifferenceBounds) -> dict[str, Cell]:
    """Figures of a difference, with the share of what changed."""
    shares = [percent(n, found.elements) for n in (found.changed.low, found.changed.high)]
    ends = [0.0 if share is None else share.value for share in shares]
    return {
        "l2": interval(found.l2),
        "relative": interval(found.relative_l2),
        "max_abs": interval(found.max_abs),
        "changed": Range(ends[0], ends[1], 3),
        "nonfinite": found.nonfinite,
    }


def planes_read(reading: Reading) -> str:
    """`the first 2 planes, 41 % of the bytes`; `whole`, where it had to be."""
    share = f"{100 * reading.share:.0f} % of the bytes"
    if reading.exact:
        return f"whole, {share}" + (f": {reading.why}" if reading.why else "")
    first = "plane" if reading.planes == 1 else f"{reading.planes} planes"
    return f"the first {first}, {share}"


def reading_lines(readings: Sequence[Reading]) -> list[str]:
    """One line on all that was read in part, if anything was."""
    if not readings:
        return []
    total = functools.reduce(lambda one, other: one.and_(other), readings)
    lie = "" if total.exact else "; the exact figures lie within these"
    return [f"read: {planes_read(total)}{lie}"]
