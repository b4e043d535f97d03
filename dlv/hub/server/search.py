"""Search the cards of a hub: words, fields, figures; the same results from all databases.

A search has conditions. The one that fewest cards fulfil gives the candidates, if these are few.
Else many cards probably match, and they are read in the order of the answer until there are enough.
Who may read what is one of the conditions, so that nothing else is counted.
"""

from __future__ import annotations

import heapq
import json
import re
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine.default import DefaultDialect

from dlv.dataclass import dataclass
from dlv.errors import UsageError, nearest
from dlv.hub.searching import FIELDS, FIGURE, KINDS, terms_of
from dlv.hub.server import full_text, tables, words
from dlv.hub.server.access import Caller, namespaces, readable
from dlv.hub.server.database import HubDatabase
from dlv.hub.server.refusal import Refused
from dlv.hub.server.words import Word
from dlv.metadata.cards import RANKED
from dlv.repository.revisions import direction_of

FEW, SOME = 2000, 20_000  # candidates: so few are read at once, and so many at most
MOST_TEXT, MOST_TERMS = 1000, 32
MOST, MOST_OFFSET = 100, 2000  # hits of one answer, and those before them
COUNTED = 100  # matches are counted up to here, unless more are shown or ranked
SECONDS = 3.0  # for all statements of one search
_BUSY = "narrow the search down, or repeat it later"

ORDERS = {
    "created": "card.created DESC, card.id DESC",
    "name": "card.name, card.number, card.id",
    "bytes": "card.bytes DESC, card.id DESC",
    "parameters": "card.parameters DESC, card.id DESC",
}


