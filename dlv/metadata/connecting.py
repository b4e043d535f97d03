"""Files of SQLite opened so that a reader sees all that was committed, and let go of safely."""

from __future__ import annotations

import ctypes
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from dlv.errors import StorageError


def give_up(connection: sqlite3.Connection, error: BaseException) -> None:
    """Close a connection that is of no use; if the disk is at fault, as a killed process would."""
    if isinstance(error, StorageError):
        leave(connection)
    else:
        connection.close()


def leave(connection: sqlite3.Connection) -> None:
    """Let go of a connection, and touch no file.

    Where a disk refuses to open the shared memory of a WAL for writing, SQLite (3.40 at least)
    closes the last connection by a checkpoint that finds nothing to do, and deletes the WAL with
    all commits in it. A WAL that is left lying is recovered by whoever opens the file next.
    """
    if sys.version_info >= (3, 12):
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, True)
        connection.close()
    else:
        # The end of the process must close it: nothing else keeps an object from being released,
        # and so closed, when the interpreter ends.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


BESIDE = ("", "-wal", "-journal")
TRIES = 20  # to copy files that somebody is writing


def is_read_only(path: Path) -> bool:
    """Whether the file, or the folder that WAL needs, may not be written."""
    return path.is_file() and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))


def connect(path: Path, busy_seconds: float) -> sqlite3.Connection:
    if not is_read_only(path):
        return _open(path, busy_seconds)
    uri = f"{path.absolute().as_uri()}?mode=ro"
    made = _open(uri, busy_seconds)
    try:
        made.execute("SELECT 1 FROM sqlite_schema").fetchone()
    except sqlite3.OperationalError as error:
        made.close()
        name = getattr(error, "sqlite_errorname", None) or ""
        if not name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")):
            raise
        # No process has it open, and the shared memory for its log cannot be created here.
        if any(_size(path, end) for end in BESIDE[1:]):
            return _copied(path, busy_seconds)
        return _open(f"{uri}&immutable=1", busy_seconds)
    return made


def _open(name: str | Path, busy_seconds: float) -> sqlite3.Connection:
    return sqlite3.connect(
        name,
        timeout=busy_seconds,
        isolation_level=None,
        check_same_thread=False,
        uri=isinstance(name, str),
    )


def _copied(path: Path, busy_seconds: float) -> sqlite3.Connection:
    """Open a private copy of database and log; its file is unlinked before this returns."""
    try:
        import tempfile

        with tempfile.TemporaryDirectory(prefix="dlv-read-") as folder:
            copy = Path(folder) / path.name
            _copy(path, copy)
            with closing(_open(copy, busy_seconds)) as db:
                db.execute("PRAGMA journal_mode = DELETE")  # all of it in the one file
            made = _open(f"{copy.as_uri()}?mode=ro&immutable=1", busy_seconds)
            made.execute("SELECT 1 FROM sqlite_schema").fetchone()
            return made
    except OSError as error:
        raise StorageError(
            f"cannot read {path} together with its log",
            why=f"it may not be written, and no copy of both can be made: {error.strerror}",
            hint="run any dlv command as a user who may write there, or give TMPDIR more room",
        ) from error


def _copy(path: Path, copy: Path) -> None:
    """All files of one moment."""
    import shutil

    for _ in range(TRIES):
        before = _state(path)
        for end in BESIDE:
            target = copy.with_name(copy.name + end)
            target.unlink(missing_ok=True)
            if _size(path, end):
                shutil.copyfile(path.with_name(path.name + end), target)
        if _state(path) == before:
            return
    raise StorageError(
        f"cannot read {path}",
        why="another process writes to it all the time",
        hint="repeat the command later",
    )


def _state(path: Path) -> list[tuple[int, int, int] | None]:
    found: list[tuple[int, int, int] | None] = []
    for end in BESIDE:
        try:
            status = path.with_name(path.name + end).stat()
        except FileNotFoundError:
            found.append(None)
        else:
            found.append((status.st_ino, status.st_size, status.st_mtime_ns))
    return found


def _size(path: Path, end: str) -> int:
    try:
        return path.with_name(path.name + end).stat().st_size
    except FileNotFoundError:
        return 0
