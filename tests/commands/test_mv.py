"""`dlv mv`: a model gets another name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Dlv = Callable[..., Any]


@pytest.mark.parametrize("mode", ["pipe", "tty", "json"])
def test_a_model(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    snapshot(dlv("mv", "lenet", "lenet-small", tty=mode == "tty", json=mode == "json"))
    assert dlv("show", "lenet@1").code == 4
    assert dlv("undo").code == 0
    assert dlv("show", "lenet@1").code == 0


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [("lenet", "lenet-wide", 5), ("lennet", "other", 4), ("lenet", "no/slash", 2)],
)
@pytest.mark.parametrize("mode", ["pipe", "json"])
def test_refused(
    dlv: Dlv, snapshot: Dlv, filled: Path, old: str, new: str, code: int, mode: str
) -> None:
    result = dlv("mv", old, new, json=mode == "json")
    snapshot(result, f"{old}_{new}".replace("/", "_"))
    assert result.code == code