@dataclass(frozen=True)
class Clause:
    """A condition: `ids` selects the keys of all cards that fulfil it, `holds` is about a card.

    `within` says the same as `holds` by a set, which takes less time for many cards.
    """

    ids: str
    holds: str
    within: str | None = None

    @property
    def by_set(self) -> str:
        return self.within or _within("card.id", self.ids)


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

    @property
    def ranked(self) -> bool:
        """Whether the cards that fit the words best are first."""
        return self.order is None and any(word.plain for word in self.words)


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
    """One page of hits, and how many versions match: at least so many if there are `more`."""

    hits: list[Hit]
    count: int
    more: bool

    def as_json(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "more": self.more,
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
            why="only a star at the end is possible",
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
        found = _Search(connection, caller, wanted, repository_id, among)
        limit = max(offset + most, RANKED if wanted.ranked else COUNTED)
        keys = found.keys(limit)
        return Found(found.hits(keys[offset : offset + most]), len(keys), len(keys) >= limit)


class _Search:
    """The statements of one search. They are texts, which take less time than objects would."""

    def __init__(
        self,
        connection: sa.Connection,
        caller: Caller,
        wanted: Wanted,
        repository_id: int | None,
        among: Collection[str] | None,
    ) -> None:
        self._connection, self._wanted = connection, wanted
        self._is_postgres = connection.dialect.name == "postgresql"
        self._values: dict[str, object] = {}
        self._text = self._words(wanted.words) if wanted.words else None
        clauses = [self._text] if self._text is not None else []
        if repository_id is not None:
            inside = f"card.repository_id = {self._value(repository_id)}"
            clauses.append(Clause(f"SELECT card.id FROM card WHERE {inside}", inside))
        for name, kind, op, value in wanted.compared:
            clauses.append(self._figure(name, kind, f"value {op} {self._value(value)}"))
        clauses += [self._layer(layer) for layer in wanted.layers]
        if among is not None:
            clauses.append(self._among(among))
        if isinstance(wanted.order, Figure):
            clauses.append(self._figure(wanted.order.name, wanted.order.kind, "true"))
        self._readable = None if repository_id is not None else self._may_read(caller)
        self._clauses = clauses
        self._counts: dict[int, int] = {}  # of cards that fulfil a condition, by its identity
        self._sets: list[Clause] = []  # conditions that are looked up in a set

    def _value(self, value: object) -> str:
        """Return the name of a new parameter."""
        name = f"p{len(self._values)}"
        self._values[name] = value
        return f":{name}"

    # Conditions

    def _words(self, looked_for: Sequence[Word]) -> Clause:
        if self._is_postgres:
            match = self._value(full_text.postgres_match(looked_for))
            inside = f"card_text.terms @@ CAST({match} AS tsquery)"
            ids = f"SELECT card_id FROM card_text WHERE {inside}"
        else:
            match = self._value(full_text.sqlite_match(looked_for))
            ids = f"SELECT rowid FROM card_words WHERE card_words MATCH {match}"
            ends = [f" {word.code}{'' if word.prefix else ' '}" for word in looked_for]
            inside = " AND ".join(f"instr(words, {self._value(end)}) > 0" for end in ends)
        return Clause(ids, _exists("card_text", f"card_text.card_id = card.id AND {inside}"))

    def _figure(self, name: str, kind: str, compared: str) -> Clause:
        """The condition that a card has a figure which compares so."""
        kinds = f"({self._value(kind)}, 'setting')"
        where = f"name = {self._value(name)} AND kind IN {kinds} AND {compared}"
        ids = f"SELECT card_id FROM card_figure WHERE {where}"
        own = where.replace("name =", "own.name =", 1)
        return Clause(ids, _exists("card_figure AS own", f"own.card_id = card.id AND {own}"))

    def _layer(self, value: str) -> Clause:
        where = f"layer = {self._value(value)}"
        if value.endswith("*"):
            begin, end = self._value(value[:-1]), self._value(value[:-1] + "\U0010ffff")
            where = f"layer >= {begin} AND layer < {end}"
        nets = f"SELECT network FROM network_layer WHERE {where}"
        ids = f"SELECT card.id FROM card WHERE card.network IN ({nets})"
        own = f"network_layer.network = card.network AND {where}"
        return Clause(ids, _exists("network_layer", own), _within("card.network", nets))

    def _among(self, ids: Collection[str]) -> Clause:
        """The versions with these ids, in one parameter however many they are."""
        listed = self._value(json.dumps(sorted(ids)))
        rows = f"SELECT value FROM json_each({listed})"
        if self._is_postgres:
            rows = f"SELECT json_array_elements_text(CAST({listed} AS json))"
        inside = f"card.manifest IN ({rows})"
        return Clause(f"SELECT card.id FROM card WHERE {inside}", inside)

    def _may_read(self, caller: Caller) -> Clause:
        condition, names = _readable_sql(
            caller.known,
            caller.operator,
            caller.namespace is not None,
            caller.repository is not None,
        )
        self._values |= {name: getattr(caller, key) for name, key in names.items()}
        joined = "repository JOIN account AS namespace ON namespace.id = repository.namespace_id"
        # There are fewer repositories than cards that are looked at.
        within = _within(
            "card.repository_id", f"SELECT repository.id FROM {joined} WHERE {condition}"
        )
        # The sum keeps SQLite from looking up the repository of each card.
        key = "repository.id" if self._is_postgres else "repository.id + 0"
        ids = f"SELECT card.id FROM {joined} JOIN card ON card.repository_id = {key}"
        return Clause(f"{ids} WHERE {condition}", within, within)

    # Keys of cards

    def keys(self, most: int) -> list[int]:
        """Return the keys of the first cards in the order of the answer."""
        driving = self._driving()
        order = self._wanted.order
        if isinstance(order, Figure):
            return self._by_figure(order, driving, self._rest(driving), most)
        ordered = "card.id DESC" if order is None else ORDERS[order]
        if driving is None and order is None and self._text is not None and not self._is_postgres:
            # The index gives the newest cards first, and is read only as far as needed.
            here = _exists("card", f"card.id = card_words.rowid AND {self._rest(self._text)}")
            text = f"{self._text.ids} AND {here} ORDER BY rowid DESC"
        else:
            few, within = self._few(driving, "card.id")
            where = self._rest(driving)
            text = f"{few} SELECT card.id FROM card WHERE {within} AND {where} ORDER BY {ordered}"
        return self._ranked([row[0] for row in self._rows(f"{text} LIMIT {most:d}")])

    def _rest(self, but: Clause | None) -> str:
        """Return the conditions but one."""
        parts = [
            clause.by_set if clause in self._sets else clause.holds
            for clause in (*self._clauses, self._readable)
            if clause is not None and clause is not but
        ]
        return " AND ".join(parts) or "true"

    def _rows(self, text: str) -> Sequence[Any]:
        return self._connection.execute(sa.text(text), self._values).all()

    def _driving(self) -> Clause | None:
        """Return the condition that gives the candidates, None to read cards in order."""
        best, fewest = self._fewest(self._clauses, FEW)
        if best is None and self._readable is not None:
            best, fewest = self._fewest([self._readable], FEW)
        if best is not None or len(self._clauses) < 2:
            return best
        # Many cards fulfil each condition. How many fulfil all of them is estimated.
        best, fewest = self._fewest(self._clauses, SOME)
        total = self._rows("SELECT coalesce(max(id), 0) FROM card")[0][0]
        share = 1.0
        for count in self._counts.values():
            share *= count / max(total, 1)
        self._sets = [clause for clause in self._clauses if self._counts[id(clause)] < SOME]
        return best if fewest * share < RANKED else None

    def _fewest(self, clauses: Sequence[Clause], most: int) -> tuple[Clause | None, int]:
        """Return the condition that fewest cards fulfil, if fewer than `most` do."""
        best, fewest = None, most
        if clauses:
            counts = [f"(SELECT count(*) FROM ({c.ids} LIMIT {most}) AS few)" for c in clauses]
            row = self._rows(f"SELECT {', '.join(counts)}")[0]
            for clause, count in zip(clauses, row, strict=True):
                self._counts[id(clause)] = count
                if count < fewest:
                    best, fewest = clause, count
        return best, fewest

    def _few(self, driving: Clause | None, column: str) -> tuple[str, str]:
        """Return what precedes a query for a few cards, and the condition that it is one of them.

        PostgreSQL does not mix it with the rest.
        """
        if driving is None:
            return "", "true"
        if not self._is_postgres:
            return "", f"{column} IN ({driving.ids})"
        if self._counts[id(driving)] >= FEW:
            return "", _within(column, driving.ids)
        return f"WITH few(id) AS MATERIALIZED ({driving.ids})", f"{column} IN (SELECT id FROM few)"

    def _by_figure(self, order: Figure, driving: Clause | None, where: str, most: int) -> list[int]:
        """Return the keys of cards by a figure; of several runs of a version the best counts."""
        here = _exists("card", f"card.id = card_figure.card_id AND {where}")
        way = "ASC" if order.ascending else "DESC"
        few, within = self._few(driving, "card_figure.card_id")
        name = self._value(order.name)
        rows: list[list[tuple[float, int]]] = []
        for kind in (order.kind, "setting"):
            own = f"card_figure.name = {name} AND card_figure.kind = {self._value(kind)}"
            if not self._rows(f"SELECT 1 FROM card_figure WHERE {own} LIMIT 1"):
                continue
            text = f"{few} SELECT value, card_id FROM card_figure WHERE {own} AND {within}"
            text += f" AND {here} ORDER BY value {way}, card_id {way}"
            rows.append(self._distinct(text, most))
        merged = heapq.merge(*rows, reverse=not order.ascending)
        return list(dict.fromkeys(key for _, key in merged))[:most]

    def _distinct(self, text: str, most: int) -> list[tuple[float, int]]:
        """Return the first rows for so many cards."""
        limit = 2 * most
        while True:
            rows = [(value, key) for value, key in self._rows(f"{text} LIMIT {limit:d}")]
            if len(rows) < limit or len({key for _, key in rows}) >= most:
                return rows
            limit *= 4

    def _ranked(self, keys: list[int]) -> list[int]:
        """Sort the newest cards by how well they fit the words, if that is the order."""
        looked_for = [word for word in self._wanted.words if word.plain]
        if not self._wanted.ranked or not keys:
            return keys
        rows = self._rows(f"SELECT card_id, ranked FROM card_text WHERE {_listed('card_id', keys)}")
        scores = {key: words.score(lines, looked_for) for key, lines in rows}
        best = sorted(keys[:RANKED], key=lambda key: (-scores[key], -key))
        return best + keys[RANKED:]

    def hits(self, keys: Sequence[int]) -> list[Hit]:
        if not keys:
            return []
        rows = self._rows(
            "SELECT card.id, namespace.name, repository.name, card_text.record FROM card"
            " JOIN repository ON repository.id = card.repository_id"
            " JOIN account AS namespace ON namespace.id = repository.namespace_id"
            f" JOIN card_text ON card_text.card_id = card.id WHERE {_listed('card.id', keys)}"
        )
        hits = {row[0]: Hit(f"{row[1]}/{row[2]}", json.loads(row[3])) for row in rows}
        return [hits[key] for key in keys]


def _listed(column: str, keys: Sequence[int]) -> str:
    return f"{column} IN ({', '.join(map(str, map(int, keys)))})"


def _within(column: str, query: str) -> str:
    """Return a condition for which a set is made once; PostgreSQL makes no join of it."""
    return f"({column} IN ({query})) IS TRUE"


def _exists(table: str, condition: str) -> str:
    """Return a condition that is evaluated for one card at a time.

    PostgreSQL does not turn a query with an offset into a join.
    """
    return f"EXISTS (SELECT 1 FROM {table} WHERE {condition} LIMIT 1 OFFSET 0)"


@cache
def _readable_sql(
    known: bool, operator: bool, namespace: bool, repository: bool
) -> tuple[str, dict[str, str]]:
    """Return what `access.readable` says of a kind of callers, and fields of Caller by parameter.

    A constant is a parameter, too, and told apart from the fields by its value.
    """
    fields = {"user_id": -1, "namespace": "n" * 99, "repository": "r" * 99}
    caller = Caller(
        user_id=-1 if known else None,
        operator=operator,
        namespace="n" * 99 if namespace else None,
        repository="r" * 99 if repository else None,
    )
    table = tables.repository
    # Only inside the query over repositories is it clear which one a subquery is about.
    joined = table.join(namespaces, namespaces.c.id == table.c.namespace_id)
    query: sa.Select[Any] = (
        sa.select(sa.literal_column("1")).select_from(joined).where(readable(caller))
    )
    compiled = query.compile(dialect=DefaultDialect(paramstyle="named"))
    _, _, text = compiled.string.replace("\n", " ").partition(" WHERE ")
    names = {}
    for name, value in compiled.params.items():
        key = next((key for key, marker in fields.items() if marker == value), None)
        if key is not None:
            names[name] = key
        elif isinstance(value, str) and value.isalpha():
            text = re.sub(rf":{name}\b", f"'{value}'", text)
        else:
            raise AssertionError(f"{name} is not a word")
    return f"({text.strip()})", names


@contextmanager
def limited(connection: sa.Connection, seconds: float) -> Iterator[None]:
    """Refuse what takes a database longer than this, with the status 503."""
    try:
        if connection.dialect.name == "postgresql":
            # The best plan depends on the words, and compiling it takes longer than it saves.
            connection.exec_driver_sql(
                f"SET LOCAL statement_timeout = {int(seconds * 1000)};"
                " SET LOCAL plan_cache_mode = force_custom_plan; SET LOCAL jit = off;"
                " SET LOCAL enable_seqscan = off"  # long texts are not in the rows it would count
            )
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
