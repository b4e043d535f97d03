"""Intervals of figures: the exact ones always lie within, and they are not wider than need be."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.weights.reading.interval_statistics import Counts, Interval, difference, statistics
from dlv.weights.statistics import difference as exact_difference
from dlv.weights.statistics import statistics as exact_statistics

Floats = Any


@st.composite
def bounded(draw: st.DrawFn, count: int | None = None) -> tuple[Floats, Floats, Floats, Floats]:
    """(value, centre, low, high) of any magnitude, any signs, any widths."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    count = draw(st.integers(1, 40)) if count is None else count
    size = 10.0 ** draw(st.integers(-300, 290))
    offset = draw(st.sampled_from([0.0, 0.0, 1.0, -1e6]))
    values = size * (rng.normal(size=count) + offset)
    values[rng.random(count) < draw(st.sampled_from([0, 0, 0.5, 1]))] = 0.0
    if draw(st.booleans()):
        values *= 10.0 ** rng.integers(-6, 6, count)
    width = abs(size) * 10.0 ** -draw(st.integers(0, 12))
    kind = draw(st.sampled_from(["none", "some", "all"]))
    if kind == "none":
        return values, values, values, values
    below, above = width * rng.random((2, count))
    if kind == "some":
        below[::2] = above[::3] = 0
    if draw(st.booleans()):  # the value is an end
        below[rng.random(count) < 0.5] = 0
    low, high = values - below, values + above
    centre = np.clip(low + (high - low) * rng.random(count), low, high)
    return values, centre, low, high


def blocks(*parts: Floats, size: int = 1 << 18) -> list[Any]:
    """Parts of (centre, low, high), or of (low, high)."""
    given = parts if len(parts) == 3 else (parts[0], *parts)
    return [tuple(part[at : at + size] for part in given) for at in range(0, len(parts[0]), size)]


def holds(interval: Interval | Counts, value: float) -> bool:
    return interval.low <= value <= interval.high


@settings(max_examples=400, deadline=None)
@given(bounded(), st.booleans())
def test_statistics_lie_within(made: tuple[Floats, Floats, Floats, Floats], few: bool) -> None:
    values, centre, low, high = made
    found = statistics(blocks(centre, low, high, size=7 if few else 1 << 18))
    exact = exact_statistics("float64", values.astype("<f8").tobytes())
    assert exact is not None
    assert exact.min is not None
    assert exact.max is not None
    assert exact.mean is not None
    assert exact.std is not None
    assert exact.l2 is not None
    assert found.elements == exact.elements
    assert holds(found.min, exact.min)
    assert holds(found.max, exact.max)
    assert holds(found.mean, exact.mean)
    assert holds(found.std, exact.std)
    assert holds(found.l2, exact.l2)
    assert holds(found.zeros, exact.zeros)
    histogram = found.histogram
    assert holds(Interval(histogram.low, histogram.high), exact.min)
    assert sum(c.low for c in histogram.counts) <= len(values)
    edges = histogram.edges()
    for place, counts in enumerate(histogram.counts):
        inside = (values >= edges[place]) & (values < edges[place + 1])
        on_edge = np.zeros(len(values), bool)
        for edge in edges:
            on_edge |= np.isclose(values, edge, rtol=1e-7, atol=1e-7 * (edges[-1] - edges[0]))
        assert counts.low <= (inside | on_edge).sum()
        assert (inside & ~on_edge).sum() <= counts.high


@settings(max_examples=400, deadline=None)
@given(st.data(), st.booleans())
def test_differences_lie_within(data: st.DataObject, few: bool) -> None:
    count = data.draw(st.integers(1, 30))
    a, _, a_low, a_high = data.draw(bounded(count))
    b, _, b_low, b_high = data.draw(bounded(count))
    if data.draw(st.booleans()):  # close to each other
        b, b_low, b_high = a.copy(), a_low - 1e-9 * abs(a), a_high + 1e-9 * abs(a)
    if data.draw(st.booleans()):  # what is exact may be anything
        a_low = a_high = a = a.copy()
        a[data.draw(st.integers(0, count - 1))] = data.draw(st.sampled_from([math.nan, math.inf]))
    size = 7 if few else 1 << 18
    old, new = blocks(a_low, a_high, size=size), blocks(b_low, b_high, size=size)
    found = difference(old, new, same=a.tobytes() == b.tobytes())
    exact = exact_difference("float64", a.tobytes(), "float64", b.tobytes())
    assert found.elements == exact.elements
    assert found.nonfinite == exact.nonfinite
    assert holds(found.changed, exact.changed)
    assert exact.l2 is not None
    assert exact.max_abs is not None
    assert holds(found.l2, exact.l2)
    assert holds(found.max_abs, exact.max_abs)
    if found.relative_l2 is not None:
        assert exact.relative_l2 is not None
        assert holds(found.relative_l2, exact.relative_l2)


def test_narrow_bounds_give_narrow_figures() -> None:
    values = np.random.default_rng(0).normal(0.1, 1, 10_000)
    error = 1e-5
    found = statistics(blocks(values, values - error, values + error))
    for interval in (found.min, found.max, found.mean, found.std):
        assert interval.high - interval.low < 2.1 * error
    assert found.l2.high - found.l2.low < 2.1 * error * 100
    assert sum(c.high - c.low for c in found.histogram.counts) < 10
    moved = values + 1e-3
    apart = difference(
        blocks(values - error, values + error), blocks(moved - error, moved + error), same=False
    )
    assert apart.changed == Counts(10_000, 10_000)
    assert apart.max_abs.high - apart.max_abs.low < 4.1 * error
    assert 0.97 < apart.l2.low / 0.1 < apart.l2.high / 0.1 < 1.03


def test_what_is_known_is_said_exactly() -> None:
    values = np.array([0.0, 1.0, -2.3, 0.0])
    found = statistics(blocks(values, values, values))
    assert (found.min, found.max) == (Interval(-2.3, -2.3), Interval(1, 1))
    assert found.zeros == Counts(2, 2)
    assert [c.low for c in found.histogram.counts] == [c.high for c in found.histogram.counts]
    one = statistics(blocks(np.ones(3), np.ones(3), np.ones(3)))
    assert one.histogram.counts == (Counts(3, 3),)


@pytest.mark.parametrize("same", [True, False])
def test_other_hashes_mean_a_change(same: bool) -> None:
    low, high = np.zeros(4), np.ones(4)
    assert difference(blocks(low, high), blocks(low, high), same=same).changed == Counts(
        1 - same, 4
    )
