"""Means along one axis as a matrix, and what windows of different sizes hold."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dlv.network.ops.windows as windows
from dlv.network.ops.windows import (
    Axis,
    Parts,
    Window,
    adaptive,
    divisors,
    mean_norm,
    means,
    most_places,
    overlap,
)

Array = NDArray[Any]


def held(window: Window) -> list[list[int]]:
    """The places that each window holds, from their definition."""
    if isinstance(window, Parts):
        n, count = window.length, window.count
        return [list(range(o * n // count, -(-(o + 1) * n // count))) for o in range(count)]
    found = []
    for o in range(window.count):
        first = o * window.stride - window.before
        places = [first + t * window.dilation for t in range(window.kernel)]
        found.append([place for place in places if 0 <= place < window.length])
    return found


def examples() -> Iterator[tuple[Window, int, bool]]:
    chance = random.Random(1)
    for _ in range(150):
        length, kernel = chance.randint(1, 12), chance.randint(1, 4)
        stride, dilation = chance.randint(1, 4), chance.randint(1, 3)
        reach = dilation * (kernel - 1)
        before, after = chance.randint(0, reach), chance.randint(0, reach)
        room = length + before + after - reach - 1
        if room >= 0:
            # The last window may begin where a floor would have none.
            count = room // stride + 1 + ((room // stride + 1) * stride < length + before)
            axis = Axis(length, kernel, stride, before, dilation, count)
            yield axis, after, chance.random() < 0.5
        yield adaptive(length, chance.randint(1, 14)), 0, False


def test_windows_hold_what_they_are_said_to() -> None:
    for window, after, _ in examples():
        places = held(window)
        assert most_places([window]) == max(len(each) for each in places)
        counts = [sum(place in each for each in places) for place in range(window.length)]
        assert overlap([window]) == max(counts)
        assert divisors(window, after, False).tolist() == [len(each) for each in places]


def test_norms_of_means(monkeypatch: pytest.MonkeyPatch) -> None:
    closest = 0.0
    for window, after, count_pad in examples():
        counts = divisors(window, after, count_pad)
        units = np.eye(window.length)
        matrix = means(units, [window], 1, [counts], np.float64).T
        wanted = np.zeros_like(matrix)
        for row, places in enumerate(held(window)):
            wanted[row, places] = 1 / max(int(counts[row]), 1)
        assert np.allclose(matrix, wanted, rtol=0, atol=1e-15)
        truth = float(np.linalg.svd(wanted, compute_uv=False).max())
        assert truth <= mean_norm(window, after, count_pad) <= truth * (1 + 2e-7)
        with monkeypatch.context() as patched:
            patched.setattr(windows, "_MATRIX", 0)
            mean_norm.cache_clear()
            bound = mean_norm(window, after, count_pad)
            mean_norm.cache_clear()
        assert truth <= bound
        if truth:
            closest = max(closest, truth / bound)
    assert closest > 0.99


def test_equal_parts_are_plain_windows() -> None:
    assert adaptive(12, 4) == Axis(12, 3, 3, 0, 1, 4)
    assert adaptive(12, 5) == Parts(12, 5)
    assert adaptive(3, 5) == Parts(3, 5)
