"""The file of curves, `live.db`: opened like the catalogue, made anew where it is no good."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from dlv.errors import Damaged, NewerFormat, StorageError
from dlv.locks import Patience
from dlv.metadata.database import Database
from dlv.metadata.migrations import statements

SCHEMA_VERSION = 2
PAGE = 16384  # a chunk of points takes a few pages, not dozens

_OBJECTS = "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name, type"


def open_curves(path: Path, *, wal: bool = True, patience: Patience | None = None) -> CurveDatabase:
    """The curves in `path`; what cannot be used is thrown away, as logs and packs have it all."""
    with contextlib.suppress(Damaged, NewerFormat):
        return CurveDatabase(path, wal=wal, patience=patience)
    for file in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal"))):
        file.unlink(missing_ok=True)
    return CurveDatabase(path, wal=wal, patience=patience)


class CurveDatabase(Database):
    """A machine that crashes may cost its last moments: they are read again."""

    def __init__(self, path: Path, *, wal: bool = True, patience: Patience | None = None) -> None:
        super().__init__(path, wal=wal, patience=patience)
        self.execute("PRAGMA synchronous = NORMAL")

    def _connect(self, *options: str) -> sqlite3.Connection:
        made = super()._connect(*options)
        made.execute(f"PRAGMA page_size = {PAGE}")  # of a file that is not there yet
        return made

    @property
    def _busy(self) -> str:
        return "the file of curves is busy"

    def _migrate(self, create: bool) -> None:
        found = self.value("PRAGMA user_version")
        if not found and create and not self.read_only:
            with self.atomic():
                if not self.value("PRAGMA user_version"):
                    for statement in statements("curves.sql"):
                        self.execute(statement)
                    self.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            found = SCHEMA_VERSION
        if found != SCHEMA_VERSION or not self.as_made():
            raise Damaged(f"{self.path} does not hold curves as this dlv keeps them")

    def as_made(self) -> bool:
        plain = sqlite3.connect(":memory:")
        try:
            plain.executescript("".join(statements("curves.sql")))
            return self.rows(_OBJECTS) == plain.execute(_OBJECTS).fetchall()
        except Damaged:
            return False
        finally:
            plain.close()

    def _translated(self, error: sqlite3.Error | UnicodeDecodeError) -> BaseException:
        found = super()._translated(error)
        if isinstance(found, Damaged):
            found.message = f"{self.path} is damaged"
            found.hint = "remove it and repeat the command: it is made again"
        elif isinstance(found, StorageError):
            found.message = f"cannot use the curves in {self.path}"
        return found
