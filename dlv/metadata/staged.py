"""What `add` recorded, and files as they were last seen; known to this database alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from dlv.dataclass import dataclass
from dlv.metadata.database import Database


@dataclass(frozen=True)
class StagedFile:
    """A file as it was when it was added. Role "removed": it is to leave the version."""

    path: str
    source: str
    role: str
    format: str
    step: int | None = None
    bytes: int = 0
    mtime_ns: int = 0
    hash: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def looks(self) -> dict[str, tuple[int, int]]:
        """Size and time, when it was added, of the file and of those that its weights lie in."""
        beside = self.options.get("beside") or {}
        return {
            self.source: (self.bytes, self.mtime_ns),
            **{path: (size, time) for path, (size, time) in beside.items()},
        }


_COLUMNS = "path, source, role, format, step, bytes, mtime_ns, hash, options"


def as_json(files: Sequence[StagedFile]) -> str:
    """As the operation log keeps them; `from_json` reads it."""
    return json.dumps([vars(file) for file in files], sort_keys=True)


def from_json(text: str) -> list[StagedFile]:
    return [StagedFile(**values) for values in json.loads(text)]


def insert_staged(db: Database, files: Sequence[StagedFile]) -> None:
    db.many(
        f"INSERT OR REPLACE INTO staged({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?)",
        [
            (
                *(f.path, f.source, f.role, f.format, f.step, f.bytes, f.mtime_ns, f.hash),
                json.dumps(f.options, sort_keys=True),
            )
            for f in files
        ],
    )


def everything(db: Database) -> list[StagedFile]:
    """In the order of paths."""
    return [
        StagedFile(path, source, role, format_, step, size, mtime_ns, digest, json.loads(options))
        for path, source, role, format_, step, size, mtime_ns, digest, options in db.rows(
            f"SELECT {_COLUMNS} FROM staged ORDER BY path"
        )
    ]


def drop(db: Database, paths: Sequence[str]) -> None:
    db.many("DELETE FROM staged WHERE path = ?", [(path,) for path in paths])


def remove_staged(db: Database, files: Sequence[StagedFile]) -> None:
    """Drop these, but not what was added again meanwhile."""
    db.many(
        "DELETE FROM staged WHERE path = ? AND hash = ?", [(file.path, file.hash) for file in files]
    )


def clear(db: Database) -> None:
    db.execute("DELETE FROM staged")


def see(db: Database, files: Sequence[tuple[str, int, int, str]]) -> None:
    """Remember (path, bytes, mtime_ns, hash) of working files."""
    db.many("INSERT OR REPLACE INTO seen(path, bytes, mtime_ns, hash) VALUES (?,?,?,?)", files)


def seen(db: Database) -> dict[str, tuple[int, int, str]]:
    return {row[0]: (row[1], row[2], row[3]) for row in db.rows("SELECT * FROM seen")}
