"""What is drawn of many points is what all of them would have drawn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlv.report.courses import Chart, course, log_ticks, padded, smoothed, thinned, ticks

VALUES = st.lists(
    st.one_of(st.floats(-1e6, 1e6), st.just(math.nan), st.just(math.inf)), min_size=1, max_size=400
)


def test_points_are_ordered_by_step_and_what_is_not_finite_stays_a_gap() -> None:
    made = course("a", [3, 1, 2, 1], [30.0, math.inf, math.nan, 11.0])
    assert made.steps.tolist() == [1, 1, 2, 3]
    assert np.isnan(made.values).tolist() == [True, False, True, False]
    assert made.values[[1, 3]].tolist() == [11.0, 30.0]
    assert made.left_out == 2


def test_a_logarithmic_axis_has_no_place_for_zero() -> None:
    made = course("a", [1, 2, 3], [0.0, -1.0, 5.0], log=True)
    assert made.left_out == 2
    assert Chart("x", (made,), log=True).upwards == (math.log10(5), math.log10(5))


def test_smoothing_is_that_of_tensorboard() -> None:
    """Its formula, written out: sums weighted by powers, over the sum of the weights."""
    values = [1.0, 5.0, 2.0, 8.0]
    found = smoothed(np.asarray(values), 0.6)
    for end in range(1, 5):
        weights = [0.6 ** (end - 1 - i) for i in range(end)]
        wanted = sum(w * v for w, v in zip(weights, values, strict=False)) / sum(weights)
        assert found[end - 1] == pytest.approx(wanted, rel=1e-12)


def test_smoothing_goes_over_gaps() -> None:
    found = smoothed(np.asarray([2.0, math.nan, 2.0]), 0.9)
    assert found[0] == found[2] == 2.0
    assert math.isnan(found[1])


@given(VALUES, st.integers(1, 20))
def test_each_column_keeps_its_smallest_and_largest(values: list[float], columns: int) -> None:
    made = course("a", list(range(len(values))), values)
    across = padded((0.0, float(len(values) - 1)))
    steps, kept = thinned(made.steps, made.values, across, columns)
    assert (np.diff(steps) >= 0).all()
    assert len(steps) <= max(5 * columns + 2, len(values) if len(values) <= 4 * columns else 0)
    share = (made.steps - across[0]) / (across[1] - across[0])
    column = np.minimum((share * columns).astype(int), columns - 1)
    of_kept = np.minimum(
        ((steps - across[0]) / (across[1] - across[0]) * columns).astype(int), columns - 1
    )
    for each in set(column.tolist()):
        here, there = made.values[column == each], kept[of_kept == each]
        if np.isnan(here).all():
            assert np.isnan(there).all()
            if len(values) > 4 * columns and not np.isnan(made.values).all():
                assert len(there)  # the gap is told
            continue
        assert np.nanmin(here) == np.nanmin(there)
        assert np.nanmax(here) == np.nanmax(there)
        known, told = here[~np.isnan(here)], there[~np.isnan(there)]
        assert (known[0], known[-1]) == (told[0], told[-1])


def test_one_spike_in_a_million_stays() -> None:
    values = np.ones(1_000_000)
    values[654_321] = 1e9
    steps, kept = thinned(np.arange(1_000_000.0), values, (0.0, 999_999.0), 320)
    assert len(steps) <= 4 * 320 + 2
    assert kept.max() == 1e9
    assert steps[kept.argmax()] == 654_321


@given(st.floats(-1e300, 1e300), st.floats(1e-12, 1e300), st.integers(1, 10))
def test_ticks_are_few_and_within(low: float, width: float, most: int) -> None:
    span = (low, low + width)
    found = ticks(span, most)
    assert found
    assert len(found) <= 2 * most + 3
    assert found == sorted(found)
    slack = width * 1e-6 + abs(low) * 1e-9
    assert all(low - slack <= mark <= low + width + slack for mark in found)


@pytest.mark.parametrize(
    ("span", "marks"),
    [
        ((0.0, 1.0), [0, 0.2, 0.4, 0.6, 0.8, 1]),
        ((0.0, 2.3), [0, 0.5, 1, 1.5, 2]),
        ((95.0, 620.0), [200, 400, 600]),
        ((-3e-7, 3e-7), [-2e-7, 0, 2e-7]),
    ],
)
def test_ticks_are_round(span: tuple[float, float], marks: list[float]) -> None:
    assert ticks(span, 5) == pytest.approx(marks, abs=1e-15)


def test_powers_of_ten() -> None:
    assert log_ticks((-3.2, 0.5), 5) == [-3, -2, -1, 0]
    assert log_ticks((-12.0, 0.0), 4) == [-12, -8, -4, 0]
    within = log_ticks((0.1, 0.5), 4)
    assert [round(10**mark, 6) for mark in within] == [1.5, 2.0, 2.5, 3.0]


@pytest.mark.parametrize("value", [0.0, 3.0, -2.5, 1e308])
def test_a_single_value_gets_room(value: float) -> None:
    low, high = padded((value, value))
    assert low < value < high


def test_a_chart_of_nothing_has_axes() -> None:
    chart = Chart("x", (course("a", [1], [math.nan]),))
    assert chart.upwards == (0.0, 1.0)
