"""kill -9 between and within the calls of a command: nothing acknowledged is lost, and on it goes.

After each kill: fsck is clean, acknowledged versions are there, the same command works at once,
nothing stays in tmp, and a lost catalogue is rebuilt to the same versions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dlv.cli as cli
from tests.crash.conftest import Drive, Prepare, bad
from tests.crash.shim import BEFORE, MIDDLE
from tests.crash.verbs import ARCHIVE, COMMIT, FOURTH, GC, HIDDEN, SECOND, VERBS

pytestmark = pytest.mark.crash

KILLS = [(BEFORE, 0), (MIDDLE, 0)]
# Every point of these has a test of its own below.
WHOLE = {"commit", "archive", "archive again", "gc", "quarantine"}
ELSEWHERE = {
    "init": "nothing is there yet that could be lost",
    "demo": "a new folder, made with the others",
    "tensorboard": "test_kill_ingest.py: what it keeps is read again from the logs",
    "ui": "pages that are only read",
    "trials": "--stop is one row of the ledger",
    "completion": "outside of any repository",
    "remote": "a key of the configuration",
    "search": "cards in a cache, which are read again from the remote",
    "clone": "a new repository, with what pull does",
    "hub": "another data folder: tests/hub/test_deployment.py kills its servers",
    "login": "one file outside of any repository, written whole",
    "logout": "the same file",
}
READING = {"desc", "diff", "doctor", "help", "log", "metrics", "show", "stats", "status", "verify"}
SLICES = 4  # so that the processes of a test run share the points
# What differs from one archive to the next: the repository, and limits made small.
ARCHIVES = {
    "first": (SECOND, ()),
    "again": (FOURTH, ()),
    "spilled": (FOURTH, ("buffer",)),
    "in batches": (FOURTH, ("buffer", "batches")),
}


def test_commit(staged: Path, drive: Drive) -> None:
    results = drive(staged, COMMIT, KILLS, most=20)
    assert not bad(results)
    # A name in the packs differs from run to run, and with it the number of calls, a little.
    assert sum(result["code"] == -9 for result in results) > 0.9 * len(results) > 6


@pytest.mark.slow
@pytest.mark.parametrize("part", range(SLICES))
def test_commit_everywhere(prepare: Prepare, drive: Drive, part: int) -> None:
    """At all calls, those of git in the user's repository too."""
    template = prepare("git", ["add", "."], git=True)
    assert not bad(drive(template, COMMIT, KILLS, part=part, of=SLICES))


def test_archive(prepare: Prepare, drive: Drive) -> None:
    """The old or the new packs serve, and the next archive finishes."""
    results = drive(prepare("archive", *SECOND), ARCHIVE, KILLS, most=12)
    assert not bad(results)
    assert sum(result["code"] == -9 for result in results) > 0.7 * len(results) > 2


@pytest.mark.slow
@pytest.mark.parametrize("part", range(SLICES))
@pytest.mark.parametrize("which", ARCHIVES)
def test_archive_everywhere(prepare: Prepare, drive: Drive, which: str, part: int) -> None:
    commands, settings = ARCHIVES[which]
    template = prepare(f"archive {which}", *commands)
    results = drive(template, ARCHIVE, KILLS, part=part, of=SLICES, settings=settings)
    assert not bad(results)
    assert sum(result["code"] == -9 for result in results) > 0.9 * len(results) > 25


def test_gc(prepare: Prepare, drive: Drive) -> None:
    """What stays is whole, and the next gc finishes."""
    template = prepare("gc", *HIDDEN)
    results = drive(template, GC, KILLS, most=12, settings=("eager",))
    assert not bad(results)
    assert sum(result["code"] == -9 for result in results) > 0.7 * len(results) > 2


@pytest.mark.slow
@pytest.mark.parametrize("part", range(SLICES))
@pytest.mark.parametrize("grace", ["0", "1s"])
def test_gc_everywhere(prepare: Prepare, drive: Drive, grace: str, part: int) -> None:
    template = prepare("gc", *HIDDEN)
    command = [grace if word == "0" else word for word in GC]
    results = drive(template, command, KILLS, part=part, of=SLICES, settings=("eager",))
    assert not bad(results)
    assert sum(result["code"] == -9 for result in results) > 0.9 * len(results) > 25


def run(prepare: Prepare, drive: Drive, name: str, **how: Any) -> list[dict[str, Any]]:
    verb = VERBS[name]
    template = prepare(name, *verb.before, release=verb.release)
    return drive(template, verb.command, KILLS, settings=verb.settings, **how)


@pytest.mark.parametrize(
    ("name", "most"), [*[("evaluate", 2), ("older", 4), ("restore, then gc", 4), ("checkout", 2)]]
)
def test_some_points(prepare: Prepare, drive: Drive, name: str, most: int) -> None:
    results = run(prepare, drive, name, most=most)
    assert not bad(results)
    assert sum(result["code"] == -9 for result in results) > 0.7 * len(results)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(SLICES))
@pytest.mark.parametrize("name", sorted(VERBS.keys() - WHOLE))
def test_every_verb(prepare: Prepare, drive: Drive, name: str, part: int) -> None:
    """Of two derived networks both are versions or none is, encodings and the record of bounds
    count together, and so on: what the command changes, it changes as a whole."""
    results = run(prepare, drive, name, most=400, part=part, of=SLICES)
    assert not bad(results)
    assert sum(result["code"] == -9 for result in results) > 0.7 * len(results) > 5


def test_the_verbs_are_those_of_the_program() -> None:
    """Every command that changes a repository is among them, or is tested elsewhere."""
    tested = {verb.command[0] for verb in VERBS.values()}
    assert tested <= cli.COMMANDS.keys()
    assert cli.COMMANDS.keys() - tested == READING | ELSEWHERE.keys()
