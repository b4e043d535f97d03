"""The SQLite file: opening it safely, nested transactions, Python functions that SQL may call.

A reader sees all that was committed; after an I/O error, a file is let go of as it is.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from dlv.disk.locks import Patience, Wait
from dlv.errors import Conflict, Damaged, NewerFormat, StorageError, UsageError, denied
from dlv.metadata import schemas


def give_up_connection(connection: sqlite3.Connection, error: BaseException) -> None:
    """Close a connection that is of no use; if the disk is at fault, as a killed process would."""
    if isinstance(error, StorageError):
        leave_connection(connection)
    else:
        connection.close()


def leave_connection(connection: sqlite3.Connection) -> None:
    """Let go of a connection, and touch no file.

    Where a disk refuses to open the shared memory of a WAL for writing, SQLite (3.40 at least)
    closes the last connection by a checkpoint that finds nothing to do, and deletes the WAL with
    all commits in it. A WAL left in place is recovered when the file is opened next.
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


_STEPS = 20_000  # of SQLite's machine, between two looks whether Ctrl-C came

_INTERRUPTED = ("interrupted", "user-defined function raised", "user-defined aggregate's ")

Functions = Mapping[str, Callable[..., Any]]
Aggregates = Mapping[str, Callable[[], Any]]


class Calls:
    """The functions that a connection was given, and the first thing that one of them raised."""

    def __init__(self) -> None:
        self._raised: BaseException | None = None
        self._known: dict[str, Callable[..., Any]] = {}

    def register(
        self, connection: sqlite3.Connection, functions: Functions, aggregates: Aggregates
    ) -> None:
        """A name stays what it is: SQLite changes none while a statement runs."""
        for name, function in functions.items():
            if name not in self._known:
                connection.create_function(
                    name, -1, self._remembering_errors(function), deterministic=True
                )
                self._known[name] = function
        for name, made in aggregates.items():
            if name not in self._known:
                connection.create_aggregate(name, -1, self._aggregate(made))
                self._known[name] = made
        # Without it SQLite would not notice Ctrl-C before the next row.
        connection.set_progress_handler(lambda: 0, _STEPS)

    def forget(self, connection: sqlite3.Connection, names: Iterable[str]) -> None:
        """Of what no statement speaks any more."""
        for name in names:
            if self._known.pop(name, None) is not None:
                with suppress(sqlite3.OperationalError):  # another statement runs
                    connection.create_function(name, -1, None)

    def raised(self, error: Exception) -> BaseException | None:
        """What it was, once. Ctrl-C may come before a function has even begun."""
        found, self._raised = self._raised, None
        if found is None and str(error).startswith(_INTERRUPTED):
            return KeyboardInterrupt()
        return found

    def _remembering_errors(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any) -> Any:
            try:
                return function(*given)
            except BaseException as error:
                self._raised = self._raised or error
                raise

        return called

    def _aggregate(self, make: Callable[[], Any]) -> Any:
        told = self._remembering_errors

        class Aggregate:
            def __init__(self) -> None:
                aggregate = told(make)()
                self.step = told(aggregate.step)
                self.finalize = told(aggregate.finalize)

        return Aggregate


Row = tuple[Any, ...]
T = TypeVar("T")

# What SQLite says of a damaged file as if the statement had been wrong.
_DAMAGE = ("no such table", "unsupported file format", "malformed", "Could not decode to UTF-8")

# What SQLite has to say may itself hold bytes of the damaged file, which are no text then.
_REFUSED = (sqlite3.Error, UnicodeDecodeError)

SCHEMA_VERSION = 5
_SCHEMA_AT = slice(60, 64)  # of a file of SQLite: where its header has `user_version`


