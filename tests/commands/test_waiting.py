"""All verbs wait alike for others: so long, for whom, and what is said when it was in vain."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import dlv as package
import dlv.disk.locks as locks
from dlv.errors import Conflict

Dlv = Callable[..., Any]
HOME = str(Path(locks.__file__).parents[2])

# What a verb waits for: verb, where it holds, and what names it.
BEHIND = {
    "tag": (["tag", "good", "lenet@1"], "gc.lock"),
    "add": (["add", "notes.txt"], "gc.lock"),
    "commit": (["commit", "-m", "x"], "gc.lock"),
    "rm": (["rm", "lenet@1"], "gc.lock"),
    "undo": (["undo"], "gc.lock"),
    "copy": (["copy", "lenet@1", "other"], "gc.lock"),
    "fsck": (["fsck", "--quick"], "gc.lock"),
    "gc": (["gc", "--grace", "0", "-y"], "gc.lock"),
    "gc --dry-run": (["gc", "--dry-run"], "gc.lock"),
    "another gc": (["gc", "--grace", "0", "-y"], "archive.lock"),
    "archive": (["archive"], "archive.lock"),
    "tag, SQLite": (["tag", "good", "lenet@1"], "dlv.db"),
    "rm, SQLite": (["rm", "lenet@1"], "dlv.db"),
    "gc, SQLite": (["gc", "--keep-last", "1", "--grace", "0", "-y"], "dlv.db"),
}


@contextmanager
def held(folder: Path, name: str) -> Iterator[None]:
    """As another process would hold it."""
    path = folder / ".dlv" / name
    if name.endswith(".lock"):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            os.close(descriptor)
        return
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.rollback()


@pytest.fixture
def logged(filled: Path) -> Path:
    """With something that may be added."""
    (filled / "notes.txt").write_text("x")
    return filled


@pytest.mark.parametrize("verb", BEHIND)
def test_a_verb_waits_says_so_and_gives_up(
    dlv: Dlv, logged: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setattr(locks, "TELL_AFTER", 0.1)
    words, name = BEHIND[verb]
    if verb == "commit":
        dlv("add", "notes.txt")
    with held(logged, name):
        result = dlv(*words, "--wait", "0.4")
        assert result.code == 5, result.stderr
        who = rf"process {os.getpid()} \(.*?\)"
        begun = rf"^Waiting for {who} to release {re.escape(name)}, for 0\.4 s at most \.\.\.$"
        assert re.search(begun, result.stderr, re.M), result.stderr
        ended = rf"{re.escape(name)} was held for 0\.4 seconds by {who}"
        said = " ".join(result.stderr.split())
        assert re.search(ended, said), result.stderr
        assert "--wait 300" in result.stderr
        began = time.monotonic()
        at_once = dlv(*words, "--wait", "0")
        assert at_once.code == 5
        assert "Waiting for process" not in at_once.stderr
        assert f"{name} is held by process {os.getpid()}" in " ".join(at_once.stderr.split())
        assert time.monotonic() - began < 20
    assert dlv(*words).code == 0


@pytest.mark.parametrize("how", ["option before", "option behind", "variable", "setting"])
def test_how_long_is_said_in_four_ways(
    dlv: Dlv, filled: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    words = ["tag", "good", "lenet@1"]
    if how == "variable":
        monkeypatch.setenv("DLV_WAIT", "0.2")
    elif how == "setting":
        assert dlv("config", "core.wait", "0.2").code == 0
    elif how == "option before":
        words = ["--wait", "0.2", *words]
    else:
        words = [*words, "--wait", "0.2"]
    with held(filled, "gc.lock"):
        assert "was held for 0.2 seconds" in " ".join(dlv(*words).stderr.split())
    for wrong in ("-1", "soon"):
        assert dlv("tag", "--wait", wrong).code == 2


def test_python_waits_alike(
    filled: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(locks, "TELL_AFTER", 0.1)
    with (
        package.open(filled, wait=0.3) as repo,
        held(filled, "gc.lock"),
        pytest.raises(Conflict, match="another dlv"),
        repo.repository.alone("gc.lock"),
    ):
        pass
    assert f"Waiting for process {os.getpid()}" in caplog.text


@pytest.mark.parametrize("name", ["live.db.lock", "live.db"])
def test_the_lock_of_live_curves(
    filled: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    monkeypatch.setattr(locks, "TELL_AFTER", 0.1)
    (filled / "logs").mkdir()
    (filled / "logs" / "metrics.csv").write_text("step,loss\n1,0.5\n2,0.25\n")
    with package.open(filled, wait=0.4) as repo:
        repo.curves(folder=filled / "logs").close()
        (filled / "logs" / "metrics.csv").write_text("step,loss\n1,0.5\n2,0.25\n3,0.125\n")
        with held(filled, name), pytest.raises(Conflict) as caught:
            repo.curves(folder=filled / "logs").close()
        assert f"{name} was held for 0.4 seconds by process {os.getpid()}" in str(caught.value.why)
        assert f"Waiting for process {os.getpid()}" in caplog.text
        repo.curves(folder=filled / "logs").close()


def start(folder: Path, *words: str, wait: str = "60") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dlv", "--wait", wait, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": HOME},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_behind_one_that_is_suspended(logged: Path) -> None:
    """It is named, with what sets it going again."""
    code = (
        "import os, sys; from pathlib import Path; from dlv.repository.handle import Repository\n"
        "with Repository.find(Path('.')).alone('gc.lock'):\n"
        "    print('in', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=logged,
        env={**os.environ, "PYTHONPATH": HOME},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"in\n"
        os.kill(holder.pid, signal.SIGSTOP)
        try:
            for words in (("tag", "good", "lenet@1"), ("fsck", "--quick"), ("gc", "-y")):
                _, said = (process := start(logged, *words, wait="1.5")).communicate(timeout=60)
                assert process.returncode == 5, said
                assert f"process {holder.pid}" in said
                assert f"kill -CONT {holder.pid}" in said
        finally:
            os.kill(holder.pid, signal.SIGCONT)
            holder.kill()


def test_six_processes_that_mix_commands_all_get_through(logged: Path) -> None:
    """None is passed over by the others, whatever it has to wait for."""
    rounds: list[list[tuple[str, ...]]] = [
        [("gc", "--grace", "0", "-y")] * 3,
        [("archive",)] * 2,
        [("tag", f"a{at}", "lenet@1") for at in range(5)],
        [("tag", f"b{at}", "lenet@2") for at in range(5)],
        [("fsck", "--quick"), ("gc", "--dry-run"), ("fsck", "--quick")],
        [("add", "notes.txt"), ("status",), ("list",), ("add", "notes.txt")],
    ]
    shell = [
        "; ".join(f"{sys.executable} -m dlv --wait 120 {' '.join(w)} || echo FAILED $?" for w in r)
        for r in rounds
    ]
    running = [
        subprocess.Popen(
            ["/bin/sh", "-c", line],
            cwd=logged,
            env={**os.environ, "PYTHONPATH": HOME},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for line in shell
    ]
    for process in running:
        said, _ = process.communicate(timeout=300)
        assert "FAILED" not in said, said
