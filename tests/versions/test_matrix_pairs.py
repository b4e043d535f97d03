"""Pairs of matrices: compared exactly, or from the first planes where these may be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlv.versions.matrix_pairs import MatrixPair, compared
from dlv.weights.snapshots import Matrix
from dlv.weights.store import MatrixStore
from dlv.weights.writer import WeightWriter
from tests.memory_index import MemoryIndex

RNG = np.random.default_rng(0)
SQUARE = RNG.normal(0, 1, (6, 6)).astype("<f4")


class Desk:
    def __init__(self, folder: Path) -> None:
        (folder / "packs").mkdir()
        (folder / "tmp").mkdir()
        self.index = MemoryIndex()
        self.store = MatrixStore(folder / "packs", folder / "tmp", self.index)

    def add(self, array: Any) -> Matrix:
        writer = WeightWriter(self.store)
        dtype = array.dtype.name
        digest = writer.add(dtype, array.shape, array.tobytes())
        self.index.add(writer.finish())
        return Matrix("w", dtype, array.shape, "weight", None, digest)

    def compare(self, old: Any, new: Any, planes: int | None, turn: Any = None) -> MatrixPair:
        before, after = self.add(old), self.add(new)
        return compared(self.store, before, after, turn, planes, lambda _: None)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_bounds_from_planes(desk: Desk) -> None:
    exact = desk.compare(SQUARE, SQUARE * 2, None)
    assert exact.reading is None
    assert exact.bounds is None
    assert exact.difference is not None
    rough = desk.compare(SQUARE, SQUARE * 2, 2)
    assert rough.difference is None
    assert rough.bounds is not None
    assert rough.reading is not None
    assert rough.bounds.l2.low <= (exact.difference.l2 or 0) <= rough.bounds.l2.high
    assert rough.status == exact.status == "changed"
    whole = desk.compare(SQUARE, SQUARE * 2, 4)
    assert whole.difference == exact.difference
    assert whole.reading is not None
    assert whole.reading.exact


def test_a_turned_one_is_compared_exactly(desk: Desk) -> None:
    """Of the same shape, and equal once it is turned: bounds could not tell that."""
    found = desk.compare(SQUARE, np.ascontiguousarray(SQUARE.T), 1, ((6, 6), (1, 0)))
    assert found.reading is None
    assert found.status == "rearranged"


def test_equal_numbers_of_other_dtypes(desk: Desk) -> None:
    halves = SQUARE.astype("<f2")
    found = desk.compare(halves, halves.astype("<f4"), 1)
    assert found.bounds is not None
    assert found.bounds.changed.low == 0
    assert found.bounds.l2.low == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (SQUARE, SQUARE),
        (SQUARE, SQUARE[:3]),
        (SQUARE[:0], SQUARE[:0].astype("<f8")),
        (SQUARE.astype("<c8"), SQUARE.astype("<c8") * 2),
    ],
)
def test_what_needs_no_bounds(desk: Desk, old: Any, new: Any) -> None:
    found = desk.compare(old, new, 1)
    assert found.bounds is None
    assert found.reading is None
    assert found.difference == desk.compare(old, new, None).difference


def test_nan_is_read_whole(desk: Desk) -> None:
    odd = SQUARE.copy()
    odd[0, 0] = np.nan
    found = desk.compare(SQUARE, odd, 1)
    assert found.bounds is not None
    assert found.bounds.nonfinite == 1
    assert found.reading is not None
    assert found.reading.why is not None
