"""`dlv undo`: what it says, and that it is undoable itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlv.repository.handle import Repository

Dlv = Callable[..., Any]
MODES = ["pipe", "tty", "json"]


def labels(dlv: Dlv) -> list[str]:
    found: list[str] = dlv("list", "--columns", "version").stdout.split()
    return found


@pytest.mark.parametrize("mode", MODES)
def test_a_commit_and_back(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    how = {"tty": mode == "tty", "json": mode == "json"}
    before = dlv("list", json=True).stdout
    snapshot(dlv("undo", "--dry-run", **how), "dry")
    assert dlv("list", json=True).stdout == before
    snapshot(dlv("undo", **how), "undone")
    assert labels(dlv) == ["lenet@2", "lenet@1"]
    assert "train.py" in dlv("status").stdout
    snapshot(dlv("undo", "--list", **how), "listed")
    snapshot(dlv("undo", "--op", "5", **how), "again")
    assert dlv("list", json=True).stdout == before
    snapshot(dlv("undo", "--op", "6", **how), "undone again")
    assert labels(dlv) == ["lenet@2", "lenet@1"]


@pytest.mark.parametrize("mode", ["pipe", "tty"])
def test_several(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    dlv("tag", "good", "lenet@1")
    dlv("rm", "lenet@2")
    snapshot(dlv("undo", "3", tty=mode == "tty"))
    assert labels(dlv) == ["lenet@2", "lenet@1"]
    assert dlv("tag").stdout == ""


@pytest.mark.parametrize("mode", ["pipe", "tty"])
def test_a_checkout(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    assert dlv("checkout", "lenet@1", "-f").code == 0
    content = (filled / "config.json").read_text()
    snapshot(dlv("undo", tty=mode == "tty"))
    assert dlv("show", "HEAD", json=True).document["version"]["version"] == "lenet-wide@1"
    assert (filled / "config.json").read_text() == content


def test_a_copy(dlv: Dlv, filled: Path) -> None:
    assert dlv("copy", "lenet@1", "narrow", "-f").code == 0
    assert dlv("show", "HEAD", json=True).document["version"]["version"] == "lenet@1"
    assert dlv("undo").code == 0
    assert dlv("show", "HEAD", json=True).document["version"]["version"] == "lenet-wide@1"
    dlv("commit", "-m", "goes on", "--allow-empty")
    assert labels(dlv)[0] == "lenet-wide@2"


def test_a_staged_file_that_is_gone(dlv: Dlv, snapshot: Dlv, filled: Path) -> None:
    (filled / "train.py").unlink()
    snapshot(dlv("undo", tty=True))


@pytest.mark.parametrize("mode", MODES)
def test_nothing(dlv: Dlv, snapshot: Dlv, workspace: Path, mode: str) -> None:
    dlv("init")
    how = {"tty": mode == "tty", "json": mode == "json"}
    result = dlv("undo", **how)
    assert result.code == 0
    snapshot(result)
    snapshot(dlv("undo", "--list", **how), "listed")


def test_quiet(dlv: Dlv, filled: Path) -> None:
    assert dlv("undo", "--list", "-q").stdout.split() == ["4", "3", "2", "1"]
    assert dlv("undo", "-q").stdout == "4\n"


REFUSED: dict[str, tuple[list[str], int]] = {
    "undone already": (["--op", "5"], 5),
    "a tag stands against it": (["--op", "1"], 5),
    "no such operation": (["--op", "99"], 4),
    "more than there are": (["99"], 4),
    "gc": ([], 9),
    "gc by number": (["--op", "8"], 9),
    "number and op": (["2", "--op", "1"], 2),
    "list and number": (["2", "--list"], 2),
    "zero": (["0"], 2),
    "no number": (["all"], 2),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("mode", ["pipe", "json"])
def test_refused(dlv: Dlv, snapshot: Dlv, filled: Path, name: str, mode: str) -> None:
    words, code = REFUSED[name]
    dlv("tag", "soon-gone", "lenet@2")
    dlv("undo")
    dlv("tag", "good", "lenet@1")
    with Repository.find(filled) as repository, repository.change("gc") as change:
        change.summary = "3 objects"
    before = dlv("undo", "--list").stdout
    result = dlv("undo", *words, json=mode == "json")
    assert (result.code, result.stdout) == (code, "")
    snapshot(result)
    assert dlv("undo", "--list").stdout == before


def test_outside_a_repository(dlv: Dlv, workspace: Path) -> None:
    assert dlv("undo").code == 3
