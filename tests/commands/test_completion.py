"""`dlv completion` as seen from outside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Dlv = Callable[..., Any]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("mode", ["pipe", "tty"])
def test_script(dlv: Dlv, shell: str, mode: str) -> None:
    result = dlv("completion", shell, tty=mode == "tty")
    assert result.code == 0
    assert "_DLV_COMPLETE" in result.stdout
    assert "␛" not in result.stdout


def test_bash_script(dlv: Dlv, snapshot: Dlv) -> None:
    snapshot(dlv("completion", "bash"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("mode", ["pipe", "tty"])
def test_install(dlv: Dlv, snapshot: Dlv, shell: str, mode: str) -> None:
    result = dlv("completion", shell, "--install", tty=mode == "tty")
    assert result.code == 0
    written = Path(result.stdout.strip())
    assert written.read_text() == dlv("completion", shell, json=True).document["script"]
    snapshot(result)


def test_install_json(dlv: Dlv) -> None:
    document = dlv("completion", "fish", "--install", json=True).document
    assert Path(document["written"]).read_text() == document["script"]


def test_install_where_nothing_can_be_written(dlv: Dlv, workspace: Path, snapshot: Dlv) -> None:
    (workspace.parent / "home" / ".local").write_text("in the way")
    result = dlv("completion", "bash", "--install")
    assert result.code == 8
    snapshot(result)


@pytest.mark.parametrize("mode", ["pipe", "json"])
def test_unknown_shell(dlv: Dlv, snapshot: Dlv, mode: str) -> None:
    result = dlv("completion", "tcsh", json=mode == "json")
    assert result.code == 2
    snapshot(result)
