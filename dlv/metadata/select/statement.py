"""Queries of the catalogue: trees turned into SQL, and rows out of it."""

from __future__ import annotations

import json
import math
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

from dlv.dataclass import dataclass
from dlv.errors import UsageError
from dlv.metadata.database import Database
from dlv.metadata.rows import Column, Row, VersionCell
from dlv.metadata.schemas import BLOB
from dlv.metadata.select import conditions as select_conditions
from dlv.metadata.select import queries as select_queries
from dlv.metadata.select import relations as r
from dlv.metadata.select import wording
from dlv.metadata.select.functions import FUNCTIONS
from dlv.metadata.select.nodes import attribute, in_common
from dlv.metadata.select.plan import Step, variables
from dlv.metadata.select.scope import FALSE, TRUE, PointReader, Statement
from dlv.metadata.select.values import kind_of, node_number, reckon
from dlv.metadata.versions import time_of

_LONGEST, _LONGEST_VALUE = 2000, 80  # characters of SQL that are shown on a terminal


_TOO_DEEP = ("parser stack overflow", "Expression tree is too large", "too many")
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **FUNCTIONS,
    "dql_attribute": attribute,
    "dql_number": node_number,
    "dql_shared": in_common,
    "dql_reckon": reckon,
}


def statement(db: Database, metric_at: PointReader | None = None) -> Statement:
    return Statement(db, select_conditions.write, select_queries.column_of, metric_at, _FUNCTIONS)


def run(
    db: Database, query: r.Query, *, metric_at: PointReader | None = None, plan: str | None = None
) -> tuple[list[Column], Iterator[Row]]:
    """Titles, and rows as they are read; the transaction lasts until they are, or are closed.

    `plan`: the one to take wherever it can be, to compare plans.
    """
    columns = titles(query.body)
    return columns, _rows(db, query, metric_at, plan, [column.kind for column in columns])


def _rows(
    db: Database, query: r.Query, metric_at: PointReader | None, plan: str | None, kinds: list[str]
) -> Iterator[Row]:
    with _bounded(), db.snapshot():
        writing = statement(db, metric_at)
        writing.forced = plan
        try:
            yield from _read(db, writing, query, kinds)
        except sqlite3.OperationalError as error:
            if not _too_deep(error):
                raise
            # SQLite parsed nothing yet. Queries inside that stand for themselves are asked first.
            writing.drop()
            writing = replace(statement(db, metric_at), forced=plan, most_within=0)
            yield from _read(db, writing, query, kinds)
        finally:
            writing.drop()


def _read(db: Database, writing: Statement, query: r.Query, kinds: list[str]) -> Iterator[Row]:
    written = select_queries.top(writing, query)
    with writing.callable(), closing(db.stream(written.sql, writing.parameters)) as rows:
        if kinds == ["version"] and written.grounds == ("",):
            for row in rows:
                yield (VersionCell(row[0]),)
        else:
            for row in rows:
                yield tuple(map(_shown, row, kinds))


def explain(
    db: Database, query: r.Query, *, analyze: bool = False, metric_at: PointReader | None = None
) -> Explained:
    """How the query would be answered; `analyze` does it, and counts what each step leaves."""
    with _bounded(), db.snapshot():
        writing = statement(db, metric_at)
        try:
            written = select_queries.top(writing, query)
            steps, rows, ms = list(writing.steps), None, None
            with writing.callable():
                plan = [*db.stream(f"EXPLAIN QUERY PLAN {written.sql}", writing.parameters)]
                if analyze:
                    began = time.perf_counter()
                    rows = sum(1 for _ in db.stream(written.sql, writing.parameters))
                    ms = (time.perf_counter() - began) * 1e3
                    for step in filter(lambda step: step.check, steps):
                        ((step.rows_counted,),) = db.stream(step.check, writing.parameters)
            return Explained(steps, written.sql, dict(writing.parameters), tree(plan), rows, ms)
        finally:
            writing.drop()


def survivors(
    db: Database, query: r.Query, most: int | None = None
) -> list[tuple[r.Condition, int]]:
    """How many versions each condition keeps alone, where the query is one select."""
    body: r.Body = query
    while isinstance(body, r.Query):
        body = body.body
    if not isinstance(body, r.Select):
        return []
    return [(each, _kept(db, body, each)) for each in r.conjuncts(body.where)[:most]]


def _kept(db: Database, select: r.Select, condition: r.Condition) -> int:
    about = variables(condition)
    for source in select.sources[::-1]:  # changes need the versions that they lie between
        if source.variable in about and isinstance(source.rows_from, r.Changes):
            about |= {source.rows_from.left, source.rows_from.right}
    sources = tuple(source for source in select.sources if source.variable in about)
    sources = sources or select.sources[:1]
    whole = r.Item("versions", r.Whole(sources[0].variable))
    alone = r.Select((whole,), sources, condition, distinct=len(sources) > 1)
    with _bounded(), db.snapshot():
        writing = statement(db)
        try:
            inner, _ = writing.column_of(r.Query(alone))
            with writing.callable():
                ((found,),) = db.stream(f"SELECT count(*) FROM ({inner})", writing.parameters)
                return int(found)
        finally:
            writing.drop()


@contextmanager
def _bounded() -> Iterator[None]:
    """Where even Python or SQLite gives up, that is what is said."""
    try:
        yield
    except (RecursionError, sqlite3.OperationalError) as error:
        if not _too_deep(error):
            raise
        raise UsageError(
            "the query is nested too deeply", why=str(error), hint="ask for less in one query"
        ) from error


