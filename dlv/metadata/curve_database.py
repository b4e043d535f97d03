"""The file of curves, `live.db`: opened like the catalogue, made anew where it is no good."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from dlv.disk.locks import Patience
from dlv.errors import Damaged, NewerFormat, StorageError
from dlv.metadata import schemas
from dlv.metadata.database import Database

SCHEMA_VERSION = 2
PAGE = 16384  # a chunk of points takes a few pages, not dozens


def open_curves(path: Path, *, wal: bool = True, patience: Patience | None = None) -> CurveDatabase:
    """The curves in `path`; what cannot be used is thrown away, as logs and packs have it all."""
    with contextlib.suppress(Damaged, NewerFormat):
        return CurveDatabase(path, wal=wal, patience=patience)
    for end in ("", "-wal", "-shm", "-journal"):
        try:
            path.with_name(path.name + end).unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(
                f"the curves in {path} cannot be read, nor made again",
                why=error.strerror,
                hint="run the command once as a user who may write there",
            ) from error
    return CurveDatabase(path, wal=wal, patience=patience)


class CurveDatabase(Database):
    """A machine that crashes may cost its last moments: they are read again."""

    def __init__(self, path: Path, *, wal: bool = True, patience: Patience | None = None) -> None:
        super().__init__(path, wal=wal, patience=patience)
        self.execute("PRAGMA synchronous = NORMAL")

    def _connect(self) -> sqlite3.Connection:
        made = super()._connect()
        made.execute(f"PRAGMA page_size = {PAGE}")  # of a file that is not there yet
        return made

    @property
    def _busy(self) -> str:
        return "the file of curves is busy"

    def _begin(self, create: bool) -> None:
        found = self.value("PRAGMA user_version")
        if not found and create and not self.read_only:
            with self.atomic():
                if not self.value("PRAGMA user_version"):
                    for statement in schemas.statements("curves.sql"):
                        self.execute(statement)
                    self.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            found = SCHEMA_VERSION
        if found != SCHEMA_VERSION or not self.as_made():
            raise Damaged(f"{self.path} does not hold curves as this dlv keeps them")

    def foreign(self) -> list[str]:
        return schemas.foreign(self, "curves.sql")

    def as_made(self) -> bool:
        try:
            return not self.foreign() and not schemas.missing(self, "curves.sql")
        except Damaged:
            return False

    def _translated(self, error: sqlite3.Error | UnicodeDecodeError) -> BaseException:
        found = super()._translated(error)
        if isinstance(found, Damaged):
            found.message = f"{self.path} is damaged"
            found.hint = "remove it and repeat the command: it is made again"
        elif isinstance(found, StorageError):
            found.message = f"cannot use the curves in {self.path}"
        return found
