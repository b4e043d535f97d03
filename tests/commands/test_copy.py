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


WIDER = ["--set", "conv1.out=6", "--insert", 'conv1=[NORM("BATCH"), ACT("GELU")]']


@pytest.mark.parametrize("mode", MODES)
def test_edited(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    snapshot(dlv("copy", "lenet@1", "lenet-deep", "deep", *WIDER, "--seed", "3", **how(mode)))
    assert sorted(p.name for p in (filled / "deep").iterdir()) == [
        "config.json",
        "lenet-deep.safetensors",
        "network.json",
        "train.py",
    ]
    snapshot(dlv("add", "deep/network.json", "deep/lenet-deep.safetensors"), "added")
    document = dlv("commit", "-m", "Deeper", json=True).document
    assert (document["name"], document["number"]) == ("lenet-deep", 1)
    found = dlv("diff", "lenet@1", "lenet-deep", "--network", json=True).document
    assert [layer["name"] for layer in found["network"]["added"]] == ["norm1", "act1"]


@pytest.mark.parametrize("mode", MODES)
def test_a_slice(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    snapshot(dlv("copy", "lenet@2", "head", "out", "--slice", "flatten..fc", "--all", **how(mode)))


def test_warnings_and_pruning(dlv: Dlv, snapshot: Dlv, filled: Path) -> None:
    given = ["--replace", 'relu1=ACT("TANH", "tanh")', "--rename", "fc=head", "--delete", "prob"]
    snapshot(dlv("copy", "lenet@1/100", "other", "out", *given, tty=True))


def test_quiet(dlv: Dlv, filled: Path) -> None:
    result = dlv("copy", "lenet@1", "deep", "out", "--delete", "relu1", "-q")
    assert result.stdout.split() == ["config.json", "train.py", "network.json", "deep.safetensors"]


@pytest.mark.parametrize("mode", ["pipe", "json"])
@pytest.mark.parametrize(
    ("name", "code", "args"),
    [
        ("no_such_node", 4, ["--set", "conv9.out=3"]),
        ("no_such_attribute", 2, ["--set", "conv1.outt=3"]),
        ("not_sound", 2, ["--set", "conv1.kernel=9"]),
        ("no_path", 2, ["--slice", "fc..conv1"]),
        ("no_template", 2, ["--insert", "conv1=relu"]),
        ("seed_alone", 2, ["--seed", "3"]),
        ("all_alone", 2, ["--all"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_edits_that_are_refused(
    dlv: Dlv, snapshot: Dlv, filled: Path, mode: str, name: str, code: int, args: list[str]
) -> None:
    result = dlv("copy", "lenet@1", "deep", "out", *args, **how(mode))
    assert result.code == code
    snapshot(result)
    assert not (filled / "out").exists()
