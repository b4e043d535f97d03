"""Bounds a segment at a time: the same as of the whole, in little memory, NaN wherever it is."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.weights.reading.interval_statistics as interval_statistics
from dlv.pas.layouts.segments import SEGMENT
from dlv.weights.reading.approximation import Bounds, NoBounds, approximate, whole
from dlv.weights.store import MatrixStore
from dlv.weights.writer import WeightWriter
from tests.memory_index import MemoryIndex


def stored(folder: Path, array: Any) -> tuple[MatrixStore, str]:
    (folder / "packs").mkdir()
    (folder / "tmp").mkdir()
    index = MemoryIndex()
    store = MatrixStore(folder / "packs", folder / "tmp", index)
    writer = WeightWriter(store)
    name = writer.add(array.dtype.name, array.shape, array.tobytes())
    index.add(writer.finish())
    return store, name


def values(segments: int) -> Any:
    return np.random.default_rng(0).normal(0, 1, (segments, SEGMENT)).astype("<f4")


def test_parts_are_those_of_the_whole(tmp_path: Path) -> None:
    array = values(2)[:, : SEGMENT - 5]
    store, name = stored(tmp_path, np.ascontiguousarray(array))
    for planes in (1, 2, 3, 4):
        found = approximate(store, name, "float32", array.shape, planes)
        parts = Bounds(store, name, planes)
        joined = [np.concatenate(each) for each in zip(*parts, strict=True)]
        for one, other in zip(joined, (found.center, found.low, found.high), strict=True):
            assert np.array_equal(one, other.reshape(-1))
        assert parts.reading == found.reading
        assert parts.exact == found.exact


def test_nan_in_the_last_segment(tmp_path: Path) -> None:
    array = values(2)
    array[-1, -1] = np.nan
    store, name = stored(tmp_path, array)
    found = Bounds(store, name, 2)
    with pytest.raises(NoBounds) as caught:
        interval_statistics.statistics(found)
    exact = caught.value.bounds.exactly(caught.value.why)
    assert exact.exact
    assert exact.reading == whole(store, name, 2, caught.value.why)
    low = np.concatenate([low for _, low, _ in exact])
    assert np.array_equal(low, array.reshape(-1).astype(np.float64), equal_nan=True)


def test_memory_is_that_of_a_segment(tmp_path: Path) -> None:
    array = values(8)
    store, name = stored(tmp_path, array)
    interval_statistics.statistics(Bounds(store, name, 1))  # what is loaded once
    tracemalloc.start()
    try:
        interval_statistics.statistics(Bounds(store, name, 2))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 120 * SEGMENT < 8 * 24 * SEGMENT  # of which three arrays of it would take


def test_nothing_in_nothing(tmp_path: Path) -> None:
    store, name = stored(tmp_path, np.zeros((0, 3), "<f4"))
    assert list(Bounds(store, name, 1)) == []
