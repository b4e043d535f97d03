"""Conditions on one node: three truth values, and what is not about the node alone."""

from __future__ import annotations

from typing import Any

import pytest

from dlv.dql import matching
from dlv.metadata.select.relations import (
    All,
    Arithmetic,
    Coalesce,
    Column,
    Compare,
    Condition,
    Constant,
    Either,
    Fits,
    IsNull,
    Like,
    Matches,
    Negative,
    NodeValue,
    Not,
    OneOf,
    Truth,
    Value,
)
from dlv.network.patterns import Pattern
from dlv.network.selector import selector

NODE = {"out": 8, "kernel": [3, 3], "bias": True, "name": "conv1", "p": 0.5, "zero": 0}
OUT, NAME, MISSING = NodeValue("out"), NodeValue("name"), NodeValue("rows")
YES, NO, UNKNOWN = Truth(True), Truth(False), Truth(None)
ELSEWHERE = Compare("=", Column("m", "name"), Constant("lenet"))


def holds(test: Condition) -> bool:
    return matching.condition_holds(test, NODE.get, lambda: ("CONV", None, "conv1", NODE))


def is_(left: Value, sign: str, right: Any) -> Compare:
    return Compare(sign, left, Constant(right))


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        (is_(OUT, ">=", 8), True),
        (is_(OUT, ">", 8), False),
        (is_(OUT, "=", "8"), False),
        (is_(OUT, "!=", "8"), True),
        (is_(MISSING, "!=", 3), False),
        (Not(is_(MISSING, "=", 3)), False),
        (is_(NodeValue("kernel"), "=", 3), True),
        (is_(NodeValue("kernel"), "=", (3, 3)), True),
        (Compare("<", Constant(2), NodeValue("kernel")), True),
        (Compare(">", Constant(2), NodeValue("kernel")), False),
        (is_(NodeValue("bias"), "=", 1), False),
        (is_(NodeValue("bias"), "=", True), True),
        (is_(Arithmetic("*", OUT, Constant(2)), "=", 16), True),
        (is_(Arithmetic("+", OUT, Negative(NodeValue("p"))), "=", 7.5), True),
        (is_(Arithmetic("-", OUT, Constant(9)), "<", 0), True),
        (is_(Arithmetic("/", OUT, Constant(3)), ">", 2.6), True),
        (is_(Arithmetic("%", Constant(-1), Constant(3)), "=", 2), True),
        (IsNull(Arithmetic("/", OUT, NodeValue("zero"))), True),
        (IsNull(Arithmetic("%", OUT, NodeValue("zero"))), True),
        (IsNull(Arithmetic("+", NAME, Constant(1))), True),
        (is_(Coalesce((MISSING, OUT)), "=", 8), True),
        (Like(NAME, Constant("conv_")), True),
        (Like(NAME, Constant("CONV%")), False),
        (Like(NAME, Constant("CONV%"), folded=True), True),
        (Like(NAME, Constant("conv!_"), escape="!"), False),
        (Like(OUT, Constant("%")), False),
        (Not(Like(OUT, Constant("%"))), False),
        (Matches(NAME, selector("conv[1-3]")), True),
        (Matches(MISSING, selector("*")), False),
        (OneOf(OUT, (Constant(4), Constant(8))), True),
        (OneOf(OUT, (Constant(4), Constant(None))), False),
        (Not(OneOf(OUT, (Constant(4), Constant(None)))), False),
        (Not(OneOf(OUT, (Constant(4),))), True),
        (IsNull(MISSING), True),
        (IsNull(OUT), False),
        (Fits((Pattern("POOL"), Pattern("CONV"))), True),
        (Not(Fits((Pattern("CONV"),))), False),
        (YES, True),
        (UNKNOWN, False),
        (Not(UNKNOWN), False),
        (Either((UNKNOWN, YES)), True),
        (Either((UNKNOWN, NO)), False),
        (Not(All((UNKNOWN, NO))), True),
        (Not(Either((UNKNOWN, NO))), False),
    ],
)
def test_of_the_node(test: Condition, expected: bool) -> None:
    assert holds(test) is expected


def test_what_is_about_more_than_the_node_is_no_obstacle() -> None:
    assert holds(ELSEWHERE)
    assert holds(Not(ELSEWHERE))
    assert holds(Either((NO, ELSEWHERE)))
    assert holds(Compare("<", OUT, Column("m", "n_nodes")))
    assert holds(All((is_(OUT, "=", 8), ELSEWHERE)))
    assert not holds(All((is_(OUT, "=", 9), ELSEWHERE)))


@pytest.mark.parametrize(
    ("pattern", "escape", "folded", "expected"),
    [
        ("c%v_", None, False, True),
        ("c.nv1", None, False, False),
        ("CONV1", None, False, False),
        ("CONV%", None, True, True),
        ("conv!1", "!", False, True),
        ("conv!%", "!", False, False),
    ],
)
def test_like(pattern: str, escape: str | None, folded: bool, expected: bool) -> None:
    assert holds(Like(NAME, Constant(pattern), folded, escape)) is expected
