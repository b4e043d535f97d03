"""The SQLite file: transactions whole or not at all, between processes too; damage is named."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dlv
import dlv.metadata.database as database
from dlv.disk.locks import Patience
from dlv.errors import Conflict, Damaged, DlvError, NewerFormat, StorageError
from dlv.metadata.database import SCHEMA_VERSION, Database, is_outdated
from dlv.metadata.schemas import number_of

HOME = str(Path(dlv.__file__).parent.parent)
TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table'"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "dlv.db"


@pytest.fixture
def db(path: Path) -> Iterator[Database]:
    database = Database(path)
    yield database
    database.close()


def put(db: Database, key: str, value: str = "x") -> None:
    db.execute("INSERT INTO state(key, value) VALUES (?, ?)", (key, value))


def keys(db: Database) -> list[str]:
    return [row[0] for row in db.rows("SELECT key FROM state ORDER BY key")]


def python(code: str, *args: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        env=dict(os.environ, PYTHONPATH=HOME),
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


# Opening


def test_how_it_is_opened(db: Database) -> None:
    settings = {
        name: db.value(f"PRAGMA {name}")
        for name in ("journal_mode", "synchronous", "foreign_keys", "trusted_schema")
    }
    assert settings == {
        "journal_mode": "wal",
        "synchronous": 2,  # FULL
        "foreign_keys": 1,
        "trusted_schema": 0,
    }
    assert db.value("PRAGMA user_version") == SCHEMA_VERSION


def test_a_network_disk_gets_no_wal(path: Path) -> None:
    db = Database(path, wal=False)
    assert db.value("PRAGMA journal_mode") == "delete"
    assert db.value("PRAGMA synchronous") == 3  # EXTRA
    db.close()


def test_the_schema_is_the_file(db: Database) -> None:
    plain = sqlite3.connect(":memory:")
    plain.executescript(Path(database.__file__).with_name("schema.sql").read_text("utf-8"))
    wanted = plain.execute("SELECT type, name, sql FROM sqlite_schema").fetchall()
    assert sorted(db.rows("SELECT type, name, sql FROM sqlite_schema")) == sorted(wanted)
    assert len(wanted) > 40


def test_an_empty_or_headless_file_is_no_catalogue(path: Path) -> None:
    path.touch()
    with pytest.raises(Damaged, match="is empty") as found:
        Database(path, create=False)
    assert found.value.hint == "dlv fsck --rebuild"
    # Only the header came to the disk: the journal with the tables was lost.
    plain = sqlite3.connect(path)
    plain.execute("PRAGMA journal_mode = WAL")
    plain.close()
    assert path.stat().st_size
    with pytest.raises(Damaged, match="is empty"):
        Database(path, create=False)
    Database(path).close()
    Database(path, create=False).close()


def test_a_newer_schema_is_refused(path: Path) -> None:
    db = Database(path)
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    db.close()
    before = path.read_bytes()
    with pytest.raises(NewerFormat, match="newer dlv") as found:
        Database(path)
    assert found.value.exit_code == 3
    assert f"number {SCHEMA_VERSION + 1}" in (found.value.why or "")
    assert path.read_bytes() == before


def test_what_a_newer_schema_needs(path: Path) -> None:
    """Whoever writes a catalogue leaves in it which dlv that is."""
    db = Database(path)
    assert db.value("PRAGMA application_id") == number_of() > 0
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    for number, hint in ((2_013_007, "'dlv>=2.13.7'"), (0, "--upgrade dlv"), (-5, "--upgrade dlv")):
        db.execute(f"PRAGMA application_id = {number}")
        with pytest.raises(NewerFormat) as found:
            Database(path)
        assert (found.value.hint or "").endswith(hint)
    db.close()


def test_not_a_database(path: Path) -> None:
    path.write_bytes(b"hello world, this is no database at all" * 100)
    with pytest.raises(Damaged, match="is corrupt") as found:
        Database(path)
    assert found.value.exit_code == 6
    assert found.value.hint == "dlv fsck --rebuild"


def test_a_disk_that_cannot_be_read_is_no_damage(path: Path) -> None:
    db = Database(path, wal=False)
    with db.atomic():
        for number in range(300):
            put(db, f"key {number}", "x" * 100)
    error = sqlite3.DatabaseError("database disk image is malformed")  # as SQLite says of EIO
    error.sqlite_errorname = "SQLITE_CORRUPT"
    found = db._translated(error)
    assert isinstance(found, StorageError)
    assert found.exit_code == 8
    content = bytearray(path.read_bytes())
    content[4096:8192] = b"x" * 4096
    path.write_bytes(content)
    assert isinstance(db._translated(error), Damaged)
    path.unlink()
    path.mkdir()
    found = db._translated(error)
    assert isinstance(found, StorageError)
    assert found.why == "Is a directory"
    db.close()


def test_a_folder_in_the_way(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StorageError) as found:
        Database(path)
    assert found.value.exit_code == 8


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_random_damage_gives_typed_errors(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("damage") / "dlv.db"
    db = Database(path, wal=False)
    with db.atomic():
        for number in range(300):
            put(db, f"key {number}", "x" * 100)
    db.close()
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(content) - 1))
        content[start : start + 64] = data.draw(st.binary(min_size=64, max_size=64))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))) :]
    path.write_bytes(content)
    try:
        db = Database(path, wal=False, create=False)
    except DlvError as error:
        assert error.exit_code in (3, 6, 8)  # noqa: PT017
        return
    try:
        db.rows("SELECT key, length(value) FROM state ORDER BY value")
        with db.atomic():
            put(db, "one more")
    except DlvError as error:
        assert error.exit_code == 6  # noqa: PT017
        assert error.hint == "dlv fsck --rebuild"  # noqa: PT017
    finally:
        db.close()


def test_a_lost_table_is_damage(db: Database) -> None:
    db.execute("DROP TABLE staged")
    with pytest.raises(Damaged, match="corrupt"):
        db.rows("SELECT * FROM staged")


def test_faults_of_our_own_sql_are_not_hidden(db: Database) -> None:
    put(db, "a")
    with pytest.raises(sqlite3.IntegrityError):
        put(db, "a")
    with pytest.raises(sqlite3.IntegrityError):
        db.many("INSERT INTO state(key, value) VALUES (?, ?)", [("b", "x"), ("a", "x")])
    for read in (db.rows, db.row, db.value):
        with pytest.raises(sqlite3.OperationalError):
            read("SELEKT 1")
    with pytest.raises(sqlite3.OperationalError, match="syntax"):
        db.execute("SELEKT 1")


# Transactions


def test_a_block_commits_as_a_whole(db: Database, path: Path) -> None:
    other = Database(path)
    with db.atomic():
        put(db, "a")
        assert keys(other) == []
        put(db, "b")
    assert keys(other) == ["a", "b"]
    other.close()


def test_an_error_takes_everything_back(db: Database) -> None:
    def fail() -> None:
        with db.atomic():
            put(db, "a")
            with db.atomic():
                put(db, "b")
            raise KeyError

    put(db, "before")
    with pytest.raises(KeyError):
        fail()
    assert keys(db) == ["before"]


def test_an_inner_error_takes_back_the_inner_block(db: Database) -> None:
    def fail() -> None:
        with db.atomic():
            put(db, "b")
            with db.atomic():
                put(db, "c")
            raise KeyError

    with db.atomic():
        put(db, "a")
        with pytest.raises(KeyError):
            fail()
        put(db, "d")
        with db.atomic():
            put(db, "e")
    assert keys(db) == ["a", "d", "e"]


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_nested_blocks_against_a_model(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    db = Database(tmp_path_factory.mktemp("nested") / "dlv.db", wal=False)
    db.execute("PRAGMA synchronous = OFF")
    count = 0

    def block(depth: int) -> set[str]:
        """Run a random block; what it leaves if it ends well."""
        nonlocal count
        kept: set[str] = set()
        for _ in range(data.draw(st.integers(0, 3))):
            if depth < 4 and data.draw(st.booleans()):
                try:
                    with db.atomic():
                        inner = block(depth + 1)
                        if data.draw(st.booleans()):
                            raise KeyError
                    kept |= inner
                except KeyError:
                    pass
            elif depth:
                count += 1
                put(db, f"{count:04}")
                kept.add(f"{count:04}")
        return kept

    kept = block(0)
    assert keys(db) == sorted(kept)
    assert not db._connection.in_transaction
    db.close()


def test_a_block_after_an_error_works(db: Database) -> None:
    def fail() -> None:
        with db.atomic():
            put(db, "a")
            put(db, "a")

    for _ in range(3):
        with pytest.raises(sqlite3.IntegrityError):
            fail()
    with db.atomic():
        put(db, "b")
    assert keys(db) == ["b"]


def test_a_snapshot_is_of_one_moment(db: Database, path: Path) -> None:
    other = Database(path)
    put(db, "a")
    with db.snapshot():
        assert keys(db) == ["a"]
        put(other, "b")
        with db.snapshot():
            assert keys(db) == ["a"]
    assert keys(db) == ["a", "b"]
    with db.atomic(), db.snapshot():
        put(db, "c")
    assert keys(db) == ["a", "b", "c"]
    other.close()


def test_threads_take_turns(db: Database) -> None:
    """One connection in many threads: a transaction is never that of two of them."""
    start = threading.Barrier(4)
    errors: list[BaseException] = []

    def work(name: str) -> None:
        start.wait()
        try:
            for turn in range(20):
                try:
                    with db.atomic():
                        put(db, f"{name} {turn}")
                        time.sleep(0.0005)
                        with db.atomic():
                            put(db, f"{name} {turn} inner")
                        if turn % 2:
                            raise KeyError
                except KeyError:
                    pass
                with db.snapshot():
                    before = len(keys(db))
                    time.sleep(0.0005)
                    assert len(keys(db)) == before
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert errors == []
    wanted = [
        f"{name} {turn}{end}"
        for name in "abcd"
        for turn in range(0, 20, 2)
        for end in ("", " inner")
    ]
    assert keys(db) == sorted(wanted)


# Processes

WRITER = """
import sys
from pathlib import Path
from dlv.metadata.database import Database
db = Database(Path(sys.argv[1]))
for _ in range(int(sys.argv[2])):
    with db.atomic():
        found = db.value("SELECT coalesce(max(CAST(key AS INTEGER)), 0) FROM state")
        db.execute("INSERT INTO state(key, value) VALUES (?, ?)", (str(found + 1), sys.argv[3]))
