"""Repositories that earlier releases wrote, see tests/fixtures/released/make.py."""

from __future__ import annotations

import json
import sqlite3
import tarfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "fixtures" / "released"
RELEASES = sorted(path.name.removesuffix(".tar.xz") for path in FOLDER.glob("*.tar.xz"))
NEWEST = RELEASES[-1]


@dataclass(frozen=True)
class Released:
    """A project's folder as the release left it, and what was put in."""

    root: Path
    expected: dict[str, Any]

    @property
    def database(self) -> Path:
        return self.root / ".dlv" / "dlv.db"


def unpack(name: str, folder: Path) -> Released:
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    expected = json.loads((folder / "expected.json").read_text())
    return Released(folder / "work", expected)


def schema(database: Path) -> int:
    with closing(sqlite3.connect(database)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


def rows(database: Path) -> dict[str, list[Any]]:
    """All that is in a catalogue, of whatever schema, read without dlv."""
    with closing(sqlite3.connect(database)) as db:
        found = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
        names = [name for (name,) in found.fetchall() if not name.startswith("sqlite_")]
        return {name: sorted(db.execute(f"SELECT * FROM {name}"), key=repr) for name in names}
