"""Levels: which are worth reading, and what the reference says in the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dlv.evaluation.answers import OPEN, Answers, Settings, Verdicts
from dlv.evaluation.levels import NEAR, Batches, Levels
from dlv.evaluation.planes import Planes
from dlv.evaluation.progressive import planes_of
from dlv.kinds import Places
from dlv.network.bounds.ball import REFERENCES
from dlv.network.forward import Forward
from tests.evaluation.stored_models import SmallRows, StoredModel, fresh, mlp, stored_model

Array = NDArray[Any]


def model(folder: Path) -> tuple[StoredModel, Array]:
    network, shapes = mlp(16)
    tensors = fresh(shapes, 1)
    x = np.random.default_rng(1).normal(size=(50, 64)).astype(np.float32)
    return stored_model(folder, network, tensors, x=x), x


def levels_of(found: StoredModel, x: Array, **asked: Any) -> tuple[Levels, Planes]:
    planes = planes_of(found)
    return Levels(found.program, planes, SmallRows(x), Settings(**asked)), planes


def depths(planes: Planes, depth: int) -> dict[str, int]:
    return {name: min(depth, planes.planes(name)) for name in planes.names}


class Sure:
    """Tells the rows that it was made with, as class 7."""

    def __init__(self, rows: Array) -> None:
        self.rows = rows
        self.seen: list[Array] = []

    def __call__(self, batches: Batches) -> Iterator[tuple[Places, Verdicts]]:
        for at, _ in batches:
            self.seen.append(at)
            yield at, Verdicts(np.full(len(at), 7), np.isin(at, self.rows))


def run(
    found: StoredModel, x: Array, schedule: list[int], sure: list[Sure], **asked: Any
) -> Answers:
    levels, planes = levels_of(found, x, **asked)
    judges = iter(sure)
    return levels.run([depths(planes, depth) for depth in schedule], lambda: next(judges))


def test_only_open_rows_are_looked_at_again(tmp_path: Path) -> None:
    found, x = model(tmp_path)
    sure = [Sure(np.arange(0, 50, 2)), Sure(np.arange(0, 50, 3)), Sure(np.arange(0))]
    answers = run(found, x, [1, 2, 3], sure, batch=8)
    assert np.concatenate(sure[0].seen).tolist() == list(range(50))
    assert np.concatenate(sure[1].seen).tolist() == list(range(1, 50, 2))
    left = [at for at in range(50) if at % 2 and at % 3]
    assert np.concatenate(sure[2].seen).tolist() == left
    assert [level.open for level in answers.levels] == [25, len(left), len(left), 0]
    right = found.scores(x).argmax(1)
    assert (answers.labels[left] == right[left]).all()
    assert (np.delete(answers.labels, left) == 7).all()
    shares = [level.share for level in answers.levels]
    assert shares == sorted(set(shares))
    assert [level.bits["fc1.weight"] for level in answers.levels] == [8, 16, 24, 32]


def test_it_ends_where_all_is_told(tmp_path: Path) -> None:
    found, x = model(tmp_path)
    answers = run(found, x, [1, 2], [Sure(np.arange(50))])
    assert len(answers.levels) == 1
    assert (answers.labels == 7).all()


def test_levels_that_fetch_all_are_left_out(tmp_path: Path) -> None:
    found, x = model(tmp_path)
    levels, planes = levels_of(found, x)
    wanted = [depths(planes, depth) for depth in (1, 1, 2, 3, 4)]
    assert levels.worthwhile(wanted) == [wanted[0], wanted[2], wanted[3]]
    assert levels.bytes_whole == planes.cost(depths(planes, 9))
    # A record that is larger than what the first planes save makes them worthless.
    planes.chunks.bytes_read += levels.bytes_whole
    assert levels.worthwhile(wanted) == []


@pytest.mark.parametrize("reference", ["f64", "strict"])
def test_near_scores_are_summed_in_the_batches_of_a_plain_evaluation(
    tmp_path: Path, reference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of summing, and so of a tie, may hang on the rows that stand in a batch."""
    found, x = model(tmp_path)
    lengths: list[int] = []
    original = Forward.__call__

    def uneven(self: Forward, inputs: Any) -> Array:
        """Of ten rows the first wins a tie, of others the second."""
        scores = original(self, inputs)
        lengths.append(len(scores))
        scores[:, 3] = scores.max(axis=1) + (1.0 if reference == "f64" else 9.0)
        near = NEAR[reference] / 100
        scores[:, 8] = scores[:, 3] + (-near if len(scores) == 10 else near)
        return scores

    monkeypatch.setattr(Forward, "__call__", uneven)
    answers = run(found, x, [1], [Sure(np.arange(0, 50, 2))], batch=10, reference=reference)
    assert lengths == [10, 10, 5, 10, 10, 10, 10, 10]
    assert (answers.labels[1::2] == 3).all()


def test_each_reference_says_what_is_near() -> None:
    assert set(NEAR) == set(REFERENCES)
    for name, near in NEAR.items():
        assert near > 1000 * REFERENCES[name].unit


def test_the_most_bytes_hold_for_the_end_too(tmp_path: Path) -> None:
    found, x = model(tmp_path)
    levels, planes = levels_of(found, x)
    answers = run(found, x, [1], [Sure(np.arange(9))], max_bytes=levels.bytes_whole - 1)
    assert (answers.labels == np.where(np.arange(50) < 9, 7, OPEN)).all()
    assert answers.open == 41
    assert answers.bytes_read < levels.bytes_whole
    assert answers.bytes_read == planes.cost(depths(planes, 1))
