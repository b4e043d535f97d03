from __future__ import annotations

from typing import Any

import pytest

from dlv.terminal.table import Text, raw
from dlv.views.values import attribute, percent, plural, setting


@pytest.mark.parametrize(
    ("what", "value", "text"),
    [
        ("kernel", [5, 5], "5×5"),
        ("kernel", (3, 1), "3×1"),
        ("stride", [2, 2], "2"),
        ("stride", [2, 1], "(2, 1)"),
        ("pad", [[1, 1], [1, 1]], "1"),
        ("pad", [[0, 1], [0, 1]], "(0, 1)"),
        ("pad", [[0, 1], [2, 2]], "((0, 1), 2)"),
        ("output", ("B", 20, None), "B×20×?"),
        ("output", None, "?"),
        ("shape", None, "none"),
        ("shape", [3, 1], "3×1"),
        ("size", None, "none"),
        ("size", 5, "5"),
        ("p", 0.25, "0.25"),
        ("bias", True, "yes"),
        ("axis", None, "none"),
        ("op", "ACT GELU", "ACT GELU"),
        ("inputs", ["a", "b:1"], "a, b:1"),
        ("inputs", [], "none"),
        ("inputs", [{"name": "x", "shape": ["B", 3], "dtype": "int64"}], "x B×3 int64"),
    ],
)
def test_attributes(what: str, value: Any, text: str) -> None:
    assert attribute(what, value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (3, "3"),
        (1e-05, "1e-05"),
        ("sgd", "sgd"),
        ([1, "a"], '[1, "a"]'),
        ({"ä": None}, '{"ä": null}'),
    ],
)
def test_settings(value: Any, text: str) -> None:
    cell = setting(value)
    assert (cell.value if isinstance(cell, Text) else cell) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 3, "0"),
        (3, 3, "100"),
        (1, 3, "33.3"),
        (99_999, 100_000, "99.999"),
        (9_999_999_999, 10**10, "99.99999999"),
        (1, 10**6, "0.0001"),
    ],
)
def test_a_share_is_whole_only_if_it_is(part: int, whole: int, text: str) -> None:
    cell = percent(part, whole)
    assert cell is not None
    assert f"{cell.value:.{cell.digits}g}" == text


def test_a_share_of_nothing() -> None:
    assert percent(0, 0) is None


def test_plural() -> None:
    assert plural(1, "file") == "1 file"
    assert plural(1200, "file") == "1,200 files"
    assert plural(2, "matrix", "matrices") == "2 matrices"
    assert raw(plural(0, "file")) == "0 files"