"""


def test_processes_take_turns(path: Path) -> None:
    # The file is not there yet: they race to make it, too.
    writers = [python(WRITER, path, 25, name) for name in "abcd"]
    for writer in writers:
        _, err = writer.communicate(timeout=120)
        assert (writer.returncode, err) == (0, b"")
    db = Database(path)
    assert sorted(int(key) for key in keys(db)) == list(range(1, 101))
    assert db.value("SELECT count(DISTINCT value) FROM state") == 4
    db.close()


def test_busy_is_a_conflict_after_the_time(path: Path) -> None:
    holder = Database(path)
    waiting = Database(path, patience=Patience(lambda: 0.3))
    started = time.monotonic()
    with holder.atomic():
        put(holder, "a")
        with pytest.raises(Conflict, match="busy") as found, waiting.atomic():
            pass
        assert keys(waiting) == []  # reading is not held up
    assert 0.2 < time.monotonic() - started < 10
    assert found.value.exit_code == 5
    with waiting.atomic():
        put(waiting, "b")
    assert keys(holder) == ["a", "b"]
    holder.close()
    waiting.close()


def test_the_lock_is_taken_at_the_start(path: Path) -> None:
    """Not at the first write: that one would fail at once if another had written since."""
    first, second = Database(path), Database(path, patience=Patience(lambda: 0.1))
    with first.atomic():
        first.rows("SELECT * FROM state")
        with pytest.raises(Conflict), second.atomic():
            pass
    first.close()
    second.close()


def test_a_killed_writer_leaves_nothing_and_no_lock(path: Path) -> None:
    Database(path).close()
    code = """
