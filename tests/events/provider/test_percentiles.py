"""Compressed histograms, held against TensorBoard's own."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.plugins.distribution import compressor

from dlv.events.server.legacy_http import BASIS_POINTS, compressed_histogram

counts = st.lists(st.integers(0, 50).map(float), min_size=1, max_size=30)


def test_the_points_of_tensorboard() -> None:
    assert BASIS_POINTS == compressor.NORMAL_HISTOGRAM_BPS


@given(counts, st.data())
@settings(deadline=None)
def test_values_are_those_of_tensorboard(bucket: list[float], data: Any) -> None:
    number = st.floats(-1e6, 1e6)
    edges = sorted(
        data.draw(st.lists(number, min_size=len(bucket) + 1, max_size=len(bucket) + 1, unique=True))
    )
    if not sum(bucket):
        bucket[0] = 1.0
    rows = [[*pair, count] for pair, count in zip(itertools.pairwise(edges), bucket, strict=True)]
    theirs = compressor.compress_histogram(rows)
    ours = compressed_histogram(edges[0], edges[-1], edges[1:], bucket)
    assert [point for point, _ in ours] == [point for point, _ in theirs]
    for (_, a), (_, b) in zip(ours, theirs, strict=True):
        assert a == pytest.approx(b, rel=1e-9, abs=1e-6)
    values = [value for _, value in ours]
    assert values == sorted(values)


def test_a_line_within_a_bucket() -> None:
    assert compressed_histogram(0, 2, [1, 2], [1, 1], [0, 2500, 5000, 7500, 10_000]) == [
        (0, 0),
        (2500, 0.5),
        (5000, 1.0),
        (7500, 1.5),
        (10_000, 2),
    ]


def test_limits_without_end_are_cut_to_the_least_and_the_greatest() -> None:
    found = compressed_histogram(-3, 5, [-1e300, 0, math.inf], [0, 1, 1], [0, 5000, 10_000])
    assert found == [(0, -3), (5000, 0), (10_000, 5)]


@pytest.mark.parametrize("bucket", [[], [0.0], [math.nan], [math.inf], [-1.0]])
def test_nothing_in_it(bucket: list[float]) -> None:
    assert compressed_histogram(0, 1, [1.0] * len(bucket), bucket) == [
        (p, 0.0) for p in BASIS_POINTS
    ]
