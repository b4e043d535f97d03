"""A disk that is full or broken from some call on: a clean message, exit 8, nothing changed."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.crash.conftest import Drive, Prepare, bad
from tests.crash.shim import FAIL_FROM, FAIL_ONCE, SHORT_FROM
from tests.crash.test_kill import ARCHIVE, COMMIT, SECOND, SLICES

pytestmark = pytest.mark.crash

ERRORS = [
    (FAIL_FROM, errno.ENOSPC),
    (FAIL_FROM, errno.EIO),
    (FAIL_ONCE, errno.ENOSPC),
    (FAIL_ONCE, errno.EIO),
]


@pytest.mark.parametrize("part", range(SLICES // 2))
def test_commit(staged: Path, drive: Drive, part: int) -> None:
    results = drive(staged, COMMIT, ERRORS, most=80, part=part, of=SLICES // 2)
    assert not bad(results)
    assert sum(result["failed"] > 0 for result in results) > 0.75 * len(results) > 25
    assert {result["code"] for result in results} <= {0, 8}


def test_archive(prepare: Prepare, drive: Drive) -> None:
    results = drive(prepare("archive", *SECOND), ARCHIVE, ERRORS, most=60)
    assert not bad(results)
    assert {result["code"] for result in results} <= {0, 8}


def test_short_writes_are_continued(prepare: Prepare, drive: Drive) -> None:
    """Without files: gitdb takes a short write for an error."""
    template = prepare("weights", ["add", "step-200.safetensors"])
    assert not bad(drive(template, COMMIT, [(SHORT_FROM, 0)], most=8))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(SLICES))
def test_commit_everywhere(staged: Path, drive: Drive, part: int) -> None:
    ways = [*ERRORS, (FAIL_FROM, errno.EDQUOT), (FAIL_FROM, errno.EROFS), (FAIL_ONCE, errno.EMFILE)]
    assert not bad(drive(staged, COMMIT, ways, part=part, of=SLICES))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("archive", [*ARCHIVE]),
        ("add", ["add", "."]),
        ("tag", ["tag", "best", "lenet@1"]),
        ("rm", ["rm", "lenet@1"]),
        ("undo", ["undo"]),
        ("rebuild", ["fsck", "--rebuild"]),
    ],
)
def test_other_commands(prepare: Prepare, drive: Drive, name: str, command: list[str]) -> None:
    before = [] if name == "add" else [["add", "."], ["commit", "-m", "second"]]
    assert not bad(drive(prepare(f"{name}-errors", *before), command, ERRORS))
