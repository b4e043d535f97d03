"""What scores come to, against scikit-learn and definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dlv.adapters.data.columns import Held
from dlv.adapters.data.sets import Data
from dlv.errors import UsageError
from dlv.evaluation.answers import Evaluation
from dlv.evaluation.data import Rows
from dlv.evaluation.evaluate import Tally, classes_of, confusion, cross_entropy, set_accuracy
from dlv.network.graph import Input, Network, Node
from dlv.network.program import program
from dlv.network.vocabulary import complete

Array = NDArray[Any]


def rows_with(labels: Array | None, count: int = 0) -> Rows:
    node = Node("out", "RELU", None, complete("RELU", None, {}), (("x", 0),), {})
    network = Network((Input("x", ("B", 2)),), (node,), (("out", 0),))
    count = count if labels is None else len(labels)
    column = None if labels is None else Held("y", labels)
    data = Data("made", {"x": Held("x", np.zeros((count, 2)))}, column, count, None)
    return Rows(program(network), data)


def evaluated(scores: Array, labels: Array | None, *, top_k: int = 1, batch: int = 7) -> Evaluation:
    rows = rows_with(labels, len(scores))
    tally = Tally(rows, top_k)
    for start in range(0, len(scores), batch):
        truth = None if labels is None else labels[start : start + batch]
        tally.add(scores[start : start + batch], truth)
    found = Evaluation("m@1", "0" * 64, None, len(scores), np.empty(0, np.int64), top_k=top_k)
    tally.finish(found)
    return found


@pytest.mark.parametrize("classes", [2, 3, 17])
def test_against_scikit_learn(classes: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(classes)
    scores, labels = rng.normal(size=(50, classes)), rng.integers(0, classes, 50)
    found = evaluated(scores, labels, top_k=2)
    assert found.accuracy == metrics.accuracy_score(labels, scores.argmax(1))
    odds = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    known = list(range(classes))
    assert found.metrics["loss"] == pytest.approx(metrics.log_loss(labels, odds, labels=known))
    if classes > 2:
        top = metrics.top_k_accuracy_score(labels, scores, k=2, labels=known)
        assert found.metrics["top2_accuracy"] == pytest.approx(top)
    table = confusion(found.labels, rows_with(labels), classes)
    assert np.array_equal(
        table.counts, metrics.confusion_matrix(labels, found.labels, labels=known)
    )
    assert not table.open.any()


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 20), st.integers(2, 6), st.integers(0, 1000), st.booleans())
def test_ties_and_infinities(count: int, classes: int, seed: int, infinite: bool) -> None:
    """The first of equal scores, as a plain loop finds it."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 3, (count, classes)).astype(np.float64)
    if infinite:
        scores[rng.random(scores.shape) < 0.2] = np.inf
        scores[rng.random(scores.shape) < 0.2] = -np.inf
    labels = rng.integers(0, classes, count)
    found = evaluated(scores, labels, top_k=2)
    for row, label in zip(scores.tolist(), found.labels.tolist(), strict=True):
        assert label == row.index(max(row))
    assert found.sets is not None
    for row, two in zip(scores.tolist(), found.sets.tolist(), strict=True):
        assert two == sorted(range(classes), key=lambda c: -row[c])[:2]


def test_scores_that_are_no_numbers() -> None:
    scores = np.array([[1.0, 2.0], [np.nan, 5.0], [3.0, 0.0]])
    found = evaluated(scores, np.array([1, 1, 1]), top_k=2)
    assert found.labels.tolist() == [1, -1, 0]
    assert found.not_finite == 1
    assert found.open == 0
    assert found.metrics["accuracy"] == 1 / 3
    assert np.isnan(found.metrics["loss"])
    assert confusion(found.labels, rows_with(np.array([1, 1, 1])), 2).open.tolist() == [0, 1]


def test_rows_that_are_open() -> None:
    labels = np.array([0, 1, 2, 0])
    found = Evaluation("m@1", "0" * 64, None, 4, np.array([0, -1, 1, -1]))
    set_accuracy(found, rows_with(labels))
    assert found.accuracy is None
    assert found.between == {"accuracy": (1 / 4, 3 / 4)}
    assert found.open == 2


def test_large_scores_do_not_overflow() -> None:
    loss = cross_entropy(np.array([[1e300, 0.0], [-1e300, 1e300]]), np.array([0, 1]))
    assert loss.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("labels", "shape", "classes"),
    [
        (np.zeros(3, int), (10,), 10),
        (np.zeros(3), (10,), 10),
        (None, (10,), 10),
        (None, (4, 10), None),
        (np.zeros((3, 10)), (10,), None),
        (np.zeros((3, 4, 10)), (4, 10), None),
        (np.zeros(3), (1,), None),
        (np.zeros(3), (), None),
    ],
)
def test_what_scores_are_about(
    labels: Array | None, shape: tuple[int, ...], classes: int | None
) -> None:
    assert classes_of(shape, rows_with(labels, 3)) == classes


@pytest.mark.parametrize(
    ("labels", "shape"), [(np.zeros((3, 9)), (10,)), (np.zeros(3, int), (4, 10))]
)
def test_labels_that_do_not_fit(labels: Array, shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="does not fit what the network computes"):
        classes_of(shape, rows_with(labels))


def test_values() -> None:
    rng = np.random.default_rng(0)
    scores, truth = rng.normal(size=(20, 3)), rng.normal(size=(20, 3))
    found = evaluated(scores, truth)
    assert found.metrics == {"mse": pytest.approx(np.mean((scores - truth) ** 2))}
    assert found.class_count is None


def test_a_table_that_is_too_large() -> None:
    with pytest.raises(UsageError, match="too large"):
        confusion(np.zeros(1, np.int64), rows_with(np.zeros(1, int)), 5000)