class Database:
    """One connection. Reads see one moment; `atomic` blocks commit as a whole or not at all."""

    def __init__(
        self,
        path: Path,
        *,
        patience: Patience | None = None,
        wal: bool = True,
        create: bool = True,
        lenient: bool = False,
    ) -> None:
        self.path = path
        self.patience = Patience() if patience is None else patience
        self._depth = 0
        self._refused = False  # by the disk: then SQLite is to sync nothing of it again
        self._lenient = lenient  # to read what can be read of one with foreign things in it
        self._afterwards: list[Callable[[], None]] = []
        self._turn = threading.RLock()  # a transaction belongs to one thread
        self._calls = Calls()
        self._deadline = 0.0  # of statements, by the monotonic clock; 0: none
        self._connection = self._patiently(self._connect)
        try:
            wal = wal and not self.read_only
            # A network disk has no shared memory for WAL; the rollback journal is safe there.
            journal, synchronous = ("WAL", "FULL") if wal else ("DELETE", "EXTRA")
            if wal and self.value("PRAGMA journal_mode") != "wal":
                self.execute(f"PRAGMA journal_mode = {journal}")
            self.execute(f"PRAGMA synchronous = {synchronous}")
            self.execute("PRAGMA trusted_schema = OFF")
            self._begin(create)
            if not lenient:
                self._refuse(self.foreign())
            self.execute("PRAGMA temp_store = MEMORY")  # a query's own tables, on no disk
            for statement in schemas.statements("views.sql"):
                self.execute(statement)
            self.execute("PRAGMA foreign_keys = ON")
        except BaseException as error:
            give_up_connection(self._connection, error)
            raise

    @property
    def read_only(self) -> bool:
        """Whether the file, or the folder that WAL needs, may not be written."""
        return is_read_only(self.path)

    def _connect(self) -> sqlite3.Connection:
        return connect(self.path, 0)  # `_ask` waits, and tells for whom

    def _ask(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> sqlite3.Cursor:
        return self._patiently(lambda: self._connection.execute(sql, parameters))

    def _patiently(self, ask: Callable[[], T]) -> T:
        """After those that are in the way of a statement: nothing of it was done till then."""
        wait: Wait | None = None
        while True:
            try:
                return ask()
            except _REFUSED as error:
                if not is_busy(error):
                    raise self._translated(error) from error
                wait = self.patience.for_database(self.path) if wait is None else wait
                if not wait.again():
                    raise wait.conflict(self._busy) from error

    @property
    def _busy(self) -> str:
        return "the database is busy"

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """End statements that run longer with UsageError; this connection has no other user."""
        self._deadline = time.monotonic() + seconds
        self._watch()
        try:
            yield
        finally:
            self._deadline = 0.0
            self._watch()

    def _watch(self) -> None:
        if self._deadline:
            self._connection.set_progress_handler(self._is_overdue, _STEPS)
        else:
            self._connection.set_progress_handler(None, 0)

    def _is_overdue(self) -> bool:
        return time.monotonic() > self._deadline

    def _translated(self, error: sqlite3.Error | UnicodeDecodeError) -> BaseException:
        if self._deadline and str(error).startswith("interrupted") and self._is_overdue():
            return UsageError(
                "the query takes too long here",
                hint="narrow it, or run it in a clone: dlv help query",
            )
        if raised := self._calls.raised(error):
            return raised
        if isinstance(error, UnicodeDecodeError):
            return _damaged(self.path, error)
        if _name(error).startswith("SQLITE_CORRUPT"):
            # A word of the schema that is another one is seen by whoever needs it, and not by
            # SQLite's own check: only the schema's text tells whether it was read wrongly.
            schema = "malformed database schema" in str(error)
            unread = None if schema and not self.as_made() else _unread(self.path)
            if unread is not None:
                return unread
        found = translate(error, self.path)
        self._refused |= isinstance(found, StorageError) and not self.read_only
        # Our own SQL fits the schema; what does not fit is a file that is not as we made it.
        return _damaged(self.path, error) if found is error and not self.as_made() else found

    def as_made(self) -> bool:
        """Whether the tables and indexes are those of the schema, to the letter."""
        schema = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name, type"
        if not hasattr(self, "_connection"):  # nothing could be opened
            return False
        try:
            found = self._connection.execute(schema).fetchall()
        except _REFUSED:
            return False
        made = Database(Path(":memory:"), wal=False)
        try:
            return found == made.rows(schema)
        finally:
            made.close()

    def _begin(self, create: bool) -> None:
        """Make the tables of a new file; refuse a file whose tables are those of another schema."""
        found = self.value("PRAGMA user_version")
        if not found and not create:
            raise Damaged(
                f"the database {self.path} is empty",
                why="manifests and packs may still be there",
                hint="dlv fsck --rebuild",
            )
        if not 0 <= found < SCHEMA_VERSION + 1000:
            raise Damaged(
                f"the database {self.path} is corrupt",
                why=f"{found} cannot be the number of its schema",
                hint="dlv fsck --rebuild",
            )
        if found > SCHEMA_VERSION:
            raise self._newer(found)
        if found == SCHEMA_VERSION:
            return
        if found:
            if self._lenient:
                return
            raise self._older(found)
        with self.atomic():
            if self.value("PRAGMA user_version"):
                return  # another process was faster
            for statement in schemas.statements():
                self.execute(statement)
            self.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            # For an older dlv, which can say then what is needed to read it.
            self.execute(f"PRAGMA application_id = {schemas.number_of()}")

    def foreign(self) -> list[str]:
        """What of the schema dlv did not make, or makes otherwise."""
        return schemas.foreign(self)

    def _refuse(self, foreign: Sequence[str]) -> None:
        if foreign:
            raise Damaged(
                f"the database {self.path} is not as dlv made it",
                why=f"this in its schema is foreign: {', '.join(foreign[:5])}",
                hint="to recreate it: dlv fsck --rebuild",
            )

    def _older(self, schema: int) -> Damaged | StorageError:
        why = f"its schema is number {schema}, this dlv reads {SCHEMA_VERSION}"
        if self.read_only:
            return StorageError(
                f"the database {self.path} is that of an older dlv, and may not be written",
                why=why,
                hint="run dlv status once where the folder is writable, or in a copy",
            )
        return Damaged(
            f"the database {self.path} is that of an older dlv", why=why, hint="dlv fsck --rebuild"
        )

    def _newer(self, schema: int) -> NewerFormat:
        writer = self.value("PRAGMA application_id")
        newer = writer > schemas.number_of()
        wanted = f"'dlv>={schemas.version_of(writer)}'" if newer else "dlv"
        return NewerFormat(
            f"the database {self.path} was written by a newer dlv",
            why=f"its schema is number {schema}, this dlv knows {SCHEMA_VERSION}",
            hint=f"pip install --upgrade {wanted}",
        )

    def close(self) -> None:
        """Close; the last connection merges the log into the database file and removes it."""
        if self._refused:
            leave_connection(self._connection)
        else:
            self._connection.close()

    def put_log_away(self) -> None:
        """Merge the log into the database file, unless other connections are in the way.

        The empty log stays: on a full disk it could not be created again, even by a reader.
        """
        log = self.path.with_name(self.path.name + "-wal")
        with suppress(OSError, Conflict, Damaged, StorageError):
            if log.stat().st_size and not (self.read_only or self._refused):
                self.checkpoint()

    def checkpoint(self) -> None:
        """Bring everything into the one file, so that it can be moved."""
        self.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def table(self, name: str) -> tuple[list[str], list[Row]]:
        """(columns, rows) of a table of the schema."""
        columns = [row[1] for row in self.rows(f"PRAGMA table_info({name})")]
        return columns, self.rows(f"SELECT {', '.join(columns)} FROM {name}")

    def fill_table(self, name: str, content: tuple[list[str], list[Row]]) -> None:
        """What `table` gave, put into another catalogue."""
        columns, rows = content
        places = ", ".join("?" * len(columns))
        self.many(f"INSERT OR REPLACE INTO {name}({', '.join(columns)}) VALUES ({places})", rows)

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self._ask(sql, parameters)

    def many(self, sql: str, rows: Iterator[Sequence[Any]] | Sequence[Sequence[Any]]) -> None:
        try:
            self._connection.executemany(sql, rows)
        except _REFUSED as error:
            raise self._translated(error) from error

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        try:
            return self._ask(sql, parameters).fetchall()
        except _REFUSED as error:
            raise self._translated(error) from error

    def row(self, sql: str, parameters: Sequence[Any] = ()) -> Row | None:
        try:
            found: Row | None = self._ask(sql, parameters).fetchone()
        except _REFUSED as error:
            raise self._translated(error) from error
        return found

    def value(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """The first column of the first row, or None."""
        found = self.row(sql, parameters)
        return None if found is None else found[0]

    def insert(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Run an INSERT and return the new row's id."""
        return int(self.execute(sql, parameters).lastrowid or 0)

    def stream(
        self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()
    ) -> Generator[Row, None, None]:
        """The rows as they are found, not all at once."""
        try:
            with closing(self._ask(sql, parameters)) as cursor:
                yield from cursor
        except _REFUSED as error:
            raise self._translated(error) from error

    @contextmanager
    def functions(self, functions: Functions, aggregates: Aggregates) -> Iterator[None]:
        """SQL may call these meanwhile; what one raises comes out of the statement."""
        self._calls.register(self._connection, functions, aggregates)
        if self._deadline:
            self._watch()
        try:
            yield
        finally:
            self._watch()

    def forget_functions(self, names: Iterable[str]) -> None:
        self._calls.forget(self._connection, names)

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """A transaction that holds the write lock from its start; inner ones are savepoints."""
        with self._turn:
            yield from self._atomic()

    def _atomic(self) -> Iterator[None]:
        name = f"level{self._depth}"
        self.execute(f"SAVEPOINT {name}" if self._depth else "BEGIN IMMEDIATE")
        outer = self._depth == 0
        self._depth += 1
        before = len(self._afterwards)
        try:
            yield
        except BaseException:
            self._depth -= 1
            del self._afterwards[before:]
            # An I/O error may have ended the transaction already.
            if self._connection.in_transaction:
                if outer:
                    self._connection.execute("ROLLBACK")
                else:
                    self._connection.execute(f"ROLLBACK TO {name}")
                    self._connection.execute(f"RELEASE {name}")
            raise
        self._depth -= 1
        try:
            self.execute("COMMIT" if outer else f"RELEASE {name}")
        except BaseException as error:
            del self._afterwards[before:]
            if outer and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            if outer and isinstance(error, StorageError):
                # The log may hold it whole though it could not be synced; then the next one to
                # open the catalogue finds it there.
                error.hint = "free space or check the disk; whether it was done, dlv log shows"
            raise
        if outer:
            afterwards, self._afterwards = self._afterwards, []
            for call in afterwards:
                call()

    def afterwards(self, call: Callable[[], None]) -> None:
        """Do this when the transaction has committed, and never if it does not."""
        self._afterwards.append(call)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Several reads of one and the same moment."""
        with self._turn:
            if self._depth or self._connection.in_transaction:
                yield
                return
            self.execute("BEGIN")
            try:
                yield
            finally:
                self._connection.rollback()


def is_outdated(path: Path) -> bool:
    """Whether a catalogue that may be written has the schema of an older dlv."""
    try:
        with path.open("rb") as file:
            schema = int.from_bytes(file.read(_SCHEMA_AT.stop)[_SCHEMA_AT], "big")
    except OSError:
        return False
    return 0 < schema < SCHEMA_VERSION and not is_read_only(path)


def is_busy(error: Exception) -> bool:
    """Whether others are in the way of a statement that may be run again."""
    name = _name(error)
    return name.startswith("SQLITE_BUSY") and name != "SQLITE_BUSY_SNAPSHOT"


def translate(error: sqlite3.Error, path: Path) -> Exception:
    """What SQLite says, as an error with an exit code; a fault of our own SQL stays as it is."""
    name = _name(error)
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return Conflict(
            "the database is busy",
            why=f"another dlv has written to {path} in the meantime",
            hint="repeat the command",
        )
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return _damaged(path, error)
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN")):
        found = None if os.access(path, os.R_OK) or not path.exists() else denied(path)
        why, hint = found or (str(error), "check free space and permissions; nothing changed")
        return StorageError(f"cannot use the database {path}", why=why, hint=hint)
    if any(sign in str(error) for sign in _DAMAGE):
        return _damaged(path, error)
    return error


def _name(error: Exception) -> str:
    return getattr(error, "sqlite_errorname", None) or ""


def _unread(path: Path) -> StorageError | None:
    """What is wrong if the disk is at fault, not the content: to SQLite it is the same."""
    try:
        with path.open("rb") as file:
            while file.read(1 << 20):
                pass
    except FileNotFoundError:
        return None
    except OSError as error:
        return StorageError(
            f"cannot read the database {path}", why=error.strerror, hint="check the disk"
        )
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as again:
            whole = again.execute("PRAGMA integrity_check(1)").fetchone() == ("ok",)
    except _REFUSED:
        return None
    if not whole:
        return None
    return StorageError(
        f"cannot read the database {path}",
        why="part of it could not be read",
        hint="repeat the command, and check the disk if it happens again",
    )


def _damaged(path: Path, error: Exception) -> Damaged:
    return Damaged(f"the database {path} is corrupt", why=str(error), hint="dlv fsck --rebuild")
