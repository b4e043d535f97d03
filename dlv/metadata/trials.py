"""The store of the ledger of trials: rows in and out of `.dlv/trials.db`, and nothing decided."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dlv.disk.locks import Patience, Wait
from dlv.errors import Conflict, Damaged, NewerFormat, StorageError
from dlv.metadata import schemas
from dlv.metadata.database import connect, give_up_connection, is_busy, is_read_only

SCHEMA_VERSION = 1

Row = dict[str, Any]

# What SQLite says of a damaged file as if the statement had been wrong.
_DAMAGE = ("malformed", "no such", "unsupported file format", "Could not decode to UTF-8")

_MEMBER = (
    "t.id AS trial, t.network, t.config, t.seed, t.log_every, t.state, t.step, t.attempts,"
    " t.token, t.owner, t.lease, t.seconds, t.error, t.unlike,"
    " m.ordinal, m.label, m.varied, m.steps, m.target, m.stopped"
)


class Trials:
    """One connection. SQLite's WAL, and no sync for each commit: a power cut costs a log row."""

    def __init__(self, path: Path, *, patience: Patience | None = None) -> None:
        self.path = path
        self._patience = Patience() if patience is None else patience
        try:
            self._connection = connect(path, 0)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise _translated(error, path) from error
        try:
            self._connection.row_factory = _as_dict
            self._open()
        except BaseException as error:
            give_up_connection(self._connection, error)
            raise

    def _open(self) -> None:
        if not is_read_only(self.path):
            self._do("PRAGMA journal_mode = WAL")
        self._do("PRAGMA synchronous = NORMAL")
        self._do("PRAGMA trusted_schema = OFF")
        version = self._number("PRAGMA user_version")
        if not version:
            with self.atomic():
                if not self._number("PRAGMA user_version"):  # nobody was faster
                    for statement in schemas.statements("trials.sql"):
                        self._do(statement)
                    self._do(f"PRAGMA user_version = {SCHEMA_VERSION}")
        elif version != SCHEMA_VERSION:
            raise NewerFormat(
                f"the ledger of trials {self.path} was written by a newer dlv",
                why=f"its schema is number {version}, this dlv knows {SCHEMA_VERSION}",
                hint="pip install --upgrade dlv",
            )
        if foreign := schemas.foreign(self, "trials.sql"):
            raise Damaged(
                f"the ledger of trials {self.path} is not as dlv made it",
                why=f"this in its schema is foreign: {', '.join(foreign[:5])}",
                hint="dlv fsck --repair sets it aside, and trials begin again",
            )

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """As `schemas` wants them."""
        return [tuple(row.values()) for row in self._rows(sql)]

    def copy(self, path: Path) -> None:
        """Write all of it, as it is at this moment, into a new file."""
        self._do("VACUUM INTO ?", (str(path),))

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Trials:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """A transaction that holds the write lock from its start."""
        self._do("BEGIN IMMEDIATE")
        try:
            yield
            self._do("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Several reads of one and the same moment."""
        self._do("BEGIN")
        try:
            yield
        finally:
            self._connection.rollback()

    def _do(self, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Run a statement, after those that are in its way."""
        wait: Wait | None = None
        while True:
            try:
                return self._connection.execute(sql, parameters)
            except (sqlite3.Error, UnicodeDecodeError) as error:
                if not is_busy(error):
                    raise _translated(error, self.path) from error
                wait = self._patience.for_database(self.path) if wait is None else wait
                if not wait.again():
                    raise wait.conflict("the ledger of trials is busy") from error

    def _rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        try:
            return self._do(sql, parameters).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise _translated(error, self.path) from error

    def _row(self, sql: str, parameters: Sequence[Any] = ()) -> Row | None:
        found = self._rows(sql, parameters)
        return found[0] if found else None

    def _number(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        found = self._rows(sql, parameters)
        return int(next(iter(found[0].values())) or 0) if found else 0

    def _insert(self, table: str, row: Mapping[str, Any], how: str = "INSERT") -> int:
        places = ", ".join("?" * len(row))
        sql = f"{how} INTO {table}({', '.join(row)}) VALUES ({places})"
        return self._do(sql, list(row.values())).rowcount

    def _update(
        self, table: str, changes: Mapping[str, Any], where: str, parameters: Sequence[Any]
    ) -> int:
        sets = ", ".join(f"{name} = ?" for name in changes)
        sql = f"UPDATE {table} SET {sets} WHERE {where}"
        return self._do(sql, [*changes.values(), *parameters]).rowcount

    # Runs

    def runs(self, state: str | None = None) -> list[Row]:
        """In the order in which they were made."""
        if state is None:
            return self._rows("SELECT * FROM run ORDER BY seq")
        return self._rows("SELECT * FROM run WHERE state = ? ORDER BY seq", (state,))

    def run(self, run: str) -> Row | None:
        return self._row("SELECT * FROM run WHERE id = ?", (run,))

    def add_run(self, row: Mapping[str, Any]) -> None:
        self._insert("run", row)

    def change_run(self, run: str, changes: Mapping[str, Any]) -> None:
        self._update("run", changes, "id = ?", (run,))

    def drop_run(self, run: str) -> list[str]:
        """Forget it and the trials that no other run has: their ids."""
        alone = [
            row["trial_id"]
            for row in self._rows(
                "SELECT trial_id FROM run_trial AS m WHERE run_id = ? AND NOT EXISTS"
                " (SELECT 1 FROM run_trial WHERE trial_id = m.trial_id AND run_id <> m.run_id)"
                " ORDER BY ordinal",
                (run,),
            )
        ]
        self.drop_marks(run)
        self._do("DELETE FROM run_trial WHERE run_id = ?", (run,))
        self._do("DELETE FROM run WHERE id = ?", (run,))
        for trial in alone:
            self._do("DELETE FROM log WHERE trial_id = ?", (trial,))
            self._do("DELETE FROM trial WHERE id = ?", (trial,))
        return alone

    # Trials

    def trial(self, trial: str) -> Row | None:
        return self._row("SELECT * FROM trial WHERE id = ?", (trial,))

    def trials(self) -> list[str]:
        return [row["id"] for row in self._rows("SELECT id FROM trial ORDER BY id")]

    def needed(self) -> set[str]:
        """Those whose files some run may still ask for: not those that were stopped for good."""
        rows = self._rows(
            "SELECT DISTINCT t.id FROM run_trial AS m JOIN run AS r ON r.id = m.run_id"
            " JOIN trial AS t ON t.id = m.trial_id"
            " WHERE r.state <> 'over' OR NOT m.stopped OR t.state = 'running'"
        )
        return {row["id"] for row in rows}

    def add_trial(self, row: Mapping[str, Any]) -> None:
        """Nothing, if it is there."""
        self._insert("trial", row, "INSERT OR IGNORE")

    def change_trial(
        self, trial: str, changes: Mapping[str, Any], token: int | None = None
    ) -> bool:
        """With a token: only where the claim of that token still holds."""
        if token is None:
            return bool(self._update("trial", changes, "id = ?", (trial,)))
        where = "id = ? AND token = ? AND state = 'running'"
        return bool(self._update("trial", changes, where, (trial, token)))

    def held(self, trial: str, token: int) -> Row | None:
        """The trial, if the claim of that token still holds."""
        where = "id = ? AND token = ? AND state = 'running'"
        return self._row(f"SELECT * FROM trial WHERE {where}", (trial, token))

    def running(self) -> list[Row]:
        return self._rows("SELECT * FROM trial WHERE state = 'running' ORDER BY id")

    def next_token(self) -> int:
        self._do("UPDATE token SET last = last + 1")
        return self._number("SELECT last FROM token")

    # Trials of runs

    def add_member(self, row: Mapping[str, Any]) -> bool:
        """Whether it is new in that run."""
        return bool(self._insert("run_trial", row, "INSERT OR IGNORE"))

    def members(self, run: str) -> list[Row]:
        return self._rows(
            f"SELECT {_MEMBER} FROM run_trial AS m JOIN trial AS t ON t.id = m.trial_id"
            " WHERE m.run_id = ? ORDER BY m.ordinal, t.id",
            (run,),
        )

    def standings(self, run: str) -> list[Row]:
        """Of `members` what verdicts need."""
        return self._rows(
            "SELECT t.id AS trial, t.state, t.step, m.ordinal, m.steps, m.target, m.stopped"
            " FROM run_trial AS m JOIN trial AS t ON t.id = m.trial_id"
            " WHERE m.run_id = ? ORDER BY m.ordinal, t.id",
            (run,),
        )

    def change_member(self, run: str, trial: str, changes: Mapping[str, Any]) -> None:
        self._update("run_trial", changes, "run_id = ? AND trial_id = ?", (run, trial))

    def memberships(self, trial: str) -> list[Row]:
        """Every run that has the trial, with what it wants of it."""
        return self._rows(
            "SELECT r.*, m.ordinal, m.steps AS ends, m.target, m.stopped"
            " FROM run_trial AS m JOIN run AS r ON r.id = m.run_id"
            " WHERE m.trial_id = ? ORDER BY r.seq",
            (trial,),
        )

    def candidates(self, run: str, *, broad: bool) -> list[Row]:
        """The next that may be trained on, if there is one: begun ones first, then in their order.

        `broad`: nobody goes on as long as others have not come as far.
        """
        return self._rows(
            "SELECT t.id AS trial, t.step, t.attempts, t.log_every"
            " FROM run_trial AS m JOIN trial AS t ON t.id = m.trial_id"
            " WHERE m.run_id = ? AND NOT m.stopped AND t.state = 'ready' AND t.step < m.target"
            f" ORDER BY {'m.target, ' if broad else ''}t.step DESC, m.ordinal LIMIT 1",
            (run,),
        )

    # Marks

    def marks(self, run: str, trial: str | None = None) -> list[Row]:
        sql, parameters = "SELECT * FROM mark WHERE run_id = ?", [run]
        if trial is not None:
            sql, parameters = f"{sql} AND trial_id = ?", [run, trial]
        return [
            _valued(row) for row in self._rows(f"{sql} ORDER BY trial_id, step, rule", parameters)
        ]

    def add_marks(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            self._insert("mark", {**row, **_stored(row["value"])}, "INSERT OR IGNORE")

    def drop_marks(self, run: str, *, closing: bool = False) -> None:
        """All, or only those that were given when the run ended before its time."""
        self._do(f"DELETE FROM mark WHERE run_id = ?{' AND closing' if closing else ''}", (run,))

    # Logs

    def add_log(self, trial: str, step: int, metric: str, value: float, wall: float) -> float:
        """The value that stands there now: an earlier one stays."""
        row = {"trial_id": trial, "metric": metric, "step": step, "wall": wall, **_stored(value)}
        if self._insert("log", row, "INSERT OR IGNORE"):
            return value
        found = self._row(
            "SELECT value, finite FROM log WHERE trial_id = ? AND metric = ? AND step = ?",
            (trial, metric, step),
        )
        return value if found is None else float(_valued(found)["value"])

    def last_value(self, trial: str, metric: str, step: int) -> float | None:
        """The last logged at or before that step."""
        found = self._row(
            "SELECT value, finite FROM log WHERE trial_id = ? AND metric = ? AND step <= ?"
            " ORDER BY step DESC LIMIT 1",
            (trial, metric, step),
        )
        return None if found is None else float(_valued(found)["value"])

    def history(self, trial: str, metric: str) -> list[tuple[int, float]]:
        rows = self._rows(
            "SELECT step, value, finite FROM log WHERE trial_id = ? AND metric = ? ORDER BY step",
            (trial, metric),
        )
        return [(row["step"], _valued(row)["value"]) for row in rows]

    def values_at(self, run: str, metric: str, step: int) -> dict[str, float]:
        """What each trial of the run that came so far had last logged there."""
        rows = self._rows(
            "SELECT t.id AS trial, l.value, l.finite FROM run_trial AS m"
            " JOIN trial AS t ON t.id = m.trial_id"
            " JOIN log AS l ON l.trial_id = t.id AND l.metric = ?2 AND l.step ="
            " (SELECT max(step) FROM log WHERE trial_id = t.id AND metric = ?2 AND step <= ?3)"
            " WHERE m.run_id = ?1 AND t.step >= ?3",
            (run, metric, step),
        )
        return {row["trial"]: _valued(row)["value"] for row in rows}

    def logs(self, trial: str) -> list[tuple[str, int, float, float]]:
        """(metric, step, value, seconds) of everything that it logged."""
        rows = self._rows("SELECT * FROM log WHERE trial_id = ? ORDER BY metric, step", (trial,))
        return [(r["metric"], r["step"], _valued(r)["value"], r["wall"]) for r in rows]

    def metrics(self, trial: str) -> list[str]:
        sql = "SELECT DISTINCT metric FROM log WHERE trial_id = ? ORDER BY metric"
        return [row["metric"] for row in self._rows(sql, (trial,))]

    def drop_logs(self, trial: str) -> None:
        self._do("DELETE FROM log WHERE trial_id = ?", (trial,))


def _as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> Row:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


def _stored(value: float | None) -> Row:
    # To SQLite a NaN is NULL.
    return {"value": value, "finite": value is None or math.isfinite(value)}


def _valued(row: Row) -> Row:
    """A NULL that stands for a NaN as one; marks without a value say that they are finite."""
    if row["value"] is None and not row["finite"]:
        row["value"] = math.nan
    return row


def _translated(error: sqlite3.Error | UnicodeDecodeError, path: Path) -> Exception:
    name = getattr(error, "sqlite_errorname", None) or ""
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return Conflict(
            "the ledger of trials is busy",
            why=f"another process has written to {path} in the meantime",
            hint="repeat the command",
        )
    unread = isinstance(error, UnicodeDecodeError) or any(sign in str(error) for sign in _DAMAGE)
    if unread or name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return Damaged(
            f"the ledger of trials {path} is corrupt",
            why=str(error),
            hint="dlv fsck --repair sets it aside; committed versions are not in it",
        )
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN")):
        return StorageError(
            f"cannot use the ledger of trials {path}",
            why=str(error),
            hint="check free space and permissions",
        )
    return error
