"""The statements that make each database, and how NaN is stored in it.

SQLite turns NaN into null, so NaN is kept as an empty blob. A blob sorts behind every number:
`<` and `<=` of SQLite are right where it is on the left, and wrong where it is on the right.
"""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from dlv.canonical import VERSION

_END = re.compile(r";[ \t]*(?:--[^\n]*)?$", re.MULTILINE)  # of a statement
_CREATED = re.compile(r"^CREATE (?:UNIQUE )?(TABLE|INDEX) (\w+)", re.MULTILINE)


class Rows(Protocol):
    """Anything that runs a query."""

    def rows(self, sql: str) -> list[tuple[Any, ...]]: ...


def statements(name: str = "schema.sql") -> Iterator[str]:
    """The statements of a file beside this one."""
    text = Path(__file__).with_name(name).read_text("utf-8")
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


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
    present = {row[0] for row in database.rows("SELECT name FROM sqlite_schema")}
    return [wanted for wanted in _wanted(name) if wanted not in present]


def _wanted(name: str) -> dict[str, tuple[str, str]]:
    """Name of an object of a schema -> (kind, text) as SQLite keeps them."""
    texts = _END.split(Path(__file__).with_name(name).read_text("utf-8"))
    heads = [(text, _CREATED.search(text)) for text in texts]
    return {
        head[2]: (head[1].lower(), text[head.start() :]) for text, head in heads if head is not None
    }


def number_of(version: str = VERSION) -> int:
    """A version of dlv as SQLite's `application_id` holds it: 1002003 is 1.2.3."""
    major, minor, patch = (int(part) for part in version.split(".")[:3])
    return major * 1_000_000 + minor * 1_000 + patch


def version_of(number: int) -> str:
    """What `number_of` made a number of."""
    return f"{number // 1_000_000}.{number // 1_000 % 1_000}.{number % 1_000}"


BLOB = b""
NAN = "x''"  # as SQL


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def stored_number(value: float | None) -> float | bytes | None:
    """As SQLite gets it."""
    return BLOB if value is not None and math.isnan(value) else value


def known_number(value: Any) -> Any:
    """The inverse of `stored`; anything else stays as it is."""
    return math.nan if value == BLOB else value
