"""The harness itself: each fault that is put into dlv on purpose must be seen."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.crash.bugs import BUGS
from tests.crash.conftest import Drive, Prepare, bad
from tests.crash.shim import FAIL_FROM, FAIL_ONCE, SPOIL
from tests.crash.test_kill import KILLS
from tests.crash.test_powerloss import FAULTS
from tests.crash.verbs import ARCHIVE, COMMIT, GC, HIDDEN, SECOND, VERBS

pytestmark = pytest.mark.crash

ERRORS = [(FAIL_FROM, errno.EIO), (FAIL_ONCE, errno.ENOSPC)]
OF_ERRORS = {"error_swallowed", "error_untyped", "fsync_retried"}
OF_WRONG_BITS = {"not_read_back"}
OF_REBUILD = {"catalogue_swapped_by_copy"}
OF_ARCHIVE = {"archived_before_data", "old_packs_first"}
OF_GC = {"packs_before_rows", "bases_not_marked"}
OF_OTHERS = {"evaluate": "winners_forgotten", "restore, then gc": "restored_without_mark"}
OF_OPENING = {"closed_when_refused"}
OF_USER_FILES = {"put_one_by_one"}
OF_RACES = {"gc_without_lock", "no_recheck"}  # test_gc_race.py
OF_POWER_CUTS = {bug for _, bug in FAULTS}  # test_powerloss.py
ELSEWHERE = OF_REBUILD | OF_ARCHIVE | OF_GC | {*OF_OTHERS.values()} | OF_RACES | OF_POWER_CUTS
ELSEWHERE |= OF_OPENING | OF_USER_FILES


@pytest.mark.quick("error_swallowed", "*before*")
@pytest.mark.parametrize("bug", sorted(set(BUGS) - ELSEWHERE))
def test_sees(staged: Path, drive: Drive, bug: str) -> None:
    ways = ERRORS if bug in OF_ERRORS else [(SPOIL, 0)] if bug in OF_WRONG_BITS else KILLS
    assert bad(drive(staged, COMMIT, ways, bug=bug, order="shuffled"))


@pytest.mark.slow
@pytest.mark.parametrize("bug", sorted(OF_REBUILD))
def test_sees_in_rebuild(prepare: Prepare, drive: Drive, bug: str) -> None:
    template = prepare("rebuild", ["add", "."], ["commit", "-m", "second"])
    assert bad(drive(template, ["fsck", "--rebuild"], KILLS, bug=bug, order="backwards"))


@pytest.mark.slow
@pytest.mark.parametrize("bug", ["archived_before_data", "old_packs_first"])
def test_sees_in_archive(prepare: Prepare, drive: Drive, bug: str) -> None:
    template = prepare("archive", *SECOND)
    assert bad(drive(template, ARCHIVE, KILLS, bug=bug, order="backwards"))


@pytest.mark.slow
@pytest.mark.parametrize("bug", sorted(OF_GC))
def test_sees_in_gc(prepare: Prepare, drive: Drive, bug: str) -> None:
    template = prepare("gc", *HIDDEN)
    settings = ("eager",)
    assert bad(drive(template, GC, KILLS, bug=bug, order="shuffled", settings=settings))


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_OTHERS)
def test_sees_in_others(prepare: Prepare, drive: Drive, name: str) -> None:
    verb, bug = VERBS[name], OF_OTHERS[name]
    template = prepare(name, *verb.before, release=verb.release)
    ways, more = KILLS, {"order": "backwards", "settings": verb.settings}
    assert bad(drive(template, verb.command, ways, bug=bug, **more))


@pytest.mark.parametrize("bug", sorted(OF_OPENING))
def test_sees_in_opening(prepare: Prepare, drive: Drive, bug: str) -> None:
    verb = VERBS["undo"]
    template = prepare("undo", *verb.before)
    assert (template / ".dlv" / "dlv.db-wal").stat().st_size, "saved queries: nothing to lose"
    assert bad(drive(template, verb.command, [(FAIL_FROM, errno.ENOSPC)], bug=bug))


@pytest.mark.slow
@pytest.mark.parametrize("bug", sorted(OF_USER_FILES))
def test_sees_in_user_files(prepare: Prepare, drive: Drive, bug: str) -> None:
    verb = VERBS["checkout"]
    template = prepare("checkout", *verb.before)
    ways = [(FAIL_ONCE, errno.EIO)]
    assert bad(drive(template, verb.command, ways, bug=bug, order="backwards"))
