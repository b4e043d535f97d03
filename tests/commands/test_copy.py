"""`dlv copy` as seen from outside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Dlv = Callable[..., Any]
MODES = ["pipe", "tty", "json"]


def how(mode: str) -> dict[str, bool]:
    return {"tty": mode == "tty", "json": mode == "json"}


@pytest.mark.parametrize("mode", MODES)
def test_here(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    snapshot(dlv("copy", "lenet@1", "lenet-deep", **how(mode)))
    (filled / "config.json").write_text('{"lr": 0.3}')
    dlv("add", "config.json")
    document = dlv("commit", "-m", "Deeper", json=True).document
    assert (document["name"], document["number"]) == ("lenet-deep", 1)


@pytest.mark.parametrize("mode", MODES)
def test_elsewhere_without_weights(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    snapshot(dlv("copy", "lenet@1", "lenet-deep", "deep", "--no-weights", **how(mode)))
    assert sorted(p.name for p in (filled / "deep").iterdir()) == [
        "config.json",
        "log.csv",
        "network.json",
        "train.py",
    ]


@pytest.mark.parametrize("mode", ["pipe", "json"])
@pytest.mark.parametrize(
    ("name", "code", "args"),
    [
        ("no_name", 2, ["lenet"]),
        ("bad_name", 2, ["lenet", "a:b"]),
        ("part", 2, ["lenet@1/100", "deep"]),
        ("unknown", 4, ["lent", "deep"]),
        ("taken", 5, ["lenet", "lenet-wide"]),
        ("changed", 5, ["lenet@1", "deep"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_errors(
    dlv: Dlv, snapshot: Dlv, filled: Path, mode: str, name: str, code: int, args: list[str]
) -> None:
    (filled / "config.json").write_text("mine")
    result = dlv("copy", *args, **how(mode))
    assert result.code == code
    snapshot(result)
    assert (filled / "config.json").read_text() == "mine"
    assert dlv("status", json=True).document["next"] is None


def test_outside_a_repository(dlv: Dlv) -> None:
    assert dlv("copy", "a", "b").code == 3
