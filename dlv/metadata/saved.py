"""Saved queries in the catalogue."""

from __future__ import annotations

from dataclasses import dataclass

from dlv.metadata.database import Database


@dataclass(frozen=True)
class SavedQuery:
    name: str
    text: str
    created: str


def listing(db: Database) -> list[SavedQuery]:
    """In the order of the alphabet."""
    return [
        SavedQuery(*row)
        for row in db.rows("SELECT name, text, created FROM saved_query ORDER BY name")
    ]


def by_name(db: Database, name: str) -> SavedQuery | None:
    if not all(map(str.isprintable, name)):  # nor may SQLite get bytes that are no UTF-8
        return None
    row = db.row("SELECT name, text, created FROM saved_query WHERE name = ?", (name,))
    return None if row is None else SavedQuery(*row)
