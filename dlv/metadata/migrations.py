"""Catalogues that an older dlv made become what the schema says now."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from dlv.canonical import VERSION
from dlv.errors import Damaged
from dlv.metadata.functions import Aggregates, Functions
from dlv.metadata.nan import NAN, stored

OBJECTS = "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL"

# What a column of today is, in a row that schema 3 or one before it wrote.
_COLUMNS = {
    ("node", "out_shape"): "(SELECT id FROM shape WHERE text = out_shape)",
    ("parent", "base_hash"): "CASE WHEN base IS NULL THEN base_hash END",
    ("metric", "series_hash"): "bytes_of(series_hash)",
}
# Tables that it did not have.
_TABLES = {
    "shape": "INSERT INTO shape(text) SELECT DISTINCT out_shape FROM former_node"
    " WHERE out_shape IS NOT NULL",
    "layer_pair": "INSERT INTO layer_pair SELECT src_layer, dst_layer, count(*) FROM former_edge"
    " GROUP BY src_layer, dst_layer",
}


class Figures(Protocol):
    """The fields of a `Summary` that a migration reads again."""

    @property
    def last(self) -> float | None: ...
    @property
    def min(self) -> float | None: ...
    @property
    def min_step(self) -> int | None: ...
    @property
    def max(self) -> float | None: ...
    @property
    def max_step(self) -> int | None: ...


class Rows(Protocol):
    """Anything that runs a query."""

    def rows(self, sql: str) -> list[tuple[Any, ...]]: ...


class Catalogue(Rows, Protocol):
    """What is asked of a `Database`."""

    def execute(self, sql: str) -> object: ...

    def functions(
        self, functions: Functions, aggregates: Aggregates
    ) -> AbstractContextManager[None]: ...

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None: ...

    def figures(self, series: str) -> Figures | None: ...

    def forget_functions(self, names: Iterable[str]) -> None: ...


def statements(name: str = "schema.sql") -> Iterator[str]:
    """The statements of a file beside this one."""
    text = Path(__file__).with_name(name).read_text("utf-8")
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


_END = re.compile(r";[ \t]*(?:--[^\n]*)?$", re.MULTILINE)  # of a statement
_CREATED = re.compile(r"^CREATE (?:UNIQUE )?(TABLE|INDEX) (\w+)", re.MULTILINE)


def foreign(database: Rows, name: str = "schema.sql") -> list[str]:
    """What is in a database, and not in that file as it stands there; something may be missing.

    Triggers, views, virtual tables and computed columns run with every statement that touches
    them: who planted one could empty a table while a command says that all is well.
    """
    wanted = _wanted(name)
    # Indexes without a text are those of a UNIQUE or a PRIMARY KEY.
    return [
        f"{kind} {name}"
        for name, kind, sql in database.rows("SELECT name, type, sql FROM sqlite_schema")
        if wanted.get(name) != (kind, sql)
        and not (kind == "index" and sql is None and str(name).startswith("sqlite_autoindex_"))
    ]


def missing(database: Rows, name: str) -> list[str]:
    """What should be there and is not."""
    found = {row[0] for row in database.rows("SELECT name FROM sqlite_schema")}
    return [each for each in _wanted(name) if each not in found]


def _wanted(name: str) -> dict[str, tuple[str, str]]:
    """Name of an object of a schema -> (kind, text) as SQLite keeps them."""
    texts = _END.split(Path(__file__).with_name(name).read_text("utf-8"))
    heads = [(text, _CREATED.search(text)) for text in texts]
    return {
        head[2]: (head[1].lower(), text[head.start() :]) for text, head in heads if head is not None
    }


def acting(database: Rows) -> list[str]:
    """Triggers and views, which no schema of dlv ever had."""
    return [
        f"{kind} {name}"
        for kind, name in database.rows(
            "SELECT type, name FROM sqlite_schema"
            " WHERE type NOT IN ('table', 'index') ORDER BY name"
        )
    ]


def _create(database: Catalogue) -> None:
    for statement in statements():
        database.execute(statement)


def _remake(database: Catalogue) -> None:
    """Make tables that are not those of the schema as it has them, with all that they hold.

    What a row lacks is NULL or the default. ALTER TABLE alone would leave a text of the schema
    that is not that of a fresh catalogue.
    """
    plain = sqlite3.connect(":memory:")
    try:
        plain.executescript("".join(statements()))
        wanted = plain.execute(OBJECTS).fetchall()
    finally:
        plain.close()
    found = {name: sql for _, name, _, sql in database.rows(OBJECTS)}
    other = {name for _, name, _, sql in wanted if found.get(name) != sql}
    tables = [(name, sql) for kind, name, _, sql in wanted if kind == "table" and name in other]
    former = [name for name, _ in tables if name in found]
    database.execute("PRAGMA legacy_alter_table = ON")  # what refers to a table still does
    kept = {name for _, name, _, _ in wanted} - other
    for kind, name, table, _ in database.rows(OBJECTS):
        if kind == "index" and (table in former or name not in kept):
            database.execute(f"DROP INDEX {name}")
    for name in former:
        database.execute(f"ALTER TABLE {name} RENAME TO former_{name}")
    for _, sql in tables:
        database.execute(sql)
    with database.functions({"bytes_of": _bytes_of}, {}):
        for name, _ in tables:
            if name in former:
                _take_over(database, name)
            elif name in _TABLES:
                database.execute(_TABLES[name])
    for name in former:
        database.execute(f"DROP TABLE former_{name}")
    database.forget_functions(["bytes_of"])
    for kind, name, table, sql in wanted:
        if kind == "index" and (table in former or name in other):
            database.execute(sql)
    database.execute("PRAGMA legacy_alter_table = OFF")


def _bytes_of(digest: str) -> bytes:
    try:
        return bytes.fromhex(digest)
    except (TypeError, ValueError):
        raise Damaged(
            "the catalogue is damaged",
            why=f"{digest!r} cannot be a hash",
            hint="dlv fsck --rebuild",
        ) from None


def _take_over(database: Catalogue, name: str) -> None:
    now, before = (
        [row[1] for row in database.rows(f"PRAGMA table_info({table})")]
        for table in (name, f"former_{name}")
    )
    columns = [column for column in now if column in before]
    values = [_COLUMNS.get((name, column), column) for column in columns]
    database.execute(
        f"INSERT INTO {name}({', '.join(columns)}) SELECT {', '.join(values)} FROM former_{name}"
    )


def _measure(database: Catalogue) -> None:
    """Replace nulls that stood for NaN and infinities by the values, or NaN if unreadable."""
    for column in ("last", "min", "max"):
        database.execute(f"UPDATE metric SET {column} = {NAN} WHERE {column} IS NULL AND n > 0")
    odd = "SELECT DISTINCT lower(hex(series_hash)) FROM metric WHERE nonfinite > 0"
    found = [(name, database.figures(name)) for (name,) in database.rows(odd)]
    database.many(
        "UPDATE metric SET last = ?, min = ?, min_step = ?, max = ?, max_step = ?"
        " WHERE series_hash = ?",
        [
            (
                *(stored(f.last), stored(f.min), f.min_step, stored(f.max), f.max_step),
                bytes.fromhex(name),
            )
            for name, f in found
            if f is not None
        ],
    )


def _with_the_last(database: Catalogue) -> None:
    """A later step makes of every older schema what there is now."""


def number_of(version: str = VERSION) -> int:
    """A version of dlv as SQLite's `application_id` holds it: 1002003 is 1.2.3."""
    major, minor, patch = (int(part) for part in version.split(".")[:3])
    return major * 1_000_000 + minor * 1_000 + patch


def version_of(number: int) -> str:
    """What `number_of` made a number of."""
    return f"{number // 1_000_000}.{number // 1_000 % 1_000}.{number % 1_000}"


# Step n brings a catalogue from user_version n to n + 1; all run in the transaction that says so.
# 1 -> 2: the schemes of lossy versions, column `scheme` of `version`; 2 -> 3: bounds records;
# 3 -> 4: shapes, pairs of layers and hashes take less room; 4 -> 5: NaN and infinities as values.
STEPS: Sequence[Callable[[Catalogue], None]] = (
    *(_create, _with_the_last, _with_the_last),
    _remake,
    _measure,
)