def _too_deep(error: Exception) -> bool:
    return isinstance(error, RecursionError) or any(sign in str(error) for sign in _TOO_DEEP)


def _shown(value: Any, kind: str) -> Any:
    """A value of the output; NaN, booleans, lists and large numbers come as blobs."""
    if value is None:
        return None
    if value == BLOB:
        return math.nan
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


def _kind(value: r.Value) -> str:
    match value:
        case r.Constant(constant):
            kind = kind_of(constant)
            return "any" if kind == "null" else kind
        case r.Column(_, name) if name != "source":
            return r.COLUMNS[name]
        case r.Whole() | r.Column():
            return "version"
        case r.Listed():
            return "list"
        case r.OfChange(_, name):
            return r.OF_CHANGES[name]
        case r.Hyperparameter() | r.OfNodes() | r.NodeValue() | r.ManyValue() | r.Output():
            return "any"
        case r.Applied("lower" | "upper"):
            return "text"
        case r.OneValue(query):
            return titles(query.body)[0].kind
        case r.Case(whens, otherwise):
            return _kind(r.Coalesce((*(value for _, value in whens), otherwise)))
        case r.Coalesce(values):
            kinds = {_kind(each) for each in values if each != r.Constant(None)}
            return kinds.pop() if len(kinds) == 1 else "any"
        case r.Aggregate("min" | "max" | "argmin" | "argmax", inner) if inner is not None:
            return _kind(inner)
    return "number"


# A plan as it is shown: what is read, by which plan, and what the others cost


@dataclass(frozen=True)
class Explained:
    """A plan. `rows` and `ms` are known of what was run."""

    steps: Sequence[Step]
    sql: str
    parameters: dict[str, Any]
    machine: Sequence[str]  # what SQLite makes of it
    rows: int | None = None
    ms: float | None = None

    def lines(self) -> Iterator[str]:
        for step in self.steps:
            yield f"{_title(step)}  {_rows_left(step)}"
            if step.plan is not None:
                yield f"  plan {step.plan.name}{_ms(step.plan.cost)}{_rejected(step)}"
        if self.rows is not None:
            yield f"Result  {self.rows} rows, {self.ms:.1f} ms"

    def details(self) -> Iterator[str]:
        """The SQL, and what SQLite makes of it."""
        yield "SQLite"
        yield from (f"  {line}" for line in self.machine)
        yield "SQL"
        yield f"  {self.sql[:_LONGEST]}{' …' if len(self.sql) > _LONGEST else ''}"
        if self.parameters:
            yield "Parameters"
            yield "  " + ", ".join(f"{name} = {_short(v)}" for name, v in self.parameters.items())

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "steps": [_document(step) for step in self.steps],
            "sql": self.sql,
            "parameters": {name: _readable(value) for name, value in self.parameters.items()},
            "sqlite": list(self.machine),
        }
        if self.rows is not None and self.ms is not None:
            found |= {"rows": self.rows, "ms": round(self.ms, 3)}
        return found


def _title(step: Step) -> str:
    conditions = " and ".join(map(wording.condition, step.conditions))
    if step.kind == "scan":
        return f"Scan {step.variable}" + (f"  {conditions}" if conditions else "")
    return f"{step.kind.capitalize()} {conditions}"


def _rows_left(step: Step) -> str:
    said = f"about {step.rows:.0f}" if step.kind != "join" else ""
    if step.kind == "scan":
        said += f" of {step.rows_before:.0f}"
    if step.rows_counted is not None:
        said += f", found {step.rows_counted}"
    return said


def _ms(microseconds: float) -> str:
    return f"  {microseconds / 1000:.2g} ms"


def _rejected(step: Step) -> str:
    if not step.rejected:
        return ""
    return "   rejected: " + ", ".join(f"{plan.name}{_ms(plan.cost)}" for plan in step.rejected)


def _document(step: Step) -> dict[str, Any]:
    found: dict[str, Any] = {
        "step": step.kind,
        "conditions": [wording.condition(each) for each in step.conditions],
        "estimated_rows": round(step.rows),
    }
    if step.variable:
        found["variable"] = step.variable
    if step.kind == "scan":
        found["of"] = round(step.rows_before)
    if step.plan is not None:
        found["chosen"] = step.plan.document()
        found["rejected"] = [plan.document() for plan in step.rejected]
    if step.rows_counted is not None:
        found["rows"] = step.rows_counted
    return found


def _readable(value: Any) -> Any:
    """Blobs are how truth values and lists are bound."""
    if isinstance(value, bytes):
        return value == b"\x01" if len(value) == 1 else value[1:].decode()
    return value


def _short(value: Any) -> Any:
    """Lists of ids may have thousands of them."""
    said = _readable(value)
    long = isinstance(said, str) and len(said) > _LONGEST_VALUE
    return f"{said[: _LONGEST_VALUE - 1]}…" if long else said


def tree(rows: Sequence[tuple[Any, ...]]) -> list[str]:
    """EXPLAIN QUERY PLAN, each line below the one that it belongs to."""
    depth: dict[int, int] = {}
    found = []
    for number, parent, _, detail in rows:
        depth[number] = depth.get(parent, -1) + 1
        found.append("  " * depth[number] + str(detail))
    return found


__all__ = ["PointReader", "explain", "run", "survivors"]
