"""Who may not write sees all that was committed, or is told so: never an older state."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import dlv.metadata.database as database
from dlv.errors import StorageError
from dlv.metadata.curves import CurveDatabase
from dlv.metadata.database import Database
from dlv.metadata.trials import Trials

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
Open = Callable[[Path], int]


def _catalogue(path: Path) -> int:
    with closing(Database(path, create=False)) as db:
        return int(db.value("SELECT count(*) FROM state"))


def _curves(path: Path) -> int:
    with closing(CurveDatabase(path)) as db:
        return int(db.value("SELECT count(*) FROM experiment"))


def _trials(path: Path) -> int:
    with Trials(path) as store:
        return len(store.rows("SELECT last FROM token")) + len(store.trials())


KINDS: dict[str, tuple[str, Open, str]] = {
    "database": ("dlv.db", _catalogue, "INSERT INTO state(key, value) VALUES ('k{}', 'v')"),
    "curves": ("live.db", _curves, "INSERT INTO experiment(name) VALUES ('e{}')"),
    "trials": (
        "trials.db",
        _trials,
        "INSERT INTO trial(id, network, config, seed, log_every) VALUES ('t{}', '', '', 0, 1)",
    ),
}


@pytest.fixture(params=KINDS)
def left(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Open, int]:
    """A file whose commits are in its log, without the memory that processes share; how to count
    them, and how many there are."""
    name, count, insert = KINDS[request.param]
    live, folder = tmp_path / "live", tmp_path / "left"
    live.mkdir()
    folder.mkdir()
    count_first = {"dlv.db": Database, "live.db": CurveDatabase, "trials.db": Trials}[name]
    count_first(live / name).close()
    before = count(live / name)
    with closing(sqlite3.connect(live / name, isolation_level=None)) as db:
        for number in range(5):
            db.execute(insert.format(number))
        for end in ("", "-wal"):
            shutil.copy(live / (name + end), folder / (name + end))
    assert (folder / f"{name}-wal").stat().st_size > 0
    return folder / name, count, before + 5


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing may be written where the database lies. SQLite asks the system, which lets the
    superuser do all: so it is told that the file cannot be opened, as it tells others."""
    open_ = database._open

    def opened(name: str | Path, busy_seconds: float) -> sqlite3.Connection:
        if isinstance(name, str) and "/left/" in name and "immutable" not in name:
            name = f"file:{tmp_path}/none?mode=ro"
        made = open_(name, busy_seconds) if "none" not in str(name) else None
        return made or _Refusing(":memory:")

    monkeypatch.setattr("dlv.metadata.database.os.access", lambda path, _: "left" not in str(path))
    monkeypatch.setattr(database, "_open", opened)


class _Refusing(sqlite3.Connection):
    def execute(self, *_: object) -> sqlite3.Cursor:
        error = sqlite3.OperationalError("unable to open database file")
        error.sqlite_errorname = "SQLITE_CANTOPEN"
        raise error


@pytest.mark.usefixtures("refused")
def test_the_log_counts(left: tuple[Path, Open, int], tmp_path: Path) -> None:
    path, count, wanted = left
    before = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    assert count(path) == wanted
    assert {each.name: each.read_bytes() for each in path.parent.iterdir()} == before


@pytest.mark.usefixtures("refused")
def test_a_copy_leaves_nothing(
    left: tuple[Path, Open, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, count, wanted = left
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    assert count(path) == wanted
    assert not list(scratch.iterdir())
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "no such folder"))
    with pytest.raises(StorageError, match="together with its log"):
        count(path)


@pytest.mark.usefixtures("refused")
def test_files_that_change_while_they_are_copied(
    left: tuple[Path, Open, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, count, _ = left
    copy, turns = shutil.copyfile, []

    def busy(source: Path, target: Path) -> None:
        turns.append(source)
        copy(source, target)
        if source == path:
            os.utime(path, ns=(1, len(turns)))

    monkeypatch.setattr(shutil, "copyfile", busy)
    with pytest.raises(StorageError, match="cannot read"):
        count(path)
    assert len(turns) == 2 * database.TRIES


READ = """
import os, shutil, sys, tempfile
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.metadata.test_read_only import KINDS
path = Path({path!r})
count = next(each[1] for each in KINDS.values() if each[0] == path.name)
os.setgid({nobody}); os.setuid({nobody})  # the interpreter itself may lie where only root reads
print(count(path))
"""


def as_nobody(path: Path) -> int:
    code = READ.format(root=str(ROOT), nobody=NOBODY, path=str(path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser becomes somebody else")
@pytest.mark.parametrize("shared", [False, True])
def test_another_user(left: tuple[Path, Open, int], shared: bool) -> None:
    """With and without what processes share of the log, as it is after a kill."""
    path, _, wanted = left
    if shared:
        path.with_name(f"{path.name}-shm").write_bytes(bytes(32768))
    # Not below what pytest keeps for itself.
    with tempfile.TemporaryDirectory() as name:
        place = Path(shutil.copytree(path.parent, Path(name) / "left"))
        for each in (Path(name), place):
            each.chmod(0o755)
        assert as_nobody(place / path.name) == wanted


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser mounts")
def test_a_disk_that_is_read_only(left: tuple[Path, Open, int]) -> None:
    path, count, wanted = left
    mount = ["mount", "--bind", str(path.parent), str(path.parent)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        again = subprocess.run(
            ["mount", "-o", "remount,ro,bind", str(path.parent)], capture_output=True
        )
        if again.returncode:
            pytest.skip("nothing can be mounted read-only here")
        assert count(path) == wanted
    finally:
        subprocess.run(["umount", str(path.parent)], check=True)
