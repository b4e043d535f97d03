from __future__ import annotations

import numpy as np
import pytest

import dlv.training.answers as answers
from dlv.errors import UsageError
from tests.training import small

FC = {"name": "fc", "op": "FULL", "attrs": {"out": 3}}
SOFTMAX = {"name": "soft", "op": "SOFTMAX", "attrs": {"axis": -1}}
SIGMOID = {"name": "sig", "op": "ACT", "variant": "SIGMOID"}


@pytest.mark.parametrize(
    ("last", "loss", "found"),
    [
        (SOFTMAX, "cross_entropy", "fc"),
        (SOFTMAX, "mse", "soft"),
        (SIGMOID, "bce", "fc"),
        (SIGMOID, "cross_entropy", "sig"),
    ],
)
def test_scores_stand_before_what_the_loss_computes(
    last: dict[str, object], loss: str, found: str
) -> None:
    assert answers.scores(small.network([FC, last], ["B", 4]), loss) == (found, 0)


@pytest.mark.parametrize(
    ("labels", "shape", "loss", "dtype"),
    [
        (np.array([0, 2]), (2, 3), "cross_entropy", "int64"),
        (np.array([0.0, 2.0]), (2, 3), "cross_entropy", "int64"),
        (np.array([0, 2], np.uint8), (2, 3, 1, 1), "cross_entropy", "int64"),
        (np.array([[0, 2], [1, 1]]), (2, 3, 2), "cross_entropy", "int64"),
        (np.array([[0, 2], [1, 1]]), (2, 2, 3), "cross_entropy", "int64"),
        (np.full((2, 3), 1 / 3), (2, 3), "cross_entropy", "float32"),
        (np.array([0.5, 2]), (2, 1), "mse", "float32"),
        (np.array([True, False]), (2, 1), "bce", "float32"),
    ],
)
def test_labels_that_fit(
    labels: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    shape: tuple[int, ...],
    loss: str,
    dtype: str,
) -> None:
    found = answers.fitted(labels, shape, loss, "d")
    assert found.dtype == dtype
    assert np.allclose(found.reshape(labels.shape), labels)


def test_of_a_single_place_all_classes_count() -> None:
    with pytest.raises(UsageError) as caught:
        answers.fitted(np.array([0, 3]), (2, 3, 1, 1), "cross_entropy", "d")
    assert caught.value.why == "the network tells 3 classes apart, 0 to 2"
