"""Chosen points of scalars against a plain reading of the same rules, over small chunks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlv.events.provider import downsample, sampling
from dlv.events.provider.sampling import Choice
from dlv.events.provider.store import InvalidArgument, Points
from tests.events.memory_store import MemoryStore, Point

numbers = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, math.nan, math.inf, -math.inf]), st.floats(width=32)
)
steps = st.one_of(st.integers(0, 30), st.integers(-(2**63), 2**63 - 1))
logs = st.lists(st.tuples(steps, st.just(0.0), numbers), max_size=60)
ends = st.none() | st.integers(-5, 35)
ranges = st.none() | st.tuples(ends, ends).map(
    lambda pair: pair if None in pair else tuple(sorted(pair, key=float))  # type: ignore[arg-type]
)
counts = st.none() | st.integers(0, 70)


def asked(points: list[Point], choice: Choice) -> Points:
    store = MemoryStore()
    store.add_scalars("run", "tag", points)
    return sampling.points_of(store, store.rows[0], choice)


def as_tuples(points: Points) -> list[tuple[int, str]]:
    return [
        (step, repr(value))
        for step, value in zip(points.steps.tolist(), points.values.tolist(), strict=True)
    ]


def plain(points: list[Point], choice: Choice) -> list[Point]:
    """The points that may be shown, in the order in which they were written."""
    first, last = choice.steps or (None, None)
    kept = [
        (at, point)
        for at, point in enumerate(points)
        if (first is None or point[0] >= first) and (last is None or point[0] <= last)
    ]
    if choice.last is not None:
        by_step = sorted(kept, key=lambda each: (each[1][0], each[0]))
        kept = sorted(by_step[::-1][: choice.last])
    return [point for _, point in kept]


@given(logs, ranges, counts, counts, st.sampled_from(["sampled", "linear", "step"]))
def test_choices(points: list[Point], steps: Any, last: Any, k: Any, name: Any) -> None:
    choice = Choice(points=k, steps=steps, last=last, sampling=name)
    shown = plain(points, choice)
    if k is not None and k < len(shown):
        if name == "step":
            shown = sorted(shown, key=lambda point: point[0])
            places = downsample.by_step([point[0] for point in shown], k)
        else:
            places = getattr(downsample, name)(len(shown), k)
        shown = [shown[at] for at in places]
    expected = sorted(shown, key=lambda point: point[0])
    assert as_tuples(asked(points, choice)) == [(step, repr(value)) for step, _, value in expected]


@given(logs, ranges, st.integers(2, 40))
def test_an_envelope_keeps_every_peak(points: list[Point], steps: Any, k: int) -> None:
    choice = Choice(points=k, steps=steps, sampling="envelope")
    shown = plain(points, choice)
    found = asked(points, choice)
    assert len(found) <= max(k, len(shown) if len(shown) <= k else 0)
    assert found.steps.tolist() == sorted(found.steps.tolist())
    kept, allowed = as_tuples(found), [(step, repr(value)) for step, _, value in shown]
    assert all(kept.count(each) <= allowed.count(each) for each in kept)
    if len(shown) <= k:
        assert sorted(kept) == sorted(allowed)
        return
    assert {allowed[0], allowed[-1]} <= set(kept), "both ends"
    buckets = (k - 2) // 2
    for bucket in range(buckets):
        inside = [
            value
            for at, (_, _, value) in enumerate(shown)
            if at * buckets // len(shown) == bucket and math.isfinite(value)
        ]
        if inside:
            assert {repr(min(inside)), repr(max(inside))} <= {
                repr(value) for value in found.values.tolist()
            } | {repr(-value) for value in found.values.tolist() if value == 0}


@given(logs.filter(lambda points: len(points) > 20), st.integers(4, 20))
def test_an_envelope_from_figures_is_that_of_the_points(points: list[Point], k: int) -> None:
    """Whole chunks are not opened; in ranges all are, and must come to the same."""
    from_figures = asked(points, Choice(points=k, sampling="envelope"))
    everything = (-(2**63), 2**63 - 1)
    opened = asked(points, Choice(points=k, sampling="envelope", steps=everything))
    assert as_tuples(from_figures) == as_tuples(opened)


def line(n: int) -> MemoryStore:
    store = MemoryStore(chunk=100)
    store.add_scalars("run", "tag", [(at, float(at), math.sin(at)) for at in range(n)])
    return store


def test_a_spike_in_a_long_line_is_seen() -> None:
    store = line(50_000)
    store.points[0][31_234] = (31_234, 0.0, 99.0)
    found = sampling.points_of(store, store.rows[0], Choice(points=30, sampling="envelope"))
    assert found.values.max() == 99.0
    assert store.opened < 3_000, "only chunks that two buckets share are opened, and what is shown"


def test_the_usual_sample_comes_from_the_preview() -> None:
    store = line(5_000)
    found = sampling.points_of(store, store.rows[0], Choice())
    assert store.opened == 0
    assert found.steps.tolist() == list(downsample.sampled(5_000, 1000))


def test_a_range_opens_only_its_chunks() -> None:
    store = line(5_000)
    found = sampling.points_of(store, store.rows[0], Choice(points=None, steps=(2_150, 2_249)))
    assert (found.steps == np.arange(2_150, 2_250)).all()
    assert store.opened == 200


def test_the_last_points_open_only_the_last_chunks() -> None:
    store = line(5_000)
    found = sampling.points_of(store, store.rows[0], Choice(points=None, last=150))
    assert (found.steps == np.arange(4_850, 5_000)).all()
    assert store.opened == 200


def test_nothing_is_opened_for_no_points() -> None:
    store = line(5_000)
    assert len(sampling.points_of(store, store.rows[0], Choice(points=0))) == 0
    assert store.opened == 0


@pytest.mark.parametrize(
    ("asked_for", "message"),
    [
        ({"points": -1}, "`points` is -1"),
        ({"points": 2.5}, "`points` is 2.5"),
        ({"points": True}, "`points` is True"),
        ({"last": -3}, "`last` is -3"),
        ({"sampling": "random"}, "no sampling `random`"),
        ({"steps": (5, 4)}, "the range of steps 5 to 4 is empty"),
        ({"steps": (1, 2, 3)}, r"\(1, 2, 3\) is not a range of steps"),
        ({"steps": [1, 2]}, "is not a range of steps"),
        ({"steps": ("a", None)}, "is not a range of steps"),
    ],
)
def test_impossible_choices(asked_for: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Choice(**asked_for)
