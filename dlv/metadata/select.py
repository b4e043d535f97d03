"""Queries of the catalogue: trees turned into SQL, and rows out of it. See design/dql.md."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from dlv.metadata import relations as r
from dlv.metadata import select_conditions, select_queries
from dlv.metadata.database import Database
from dlv.metadata.rows import Column, Row, VersionCell
from dlv.metadata.select_functions import FUNCTIONS
from dlv.metadata.select_nodes import attribute
from dlv.metadata.select_scope import FALSE, TRUE, At, Statement
from dlv.metadata.select_values import kind_of, node_number
from dlv.metadata.versions import time_of

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **FUNCTIONS,
    "dql_attribute": attribute,
    "dql_number": node_number,
}


def statement(db: Database, at: At | None = None) -> Statement:
    return Statement(db, select_conditions.write, select_queries.column_of, at, _FUNCTIONS)


def run(
    db: Database, query: r.Query, *, at: At | None = None, plan: str | None = None
) -> tuple[list[Column], Iterator[Row]]:
    """Titles, and rows as they are read; the transaction lasts until they are, or are closed.

    `plan`: the one to take wherever it can be, to compare plans.
    """
    columns = titles(query.body)
    return columns, _rows(db, query, at, plan, [column.kind for column in columns])


def _rows(
    db: Database, query: r.Query, at: At | None, plan: str | None, kinds: list[str]
) -> Iterator[Row]:
    with db.snapshot():
        writing = statement(db, at)
        writing.forced = plan
        try:
            written = select_queries.top(writing, query)
            with writing.callable():
                for row in db.stream(written.sql, writing.parameters):
                    yield tuple(map(_shown, row, kinds))
        finally:
            writing.drop()


def _shown(value: Any, kind: str) -> Any:
    """A value of the output; booleans, lists and large numbers come as blobs."""
    if value is None:
        return None
    if kind == "version":
        digest, *derived = value.split(":")
        return VersionCell(digest, (int(derived[0]), int(derived[1])) if derived else None)
    if kind == "time":
        return time_of(value)
    if kind == "list":
        return json.loads(value)
    if isinstance(value, bytes):
        if value in (TRUE, FALSE):
            return value == TRUE
        return int(value[1:]) if value[:1] == b"i" else json.loads(value[1:])
    return value


def titles(body: r.Body) -> list[Column]:
    """The columns of what a query gives; those of a set operation are called as its first are."""
    match body:
        case r.Query():
            return titles(body.body)
        case r.Combined():
            sides = zip(titles(body.left), titles(body.right), strict=True)
            return [
                Column(left.title, left.kind if left.kind == right.kind else "any")
                for left, right in sides
            ]
    return [Column(item.title, _kind(item.value)) for item in body.items]


def _kind(of: r.Value) -> str:
    match of:
        case r.Constant(constant):
            kind = kind_of(constant)
            return "any" if kind == "null" else kind
        case r.Column(_, name):
            return r.COLUMNS[name]
        case r.Whole():
            return "version"
        case r.Listed():
            return "list"
        case r.Hyperparameter() | r.NodeValue() | r.ManyValue() | r.Output():
            return "any"
        case r.Coalesce(values):
            kinds = {_kind(each) for each in values if each != r.Constant(None)}
            return kinds.pop() if len(kinds) == 1 else "any"
        case r.Aggregate("min" | "max", inner) if inner is not None:
            return _kind(inner)
    return "number"
