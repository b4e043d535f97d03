"""Patterns of nodes, by operation, name and attributes."""

from __future__ import annotations

from typing import Any

import pytest

from dlv.network.graph import Node
from dlv.network.patterns import AttributeTest, Pattern, attributes_of, compare
from dlv.network.selector import selector

ROLL = {"dialect": "aten", "op": "aten.roll.default", "args": [], "kwargs": {}}


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        ("aten.roll", True),
        ("aten.roll.default", True),
        ("aten.*", True),
        ("aten.ro", False),
        ("roll", False),
    ],
)
def test_operations_outside_the_vocabulary(wanted: str, fits: bool) -> None:
    pattern = Pattern("OP", raw=selector(wanted))
    node = Node("shift", "OP", "raw", {}, source=ROLL)
    assert pattern.fits("OP", "raw", "shift", attributes_of(node)) is fits
    assert not pattern.fits("OP", "raw", "shift", attributes_of(Node("shift", "OP", "raw")))
    assert Pattern("OP").fits("OP", "raw", "shift", attributes_of(node))


def test_a_pattern_asks_for_all_that_it_says() -> None:
    node = Node("conv1", "CONV", None, {"out": 64, "kernel": (3, 3)}, source=ROLL)
    assert attributes_of(node) == node.attrs
    tests = (AttributeTest("out", ">=", 64), AttributeTest("kernel", "=", 3))

    def fits(pattern: Pattern) -> bool:
        return pattern.fits("CONV", None, "conv1", attributes_of(node))

    assert fits(Pattern("CONV", None, selector("conv*"), tests))
    assert not fits(Pattern("CONV", None, selector("fc*"), tests))
    assert not fits(Pattern("CONV", None, None, (AttributeTest("pad", "=", 0),)))
    assert not fits(Pattern("POOL"))
    assert [str(test) for test in tests] == ["out>=64", "kernel=3"]


@pytest.mark.parametrize(
    ("sign", "found", "wanted", "answer"),
    [
        ("=", (3, 3), 3, True),
        ("=", (3, 5), 3, False),
        ("!=", (3, 5), 3, True),
        (">=", (3, 5), 3, True),
        ("=", ((1, 1), (1, 1)), 1, True),
        ("=", (3, 5), (3, 5), True),
        ("=", (3, 5), [3, 5], True),
        ("<", (3, 5), [3, 6], False),
        ("=", (), 3, False),
        ("=", True, 1, False),
        ("=", "1", 1, False),
        ("!=", "1", 1, True),
        ("=", None, 1, None),
        ("!=", 1, None, None),
        ("=", 3, (3,), False),
    ],
)
def test_comparison(sign: str, found: Any, wanted: Any, answer: bool | None) -> None:
    assert compare(sign, found, wanted) is answer
