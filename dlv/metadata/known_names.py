"""Which names queries may use: of hyperparameters, series, layers and saved queries.

Each question is answered by an index in good cases; lists are read only to say what was meant.
"""

from __future__ import annotations

import json
from functools import cached_property

from dlv.dataclass import dataclass
from dlv.metadata.database import Database


@dataclass(frozen=True)
class SavedQuery:
    name: str
    text: str
    created: str


def saved_queries(db: Database) -> list[SavedQuery]:
    """In the order of the alphabet."""
    return [
        SavedQuery(*row)
        for row in db.rows("SELECT name, text, created FROM saved_query ORDER BY name")
    ]


def saved_query(db: Database, name: str) -> SavedQuery | None:
    if not all(map(str.isprintable, name)):  # nor may SQLite get bytes that are no UTF-8
        return None
    row = db.row("SELECT name, text, created FROM saved_query WHERE name = ?", (name,))
    return None if row is None else SavedQuery(*row)


# What a stored type counts as in a query.
KINDS = {
    "int": "number",
    "float": "number",
    "bool": "boolean",
    "str": "text",
    "json": "list",
    "null": "null",
}
_MOST = 20_000  # names that are read to find those that were meant


class KnownNames:
    """The names of one catalogue."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def has_hyperparameter(self, key: str) -> bool:
        return self._some("hyperparameter WHERE key = ?", key)

    def has_kind(self, key: str, kind: str) -> bool:
        """Whether some version has a hyperparameter of that kind under this key."""
        types = [stored for stored, counted in KINDS.items() if counted == kind]
        marks = ", ".join("?" * len(types))
        return self._some(f"hyperparameter WHERE key = ? AND type IN ({marks})", key, *types)

    def kinds(self, key: str) -> list[str]:
        """All kinds of the values under a key, which takes a look at each of them."""
        rows = self.database.rows("SELECT DISTINCT type FROM hyperparameter WHERE key = ?", (key,))
        return sorted({KINDS.get(row[0], "list") for row in rows})

    @cached_property
    def hyperparameters(self) -> list[str]:
        """The keys, each found from the one before it."""
        found: list[str] = []
        key = self.database.value("SELECT min(key) FROM hyperparameter")
        while key is not None and len(found) < _MOST:
            found.append(key)
            key = self.database.value("SELECT min(key) FROM hyperparameter WHERE key > ?", (key,))
        return found

    def has_series(self, name: str) -> bool:
        """Whether there is a series, or a figure of an evaluation, of that name."""
        splits = [("", name)]
        splits += [(name[:at], name[at + 1 :]) for at, sign in enumerate(name) if sign == "/"]
        return (
            any(self._some("metric WHERE tag = ? AND run = ?", tag, run) for run, tag in splits)
            or name in self._evaluated
        )

    @cached_property
    def series(self) -> list[str]:
        rows = self.database.rows("SELECT DISTINCT run, tag FROM metric LIMIT ?", (_MOST,))
        return sorted({f"{run}/{tag}" if run else tag for run, tag in rows} | self._evaluated)

    @cached_property
    def _evaluated(self) -> set[str]:
        rows = self.database.rows("SELECT data FROM fact WHERE kind = 'evaluation'")
        return {name for row in rows for name in json.loads(row[0]).get("metrics", ())}

    def has_layer(self, name: str) -> bool:
        """Whether a layer of some network has that name or alias."""
        return self._some("layer WHERE name = ?", name) or self._some("layer WHERE alias = ?", name)

    @cached_property
    def layers(self) -> list[str]:
        rows = self.database.rows(
            "SELECT name FROM layer UNION SELECT alias FROM layer WHERE alias <> '' LIMIT ?",
            (_MOST,),
        )
        return [row[0] for row in rows]

    def saved(self, name: str) -> str | None:
        """The text of a saved query."""
        found = saved_query(self.database, name)
        return None if found is None else found.text

    def saved_names(self) -> list[str]:
        return [query.name for query in saved_queries(self.database)]

    def _some(self, condition: str, *values: str) -> bool:
        return self.database.row(f"SELECT 1 FROM {condition} LIMIT 1", values) is not None
