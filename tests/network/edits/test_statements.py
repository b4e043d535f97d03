"""Edits in a line, as the messages of versions state them."""

from __future__ import annotations

import pytest

from dlv.network.edits.wiring import Edit, own_edits

STATEMENTS = {
    "conv1.out = 64": ("set", "conv1", "out 32 -> 64"),
    "conv1.kernel = [5, 3, 3], conv1.out = 16": (
        *("set", "conv1"),
        "kernel [3, 3, 3] -> [5, 3, 3], out 8 -> 16",
    ),
    r"a\1b.p = 0.5": ("set", r"a\1b", "p 0.1 -> 0.5"),
    "act1.variant = GELU": ("set", "act1", "variant RELU -> GELU"),
    "insert relu1 (RELU) after conv1": ("insert", "relu1", "relu1 (RELU) after conv1"),
    "slice conv1 to fc1: 5 of 7 layers": ("slice", "conv1", "conv1 to fc1: 5 of 7 layers"),
    "replace relu1: RELU by act1 (ACT GELU)": ("replace", "relu1", "RELU by act1 (ACT GELU)"),
    "delete drop1: DROPOUT": ("delete", "drop1", "DROPOUT"),
    "add1 no longer reads x": ("delete_edge", "add1", "no longer reads x"),
    "rename a to b": ("rename", "a", "b"),
}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_an_edit_is_stated(statement: str) -> None:
    assert Edit(*STATEMENTS[statement]).statement == statement


def test_what_other_edits_bring_is_not_stated() -> None:
    asked = Edit("set", "fc1", "out 64 -> 32")
    followed = Edit("follow", "flat", "size [64] -> [32], like its input")
    assert own_edits([asked, followed]) == [asked]
    assert own_edits([followed]) == [followed]
