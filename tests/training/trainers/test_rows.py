from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dlv.training.trainers.rows as rows
from dlv.adapters.data.columns import Held
from dlv.errors import Conflict, UsageError
from dlv.network.graph import Input
from dlv.training.trainers.datasets import Data, Rows
from dlv.training.trainers.rows import Batches, augmented, number
from tests.training import small

PLAIN = {"flip": False, "shift": 0, "noise": 0.0}


def data(count: int) -> Data:
    rows = Rows({"x": np.arange(count, dtype=np.float32)[:, None]}, np.arange(count), count)
    return Data("d", rows, None)


def taken(batches: Batches, step: int) -> list[int]:
    rows = batches.batch(step)
    assert rows.labels is not None
    assert rows.inputs["x"][:, 0].tolist() == rows.labels.tolist()
    found: list[int] = rows.labels.tolist()
    return found


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 40), st.integers(1, 50), st.integers(0, 3))
def test_each_epoch_has_every_row_at_most_once(count: int, size: int, seed: int) -> None:
    batches = Batches(data(count), seed, size, PLAIN)
    size = min(size, count)
    each = count // size
    for epoch in range(2):
        steps = range(1 + epoch * each, 1 + (epoch + 1) * each)
        rows = [row for step in steps for row in taken(batches, step)]
        assert len(rows) == each * size
        assert max(Counter(rows).values()) == 1


def test_a_batch_hangs_on_seed_and_step_alone() -> None:
    forwards = Batches(data(50), 1, 8, PLAIN)
    found = [taken(forwards, step) for step in range(1, 30)]
    backwards = Batches(data(50), 1, 8, PLAIN)
    assert [taken(backwards, step) for step in range(29, 0, -1)] == found[::-1]
    assert len({tuple(rows) for rows in found}) == len(found)
    other = Batches(data(50), 2, 8, PLAIN)
    assert [taken(other, step) for step in range(1, 30)] != found


def test_the_order_stays_what_it_is() -> None:
    """Trials of another day must come to the same."""
    batches = Batches(data(10), 0, 5, PLAIN)
    assert [taken(batches, step) for step in (1, 2, 3)] == PINNED


PINNED = [[2, 9, 8, 0, 3], [4, 6, 7, 5, 1], [4, 1, 6, 7, 9]]


def images(shape: tuple[int, ...], count: int = 40) -> Rows:
    draw = np.random.default_rng(0)
    return Rows({"x": draw.normal(size=(count, *shape)).astype(np.float32)}, None, count)


LAST = (4, 5, 3)  # channels behind height and width


def change(rows: Rows, **said: Any) -> Any:
    last = rows.inputs["x"].shape[1:] == LAST
    draw = np.random.default_rng(1)
    found = augmented(rows, {**PLAIN, **said}, draw, "d", channels_last=last)
    assert found.inputs["x"].dtype == np.float32
    return found.inputs["x"]


@pytest.mark.parametrize("shape", [(1, 4, 5), (3, 4, 5), (4, 5), LAST, (8, 4, 4)])
def test_flipped_images(shape: tuple[int, ...]) -> None:
    rows = images(shape)
    plain = rows.inputs["x"]
    wide = 2 if shape == LAST else len(shape)
    turned = np.flip(plain, wide)
    found = change(rows, flip=True)
    kinds = [
        np.array_equal(one, same) + 2 * np.array_equal(one, other)
        for one, same, other in zip(found, plain, turned, strict=True)
    ]
    assert set(kinds) == {1, 2}


@pytest.mark.parametrize("shape", [(2, 4, 5), (4, 5), LAST])
def test_moved_images(shape: tuple[int, ...]) -> None:
    rows = images(shape)
    found, seen = change(rows, shift=1), set()
    last = shape == LAST
    for image, plain in zip(found, rows.inputs["x"], strict=True):
        tall, wide = (0, 1) if last else (plain.ndim - 2, plain.ndim - 1)
        ways = {}
        for down in (-1, 0, 1):
            for right in (-1, 0, 1):
                moved = np.zeros_like(plain)
                for row in range(plain.shape[tall]):
                    for column in range(plain.shape[wide]):
                        y, x = row - down, column - right
                        if 0 <= y < plain.shape[tall] and 0 <= x < plain.shape[wide]:
                            source = (y, x) if last else (..., y, x)
                            target = (row, column) if last else (..., row, column)
                            moved[target] = plain[source]
                ways[down, right] = moved
        fitting = [way for way, moved in ways.items() if np.array_equal(moved, image)]
        assert len(fitting) == 1
        seen.add(fitting[0])
    assert len(seen) > 5


def test_noise() -> None:
    rows = images((30,), 200)
    noise = change(rows, noise=0.5) - rows.inputs["x"]
    assert abs(float(noise.mean())) < 0.02
    assert 0.48 < float(noise.std()) < 0.52


def test_augmented_batches_hang_on_seed_and_step_alone() -> None:
    rows = images((1, 4, 4))
    held = Data("d", rows, None)
    augment = {"flip": True, "shift": 1, "noise": 0.1}
    one, two = Batches(held, 3, 8, augment), Batches(held, 3, 8, augment)
    found = [one.batch(step).inputs["x"] for step in (1, 2, 3)]
    again = [two.batch(step).inputs["x"] for step in (3, 2, 1)][::-1]
    assert all(np.array_equal(a, b) for a, b in zip(found, again, strict=True))


def test_what_are_no_images() -> None:
    with pytest.raises(UsageError, match="three, are images"):
        change(images((5,)), flip=True)


def test_batches_that_code_makes() -> None:
    asked: list[tuple[int, int]] = []

    def make(seed: int, step: int) -> Rows:
        asked.append((seed, step))
        return Rows({"x": np.zeros((2, 1))}, None, 2)

    batches = Batches(Data("d", None, None, None, make), 5, 64, PLAIN)
    assert batches.batch(3).count == 2
    assert asked == [(5, 3)]


def test_no_rows_at_all() -> None:
    with pytest.raises(UsageError, match="no rows to train on"):
        Batches(Data("d", None, None), 0, 4, PLAIN)


def test_numbers_of_steps() -> None:
    found = {number(seed, what, step) for seed in (0, 1) for what in "ab" for step in (1, 2)}
    assert len(found) == 8
    assert all(0 <= each < 1 << 63 for each in found)


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
    with pytest.raises(UsageError, match="has fractions,"):
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
    with pytest.raises(UsageError, match="of x do not fit the network") as caught:
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
        (np.array([["a"] * 3]), "has no numbers"),
        (5, "has no numbers"),
        (None, "has no numbers"),
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
