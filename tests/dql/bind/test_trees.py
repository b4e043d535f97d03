"""Trees of bound queries gone through and changed."""

from __future__ import annotations

from typing import Any

from dlv.metadata.select.relations import (
    All,
    AnyNode,
    Column,
    Compare,
    Constant,
    Hyperparameter,
    Named,
    Nodes,
    Not,
    Same,
    Truth,
    map_tree,
    rename_variable,
)
from dlv.network.selector import selector

LESS = Compare("<", Column("m", "number"), Constant("m"))
TREE = All((LESS, Not(Same("m", "n")), Truth(None)))


def test_what_stays_equal_is_the_same_object() -> None:
    assert map_tree(TREE, lambda part: part) is TREE

    def change(part: Any) -> Any:
        return Truth(True) if isinstance(part, Same) else part

    found = map_tree(TREE, change)
    assert found == All((LESS, Not(Truth(True)), Truth(None)))
    assert found.parts[0] is LESS


def test_only_variables_are_renamed() -> None:
    assert rename_variable(TREE, "m", "x") == All(
        (Compare("<", Column("x", "number"), Constant("m")), Not(Same("x", "n")), Truth(None))
    )
    nodes = Nodes("m", Named(selector("m*")))
    assert rename_variable(AnyNode(nodes), "m", "x").nodes.variable == "x"
    key = Compare("=", Hyperparameter("n", "m"), Constant(1))
    assert rename_variable(key, "m", "x") is key
