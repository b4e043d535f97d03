from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.training.trainers.rows as rows
from dlv.adapters.data.columns import Held
from dlv.errors import Conflict, UsageError
from dlv.network.graph import Input
from tests.training import small


@dataclass
class Part:
    name: str
    inputs: dict[str, Any]
    labels: Any
    count: int
    classes: tuple[str, ...] | None = None


@dataclass
class Source:
    train: Part | None
    validation: Part | None = None
    batches: Any = None
    fingerprint: str | None = None
    name: str = "d"
    notes: list[str] = field(default_factory=list)


X = Input("x", ("B", 3))


def part(x: Any, y: Any = None) -> Part:
    labels = None if y is None else Held("y", np.asarray(y))
    return Part("d", {"x": Held("x", np.asarray(x))}, labels, len(x))


def test_rows_take_the_dtype_of_the_input() -> None:
    whole = part(np.arange(6).reshape(2, 3))
    for dtype, expected in (
        ("float32", "float32"),
        ("float16", "float16"),
        ("float64", "float64"),
        ("bfloat16", "float32"),
        ("int32", "int64"),
        ("int64", "int64"),
        ("bool", "bool"),
    ):
        found = rows.load(Source(whole), [Input("x", ("B", 3), dtype)])
        assert found.train is not None
        assert found.train.inputs["x"].dtype == expected
    fractions = Source(part(np.full((2, 3), 0.5)))
    with pytest.raises(UsageError, match="holds fractions"):
        rows.load(fractions, [Input("x", ("B", 3), "int64")])


def test_a_share_is_kept_for_validation() -> None:
    x = np.arange(60.0).reshape(20, 3)
    found = rows.load(Source(part(x, np.arange(20))), [X], 0.25)
    assert found.train is not None
    assert found.validation is not None
    assert (found.train.count, found.validation.count) == (15, 5)
    both = [*found.train.labels.tolist(), *found.validation.labels.tolist()]  # type: ignore[union-attr]
    assert sorted(both) == list(range(20))
    assert found.validation.labels.tolist() != list(range(15, 20))  # type: ignore[union-attr]
    for each in (found.train, found.validation):
        assert each.labels is not None
        assert np.array_equal(each.inputs["x"], x[each.labels])
    again = rows.load(Source(part(x, np.arange(20))), [X], 0.25)
    assert again.validation is not None
    assert np.array_equal(again.validation.inputs["x"], found.validation.inputs["x"])


def test_of_two_rows_one_is_trained_on() -> None:
    for count, share, expected in ((2, 0.9, 1), (2, 0.01, 1), (1, 0.5, 1), (5, 0.0, 5)):
        found = rows.load(Source(part(np.zeros((count, 3)))), [X], share)
        assert found.train is not None
        assert found.train.count == expected


def test_a_part_for_validation_is_taken_as_it_is() -> None:
    found = rows.load(Source(part(np.zeros((4, 3))), part(np.ones((2, 3)))), [X], 0.5)
    assert found.train is not None
    assert found.train.count == 4
    assert found.validation is not None
    assert found.validation.inputs["x"].tolist() == [[1] * 3] * 2


@pytest.mark.parametrize(
    ("shape", "hint"), [((2, 4), None), ((2,), None), ((2, 3, 1), r"data\.shape = \[3\]")]
)
def test_rows_of_another_shape(shape: tuple[int, ...], hint: str | None) -> None:
    with pytest.raises(UsageError, match="the rows of x do not fit the network") as caught:
        rows.load(Source(part(np.zeros(shape))), [X])
    assert (caught.value.hint is None) == (hint is None)


def test_more_than_memory_holds_lies_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MOST_HELD", 100)
    monkeypatch.setattr(rows, "_BLOCK", 64)
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    found = rows.load(Source(part(x, np.arange(50))), [X])
    assert found.train is not None
    assert isinstance(found.train.inputs["x"], np.memmap)
    assert np.array_equal(found.train.inputs["x"], x)
    assert np.array_equal(found.train.take(np.array([3, 1])).inputs["x"], x[[3, 1]])


def batches(made: Any) -> Any:
    found = rows.load(Source(None, batches=lambda *_: made), [X])
    assert found.batches is not None
    return found.batches(0, 1)


def test_batches_of_code() -> None:
    x = np.arange(6).reshape(2, 3)
    for made, labelled in (
        (x, False),
        ((x, [0, 1]), True),
        ({"x": x, "y": [0, 1]}, True),
        ({"anything": x}, False),
    ):
        found = batches(made)
        assert found.inputs["x"].tolist() == x.tolist()
        assert found.inputs["x"].dtype == np.float32
        assert (found.labels is not None) == labelled


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (np.zeros((2, 4)), "do not fit"),
        ((np.zeros((2, 3)), [1]), "different numbers"),
        (np.zeros((0, 3)), "have no rows"),
        ({"a": 1, "b": 2}, "has no array for the input"),
        (np.array([["a"] * 3]), "holds no numbers"),
        (5, "holds no numbers"),
        (None, "holds no numbers"),
    ],
)
def test_batches_of_code_that_are_none(made: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        batches(made)


def test_data_that_has_changed_is_not_trained_on(tmp_path: Path) -> None:
    where = small.saved(tmp_path / "d.npz", *small.blobs())
    config = {"input_data": where}
    record = {"fingerprints": {"input_data": "another"}}
    made = small.created(tmp_path, small.mlp(), small.mlp_weights(), config, record=record)
    assert small.READERS.rows is not None
    with pytest.raises(Conflict, match="has changed since this trial was made"):
        rows.opened(made.load(), small.READERS.rows)


def test_data_of_a_version_is_where_it_was_put(tmp_path: Path) -> None:
    small.saved(tmp_path / "out.npz", *small.blobs(30))
    record = {"paths": {"lenet@3:data/x.npz": str(tmp_path / "out.npz")}}
    config = {"input_data": "lenet@3:data/x.npz", "val": 0.0}
    made = small.created(tmp_path, small.mlp(), small.mlp_weights(), config, record=record)
    assert small.READERS.rows is not None
    found = rows.opened(made.load(), small.READERS.rows)
    assert found.train is not None
    assert found.train.count == 30


def test_the_next_slice_finds_the_rows_that_were_read(tmp_path: Path) -> None:
    x, y = small.blobs(30)
    where = small.saved(tmp_path / "d.npz", x, y)
    assert small.READERS.rows is not None

    def found(**config: Any) -> Any:
        name = f"{len(list(tmp_path.iterdir())):064x}"
        told = {"input_data": where, **config}
        made = small.created(tmp_path / name, small.mlp(), small.mlp_weights(), told)
        assert small.READERS.rows is not None
        return rows.opened(made.load(), small.READERS.rows).train

    first = found()
    assert found() is first
    assert found(val=0.5) is not first
    assert found(data={"scale": 2.0}) is not first
    assert found() is not first  # one at a time is kept
    own = {"trainer": "own:train", "val": 0.2}
    assert found(**own) is not found(**own)  # which may write into them
    first = found()
    small.saved(tmp_path / "d.npz", x + 1, y)
    assert np.array_equal(found().inputs["x"], first.inputs["x"] + 1)


def test_only_inputs_that_lead_to_the_output_are_wanted() -> None:
    network = small.mlp()
    assert [each.name for each in rows.inputs_of(network)] == ["x"]


def test_the_order_of_a_key_stays_what_it_is() -> None:
    assert rows.permutation("a", 6).tolist() == ORDER
    assert rows.permutation("b", 6).tolist() != ORDER
    assert rows.permutation("a", 0).tolist() == []


ORDER = [3, 0, 1, 4, 5, 2]
