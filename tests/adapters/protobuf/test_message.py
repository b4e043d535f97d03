"""dlv.adapters.protobuf: what a field holds, and where it says so."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dlv.adapters.caffe import prototxt
from dlv.adapters.protobuf import Message, Word, shortest
from dlv.errors import Damaged


def of(text: str) -> Message:
    return prototxt.parse(text.encode(), "f")


def test_kinds() -> None:
    m = of(
        'a: 1 b: -2 c: 0.1 d: inf e: true f: 0 g: MAX h: 1 i: "t" j: 3 j: 4 k { x: 1 } k { x: 2 }'
    )
    assert m.count("a", 9) == 1
    assert m.integer("b", 9) == -2
    assert m.number("c", 9) == 0.1
    assert m.number("a", 9) == 1.0
    assert m.number("d", 9) == math.inf
    assert (m.flag("e", False), m.flag("f", True), m.flag("none", True)) == (True, False, True)
    assert m.word("g", ("MIN", "MAX"), "MIN") == "MAX"
    assert m.word("h", ("MIN", "MAX"), "MIN") == "MAX"
    assert m.word("none", ("MIN", "MAX"), "MIN") == "MIN"
    assert m.text("i") == "t"
    assert m.counts("j") == [3, 4]
    assert [item.count("x", 0) for item in m.messages("k")] == [1, 2]
    assert m.message("none").count("x", 5) == 5
    assert "a" in m
    assert "none" not in m


@pytest.mark.parametrize(
    ("text", "read", "what"),
    [
        ("a: -1", lambda m: m.count("a", 0), "a count"),
        ("a: 4294967296", lambda m: m.count("a", 0), "a count"),
        ("a: 1.5", lambda m: m.count("a", 0), "a count"),
        ("a: 2147483648", lambda m: m.integer("a", 0), "whole number"),
        ("a: true", lambda m: m.integer("a", 0), "whole number"),
        ("a: X", lambda m: m.number("a", 0), "a number"),
        ("a: 'x'", lambda m: m.number("a", 0), "a number"),
        ("a: X", lambda m: m.text("a"), "quotes"),
        ("a: 1", lambda m: m.text("a"), "quotes"),
        ("a: 2", lambda m: m.flag("a", False), "true or false"),
        ("a: 2", lambda m: m.word("a", ("X", "Y"), "X"), "one of X, Y"),
        ("a: Z", lambda m: m.word("a", ("X", "Y"), "X"), "one of X, Y"),
        ("a: 1", lambda m: m.message("a"), "message in braces"),
        ("a { }", lambda m: m.text("a"), "quotes"),
        ("b: 1\n\na: 1 a: 2", lambda m: m.count("a", 0), "one value"),
        ("a { } a { }", lambda m: m.message("a"), "one value"),
    ],
)
def test_wrong_ones_are_told(text: str, read: Any, what: str) -> None:
    message = of(text)
    with pytest.raises(Damaged) as caught:
        read(message)
    assert what in (caught.value.why or "")
    line = 3 if "\n" in text else 1
    assert f"f, line {line}: a" in caught.value.message


def test_from_bytes_there_is_no_line() -> None:
    message = Message("w")
    message.add("a", Word("X"))
    with pytest.raises(Damaged) as caught:
        message.count("a", 0)
    assert caught.value.message == "w: a is 'X'"


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (9.999999747378752e-06, 1e-05),
        (0.8999999761581421, 0.9),
        (0.1, 0.1),
        (1.0, 1.0),
        (0.00390625, 0.00390625),
        (16777217.0, 16777216.0),
        (1e300, 1e300),
        (3.4028234663852886e38, 3.4028235e38),
        (-math.inf, -math.inf),
    ],
)
def test_the_shortest_decimal_of_a_float32(value: float, wanted: float) -> None:
    assert shortest(value) == wanted
    assert math.isnan(shortest(math.nan))
