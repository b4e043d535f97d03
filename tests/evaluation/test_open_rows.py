"""Open rows: each is given once per level, in full batches, until it is told."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dlv.evaluation.answers import OPEN, Settings, Verdicts
from dlv.evaluation.data import Batch
from dlv.evaluation.levels import OpenRows, first_row
from dlv.network.graph import Input, Network
from tests.evaluation.stored_models import SmallRows

Array = NDArray[Any]


def network(batch: Any = "B") -> Network:
    return Network(inputs=(Input("x", (batch, 3)),))


def rows(count: int) -> SmallRows:
    return SmallRows(np.arange(count * 3.0).reshape(count, 3))


def told(labels: Any, sure: Any) -> Verdicts:
    return Verdicts(np.asarray(labels, np.int64), np.asarray(sure, bool))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 40), st.integers(1, 9), st.integers(0, 1 << 20))
def test_open_rows_come_once_and_together(count: int, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    given_rows = rows(count)
    found = OpenRows(network(), given_rows, Settings(batch=size))
    while found.mask.any():
        batches = list(found.batches())
        at = np.concatenate([places for places, _ in batches])
        assert (at == np.flatnonzero(found.mask)).all()
        for places, inputs in batches:
            assert (inputs["x"] == given_rows.x[places]).all()
            assert len(places) <= size
        # No two neighbours would have fitted into one.
        lengths = [len(places) for places, _ in batches]
        assert all(one + other > size for one, other in itertools.pairwise(lengths))
        for places, _ in batches:
            found.take(places, told(places % 7, rng.random(len(places)) < 0.5))
    assert (found.answers.labels == np.arange(count) % 7).all()
    assert found.count == found.answers.open == 0


def test_what_is_told_stays() -> None:
    found = OpenRows(network(), rows(4), Settings())
    at = np.arange(4)
    found.take(at, told([1, 2, 3, 4], [True, False, True, False]))
    found.take(at, told([9, 9, 9, 9], [True, True, False, False]))
    assert found.answers.labels.tolist() == [1, 9, 3, OPEN]
    assert found.mask.tolist() == [False, False, False, True]


def test_with_sets_these_decide() -> None:
    found = OpenRows(network(), rows(3), Settings(top_k=2))
    sets = np.array([[1, 2], [3, 4], [5, 6]])
    sure, sure_sets = np.array([False, True, True]), np.array([True, False, True])
    found.take(np.arange(3), Verdicts(sets[:, 0], sure, sets, sure_sets))
    assert found.answers.sets is not None
    assert found.answers.sets.tolist() == [[1, 2], [OPEN, OPEN], [5, 6]]
    assert found.answers.labels.tolist() == [OPEN, 3, 5]
    assert found.mask.tolist() == [False, True, False]


def test_a_network_of_one_length_of_batch_gets_whole_batches() -> None:
    given_rows = rows(12)
    found = OpenRows(network(4), given_rows, Settings(batch=4))
    found.take(np.arange(12), told(np.zeros(12), [True] * 5 + [False] + [True] * 6))
    batches = list(found.batches())
    assert [places.tolist() for places, _ in batches] == [[4, 5, 6, 7]]
    assert batches[0][1]["x"].shape == (4, 3)
    found.take(batches[0][0], told([7, 7, 7, 7], [True] * 4))
    assert found.answers.labels.tolist() == [0] * 5 + [7] + [0] * 6


@dataclass
class Ragged:
    """Batches whose rows have different lengths."""

    count: int = 5

    def batches(self, size: int) -> Iterator[Batch]:  # noqa: ARG002
        for start, length in enumerate((2, 2, 3, 3, 2)):
            yield Batch(start, {"x": np.full((1, length), start)}, None)


def test_rows_of_different_lengths_are_not_joined() -> None:
    found = OpenRows(Network(inputs=(Input("x", ("B", "T")),)), Ragged(), Settings(batch=64))
    batches: list[tuple[Array, Mapping[str, Array]]] = list(found.batches())
    assert [places.tolist() for places, _ in batches] == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize(("batch", "length"), [("B", 1), (4, 4)])
def test_a_row_to_try(batch: Any, length: int) -> None:
    found = first_row(network(batch), rows(8), Settings(batch=4))
    assert found is not None
    assert found["x"].shape == (length, 3)
    assert first_row(network(batch), rows(0), Settings()) is None
