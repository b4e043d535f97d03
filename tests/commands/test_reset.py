"""`dlv reset`: whole outputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Dlv = Callable[..., Any]


@pytest.mark.parametrize("mode", ["pipe", "tty", "json"])
class TestReset:
    def test_some_and_all(self, dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
        how = {"tty": mode == "tty", "json": mode == "json"}
        (filled / "notes.txt").write_text("notes\n")
        (filled / "more.txt").write_text("more\n")
        dlv("add", "notes.txt", "more.txt")
        snapshot(dlv("reset", "notes.txt", **how), "some")
        snapshot(dlv("reset", **how), "all")
        snapshot(dlv("reset", **how), "nothing")

    def test_not_staged(self, dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
        how = {"tty": mode == "tty", "json": mode == "json"}
        (filled / "notes.txt").write_text("notes\n")
        dlv("add", "notes.txt")
        snapshot(dlv("reset", "note.txt", **how))
