"""dlv.adapters.source: exact reads of regular files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dlv.adapters.source import Source
from dlv.errors import Damaged, NotFound, UsageError


def test_reads_ranges(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(range(100)))
    with Source(str(path)) as file:
        assert (file.size, file.name) == (100, "f")
        assert file.read(10, 5) == bytes(range(10, 15))
        assert file.read(100, 0) == b""


@pytest.mark.parametrize(("offset", "size"), [(0, 101), (99, 2), (-1, 1), (0, 1 << 60), (0, -1)])
def test_range_outside(tmp_path: Path, offset: int, size: int) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(100))
    with Source(str(path)) as file, pytest.raises(Damaged, match="truncated"):
        file.read(offset, size)


def test_file_cut_after_opening(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(100))
    with Source(str(path)) as file:
        os.truncate(path, 50)
        with pytest.raises(Damaged, match="was cut"):
            file.read(40, 20)


def test_only_regular_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", "."):
        with pytest.raises(UsageError, match="not a regular file"):
            Source(str(tmp_path / name))
    with pytest.raises(NotFound):
        Source(str(tmp_path / "none"))
    with pytest.raises(UsageError):
        Source("a\0b")
