"""Free memory, by the machine and by the limits of a group of processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlv.memory import free_memory


@pytest.mark.parametrize(("limit", "used", "free"), [("5000", "2000", 3000), ("10", "20", 0)])
def test_the_limit_of_a_group_counts(tmp_path: Path, limit: str, used: str, free: int) -> None:
    (tmp_path / "memory.max").write_text(limit + "\n")
    (tmp_path / "memory.current").write_text(used + "\n")
    assert free_memory(tmp_path) == free


def test_a_group_without_a_limit(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("2000\n")
    free = free_memory(tmp_path)
    assert free is None or free > 1 << 20