import sys, time
from pathlib import Path
from dlv.metadata.database import Database
db = Database(Path(sys.argv[1]))
db.execute("INSERT INTO state(key, value) VALUES ('done', 'x')")
with db.atomic():
    db.execute("INSERT INTO state(key, value) VALUES ('half', 'x')")
    print("in", flush=True)
    time.sleep(60)
"""
    writer = python(code, path)
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"in\n"
    writer.send_signal(signal.SIGKILL)
    writer.communicate(timeout=30)
    db = Database(path, patience=Patience(lambda: 1.0))
    assert keys(db) == ["done"]
    with db.atomic():
        put(db, "next")
    db.close()


# Other schemas


def of_schema(path: Path, number: int) -> None:
    Database(path).close()
    with closing(sqlite3.connect(path)) as plain:
        plain.execute(f"PRAGMA user_version = {number}")


def test_an_older_schema_is_refused_and_left_alone(path: Path) -> None:
    of_schema(path, SCHEMA_VERSION - 1)
    before = path.read_bytes()
    assert is_outdated(path)
    with pytest.raises(Damaged, match="of an older dlv") as caught:
        Database(path, create=False)
    assert caught.value.hint == "dlv fsck --rebuild"
    assert caught.value.why == f"its schema is number 4, this dlv reads {SCHEMA_VERSION}"
    with closing(Database(path, lenient=True)) as db:
        assert db.table("state")[0] == ["key", "value"]
    assert path.read_bytes() == before


@pytest.mark.parametrize("number", [SCHEMA_VERSION, SCHEMA_VERSION + 1, 0, -1])
def test_what_is_not_outdated(path: Path, number: int) -> None:
    assert not is_outdated(path)
    of_schema(path, number)
    assert not is_outdated(path)


def test_two_processes_make_one_catalogue(path: Path) -> None:
    code = """
