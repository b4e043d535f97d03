"""Conditions written out: as one would type them."""

from __future__ import annotations

import re

import pytest

from dlv.metadata.select import wording
from dlv.metadata.select.relations import (
    Aggregate,
    All,
    AnyNode,
    AnyOf,
    Arithmetic,
    Coalesce,
    Column,
    Compare,
    Condition,
    Constant,
    Either,
    EveryNode,
    Fits,
    Fitting,
    Fixed,
    Hop,
    Hyperparameter,
    Is,
    IsNull,
    Like,
    Listed,
    ManyValue,
    Matches,
    Metric,
    MetricAt,
    Named,
    Negative,
    NodeCount,
    Nodes,
    NodeValue,
    Not,
    OneOf,
    Pick,
    Related,
    Same,
    Truth,
    Value,
    Whole,
)
from dlv.network.patterns import AttributeTest, Pattern
from dlv.network.selector import selector

CONV = Nodes("m", Named(selector("conv*")), (Hop(True),))
LR = Hyperparameter("m", "lr")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (Compare("<", Metric("m", "loss", "min"), Constant(0.1)), 'm["loss"].min < 0.1'),
        (Like(Column("m", "name"), Constant("a%")), 'm.name like "a%"'),
        (Not(Like(Column("m", "name"), Constant("a"), folded=True)), 'not m.name ilike "a"'),
        (Matches(Column("m", "name"), selector("r[1-3]")), 'm.name matches "r[1-3]"'),
        (
            All((Truth(True), Either((Same("a", "b"), IsNull(LR))))),
            "true and (a = b or m.lr is null)",
        ),
        (OneOf(LR, (Constant(1), Constant(None))), "m.lr in [1, null]"),
        (Is("m", ("ab" * 32,)), 'm = "abababababab"'),
        (Is("m", ("ab" * 32, "c" * 64)), 'm in ["abababababab", "cccccccccccc"]'),
        (
            Related("derived_from", "m", Fixed("d" * 64), 3),
            'm derived_from "dddddddddddd" within 3',
        ),
        (AnyNode(CONV), 'exists m["conv*"].next'),
        (
            AnyNode(CONV, Fits((Pattern("POOL", "MAX"), Pattern("RELU")))),
            'm["conv*"].next has POOL("MAX") | RELU',
        ),
        (
            EveryNode(
                Nodes("m", Fitting((Pattern("CONV", tests=(AttributeTest("kernel", "=", 3),)),))),
                Compare(">=", NodeValue("out"), Constant(64)),
            ),
            "every m[CONV(kernel=3)].out >= 64",
        ),
        (AnyOf("m", "tag", Compare("=", ManyValue(), Constant('a"b'))), 'm.tag = "a\\"b"'),
    ],
)
def test_a_condition_reads_as_it_was_typed(given: Condition, text: str) -> None:
    assert wording.condition(given) == text


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (Hyperparameter("m", "optim.lr"), 'm.hparams["optim.lr"]'),
        (MetricAt("m", "loss", 100), 'm["loss"].at(100)'),
        (Metric("m", "loss", "last"), 'm["loss"]'),
        (Metric("m", "loss", "min_step"), 'm["loss"].min.step'),
        (NodeCount(Nodes("m", Named(re.compile("^a")), (Pick(-1),))), 'm[re"^a"][-1].count'),
        (Listed("tag", "m"), "m.tag"),
        (Listed(CONV, "m"), 'm["conv*"].next'),
        (
            Arithmetic("*", Arithmetic("+", LR, Constant(1)), Negative(Constant(True))),
            "(m.lr + 1) * -true",
        ),
        (Coalesce((LR, Constant(None))), "coalesce(m.lr, null)"),
        (Aggregate("count", None), "count(*)"),
        (Aggregate("avg", Whole("m")), "avg(m)"),
    ],
)
def test_a_value_reads_as_it_was_typed(given: Value, text: str) -> None:
    assert wording.value(given) == text
