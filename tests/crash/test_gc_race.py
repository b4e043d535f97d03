"""gc at every moment of another command: nothing that is reachable, or becomes so, is taken."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.crash.conftest import ROOT, Prepare, environment
from tests.crash.verbs import ARCHIVE

pytestmark = pytest.mark.crash

# The first version is hidden, and its very weights are staged again, with others.
TAKEN = [
    ["add", "."],
    ["add", "--remove", "step-100.safetensors"],
    ["commit", "-m", "second"],
    ["rm", "-f", "lenet@1"],
    *(1, 3, ["add", "."]),
]
COMMIT = ("commit", "-q", "-m", "again")
COMMANDS: dict[str, Sequence[str]] = {
    "commit": COMMIT,
    "archive": ARCHIVE,
    "rm": ("rm", "-q", "lenet@2"),
    "undo": ("undo",),
    "tag": ("tag", "good", "lenet@2"),
    "copy": ("copy", "-q", "-f", "lenet@2", "next"),
    "checkout": ("checkout", "-q", "-f", "lenet@2"),
}
EVERY = range(1, 1000)


def race(
    template: Path,
    fast: Path,
    command: Sequence[str],
    at: Sequence[int],
    bugs: Sequence[str] = (),
    gc_at: Sequence[int | None] = (None,),
) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(dir=fast) as below:
        job = {"template": str(template), "command": list(command), "at": list(at)}
        job["gc_at"] = list(gc_at)
        done = subprocess.run(
            [sys.executable, "-m", "tests.crash.race"],
            input=json.dumps(job | {"bugs": list(bugs), "below": below}),
            cwd=ROOT,
            env=environment(Path(below)),
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def wrong(results: Sequence[dict[str, Any]]) -> list[str]:
    return [
        f"at {result['at']}, gc at {result['gc_at']}: {problem}"
        for result in results
        for problem in result["problems"]
    ]


def test_a_commit_of_what_was_removed(prepare: Prepare, fast: Path) -> None:
    results = race(prepare("taken", *TAKEN), fast, COMMIT, (2, 30))
    assert not wrong(results)
    assert {result["gc"] for result in results} >= {5}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_everywhere(prepare: Prepare, fast: Path, name: str) -> None:
    results = race(prepare("taken", *TAKEN), fast, COMMANDS[name], EVERY)
    assert not wrong(results)


def test_within_gc(prepare: Prepare, fast: Path) -> None:
    results = race(prepare("taken", *TAKEN), fast, COMMIT, (0,), gc_at=(3, 10))
    assert not wrong(results)
    assert [result["within"] for result in results] == [True, True]


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_everywhere_within_gc(prepare: Prepare, fast: Path, name: str) -> None:
    """Not begun, and before each of its first calls."""
    results = race(prepare("taken", *TAKEN), fast, COMMANDS[name], (0, 1, 2, 3), gc_at=EVERY)
    assert not wrong(results)


@pytest.mark.slow
def test_sees_that_gc_takes_no_lock(prepare: Prepare, fast: Path) -> None:
    """After the commit has looked again at what it relies on, nothing else would help."""
    template = prepare("taken", *TAKEN)
    assert wrong(race(template, fast, COMMIT, (30, 45, 60), ["gc_without_lock"]))


@pytest.mark.slow
def test_sees_that_nothing_is_looked_at_again(prepare: Prepare, fast: Path) -> None:
    """Where locks fail, what was found stored and is gone since must not go into a version."""
    template = prepare("taken", *TAKEN)
    bugs = ["gc_without_lock", "no_recheck"]
    assert not wrong(race(template, fast, COMMIT, [2], bugs[:1]))
    assert wrong(race(template, fast, COMMIT, [2], bugs))
