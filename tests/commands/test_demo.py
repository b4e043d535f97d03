from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Dlv = Callable[..., Any]


@pytest.mark.parametrize("mode", ["pipe", "tty", "json"])
def test_makes_a_repository(dlv: Dlv, snapshot: Dlv, mode: str) -> None:
    result = dlv("demo", "here", tty=mode == "tty", json=mode == "json")
    assert result.code == 0
    snapshot(result, replace={r"33m[0-9a-f]{7}␛": "33m<short>␛"})


def test_quiet_prints_the_ids(dlv: Dlv) -> None:
    result = dlv("demo", "-q")
    assert [len(line) for line in result.stdout.splitlines()] == [64] * 4


def test_the_folder_is_taken(dlv: Dlv, snapshot: Dlv, workspace: Path) -> None:
    (workspace / "here").mkdir()
    (workspace / "here" / "mine.txt").write_text("mine")
    result = dlv("demo", "here")
    assert result.code == 5
    snapshot(result)
    assert [p.name for p in (workspace / "here").iterdir()] == ["mine.txt"]


def test_a_file_is_in_the_way(dlv: Dlv, workspace: Path) -> None:
    (workspace / "here").write_text("mine")
    assert dlv("demo", "here").code == 5


def test_works_in_another_directory(dlv: Dlv, workspace: Path) -> None:
    (workspace / "below").mkdir()
    result = dlv("-C", "below", "demo", ".", json=True)
    assert result.document["path"] == str((workspace / "below").resolve())
    assert (workspace / "below" / ".dlv").is_dir()