import sys
from pathlib import Path
from dlv.metadata.database import Database
sys.stdin.readline()
db = Database(Path(sys.argv[1]))
assert db.as_made()
"""
    both = [python(code, path) for _ in range(2)]
    for process in both:
        _, said = process.communicate(b"go\n", timeout=60)
        assert process.returncode == 0, said


# Moving


def test_tables_move_between_catalogues(db: Database, tmp_path: Path) -> None:
    put(db, "a", "1")
    other = Database(tmp_path / "other.db")
    put(other, "a", "2")
    other.fill_table("state", db.table("state"))
    assert other.rows("SELECT key, value FROM state") == [("a", "1")]
    other.close()


def test_a_checkpoint_brings_all_into_one_file(db: Database, path: Path, tmp_path: Path) -> None:
    put(db, "a")
    db.checkpoint()
    moved = tmp_path / "moved.db"
    moved.write_bytes(path.read_bytes())
    copy = Database(moved)
    assert keys(copy) == ["a"]
    copy.close()


def test_insert_gives_the_new_id(db: Database) -> None:
    sql = "INSERT INTO tensor_list(hash) VALUES (?)"
    assert [db.insert(sql, (name,)) for name in "abc"] == [1, 2, 3]
    assert db.value("SELECT hash FROM tensor_list WHERE id = 2") == "b"
    assert db.value("SELECT hash FROM tensor_list WHERE id = 9") is None
    assert db.row("SELECT id, hash FROM tensor_list WHERE id = 9") is None


def test_what_may_not_be_written_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "dlv.db"
    writer = Database(path)
    writer.execute("INSERT INTO state(key, value) VALUES ('a', '1')")
    # Permissions do not hold the superuser, whom tests may run as.
    monkeypatch.setattr("dlv.metadata.database.os.access", lambda *_: False)
    beside = Database(path)
    assert beside.value("SELECT value FROM state WHERE key = 'a'") == "1"
    writer.execute("UPDATE state SET value = '2'")
    assert beside.value("SELECT value FROM state WHERE key = 'a'") == "2"
    beside.close()
    writer.close()
    assert not path.with_name("dlv.db-wal").exists()
    alone = Database(path)
    assert alone.value("SELECT value FROM state WHERE key = 'a'") == "2"
    with pytest.raises(StorageError, match="cannot use the database"):
        alone.execute("UPDATE state SET value = '3'")
    alone.close()


def test_what_cannot_be_opened_whole_keeps_its_log(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed by SQLite, a log that it could not read would be deleted with all commits in it."""
    with closing(Database(path)) as db:
        db.execute("INSERT INTO state(key, value) VALUES ('kept', '1')")
        left = tmp_path / "left"
        left.mkdir()
        for name in ("dlv.db", "dlv.db-wal"):  # as after kill -9
            shutil.copy(tmp_path / name, left)
    log = (left / "dlv.db-wal").stat().st_size

    def refused(self: Database, create: bool) -> None:
        raise StorageError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(Database, "_begin", refused)
        with pytest.raises(StorageError):
            Database(left / "dlv.db")
    assert (left / "dlv.db-wal").stat().st_size == log
    with closing(Database(left / "dlv.db")) as db:
        assert db.value("SELECT value FROM state WHERE key = 'kept'") == "1"


def test_another_word_in_the_schema_is_damage(path: Path) -> None:
    """SQLite's own check finds nothing then: the disk was not at fault when it was read."""
    Database(path).close()
    whole, met = path.read_bytes(), []
    for found in re.finditer(rb"\bbase\b", whole):
        path.write_bytes(whole[: found.start()] + b"ba3e" + whole[found.end() :])
        try:
            with closing(Database(path)) as db:
                for (name,) in db.rows(TABLES):
                    db.rows(f'SELECT * FROM "{name}"')
        except DlvError as error:
            met.append(error)
    assert {type(error) for error in met} == {Damaged}
    assert any("malformed database schema" in (error.why or "") for error in met)
