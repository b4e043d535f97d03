"""The log of the catalogue with something wrong in it, held against what SQLite makes of it."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import dlv.recovery.catalogue_log as catalogue_log
from dlv.recovery.catalogue_log import FRAME, HEADER, Log

COMMITS = 12
PAGE = 4096
ROWS = sum(1 + 40 * (number % 3) for number in range(COMMITS))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A database whose commits all lie in its log."""
    folder = tmp_path_factory.mktemp("log")
    with closing(sqlite3.connect(folder / "live.db", isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE t(n INTEGER PRIMARY KEY, text TEXT)")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        lot = random.Random(1)
        for number in range(COMMITS):
            db.execute("BEGIN")
            for _ in range(1 + 40 * (number % 3)):
                db.execute("INSERT INTO t(text) VALUES (?)", (f"{number} {lot.random()}" * 9,))
            db.execute("COMMIT")
        for name in ("live.db", "live.db-wal"):
            shutil.copy(folder / name, folder / name.replace("live", "whole"))
        yield folder / "whole.db"


def seen(database: Path) -> int:
    """Rows that SQLite finds."""
    with closing(sqlite3.connect(database)) as db:
        found: int = db.execute("SELECT count(*) FROM t").fetchone()[0]
        return found


def copy(written: Path, folder: Path) -> Path:
    folder.mkdir()
    for end in ("", "-wal"):
        shutil.copy(written.with_name(written.name + end), folder / f"dlv.db{end}")
    return folder / "dlv.db"


def read(database: Path) -> Log:
    log = catalogue_log.read(catalogue_log.beside(database))
    assert log is not None
    return log


def change(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def test_a_log_that_is_whole(written: Path, tmp_path: Path) -> None:
    log = read(written)
    size = catalogue_log.beside(written).stat().st_size
    assert (log.broken, log.behind, log.lost) == (None, 0, False)
    assert log.frames == (size - HEADER) // (FRAME + PAGE)
    assert catalogue_log.read(tmp_path / "none-wal") is None


@pytest.mark.parametrize("seed", range(40))
def test_one_byte_is_found_and_put_right(written: Path, tmp_path: Path, seed: int) -> None:
    database = copy(written, tmp_path / "one")
    path = catalogue_log.beside(database)
    whole = path.read_bytes()
    lot = random.Random(seed)
    heads = [n for at in range(HEADER, len(whole), FRAME + PAGE) for n in range(at, at + FRAME)]
    place = lot.choice([lot.randrange(HEADER), lot.choice(heads), lot.randrange(len(whole))])
    wrong = whole[place] ^ (1 << lot.randrange(8) if seed % 2 else lot.randrange(1, 256))
    change(path, place, bytes([wrong]))
    log = read(database)
    lost = seen(copy(database, tmp_path / "read")) < ROWS
    assert log.lost == (log.behind > 0) == lost
    if 12 <= place < 16:  # how often it was begun anew, which only its checksum is about
        assert lost
    # Of the highest byte of a word the checksum tells too little; and in the last frame it may be
    # itself what is wrong.
    certain = (place - HEADER) % (FRAME + PAGE) % 4 != 3 and place < len(whole) - FRAME - PAGE
    assert catalogue_log.mend(log) == lost or not certain
    if log.changes:
        assert path.read_bytes() == whole
        assert seen(database) == ROWS


def test_more_than_a_byte(written: Path, tmp_path: Path) -> None:
    """What cannot be put right: a later commit proves that it was whole once."""
    database = copy(written, tmp_path / "more")
    path = catalogue_log.beside(database)
    change(path, HEADER + 3 * (FRAME + PAGE) + 100, b"something else")
    log = read(database)
    assert log.broken == 4
    assert log.lost
    assert log.behind > 2
    assert not log.changes
    assert f"frame 4 of {log.frames}" in log.why


def test_the_end_of_a_commit_that_was_cut_off(written: Path, tmp_path: Path) -> None:
    """As a power cut leaves it: nothing was acknowledged, nothing is lost."""
    database = copy(written, tmp_path / "cut")
    path = catalogue_log.beside(database)
    size = path.stat().st_size
    change(path, size - PAGE, bytes(PAGE))
    log = read(database)
    assert (log.broken, log.behind, log.lost) == (log.frames, 1, False)
    for end in (size - PAGE // 2, size - PAGE, size - PAGE - 12):
        with path.open("r+b") as file:
            file.truncate(end)
        assert not read(database).lost


def test_frames_of_an_older_log_are_none(tmp_path: Path) -> None:
    """A log that was begun anew still has the frames of the last one behind its end."""
    path = tmp_path / "dlv.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE t(n INTEGER PRIMARY KEY, text TEXT)")
        for _ in range(20):
            db.execute("INSERT INTO t(text) VALUES (?)", ("x" * 3000,))
        db.execute("PRAGMA wal_checkpoint(RESTART)")
        db.execute("INSERT INTO t(text) VALUES ('new')")
        log = read(path)
        held = (catalogue_log.beside(path).stat().st_size - HEADER) // (FRAME + PAGE)
        assert (log.broken, log.behind, log.lost) == (None, 0, False)
        assert 0 < log.frames < held
