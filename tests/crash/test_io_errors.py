"""A disk that is full or broken from some call on: a clean message, exit 8, nothing changed.

And Ctrl-C at any call: exit 130.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.crash.conftest import Drive, Prepare, bad
from tests.crash.shim import FAIL_FROM, FAIL_ONCE, INTERRUPT, SHORT_FROM
from tests.crash.test_kill import ARCHIVES, SLICES, WHOLE
from tests.crash.verbs import ARCHIVE, COMMIT, GC, HIDDEN, SECOND, VERBS

pytestmark = pytest.mark.crash

ERRORS = [
    (FAIL_FROM, errno.ENOSPC),
    (FAIL_FROM, errno.EIO),
    (FAIL_ONCE, errno.ENOSPC),
    (FAIL_ONCE, errno.EIO),
]

READ_ERRORS = [(FAIL_FROM, errno.EIO), (FAIL_ONCE, errno.EIO), (SHORT_FROM, 0)]


def test_commit(staged: Path, drive: Drive) -> None:
    results = drive(staged, COMMIT, ERRORS, most=18)
    assert not bad(results)
    assert sum(result["failed"] > 0 for result in results) > 0.7 * len(results) > 10
    assert {result["code"] for result in results} <= {0, 8}


def test_archive(prepare: Prepare, drive: Drive) -> None:
    results = drive(prepare("archive", *SECOND), ARCHIVE, ERRORS, most=8)
    assert not bad(results)
    assert {result["code"] for result in results} <= {0, 8}


def test_reads_of_an_archive(prepare: Prepare, drive: Drive) -> None:
    """A disk that cannot be read, or gives less at a time."""
    template = prepare("archive", *SECOND)
    results = drive(template, ARCHIVE, READ_ERRORS, most=9, reads=True)
    assert not bad(results)
    failed = [result["failed"] > 0 for result in results if result["error"]]
    assert sum(failed) > 0.4 * len(failed) > 2


def test_an_archive_interrupted(prepare: Prepare, drive: Drive) -> None:
    results = drive(prepare("archive", *SECOND), ARCHIVE, [(INTERRUPT, 0)], most=9)
    assert not bad(results)
    # The last calls remove what is no longer needed: some come after the last word.
    assert sum(result["code"] == 130 for result in results) > 0.7 * len(results) > 4


def test_gc(prepare: Prepare, drive: Drive) -> None:
    """Whatever it had come to: what stays is whole, and the next gc finishes."""
    template = prepare("gc", *HIDDEN)
    results = drive(template, GC, ERRORS, most=8, settings=("eager",))
    assert not bad(results)
    assert {result["code"] for result in results} <= {0, 8}


@pytest.mark.slow
def test_gc_everywhere(prepare: Prepare, drive: Drive) -> None:
    template = prepare("gc", *HIDDEN)
    ways = [*ERRORS, (INTERRUPT, 0)]
    assert not bad(drive(template, GC, ways, settings=("eager",)))


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
def test_opening(prepare: Prepare, drive: Drive) -> None:
    """The catalogue's own files are the first that a command opens."""
    verb = VERBS["undo"]
    template = prepare("undo", *verb.before)
    assert not bad(drive(template, verb.command, [(FAIL_FROM, errno.ENOSPC)]))


def test_a_catalogue_of_an_older_dlv(prepare: Prepare, drive: Drive) -> None:
    verb = VERBS["older"]
    template = prepare("older", release=verb.release)
    results = drive(template, verb.command, ERRORS, most=8)
    assert not bad(results)
    assert {result["code"] for result in results} <= {0, 8}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(VERBS.keys() - WHOLE))
def test_every_verb(prepare: Prepare, drive: Drive, name: str) -> None:
    verb = VERBS[name]
    template = prepare(name, *verb.before, release=verb.release)
    assert not bad(drive(template, verb.command, ERRORS, most=400, settings=verb.settings))


@pytest.mark.slow
@pytest.mark.parametrize("which", ARCHIVES)
def test_archive_everywhere(prepare: Prepare, drive: Drive, which: str) -> None:
    commands, settings = ARCHIVES[which]
    template = prepare(f"archive {which}", *commands)
    assert not bad(drive(template, ARCHIVE, ERRORS, settings=settings))


@pytest.mark.slow
@pytest.mark.parametrize("which", ARCHIVES)
def test_an_archive_interrupted_everywhere(prepare: Prepare, drive: Drive, which: str) -> None:
    commands, settings = ARCHIVES[which]
    template = prepare(f"archive {which}", *commands)
    assert not bad(drive(template, ARCHIVE, [(INTERRUPT, 0)], settings=settings))


@pytest.mark.slow
@pytest.mark.parametrize("which", ARCHIVES)
def test_reads_of_an_archive_everywhere(prepare: Prepare, drive: Drive, which: str) -> None:
    commands, settings = ARCHIVES[which]
    template = prepare(f"archive {which}", *commands)
    assert not bad(drive(template, ARCHIVE, READ_ERRORS, reads=True, settings=settings))
