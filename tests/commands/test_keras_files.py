"""`add` and `commit` of Keras files whose network does not compute what Keras computes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlv.adapters.checkpoint import Tensor
from dlv.adapters.keras import check
from dlv.adapters.keras.writer import save_network
from dlv.network.graph import Input, Network, Node
from dlv.network.vocabulary import complete

Dlv = Callable[..., Any]


@pytest.fixture
def model(workspace: Path) -> Path:
    params = {"weight": "d.weight"}
    attrs = complete("FULL", None, {"out": 3}, params=params)
    node = Node("d", "FULL", None, attrs, (("x", 0),), params)
    data = np.arange(12, dtype="f4").tobytes()
    held = [Tensor("d.weight", "float32", (3, 4), len(data), lambda: data)]
    path = workspace / "m.keras"
    with path.open("wb") as out:
        save_network(out, Network((Input("x", ("B", 4)),), (node,), (("d", 0),)), held, [])
    return path


def network_of(dlv: Dlv) -> Any:
    return json.loads(dlv("desc", "m", json=True).stdout)["network"]


@pytest.mark.parametrize(
    ("verdict", "kept"),
    [
        (check.Verdict(), True),
        (check.Verdict(note="its network was not compared with Keras: no time"), True),
        (check.Verdict(refused="kept without its network: torch is off at 'd'"), False),
    ],
)
def test_a_network_that_differs_is_left_out(
    dlv: Dlv, model: Path, monkeypatch: pytest.MonkeyPatch, verdict: check.Verdict, kept: bool
) -> None:
    """What is asked, and how it comes to a verdict, is tested where networks are compared."""
    asked: list[Path] = []

    def held_against(_opened: Any, path: Path, _format: str) -> check.Verdict:
        asked.append(path)
        return verdict

    monkeypatch.setattr(check, "held_against", held_against)
    dlv("init")
    if not kept:
        refused = dlv("add", model.name, "--as", "network")
        assert refused.code == 2
        assert "off at 'd'" in refused.stderr
    added = dlv("add", model.name)
    assert added.code == 0
    assert (verdict.refused or verdict.note or "") in added.stderr
    assert dlv("commit", "-m", "first", "--name", "m").code == 0
    assert (network_of(dlv) is not None) is kept
    # A network that some version has was compared when it came.
    count = len(asked)
    assert dlv("add", model.name, "--step", "2").code == 0
    assert len(asked) == count + (0 if kept else 1)
