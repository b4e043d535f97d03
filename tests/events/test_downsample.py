"""Fewer points, no peak lost."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlv.events.downsample import extremes

values = st.lists(st.floats(width=32), max_size=200)


@given(values, st.integers(2, 40))
def test_peaks_stay(series: list[float], most: int) -> None:
    kept = extremes(series, most)
    assert len(kept) <= most or len(kept) == len(series)
    assert kept == sorted(set(kept))
    finite = [value for value in series if math.isfinite(value)]
    shown = [series[i] for i in kept if math.isfinite(series[i])]
    if finite:
        assert (min(shown), max(shown)) == (min(finite), max(finite))


def test_short_series_are_whole() -> None:
    assert extremes([3.0, 1.0, 2.0], 4) == [0, 1, 2]
    assert extremes([], 4) == []


@pytest.mark.parametrize("position", [0, 17, 50, 99])
def test_a_single_spike_is_seen(position: int) -> None:
    series = [0.0] * 100
    series[position] = 1.0
    assert position in extremes(series, 10)


def test_buckets_share_the_line() -> None:
    assert extremes([float(i) for i in range(100)], 4) == [0, 49, 50, 99]


def test_a_bucket_of_nothing_finite() -> None:
    assert extremes([math.nan] * 8 + [1.0] * 8, 4) == [0, 8]
