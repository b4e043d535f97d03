"""Summaries of series and typed hyperparameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlv.metadata import metrics, versions
from dlv.metadata.database import Database
from dlv.metadata.metrics import Summary, summarise, typed
from dlv.objects.manifest import Manifest

NAN, INF = math.nan, math.inf


@given(st.lists(st.tuples(st.integers(-(2**40), 2**40), st.floats()), max_size=30))
def test_summaries(points: list[tuple[int, float]]) -> None:
    steps, values = [step for step, _ in points], [value for _, value in points]
    found = summarise("run", "tag", "h", steps, values)
    numbers = [(step, value) for step, value in points if not math.isnan(value)]
    assert (found.n, found.nonfinite) == (len(points), sum(not math.isfinite(v) for v in values))
    assert found.last_step == (steps[-1] if points else None)
    assert repr(found.last) == repr(values[-1] if points else None)
    for extreme, at, best in ((found.min, found.min_step, min), (found.max, found.max_step, max)):
        if numbers:
            wanted = best(value for _, value in numbers)
            assert extreme == wanted
            assert at == next(step for step, value in numbers if value == wanted)
        else:
            assert (repr(extreme), at) == ("nan" if points else "None", None)


def test_columns_of_different_length_are_a_fault() -> None:
    with pytest.raises(ValueError, match="zip"):
        summarise("", "t", "h", [1], [1.0, 2.0])


def test_rows(db: Database, manifest: Callable[..., Manifest]) -> None:
    found = [
        summarise("", "loss", "1" * 64, [1, 2], [2.0, NAN]),
        summarise("val", "loss", "2" * 64, [1], [INF]),
        summarise("", "accuracy", "3" * 64, [], []),
    ]
    key = versions.insert(db, manifest(1), number=1, net_id=None, summaries=found)
    other = versions.insert(db, manifest(2), number=2, net_id=None, summaries=found[:1])
    by_name = {summary.name: summary for summary in metrics.of_version(db, key)}
    assert by_name == {"loss": found[0], "val/loss": found[1], "accuracy": found[2]}
    assert found[0] == Summary("", "loss", "1" * 64, 2, 2, NAN, 2.0, 1, 2.0, 1, 1)
    every = metrics.all_of(db)
    assert sorted(every) == [key, other]
    assert every[other] == found[:1]
    assert {summary.name for summary in every[key]} == set(by_name)
    assert metrics.tags(db) == ["accuracy", "loss", "val/loss"]


@pytest.mark.parametrize(
    ("value", "row"),
    [
        (None, ("null", None, None)),
        (True, ("bool", 1.0, None)),
        (3, ("int", 3.0, "3")),
        (2**64 - 1, ("int", 1.8446744073709552e19, "18446744073709551615")),
        (0.1, ("float", 0.1, None)),
        ("NaN", ("float", None, "NaN")),
        ("-Infinity", ("float", -INF, "-Infinity")),
        ("sgd", ("str", None, "sgd")),
        ("", ("str", None, "")),
        ([1, {"a": None}], ("json", None, '[1,{"a":null}]')),
    ],
)
def test_hyperparameters(
    db: Database, manifest: Callable[..., Manifest], value: Any, row: tuple[Any, ...]
) -> None:
    assert typed(value) == row
    made = manifest(1, hyperparameters={"key": value})
    key = versions.insert(db, made, number=1, net_id=None, summaries=[])
    assert db.rows("SELECT version_id, key, type, num, txt FROM hyperparameter") == [
        (key, "key", *row)
    ]
    assert metrics.hyperparameters(db)[key] == {"key": value}
    assert type(metrics.hyperparameters(db)[key]["key"]) is type(value)
