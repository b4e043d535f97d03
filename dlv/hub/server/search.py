"""Search the cards of a hub: words, fields, figures; the same results from all databases.

A search has conditions. The one that fewest cards fulfil gives the candidates, if these are few.
Else many cards probably match, and they are read in the order of the answer until there are enough.
Who may read what is one of the conditions, so that nothing else is counted.
"""

from __future__ import annotations

import heapq
import json
import operator
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any

import sqlalchemy as sa

from dlv.dataclass import dataclass
from dlv.errors import UsageError, nearest
from dlv.hub.searching import FIELDS, FIGURE, KINDS, terms_of
from dlv.hub.server import full_text, tables, words
from dlv.hub.server.access import Caller, namespaces, readable
from dlv.hub.server.database import HubDatabase
from dlv.hub.server.refusal import Refused
from dlv.hub.server.words import Word
from dlv.metadata.cards import COUNTED, RANKED
from dlv.repository.revisions import direction_of

FEW = 2000  # candidates
MOST_TEXT, MOST_TERMS = 1000, 32
MOST, MOST_OFFSET = 100, 2000  # hits of one answer, and those before them
SECONDS = 3.0  # for all statements of one search
_BUSY = "narrow the search down, or repeat it later"

card, figures = tables.card, tables.card_figure
ORDERS: dict[str, tuple[sa.ColumnElement[Any], ...]] = {
    "created": (card.c.created.desc(), card.c.id.desc()),
    "name": (card.c.name, card.c.number, card.c.id),
    "bytes": (card.c.bytes.desc(), card.c.id.desc()),
    "parameters": (card.c.parameters.desc(), card.c.id.desc()),
}
_OPERATORS: dict[str, Callable[[Any, float], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
}
_NEWEST = (card.c.id.desc(),)


@dataclass(frozen=True)
class Clause:
    """A condition: `ids` selects the keys of all cards that fulfil it, `holds` is about a card."""

    ids: sa.Select[Any]
    holds: sa.ColumnElement[bool]


@dataclass(frozen=True)
class Figure:
    """A figure that cards are sorted by."""

    name: str
    kind: str
    ascending: bool


@dataclass
class Wanted:
    """A search as it was typed, divided. `words` include those of fields.

    `order`: one of ORDERS, or a figure; by default the cards that fit the words best are first, or
    the newest ones.
    """

    words: list[Word] = field(default_factory=list)
    compared: list[tuple[str, str, str, float]] = field(default_factory=list)
    layers: list[str] = field(default_factory=list)
    order: str | Figure | None = None


@dataclass(frozen=True)
class Hit:
    """A version that was found. `record` is its card as the index of a remote has it."""

    repository: str
    record: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        record = self.record
        shown = ("author", "created", "message", "framework", "task", "license", "tags", "bytes")
        metrics: dict[str, Any] = {}
        for summary in record["metrics"]:
            run, tag = summary["run"], summary["tag"]
            metrics[f"{run}/{tag}" if run else tag] = summary["last"]
        return {
            "repository": self.repository,
            "version": f"{record['name']}@{record['number']}",
            "name": record["name"],
            "number": record["number"],
            "id": record["id"],
            **{key: record[key] for key in (*shown, "parameters", "hyperparameters")},
            "metrics": metrics,
        }


@dataclass(frozen=True)
class Found:
    """One page of hits, and how many versions match; COUNTED stands for that many or more."""

    hits: list[Hit]
    count: int

    def as_json(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "more": self.count >= COUNTED,  # the count is only the least
            "results": [hit.as_json() for hit in self.hits],
        }


def parse(text: str, sort: str | None = None) -> Wanted:
    """Divide a search; UsageError names what is not understood."""
    if len(text) > MOST_TEXT:
        raise UsageError(f"a search has at most {MOST_TEXT} characters")
    terms = terms_of(text)
    if len(terms) > MOST_TERMS:
        raise UsageError(f"a search has at most {MOST_TERMS} words and conditions")
    wanted = Wanted()
    for term in terms:
        match = FIGURE.match(term)
        name, colon, value = term.partition(":")
        if match is not None:
            wanted.compared.append(_compared(term, match))
        elif colon and value:
            _add_field(wanted, name.lower(), value)
        else:
            wanted.words += words.wanted(term)
    wanted.order = _order(sort) if sort else None
    return wanted


def _compared(term: str, match: Any) -> tuple[str, str, str, float]:
    try:
        value = float(match["value"])
    except ValueError:
        raise UsageError(f"`{term}` does not compare with a number") from None
    if value != value:
        raise UsageError(f"`{term}` does not compare with a number")
    name, kind = _name_and_kind(match["name"])
    return name, kind, "=" if match["op"] == "==" else match["op"], value


def _name_and_kind(text: str) -> tuple[str, str]:
    name, dot, kind = text.rpartition(".")
    pair = (name, kind) if dot and kind in KINDS else (text, "last")
    return words.clean(pair[0], 200), pair[1]


def _add_field(wanted: Wanted, name: str, value: str) -> None:
    if name not in FIELDS:
        raise UsageError(
            f"`{name}:` is not a field of cards",
            why=f"fields: {', '.join(FIELDS)}",
            did_you_mean=[f"{near}:{value}" for near in nearest(name, FIELDS)],
        )
    if "*" in value[:-1] or "?" in value or "[" in value:
        raise UsageError(
            f"`{name}:{value}` cannot be looked up",
            why="only a star at the end stands for other characters",
            hint='a DQL condition can have any pattern: m["*conv*"]',
        )
    if name == "net":
        wanted.layers.append(words.clean(value.lower(), 200))
    else:
        wanted.words += words.wanted_value(name, value)


def _order(sort: str) -> str | Figure:
    if sort in ORDERS:
        return sort
    text, _, way = sort.partition(":")
    if way not in ("", "min", "max"):
        raise UsageError(f"`{sort}` is not an order", why="write min or max after the colon")
    name, kind = _name_and_kind(text)
    ascending = (way or direction_of(name)) == "min"
    return Figure(name, kind, ascending)


def search(
    database: HubDatabase,
    caller: Caller,
    wanted: Wanted,
    *,
    repository_id: int | None = None,
    among: Collection[str] | None = None,
    most: int = 20,
    offset: int = 0,
) -> Found:
    """Return the best versions. `repository_id`: only in this one, which the caller may read.

    `among`: only versions with these ids.
    """
    most, offset = min(most, MOST), min(offset, MOST_OFFSET)
    with database.snapshot() as connection, limited(connection, SECONDS):
        found = _Search(connection, database.is_postgres, caller, wanted, repository_id, among)
        keys = found.keys(max(offset + most, RANKED))
        return Found(found.hits(keys[offset : offset + most]), min(len(keys), COUNTED))


class _Search:
    """The statements of one search."""

    def __init__(
        self,
        connection: sa.Connection,
        is_postgres: bool,
        caller: Caller,
        wanted: Wanted,
        repository_id: int | None,
        among: Collection[str] | None,
    ) -> None:
        self._connection, self._is_postgres, self._wanted = connection, is_postgres, wanted
        self._text = self._words(wanted.words) if wanted.words else None
        clauses = [self._text] if self._text is not None else []
        if repository_id is not None:
            inside = card.c.repository_id == repository_id
            clauses.append(Clause(sa.select(card.c.id).where(inside), inside))
        clauses += [_figure_clause(*compared) for compared in wanted.compared]
        clauses += [_layer_clause(layer) for layer in wanted.layers]
        if among is not None:
            clauses.append(self._among(among))
        if isinstance(wanted.order, Figure):
            clauses.append(_of_figures(wanted.order.name, wanted.order.kind))
        if repository_id is None:
            clauses.append(self._readable(caller))
        self._clauses = clauses

    # Conditions

    def _words(self, looked_for: Sequence[Word]) -> Clause:
        table = tables.card_text
        if self._is_postgres:
            match = sa.text("card_text.terms @@ CAST(:match AS tsquery)").bindparams(
                match=full_text.postgres_match(looked_for)
            )
            here = _exists(sa.select(sa.literal(1)).where(table.c.card_id == card.c.id, match))
            return Clause(sa.select(table.c.card_id).where(match), here)
        index = sa.table("card_words", sa.column("rowid"))
        match = sa.text("card_words MATCH :match").bindparams(
            match=full_text.sqlite_match(looked_for)
        )
        inside = [
            sa.func.instr(table.c.words, f" {word.code}" + ("" if word.prefix else " ")) > 0
            for word in looked_for
        ]
        here = _exists(sa.select(sa.literal(1)).where(table.c.card_id == card.c.id, *inside))
        return Clause(sa.select(index.c.rowid).where(match), here)

    def _among(self, ids: Collection[str]) -> Clause:
        """The versions with these ids, in one parameter however many they are."""
        text = "SELECT value FROM json_each(:ids)"
        if self._is_postgres:
            text = "SELECT value FROM json_array_elements_text(CAST(:ids AS json))"
        listed = sa.text(f"card.manifest IN ({text})").bindparams(ids=json.dumps(sorted(ids)))
        return Clause(sa.select(card.c.id).where(listed), listed)  # type: ignore[arg-type]

    def _readable(self, caller: Caller) -> Clause:
        repository = tables.repository
        joined = repository.join(namespaces, namespaces.c.id == repository.c.namespace_id)
        here = (
            sa.select(sa.literal(1))
            .select_from(joined)
            .where(repository.c.id == card.c.repository_id, readable(caller))
        )
        # The sum keeps SQLite from looking up the repository of each card.
        key = repository.c.id if self._is_postgres else repository.c.id + 0
        ids = (
            sa.select(card.c.id)
            .select_from(joined.join(card, card.c.repository_id == key))
            .where(readable(caller))
        )
        return Clause(ids, _exists(here))

    # Keys of cards

    def keys(self, most: int) -> list[int]:
        """Return the keys of the first cards in the order of the answer."""
        driving = self._driving()
        order = self._wanted.order
        if isinstance(order, Figure):
            return self._by_figure(order, driving, most)
        where = [clause.holds for clause in self._clauses if clause is not driving]
        ordered = _NEWEST if order is None else ORDERS[order]
        if driving is not None:
            query = sa.select(card.c.id).where(card.c.id.in_(self._few(driving)), *where)
            return self._ranked(self._column(query.order_by(*ordered).limit(most)))
        if order is None and self._text is not None and not self._is_postgres:
            # The index gives the newest cards first, and is read only as far as needed.
            key: sa.ColumnElement[int] = sa.literal_column("card_words.rowid")
            rest = [clause.holds for clause in self._clauses if clause is not self._text]
            here = _exists(
                sa.select(sa.literal(1)).select_from(card).where(card.c.id == key, *rest)
            )
            query = self._text.ids.where(here).order_by(key.desc()).limit(most)
        else:
            query = sa.select(card.c.id).where(*where).order_by(*ordered).limit(most)
        return self._ranked(self._column(query))

    def _driving(self) -> Clause | None:
        """Return the condition that fewest cards fulfil, if these are few."""
        best, fewest = None, FEW
        for clause in self._clauses:
            limited_ids = clause.ids.limit(fewest).subquery()
            query = sa.select(sa.func.count()).select_from(limited_ids)
            count = int(self._connection.execute(query).scalar_one())
            if count < fewest:
                best, fewest = clause, count
            if fewest <= COUNTED:
                break
        return best

    def _few(self, driving: Clause) -> sa.Select[Any]:
        """Return a query for few keys, which PostgreSQL does not mix with the rest."""
        if not self._is_postgres:
            return driving.ids
        listed = driving.ids.cte("few").prefix_with("MATERIALIZED")
        return sa.select(listed)

    def _by_figure(self, order: Figure, driving: Clause | None, most: int) -> list[int]:
        """Return the keys of cards by a figure; of several runs of a version the best counts."""
        where = [clause.holds for clause in self._clauses if clause is not driving]
        here = _exists(
            sa.select(sa.literal(1)).select_from(card).where(card.c.id == figures.c.card_id, *where)
        )
        columns = (figures.c.value, figures.c.card_id)
        ways = [column.asc() if order.ascending else column.desc() for column in columns]
        rows: list[list[tuple[float, int]]] = []
        for kind in (order.kind, "setting"):
            query = sa.select(*columns).where(
                figures.c.name == order.name, figures.c.kind == kind, here
            )
            if driving is not None:
                query = query.where(figures.c.card_id.in_(self._few(driving)))
            rows.append(self._distinct(query.order_by(*ways), most))
        merged = heapq.merge(*rows, reverse=not order.ascending)
        return list(dict.fromkeys(key for _, key in merged))[:most]

    def _distinct(self, query: sa.Select[Any], most: int) -> list[tuple[float, int]]:
        """Return the first rows for so many cards."""
        limit = most + most // 4
        while True:
            rows = [(value, key) for value, key in self._connection.execute(query.limit(limit))]
            if len(rows) < limit or len({key for _, key in rows}) >= most:
                return rows
            limit *= 4

    def _column(self, query: sa.Select[Any]) -> list[int]:
        return list(self._connection.execute(query).scalars())

    def _ranked(self, keys: list[int]) -> list[int]:
        """Sort the newest cards by how well they fit the words, if that is the order."""
        looked_for = [word for word in self._wanted.words if word.plain]
        if self._wanted.order is not None or not looked_for or not keys:
            return keys
        table = tables.card_text.c
        query = sa.select(table.card_id, table.ranked).where(table.card_id.in_(keys[:RANKED]))
        scores = {
            key: words.score(lines, looked_for) for key, lines in self._connection.execute(query)
        }
        best = sorted(keys[:RANKED], key=lambda key: (-scores.get(key, 0), -key))
        return best + keys[RANKED:]

    def hits(self, keys: Sequence[int]) -> list[Hit]:
        repository, table = tables.repository, tables.card_text
        query = (
            sa.select(card.c.id, namespaces.c.name, repository.c.name, table.c.record)
            .select_from(card)
            .join(repository, repository.c.id == card.c.repository_id)
            .join(namespaces, namespaces.c.id == repository.c.namespace_id)
            .join(table, table.c.card_id == card.c.id)
            .where(card.c.id.in_(keys))
        )
        hits = {
            key: Hit(f"{namespace}/{name}", json.loads(record))
            for key, namespace, name, record in self._connection.execute(query)
        }
        return [hits[key] for key in keys]


def _exists(query: sa.Select[Any]) -> sa.ColumnElement[bool]:
    """Return a condition that is evaluated for one card at a time.

    PostgreSQL does not turn a query with an offset into a join.
    """
    return query.correlate(card, figures).limit(1).offset(0).exists()


def _figure_clause(name: str, kind: str, op: str, value: float) -> Clause:
    return _of_figures(name, kind, lambda column: _OPERATORS[op](column, value))


def _of_figures(
    name: str, kind: str, compare: Callable[[Any], sa.ColumnElement[bool]] | None = None
) -> Clause:
    """Return the condition that a card has a figure, and that it compares so."""

    def where(table: Any) -> list[sa.ColumnElement[bool]]:
        own = [table.c.name == name, table.c.kind.in_((kind, "setting"))]
        return [*own, *([] if compare is None else [compare(table.c.value)])]

    inner = figures.alias("own")
    here = sa.select(sa.literal(1)).where(inner.c.card_id == card.c.id, *where(inner))
    return Clause(sa.select(figures.c.card_id).where(*where(figures)), _exists(here))


def _layer_clause(value: str) -> Clause:
    layer = tables.network_layer
    name = layer.c.layer == value
    if value.endswith("*"):
        prefix = value[:-1]
        name = sa.and_(layer.c.layer >= prefix, layer.c.layer < prefix + "\U0010ffff")
    nets = sa.select(layer.c.network).where(name)
    here = sa.select(sa.literal(1)).where(layer.c.network == card.c.network, name)
    return Clause(sa.select(card.c.id).where(card.c.network.in_(nets)), _exists(here))


@contextmanager
def limited(connection: sa.Connection, seconds: float) -> Iterator[None]:
    """Refuse what takes a database longer than this, with the status 503."""
    try:
        if connection.dialect.name == "postgresql":
            limit = f"SET LOCAL statement_timeout = {int(seconds * 1000)}"
            connection.exec_driver_sql(limit)
            yield
        else:
            with _interrupted(connection, time.monotonic() + seconds):
                yield
    except sa.exc.OperationalError as error:
        if type(error.orig).__name__ == "QueryCanceled" or "interrupted" in str(error.orig):
            raise Refused(
                503, "the search takes too long", hint=_BUSY, headers={"Retry-After": "10"}
            ) from None
        raise


@contextmanager
def _interrupted(connection: sa.Connection, end: float) -> Iterator[None]:
    """Let SQLite stop at a moment; it counts steps of its machine."""
    raw: Any = connection.connection.driver_connection
    raw.set_progress_handler(lambda: time.monotonic() > end, 5000)
    try:
        yield
    finally:
        raw.set_progress_handler(None, 0)
