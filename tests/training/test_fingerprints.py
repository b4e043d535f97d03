from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dlv.adapters.data import sets as data
from dlv.errors import NotFound
from dlv.training.trainers.rows import Fingerprints

OLD = time.time_ns() - 60 * 10**9


def aged(path: Path, moment: int = OLD) -> Path:
    for each in [path, *path.rglob("*")] if path.is_dir() else [path]:
        os.utime(each, ns=(moment, moment))
    return path


@pytest.fixture
def counted(tmp_path: Path) -> tuple[Fingerprints, list[Path]]:
    """What is asked, and which files were read for it."""
    read: list[Path] = []

    def content(path: Path) -> str:
        read.append(path)
        return data.fingerprint(path)

    return Fingerprints(tmp_path / "cache" / "fingerprints.json", content), read


Counted = tuple[Fingerprints, list[Path]]


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return aged(path)


def test_a_file_that_looks_the_same_is_not_read_again(tmp_path: Path, counted: Counted) -> None:
    prints, read = counted
    path = written(tmp_path / "d.csv", "1")
    first = prints(path)
    assert first == data.fingerprint(path)
    assert prints(path) == first
    assert len(read) == 1


CHANGES: list[Callable[[Path], object]] = [
    lambda p: written(p, "22"),
    lambda p: (p.write_text("2"), aged(p, OLD + 1)),
    lambda p: written(p.with_name("new"), "2").replace(p),
]


@pytest.mark.parametrize("change", CHANGES)
def test_size_time_and_inode_count(
    tmp_path: Path, counted: Counted, change: Callable[[Path], object]
) -> None:
    prints, _ = counted
    path = written(tmp_path / "d.csv", "1")
    prints(path)
    change(path)
    assert prints(path) == data.fingerprint(path)


def test_a_fresh_file_is_always_read(tmp_path: Path, counted: Counted) -> None:
    """It may be changed again within the same tick of the clock."""
    prints, read = counted
    path = tmp_path / "d.csv"
    path.write_text("1")
    aged(path, time.time_ns() + 3600 * 10**9)
    prints(path)
    prints(path)
    assert len(read) == 2


def test_folders(tmp_path: Path, counted: Counted) -> None:
    prints, read = counted
    written(tmp_path / "d" / "a" / "1.npy", "1")
    folder = aged(tmp_path / "d")
    first = prints(folder)
    assert prints(folder) == first
    assert len(read) == 1
    written(tmp_path / "d" / "a" / "2.npy", "2")
    aged(folder)
    assert prints(folder) == data.fingerprint(folder) != first
    (tmp_path / "d" / "a" / "2.npy").rename(tmp_path / "d" / "a" / "3.npy")
    aged(folder)
    assert prints(folder) == data.fingerprint(folder)


@pytest.mark.parametrize("content", [b"", b"[", b"[]", b"5", b'{"x": 1}', b"\xff", b"[" * 99999])
def test_a_cache_that_is_broken_is_written_anew(
    tmp_path: Path, counted: Counted, content: bytes
) -> None:
    prints, read = counted
    path = written(tmp_path / "d.csv", "1")
    (tmp_path / "cache").mkdir()
    cache = tmp_path / "cache" / "fingerprints.json"
    cache.write_bytes(content)
    assert prints(path) == prints(path) == data.fingerprint(path)
    assert len(read) == 1


@pytest.mark.parametrize("row", ["[1]", "5", '["a", 5]', '{"a": 1}'])
def test_rows_that_are_broken_do_not_count(tmp_path: Path, counted: Counted, row: str) -> None:
    prints, _ = counted
    path = written(tmp_path / "d.csv", "1")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "fingerprints.json").write_text(f'{{"{path}": {row}}}')
    assert prints(path) == data.fingerprint(path)


def test_without_a_place_for_the_cache_it_works_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    prints = Fingerprints(tmp_path / "cache" / "fingerprints.json", data.fingerprint)
    path = written(tmp_path / "d.csv", "1")
    assert prints(path) == data.fingerprint(path)


def test_a_file_that_is_not_there(tmp_path: Path, counted: Counted) -> None:
    with pytest.raises(NotFound, match="no such file:"):
        counted[0](tmp_path / "nothing.npz")
