"""`dlv doctor` and `dlv fsck` as they are seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlv.repository.handle import Repository

Dlv = Callable[..., Any]


@pytest.mark.parametrize("mode", ["pipe", "json"])
def test_outside(dlv: Dlv, workspace: Path, mode: str) -> None:
    result = dlv("doctor", json=mode == "json")
    assert result.code == 0
    assert "dlv init" in result.stdout


def test_a_fault_is_exit_1_and_names_the_fix(dlv: Dlv, workspace: Path) -> None:
    repository, _ = Repository.init(workspace)
    repository.close()
    repository.database_file.unlink()
    result = dlv("doctor", tty=True)
    assert result.code == 1
    assert "dlv fsck --rebuild" in result.stdout


def test_json(dlv: Dlv, workspace: Path) -> None:
    Repository.init(workspace)[0].close()
    result = dlv("doctor", json=True)
    assert result.code == 0
    assert {check["name"] for check in result.document["checks"]} >= {"git", "clock", "database"}
