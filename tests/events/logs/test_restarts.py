"""What restarts hide, beside a plain loop that hides one point after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.events.logs import points

STEPS = st.lists(st.integers(-3, 8), max_size=25)
HIDES = st.lists(st.tuples(st.integers(0, 25), st.integers(-4, 9)), max_size=6)


def live(steps: list[int], hides: list[tuple[int, int]], policy: str) -> list[bool]:
    found = points.live_points(np.array(steps, np.int64), hides, policy)
    if found is None:
        return [True] * len(steps)
    assert not found.all(), "None says that all are live"
    seen: list[bool] = found.tolist()
    return seen


@settings(deadline=None)
@given(STEPS, HIDES)
def test_marked(steps: list[int], hides: list[tuple[int, int]]) -> None:
    expected = [
        not any(seq < before and step >= least for before, least in hides)
        for seq, step in enumerate(steps)
    ]
    assert live(steps, hides, "marked") == expected


@settings(deadline=None)
@given(STEPS, HIDES)
def test_preempt(steps: list[int], hides: list[tuple[int, int]]) -> None:
    """As TensorBoard's data server does it: what is not below the new step goes."""
    kept: list[int] = []
    for seq, step in enumerate(steps):
        while kept and steps[kept[-1]] >= step:
            kept.pop()
        kept.append(seq)
    assert live(steps, hides, "preempt") == [seq in kept for seq in range(len(steps))]


def test_keep() -> None:
    assert points.live_points(np.array([3, 2, 1], np.int64), [(3, 0)], "keep") is None


def test_an_unknown_policy() -> None:
    with pytest.raises(ValueError, match="'all' is not a policy"):
        points.live_points(np.zeros(1, np.int64), [], "all")


def test_steps_at_the_ends_of_what_there_is() -> None:
    ends = [2**63 - 1, -(2**63), 0]
    assert live(ends, [(3, 2**63 - 1)], "marked") == [False, True, True]
    assert live(ends, [], "preempt") == [False, True, True]
