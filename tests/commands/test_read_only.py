"""Curves of a repository that nobody can write to: they are read, and what writes says why not."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import event_bytes

Dlv = Callable[..., Any]
SOURCE = Path(__file__).parents[2]

# Each line a JSON list of words; the answers are lists of code, stdout and stderr.
CALLS = """
import contextlib, io, json, sys
from dlv import cli
for line in sys.stdin:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.run(json.loads(line))
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""
PROGRAM = """
import dlv
with dlv.open(".") as repo, repo.curves(restarts="keep") as curves:
    print(curves.runs, curves.plugins, len(curves.scalars()["net@1"]["loss"]))
    with repo.curves(folder="runs") as found:
        print(found.runs, len(found.scalars()["."]["loss"]))
print(len(repo["net@1"].metric("loss")))
"""
RUN = (
    event_bytes.version()
    + event_bytes.scalars("loss", range(20))
    + event_bytes.image("img", 2, b"\x89PNG")
)
RUN += event_bytes.text("note", 3, "three")


@pytest.fixture
def sealed(dlv: Dlv, workspace: Path) -> Iterator[Callable[..., str]]:
    """sealed(words, stdin) -> stdout of a program in the repository, as it is for nobody."""
    (workspace / "runs").mkdir()
    (workspace / "runs" / "events.out.tfevents.1.x").write_bytes(RUN)
    dlv("init")
    dlv("commit", "-m", "logged", "--name", "net", "--tb", "runs", "--param", "lr=0.1")
    for path in (workspace / ".dlv").glob("live.db*"):
        path.unlink()
    rootly = os.geteuid() == 0
    if rootly and not shutil.which("unshare"):
        pytest.skip("root may write everywhere, and no unshare for a mount")

    def call(words: list[str], stdin: str = "") -> str:
        there, text = shlex.quote(str(workspace)), shlex.join(words)
        mounted = f"mount --bind {there} {there} && mount -o remount,ro,bind {there} || exit 77"
        script = f"{mounted}; cd {there} && exec {text}" if rootly else f"cd {there} && {text}"
        done = subprocess.run(
            [*(["unshare", "-m"] if rootly else []), "sh", "-c", script],
            input=stdin,
            capture_output=True,
            text=True,
            env=dict(os.environ, PYTHONPATH=str(SOURCE)),
            check=False,
        )
        if rootly and (done.returncode == 77 or "unshare" in done.stderr):
            pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr
        return done.stdout

    folders = [workspace, *(path for path in workspace.rglob("*") if path.is_dir())]
    if not rootly:
        for folder in folders:
            folder.chmod(0o555)
    yield call
    if not rootly:
        for folder in folders:
            folder.chmod(0o755)


def test_curves_are_read_and_nothing_is_written(
    sealed: Callable[..., str], workspace: Path
) -> None:
    before = sorted(workspace.rglob("*"))
    asked = [
        ["metrics", "net", "--metric", "loss"],
        ["metrics", "net", "--restarts", "preempt"],
        ["plots", "net"],
        ["desc", "net"],
        ["list", "--where", "loss.max>1"],
        ["query", 'select m["loss"].max where m["loss"].min < 0.5'],
        ["commit", "-m", "more", "--tb", "runs"],
        ["import", "tensorboard", "runs", "--name", "other"],
        ["config", "curves.restarts", "keep"],
        ["plots", "net", "--output", "x.html"],
    ]
    stdin = "".join(json.dumps(words) + "\n" for words in asked)
    found = sealed([sys.executable, "-c", CALLS], stdin)
    answers = [json.loads(line) for line in found.splitlines()]
    read, refused = answers[:6], answers[6:]
    assert [code for code, _, _ in read] == [0] * 6, read
    assert all(said for _, said, _ in read)
    assert len(read[2][1].splitlines()) == 20
    assert [code for code, _, _ in refused] == [8] * 4, refused
    assert all(err.startswith("error: ") and "Traceback" not in err for _, _, err in refused)
    assert "cannot use the curves in" in refused[0][2]
    assert sorted(workspace.rglob("*")) == before


def test_in_a_program(sealed: Callable[..., str]) -> None:
    assert sealed([sys.executable, "-c", PROGRAM]).splitlines() == [
        "['net@1'] ['images', 'scalars', 'text'] 20",
        "['.'] 20",
        "20",
    ]


def test_in_tensorboard(sealed: Callable[..., str]) -> None:
    """What `dlv tensorboard` serves from."""
    script = """
from pathlib import Path
from dlv.curves.board import VersionsBoard
from dlv.repository.handle import Repository
told = []
board = VersionsBoard(Repository.find(Path(".")), [], tell=told.append)
board._thread.start()
assert board._seen.wait(100)
print(board.ask().list_scalars()["net@1"]["loss"].n, told)
board.release()
board.close()
"""
    assert sealed([sys.executable, "-c", script]) == "20 []\n"
