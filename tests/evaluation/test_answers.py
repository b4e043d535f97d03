"""Labels and sets out of scores; what counts as told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlv.evaluation.answers import OPEN, Answers, NoBounds, first_labels, first_sets

NAN = float("nan")


def test_of_equal_scores_the_first_counts() -> None:
    scores = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [-np.inf, -np.inf, 0.0]])
    assert first_labels(scores).tolist() == [1, 0, 2]
    assert first_labels(scores).dtype == np.int64
    assert first_sets(scores, 2).tolist() == [[1, 2], [0, 1], [2, 0]]
    assert first_sets(scores, 9).shape == (3, 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.uint8])
def test_sets_of_any_dtype(dtype: type) -> None:
    scores: Any = np.array([[0, 7, 2]], dtype)
    assert first_sets(scores, 3).tolist() == [[1, 2, 0]]


def test_nan_comes_last() -> None:
    assert first_sets(np.array([[NAN, 1.0, 2.0]]), 3).tolist() == [[2, 1, 0]]


def test_what_is_open() -> None:
    found = Answers(np.array([3, OPEN, OPEN]), None)
    assert found.open == 2
    found.not_finite = 1
    assert found.open == 1
    sets = np.array([[1, 2], [OPEN, OPEN], [0, 3]])
    found = Answers(np.array([OPEN, OPEN, 0]), sets)
    assert found.determined.tolist() == [1, OPEN, 0]
    assert found.open == 1


def test_reasons_are_kept() -> None:
    assert NoBounds("because").why == str(NoBounds("because")) == "because"
