"""dlv.disk.holders: which process has a lock, and how that process is called."""

from __future__ import annotations

import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import dlv.disk.holders as holders
from dlv.disk.holders import Holder

FLOCK = """
import fcntl, os, sys, time
fcntl.flock(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), getattr(fcntl, sys.argv[2]))
print("in", flush=True)
time.sleep(60)
"""
WRITER = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("in", flush=True)
time.sleep(60)
"""

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    begun: list[subprocess.Popen[bytes]] = []

    def call(code: str, *words: str | Path) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, words)], stdout=subprocess.PIPE
        )
        begun.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"in\n"
        return process

    yield call
    for process in begun:
        process.kill()
        process.communicate()


def pids(found: list[Holder]) -> set[int]:
    return {holder.pid for holder in found}


def test_locks_of_files(tmp_path: Path, start: Start) -> None:
    path = tmp_path / "lock"
    assert holders.of_lock(path) == []
    one, two = (start(FLOCK, path, "LOCK_SH") for _ in range(2))
    assert pids(holders.of_lock(path)) == {one.pid, two.pid}
    with path.open() as file:  # who only waits for it is none of them
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert pids(holders.of_lock(path)) == {one.pid, two.pid}
    one.kill()
    one.wait()
    assert pids(holders.of_lock(path)) == {two.pid}
    assert holders.of_lock(tmp_path / "other") == []


def test_who_is_suspended_is_known(tmp_path: Path, start: Start) -> None:
    process = start(FLOCK, tmp_path / "lock", "LOCK_EX")
    assert [each.stopped for each in holders.of_lock(tmp_path / "lock")] == [False]
    os.kill(process.pid, signal.SIGSTOP)
    ends = time.monotonic() + 20
    while not holders.of_lock(tmp_path / "lock")[0].stopped:
        assert time.monotonic() < ends
        time.sleep(0.01)


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_writers_of_databases(tmp_path: Path, start: Start, journal: str) -> None:
    path = tmp_path / "a.db"
    db = sqlite3.connect(path, isolation_level=None)
    db.execute(f"PRAGMA journal_mode = {journal}")
    db.execute("CREATE TABLE t(x)")
    reader = start(WRITER.replace("BEGIN IMMEDIATE", "SELECT * FROM t"), path)
    assert holders.of_database(path) == []
    writer = start(WRITER, path)
    assert pids(holders.of_database(path)) == {writer.pid}
    assert reader.poll() is None
    db.close()


def test_where_the_kernel_lists_nothing(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS: whoever has the file open, and what ps knows of it."""
    process = start(FLOCK, tmp_path / "lock", "LOCK_EX")
    monkeypatch.setattr(holders, "PROCESSES", tmp_path / "no-proc")
    monkeypatch.setattr(
        holders,
        "_answer",
        lambda *words: str(process.pid) if words[0] == "lsof" else "T+   python -m dlv gc -y",
    )
    assert holders.of_lock(tmp_path / "lock") == [Holder(process.pid, "dlv gc -y", stopped=True)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["/usr/bin/python3", "/home/ada/bin/dlv", "gc", "-y"], "dlv gc -y"),
        (["python", "-P", "-m", "dlv", "-C", "a b", "worker"], "dlv -C 'a b' worker"),
        (["python", "train.py", "dlv"], "python train.py dlv"),
        (["x" * 200], "x" * 99 + "…"),
        ([], ""),
    ],
)
def test_commands_as_they_are_typed(words: list[str], said: str) -> None:
    assert holders._said(words) == said


def test_how_it_reads() -> None:
    assert str(Holder(3)) == "process 3"
    assert str(Holder(3, "dlv gc")) == "process 3 (dlv gc)"
