"""Data that does not go with a network, said before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.training.fitting as fitting
import dlv.training.trainers.rows as rows
from dlv.adapters.data.columns import Held
from dlv.errors import DlvError, UsageError
from dlv.network.graph import Network
from dlv.training.config import resolve
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
    assert fitting.scores_port(small.network([FC, last], ["B", 4]), loss) == (found, 0)


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
    found = fitting.fitted_labels(labels, shape, loss, "d")
    assert found.dtype == dtype
    assert np.allclose(found.reshape(labels.shape), labels)


def test_of_a_single_place_all_classes_count() -> None:
    with pytest.raises(UsageError) as caught:
        fitting.fitted_labels(np.array([0, 3]), (2, 3, 1, 1), "cross_entropy", "d")
    assert caught.value.why == "the network has 3 classes, 0 to 2"


CALLED = "the network lenet@1"
X, Y = small.blobs(30)


def checked(made: Network, folder: Path, arrays: Mapping[str, Any], **config: Any) -> None:
    np.savez(folder / "d.npz", **arrays)
    assert small.READERS.rows is not None
    wanted = rows.wanted_of(rows.inputs_of(made))
    found = resolve({"input_data": "d.npz", **config}, [], made)
    source = small.READERS.rows("d.npz", found["data"], wanted, folder)
    fitting.check_fit(source, made, CALLED, found)


@pytest.mark.parametrize(
    ("made", "arrays", "config"),
    [
        (small.mlp(), {"x": X, "y": Y}, {}),
        (small.mlp(), {"x": X.astype(np.float64), "y": Y.astype(np.float32)}, {}),
        (small.mlp(), {"x": X, "y": np.eye(3)[Y]}, {}),
        (small.mlp(), {"x": X, "y": np.eye(3)[Y]}, {"loss": "mse"}),
        (small.mlp(), {"x": X, "y": np.eye(3)[Y]}, {"loss": "bce"}),
        (small.mlp(), {"x": X, "y": np.array(["a", "b", "c"])[Y]}, {}),
        (small.mlp(), {"x": X, "y": Y, "x_val": X[:5], "y_val": Y[:5]}, {}),
        (small.mlp(), {"x": X.reshape(-1, 2, 2), "y": Y}, {"data": {"shape": [4]}}),
    ],
)
def test_what_fits_is_let_through(
    tmp_path: Path, made: Network, arrays: Mapping[str, Any], config: Mapping[str, Any]
) -> None:
    checked(made, tmp_path, arrays, **config)


@pytest.mark.parametrize(
    ("arrays", "config", "said"),
    [
        (
            {"x": X[:, :3], "y": Y},
            {},
            [f"examples of x in d.npz do not fit {CALLED}", "they are 3, its input `x` takes 4"],
        ),
        ({"x": X.reshape(-1, 2, 2), "y": Y}, {}, ["they are 2×2", "config.data.shape = [4]"]),
        ({"x": X}, {}, ["d.npz has no labels", "cross_entropy"]),
        ({"x": X, "y": Y + 1}, {}, ["label 3", f"{CALLED} has 3 classes, 0 to 2"]),
        ({"x": X, "y": Y - 1}, {}, ["label -1"]),
        ({"x": X, "y": Y + 0.5}, {}, ["of d.npz do not fit", "a fraction", "scores are 3"]),
        ({"x": X, "y": np.zeros((30, 2), int)}, {}, [f"what {CALLED} computes", "label is 2"]),
        ({"x": X, "y": np.zeros((30, 2))}, {"loss": "mse"}, ["label is 2", "loss is mse"]),
        ({"x": X, "y": np.eye(3)[Y] * 2}, {"loss": "bce"}, ["not between 0 and 1"]),
        (
            {"x": X, "y": np.array(["a", "b", "c", "d"])[np.arange(30) % 4]},
            {},
            [f"4 classes, {CALLED} has 3", "a, b, c, d"],
        ),
        ({"x": X, "y": Y, "x_val": X[:5], "y_val": Y[:5] + 1}, {}, ["label 3"]),
        ({"x": X, "y": Y, "x_val": X[:5, :2], "y_val": Y[:5]}, {}, ["they are 2"]),
    ],
)
def test_what_does_not_fit(
    tmp_path: Path, arrays: Mapping[str, Any], config: Mapping[str, Any], said: list[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        checked(small.mlp(), tmp_path, arrays, **config)
    text = f"{caught.value.message}\n{caught.value.why}\n{caught.value.hint}"
    for words in said:
        assert words in text


def test_whole_numbers_are_wanted(tmp_path: Path) -> None:
    nodes = [{"name": "fc", "op": "FULL", "attrs": {"out": 3}}]
    made = small.network(nodes, ["B", 4])
    made = replace(made, inputs=(replace(made.inputs[0], dtype="int64"),))
    checked(made, tmp_path, {"x": np.ones((30, 4)), "y": Y})
    with pytest.raises(UsageError, match=f"x in d.npz has fractions, but {CALLED} takes integers"):
        checked(made, tmp_path, {"x": X, "y": Y})


@pytest.mark.parametrize(
    ("count", "val", "said"),
    [(16, 0.5, None), (15, 0.5, "7 rows to train on"), (30, 0.2, "6 rows to validate on")],
)
def test_batches_of_a_fixed_length(
    tmp_path: Path, count: int, val: float, said: str | None
) -> None:
    made = small.network([{"name": "fc", "op": "FULL", "attrs": {"out": 3}}], [8, 4])
    if said is None:
        checked(made, tmp_path, {"x": X[:count], "y": Y[:count]}, val=val)
        return
    with pytest.raises(DlvError, match=f"d.npz has {said}"):
        checked(made, tmp_path, {"x": X[:count], "y": Y[:count]}, val=val)


def test_labels_of_a_map_of_scores(tmp_path: Path) -> None:
    """A label for each place; and one for each row, where there is but one place."""
    conv = {"name": "conv1", "op": "CONV", "attrs": {"out": 3, "kernel": [3, 3], "pad": 1}}
    made = small.network([conv], small.IMAGE)
    x, y = small.pictures(12)
    checked(made, tmp_path, {"x": x, "y": np.zeros((12, 6, 6), int)})
    with pytest.raises(UsageError, match="do not fit what"):
        checked(made, tmp_path, {"x": x, "y": y})
    conv["attrs"] = {"out": 3, "kernel": [6, 6]}
    made = small.network([conv], small.IMAGE)
    checked(made, tmp_path, {"x": x, "y": y})
    with pytest.raises(UsageError, match="label 3"):
        checked(made, tmp_path, {"x": x, "y": y + 2})


@dataclass
class Watched(Held):
    """Tells how many rows were read of it."""

    name: str
    rows: Any
    read_of: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(self.name, self.rows)

    def read(self, start: int, stop: int) -> Any:
        self.read_of.append(stop - start)
        return super().read(start, stop)


@dataclass
class Part:
    inputs: dict[str, Any]
    labels: Any
    count: int
    name: str = "d"
    classes: tuple[str, ...] | None = None


@dataclass
class Source:
    train: Any
    validation: Any = None
    batches: Any = None
    fingerprint: str | None = None
    name: str = "d"


def test_much_is_not_read_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "MOST_LABELS", 80)
    monkeypatch.setattr(fitting, "_BLOCK", 8)
    made = small.mlp()
    config = resolve({"input_data": "d"}, [], made)
    x, y = Watched("x", X), Watched("y", Y)
    fitting.check_fit(Source(Part({"x": x}, y, 30)), made, CALLED, config)
    assert x.read_of == []
    assert y.read_of == [8, 8]  # ten of them are as much as is looked at
