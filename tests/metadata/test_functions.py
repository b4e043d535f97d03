"""Functions that SQL calls: what they raise comes out, Ctrl-C too."""

from __future__ import annotations

import math
import os
import signal
import sqlite3
import threading
from pathlib import Path

import pytest

from dlv.metadata.database import Calls, Database
from dlv.metadata.select.functions import Deviation, Mean, Median, Sum, like_test, modulo


@pytest.fixture
def db() -> Database:
    return Database(Path(":memory:"), wal=False)


def test_what_a_function_raises(db: Database) -> None:
    def fails(value: int) -> int:
        raise LookupError(value)

    with db.functions({"fails": fails}, {}), pytest.raises(LookupError, match="7"):
        list(db.stream("SELECT fails(7)"))
    db.forget_functions(["fails"])
    with db.functions({"fails": abs}, {}):
        assert db.value("SELECT fails(-7)") == 7


def test_an_aggregate(db: Database) -> None:
    with db.functions({}, {"dql_sum": Sum}):
        assert db.value("SELECT dql_sum(value) FROM json_each('[1, 2, \"x\", null]')") == 3
        (found,) = db.stream("SELECT dql_sum(x) FROM (SELECT 9223372036854775807 AS x UNION ALL"
            " SELECT 9223372036854775807)")  # fmt: skip
        assert found == (2.0**64,)


def test_interrupted_between_two_rows(db: Database) -> None:
    long = (
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 50000000)"
        " SELECT max(x) FROM n"
    )
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with db.functions({}, {}), pytest.raises(KeyboardInterrupt):
            list(db.stream(long))
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert db.value("SELECT 1") == 1


@pytest.mark.parametrize("method", ["__init__", "step", "finalize"])
def test_interrupted_before_a_method_of_an_aggregate_has_begun(method: str) -> None:
    told = f"user-defined aggregate's '{method}' method raised error"
    assert isinstance(Calls().raised(sqlite3.OperationalError(told)), KeyboardInterrupt)
    assert Calls().raised(sqlite3.OperationalError("disk I/O error")) is None


def test_figures() -> None:
    for made, right in ((Sum, 6.5), (Mean, 6.5 / 3), (Median, 2), (Deviation, 1.755942292142)):
        aggregate = made()
        for value in (2, "x", 4.0, None, 0.5):
            aggregate.step(value)
        assert aggregate.finalize() == pytest.approx(right)
        assert made().finalize() is None


@pytest.mark.parametrize(
    ("left", "right", "found"),
    [
        (-3, 2, 1),
        (3, -2, -1),
        (3.5, 2, 1.5),
        (1, 0, None),
        (None, 1, None),
        (float("inf"), 2, pytest.approx(math.nan, nan_ok=True)),
    ],
)
def test_modulo(left: object, right: object, found: object) -> None:
    assert modulo(left, right) == found


@pytest.mark.parametrize(
    ("pattern", "text", "like"),
    [("a%", "abc", 1), ("a_", "abc", 0), ("A%", "abc", 0), ("%", 3, None), ("a!%", "a%", 1)],
)
def test_like(pattern: str, text: object, like: int | None) -> None:
    assert like_test(pattern, "!", False)(text) == like
