"""`dlv init` as seen from outside."""

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
def test_twice(dlv: Dlv, snapshot: Dlv, workspace: Path, mode: str) -> None:
    snapshot(dlv("init", **how(mode)), "first")
    assert (workspace / ".dlv" / "format.json").is_file()
    before = sorted(p.name for p in workspace.rglob("*"))
    snapshot(dlv("init", **how(mode)), "again")
    assert sorted(p.name for p in workspace.rglob("*")) == before


def test_in_a_folder_that_is_made(dlv: Dlv, snapshot: Dlv, workspace: Path) -> None:
    result = dlv("-C", workspace, "init", "a/b", "-q")
    assert result.stdout == f"{workspace / 'a' / 'b' / '.dlv'}\n"
    assert dlv("-C", "a/b", "status").code == 0


def test_a_git_repository_does_not_see_it(dlv: Dlv, workspace: Path) -> None:
    dlv("init")
    assert (workspace / ".dlv" / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize("mode", ["pipe", "json"])
@pytest.mark.parametrize("place", [".dlv", "models"])
def test_a_file_in_the_way(dlv: Dlv, snapshot: Dlv, workspace: Path, place: str, mode: str) -> None:
    (workspace / place).write_text("a file")
    result = dlv("init", *([] if place == ".dlv" else [place]), **how(mode))
    assert result.code == 5
    snapshot(result)


def test_a_newer_repository(dlv: Dlv, snapshot: Dlv, workspace: Path) -> None:
    dlv("init")
    (workspace / ".dlv" / "format.json").write_text('{"format":9,"writer":"dlv 9.0"}')
    result = dlv("init")
    assert result.code == 3
    snapshot(result)


def test_usage(dlv: Dlv) -> None:
    assert dlv("init", "a", "b").code == 2


def test_no_permission(dlv: Dlv, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert dlv("init", "/proc/no-such-place").code == 8
