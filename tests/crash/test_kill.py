"""kill -9 between and within the calls of a command: nothing acknowledged is lost, and on it goes.

After each kill: fsck is clean, acknowledged versions are there, the same command works at once,
nothing stays in tmp, and a lost catalogue is rebuilt to the same versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import dlv.cli as cli
from tests.crash.conftest import Drive, Prepare, bad
from tests.crash.shim import BEFORE, MIDDLE

pytestmark = pytest.mark.crash

COMMIT = ("commit", "-q", "-m", "second")
INTO = ("query", "-q", 'construct d from m mutate m["fc"].out in [4, 5] into "wide"')
ARCHIVE = ("archive", "-q", "--alpha", "50")
KILLS = [(BEFORE, 0), (MIDDLE, 0)]
SLICES = 4  # so that the processes of a test run share the points
SECOND = (["add", "."], ["commit", "-m", "second"])
# Archived once, and two versions that came after it: deltas lie upon deltas, and packs of the
# first archive are written again in part.
THIRD = [*SECOND, ARCHIVE, 3, ["add", "."], ["commit", "-m", "third"]]
FOURTH = [*THIRD, 4, ["add", "."], ["commit", "-m", "fourth"]]
GC = ("gc", "--grace", "0", "-y", "-q")
# Of the four the first is a base of what stays, another one is alone in its pack.
HIDDEN = [*FOURTH, ["rm", "-f", "lenet@1", "lenet@3"]]
# What differs from one archive to the next: the repository, and limits made small.
ARCHIVES = {
    "first": (SECOND, ()),
    "again": (FOURTH, ()),
    "spilled": (FOURTH, ("buffer",)),
    "in batches": (FOURTH, ("buffer", "batches")),
}


@pytest.mark.parametrize("part", range(SLICES))
def test_commit(staged: Path, drive: Drive, part: int) -> None:
    results = drive(staged, COMMIT, KILLS, most=120, part=part, of=SLICES)
    assert not bad(results)
    # A name in the packs differs from run to run, and with it the number of calls, a little.
    assert sum(result["code"] == -9 for result in results) > 0.9 * len(results) > 25


@pytest.mark.slow
@pytest.mark.parametrize("part", range(SLICES))
def test_commit_everywhere(prepare: Prepare, drive: Drive, part: int) -> None:
    """At all calls, those of git in the user's repository too."""
    template = prepare("git", ["add", "."], git=True)
    assert not bad(drive(template, COMMIT, KILLS, part=part, of=SLICES))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(SLICES))
def test_query_into(prepare: Prepare, drive: Drive, part: int) -> None:
    """Of two derived networks both are versions, or none is."""
    results = drive(prepare("committed", *SECOND), INTO, KILLS, most=60, part=part, of=SLICES)
    assert not bad(results)
    assert sum(result["code"] == -9 for result in results) > 0.9 * len(results) > 12


@pytest.mark.parametrize("part", range(SLICES))
def test_archive(prepare: Prepare, drive: Drive, part: int) -> None:
    """The old or the new packs serve, and the next archive finishes."""
    results = drive(prepare("archive", *SECOND), ARCHIVE, KILLS, most=60, part=part, of=SLICES)
    assert not bad(results)
    assert sum(result["code"] == -9 for result in results) > 0.9 * len(results) > 12


@pytest.mark.slow
@pytest.mark.parametrize("part", range(SLICES))
@pytest.mark.parametrize("which", ARCHIVES)
def test_archive_everywhere(prepare: Prepare, drive: Drive, which: str, part: int) -> None:
    commands, settings = ARCHIVES[which]
    template = prepare(f"archive {which}", *commands)
    results = drive(template, ARCHIVE, KILLS, part=part, of=SLICES, settings=settings)
    assert not bad(results)
    assert sum(result["code"] == -9 for result in results) > 0.9 * len(results) > 25


@pytest.mark.parametrize("part", range(SLICES))
def test_gc(prepare: Prepare, drive: Drive, part: int) -> None:
    """What stays is whole, and the next gc finishes."""
    template = prepare("gc", *HIDDEN)
    results = drive(template, GC, KILLS, most=40, part=part, of=SLICES, settings=("eager",))
    assert not bad(results)
    assert sum(result["code"] == -9 for result in results) > 0.9 * len(results) > 8


@pytest.mark.slow
@pytest.mark.parametrize("part", range(SLICES))
@pytest.mark.parametrize("grace", ["0", "1s"])
def test_gc_everywhere(prepare: Prepare, drive: Drive, grace: str, part: int) -> None:
    template = prepare("gc", *HIDDEN)
    command = [grace if word == "0" else word for word in GC]
    results = drive(template, command, KILLS, part=part, of=SLICES, settings=("eager",))
    assert not bad(results)
    assert sum(result["code"] == -9 for result in results) > 0.9 * len(results) > 25


@pytest.mark.slow
@pytest.mark.parametrize("part", range(SLICES))
def test_bounds(prepare: Prepare, drive: Drive, part: int) -> None:
    """Encodings and record count together, or not at all."""
    template = prepare("bounds", *THIRD)
    command = ("archive", "-q", "--bounds", "lenet@3")
    results = drive(template, command, KILLS, part=part, of=SLICES, settings=("fixed",))
    assert not bad(results)
    assert sum(result["code"] == -9 for result in results) > 0.9 * len(results) > 12


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "before", "command"),
    [
        ("add", [], ["add", "."]),
        ("tag", [*SECOND], ["tag", "best", "lenet@1"]),
        ("tag moved", [*SECOND, ["tag", "best", "lenet@1"]], ["tag", "--move", "best", "lenet@2"]),
        ("rm", [*SECOND], ["rm", "lenet@1"]),
        ("undo", [*SECOND], ["undo"]),
        ("undo of rm", [*SECOND, ["rm", "lenet@1"]], ["undo"]),
        ("copy", [*SECOND], ["copy", "lenet@1", "wide"]),
        ("checkout", [*SECOND], ["checkout", "lenet@1", "--force"]),
        ("rebuild", [*SECOND], ["fsck", "--rebuild"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_commands(
    prepare: Prepare, drive: Drive, name: str, before: list[Sequence[str]], command: Sequence[str]
) -> None:
    for used in [*before, command]:
        assert used[0] in cli.COMMANDS
    assert not bad(drive(prepare(name, *before), command, KILLS, most=400))
