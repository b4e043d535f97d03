"""`dlv log`: git's form, and the lineage as a graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Dlv = Callable[..., Any]
MODES = ["pipe", "tty", "json"]


@pytest.fixture
def branched(dlv: Dlv, filled: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """lenet@3 joins lenet@2 and lenet-wide@1; lenet@4 goes on, another comes from lenet@1."""
    monkeypatch.setenv("USER", "ada")
    commit = ["commit", "--allow-empty", "-m"]
    dlv(
        *commit, "Both together", "--name", "lenet", "--parent", "lenet@2", "--parent", "lenet-wide"
    )
    dlv(*commit, "Trained on\n\nA second paragraph.", "--parent", "HEAD")
    dlv(*commit, "Another try", "--parent", "lenet@1", "--name", "other")
    dlv("tag", "paper-final", "lenet@3")
    return filled


@pytest.mark.parametrize("mode", MODES)
def test_ancestors(dlv: Dlv, snapshot: Dlv, branched: Path, mode: str) -> None:
    result = dlv("log", "lenet", tty=mode == "tty", json=mode == "json")
    assert result.code == 0
    snapshot(result)


@pytest.mark.parametrize("mode", MODES)
def test_graph(dlv: Dlv, snapshot: Dlv, branched: Path, mode: str) -> None:
    snapshot(dlv("log", "--graph", "--all", tty=mode == "tty", json=mode == "json"))


def test_graph_without_box_characters(dlv: Dlv, snapshot: Dlv, branched: Path) -> None:
    snapshot(dlv("log", "--graph", "--all", tty=True, encoding="ascii"))


def test_head_by_default(dlv: Dlv, branched: Path) -> None:
    def labels(*words: str) -> list[str]:
        found = dlv("log", *words, json=True).document["versions"]
        return [version["version"] for version in found]

    assert labels() == ["other@1", "lenet@1"]
    assert labels("-n", "1") == ["other@1"]
    assert labels("lenet@3^2") == ["lenet-wide@1", "lenet@2", "lenet@1"]
    assert len(labels("--all")) == 6
    assert dlv("log", "-q", "-n", "1").stdout.split() == [
        dlv("log", json=True).document["versions"][0]["id"]
    ]


def test_a_removed_version_is_in_its_line(dlv: Dlv, snapshot: Dlv, filled: Path) -> None:
    dlv("rm", "lenet@2")
    result = dlv("log", "lenet@2", "--graph", tty=True)
    assert "lenet@2 is removed" in result.stderr
    snapshot(result)
    snapshot(dlv("log", "--graph", tty=True), "from its child")


@pytest.mark.parametrize("mode", ["pipe", "json"])
def test_no_head(dlv: Dlv, snapshot: Dlv, workspace: Path, mode: str) -> None:
    dlv("init")
    result = dlv("log", json=mode == "json")
    assert result.code == 4
    snapshot(result)
    assert dlv("log", "--all").code == 0


REFUSED: dict[str, tuple[list[str], int]] = {
    "no such version": (["lent"], 4),
    "no such number": (["lenet@9"], 4),
    "too far back": (["lenet@1~3"], 4),
    "REF and all": (["lenet", "--all"], 2),
    "no reference": (["lenet@@2"], 2),
    "a part of a version": (["lenet@1/100"], 2),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("mode", ["pipe", "json"])
def test_refused(dlv: Dlv, snapshot: Dlv, filled: Path, name: str, mode: str) -> None:
    words, code = REFUSED[name]
    result = dlv("log", *words, json=mode == "json")
    assert (result.code, result.stdout) == (code, "")
    snapshot(result)


def test_outside_a_repository(dlv: Dlv, workspace: Path) -> None:
    assert dlv("log").code == 3


@pytest.mark.parametrize("mode", ["pipe", "tty"])
def test_oneline(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    snapshot(dlv("log", "lenet@2", "--oneline", tty=mode == "tty"))
