from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.errors import UsageError
from dlv.training.trainers.batches import Batches, augmented, number
from dlv.training.trainers.datasets import Data, Rows

PLAIN = {"flip": False, "shift": 0, "noise": 0.0}


def data(count: int) -> Data:
    rows = Rows({"x": np.arange(count, dtype=np.float32)[:, None]}, np.arange(count), count)
    return Data("d", rows, None)


def taken(batches: Batches, step: int) -> list[int]:
    rows = batches.of(step)
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
    found = [one.of(step).inputs["x"] for step in (1, 2, 3)]
    again = [two.of(step).inputs["x"] for step in (3, 2, 1)][::-1]
    assert all(np.array_equal(a, b) for a, b in zip(found, again, strict=True))


def test_what_are_no_images() -> None:
    with pytest.raises(UsageError, match="turns and moves images"):
        change(images((5,)), flip=True)


def test_batches_that_code_makes() -> None:
    asked: list[tuple[int, int]] = []

    def make(seed: int, step: int) -> Rows:
        asked.append((seed, step))
        return Rows({"x": np.zeros((2, 1))}, None, 2)

    batches = Batches(Data("d", None, None, None, make), 5, 64, PLAIN)
    assert batches.of(3).count == 2
    assert asked == [(5, 3)]


def test_no_rows_at_all() -> None:
    with pytest.raises(UsageError, match="no rows to train on"):
        Batches(Data("d", None, None), 0, 4, PLAIN)


def test_numbers_of_steps() -> None:
    found = {number(seed, what, step) for seed in (0, 1) for what in "ab" for step in (1, 2)}
    assert len(found) == 8
    assert all(0 <= each < 1 << 63 for each in found)
