"""When a label is certain: allowances of the last layer against what a reference computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dlv.network.bounds.ball import F64, STRICT, Ball, Norms, Reference, l2
from dlv.network.bounds.interval import Balls, certain
from dlv.network.json_form import read
from dlv.network.program import program

Array = NDArray[Any]


def last_layer(classes: int, features: int, layout: str = "out_in") -> Any:
    full = {
        "name": "f",
        "op": "FULL",
        "attrs": {"out": classes, "layout": layout},
        "inputs": ["x"],
        "params": {"weight": "f.weight", "bias": "f.bias"},
    }
    image = {"name": "x", "shape": ["B", features]}
    return read({"dlv_network": 1, "inputs": [image], "nodes": [full], "outputs": ["f"]})[0]


class Case:
    """A last layer whose weight is known up to dW, behind features known up to a radius."""

    def __init__(self, seed: int, reference: Reference, unread: float, radius: float) -> None:
        rng = np.random.default_rng(seed)
        self.rng = rng
        classes, features, rows = rng.integers(2, 7), rng.integers(1, 40), 30
        layout = ("out_in", "in_out")[seed % 2]
        self.weight = rng.normal(size=(classes, features)).astype(np.float32).astype(np.float64)
        self.bias = rng.normal(size=classes).astype(np.float32).astype(np.float64)
        d = rng.normal(size=self.weight.shape) * unread
        self.centre_weight = self.weight - d
        d = self.weight - self.centre_weight
        self.h = rng.normal(size=(rows, features))
        step = rng.normal(size=self.h.shape)
        step *= radius / np.maximum(np.linalg.norm(step, axis=1, keepdims=True), 1e-300)
        self.truth = self.h + step
        self.radius = np.linalg.norm(self.truth - self.h, axis=1) * (1 + 1e-12)
        norm = float(np.linalg.norm(d, 2)) * (1 + 1e-7)
        norms = Norms(10.0, 10.0, 10.0, norm, norm, None, l2(d))
        stored = self.centre_weight if layout == "out_in" else self.centre_weight.T
        tensors = {"f.weight": stored, "f.bias": self.bias}
        found = program(last_layer(int(classes), int(features), layout))
        self.balls = Balls(found, tensors.__getitem__, {"f": norms}, reference)

    @property
    def known(self) -> dict[Any, Ball]:
        zc = self.h @ self.centre_weight.T + self.bias
        wide = np.full(len(zc), 1e300)  # finite, and no help
        return {("x", 0): Ball(self.h, self.radius), ("f", 0): Ball(zc, wide)}

    def scores(self, reference: Reference) -> Array:
        """Of the reference, its products summed in a random order."""
        dtype = np.float32 if reference is STRICT else np.float64
        order = self.rng.permutation(self.weight.shape[1])
        total: Array = np.zeros((len(self.h), len(self.weight)), dtype)
        for i in order:
            total += np.outer(self.truth[:, i].astype(dtype), self.weight[:, i].astype(dtype))
        total += self.bias.astype(dtype)
        return total


@pytest.mark.parametrize("reference", [F64, STRICT], ids=["f64", "strict"])
@pytest.mark.parametrize(("unread", "radius"), [(0.0, 0.0), (0.01, 0.0), (0.0, 0.1), (0.02, 0.2)])
def test_allowances_hold(reference: Reference, unread: float, radius: float) -> None:
    sure_rows = 0
    for seed in range(40):
        case = Case(seed, reference, unread, radius)
        if reference is STRICT:
            # What it was handed is in float32 already; the ball is around that.
            case.truth = case.truth.astype(np.float32).astype(np.float64)
            case.radius = np.linalg.norm(case.truth - case.h, axis=1) * (1 + 1e-12)
        scores, known = case.scores(reference).astype(np.float64), case.known
        zc = known["f", 0].centre
        rows = np.arange(len(zc))
        for top in range(zc.shape[1]):
            tops = np.full(len(zc), top)
            allowed = case.balls.allowances(known, tops)
            off = np.abs((scores[rows, tops][:, None] - scores) - (zc[rows, tops][:, None] - zc))
            assert (off <= allowed + 1e-9 * (1 + np.abs(zc).max(axis=1))[:, None]).all()
        labels, sure = certain(case.balls, known)
        sure_rows += int(sure.sum())
        assert (labels[sure] == scores.argmax(axis=1)[sure]).all()
        for k in (2, 3):
            _, sure = certain(case.balls, known, k)
            wanted = np.sort(np.argsort(-scores, axis=1)[:, :k], axis=1)
            got = np.sort(np.argsort(-zc, axis=1)[:, :k], axis=1)
            assert (wanted == got)[sure].all()
    assert sure_rows > 300


def plain(scores: Array, radius: float = 0.0, box: Array | None = None) -> Any:
    """A network that only passes its input on: its scores are any numbers."""
    node = {"name": "r", "op": "RELU", "inputs": ["x"]}
    image = {"name": "x", "shape": ["B", scores.shape[1]]}
    network = read({"dlv_network": 1, "inputs": [image], "nodes": [node], "outputs": ["r"]})[0]
    nothing: dict[str, Array] = {}
    balls = Balls(program(network), nothing.__getitem__, {})
    known = {("r", 0): Ball(scores, np.full(len(scores), radius), box)}
    return certain(balls, known)


def test_ties_and_what_is_no_number_stay_open() -> None:
    scores = np.array([[1.0, 1.0], [np.nan, 1.0], [1.0, np.nan], [np.inf, 1.0], [2.0, 1.0]])
    labels, sure = plain(scores)
    assert sure.tolist() == [False, False, False, False, True]
    assert labels[0] == 0
    assert labels[4] == 0
    assert not plain(scores, np.nan)[1].any()
    assert not plain(scores, np.inf)[1].any()


def test_margins_count_both_scores() -> None:
    scores = np.array([[2.0, 1.0]])
    assert plain(scores, 0.7)[1].all()  # sqrt(2) * 0.7 < 1
    assert not plain(scores, 0.71)[1].any()
    assert plain(scores, 0.71, np.full((1, 2), 0.49))[1].all()
    assert not plain(scores, 0.71, np.full((1, 2), 0.51))[1].any()


def test_one_class_is_certain() -> None:
    labels, sure = plain(np.array([[3.0]]))
    assert labels.tolist() == [0]
    assert sure.all()
