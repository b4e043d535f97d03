"""Fewer points: the same as TensorBoard's, at equal distances, by step, or with every peak."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlv.events.provider.downsample import by_step, extremes, linear, sampled

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


@given(st.integers(0, 300), st.integers(0, 320))
def test_a_sample_is_drawn_as_tensorboard_draws_it(n: int, k: int) -> None:
    places = list(range(n))
    if k > n:
        expected = places
    elif k == 0:
        expected = []
    else:
        drawn = random.Random(0).sample(range(n - 1), k - 1) if n else []
        expected = [places[i] for i in sorted(drawn)] + places[-1:]
    assert list(sampled(n, k)) == expected


@given(st.integers(0, 300), st.integers(0, 320))
def test_equal_distances(n: int, k: int) -> None:
    places = list(linear(n, k))
    assert len(places) == min(n, k)
    if places:
        assert places[-1] == n - 1
    if len(places) > 1:
        gaps = [after - before for before, after in itertools.pairwise(places)]
        assert places[0] == 0
        assert min(gaps) >= 1
        assert max(gaps) - min(gaps) <= 1


@given(
    st.lists(st.integers(0, 9) | st.integers(-(2**63), 2**63 - 1), max_size=60).map(sorted),
    st.integers(0, 70),
)
def test_one_point_of_each_bucket_of_steps(steps: list[int], k: int) -> None:
    places = list(by_step(steps, k))
    if k >= len(steps):
        assert places == list(range(len(steps)))
        return
    assert len(places) <= k
    assert places == sorted(set(places))
    if k < 2:
        assert places == [len(steps) - 1][:k]
        return
    low, high = steps[0], steps[-1]
    buckets = [(step - low) * (k - 1) // (high - low) if step < high else k - 1 for step in steps]
    firsts = {buckets.index(bucket) for bucket in set(buckets) - {k - 1}}
    assert set(places) == firsts | {len(steps) - 1}
