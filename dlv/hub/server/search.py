"""Search the cards of a hub: words, fields, figures; the same results from all databases."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import field
from typing import Any

import sqlalchemy as sa

from dlv.dataclass import dataclass
from dlv.errors import UsageError, nearest
from dlv.hub.searching import FIELDS, KINDS, figure_of, missing_figure, terms_of
from dlv.hub.server import tables, words
from dlv.hub.server.access import Caller, namespaces, readable
from dlv.hub.server.card_index import CardIndex, index_of
from dlv.hub.server.database import HubDatabase
from dlv.hub.server.words import Word
from dlv.metadata.cards import RANKED
from dlv.repository.revisions import direction_of

MOST_TEXT, MOST_TERMS = 1000, 32
MOST, MOST_OFFSET = 100, 2000  # hits of one answer, and those before them
COUNTED = 100  # matches are counted up to here, unless more are shown or ranked

ORDERS = ("created", "name", "bytes", "parameters")


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
        match = figure_of(term)
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

    `among`: only versions with these ids. NotFound if no version that may be read has a figure.
    """
    most, offset = min(most, MOST), min(offset, MOST_OFFSET)
    limit = max(offset + most, RANKED if wanted.ranked else COUNTED)
    index = index_of(database)
    with database.snapshot() as connection:
        if repository_id is not None:
            places = [repository_id]
        else:
            places = list(connection.execute(_readable(caller)).scalars())
        with index.lock:
            index.refresh(connection)
            keys = _keys(index, wanted, places, among, limit)
            if not keys:
                _check_figures(index, wanted, places)
        if wanted.ranked:
            keys = _ranked(connection, wanted, keys)
        shown = _hits(connection, keys[offset : offset + most])
    return Found(shown, len(keys), len(keys) >= limit)


def _readable(caller: Caller) -> sa.Select[Any]:
    repository = tables.repository
    joined = repository.join(namespaces, namespaces.c.id == repository.c.namespace_id)
    return sa.select(repository.c.id).select_from(joined).where(readable(caller))


def _keys(
    index: CardIndex,
    wanted: Wanted,
    places: Collection[int],
    among: Collection[str] | None,
    most: int,
) -> list[int]:
    """Return the keys of the first cards that fulfil all conditions."""
    marked = index.all() & index.in_repositories(places)
    for word in wanted.words:
        marked &= index.with_word(word)
    for name, kind, op, value in wanted.compared:
        marked &= index.with_figure(name, kind, op, value)
    for layer in wanted.layers:
        marked &= index.with_layer(layer)
    if among is not None:
        marked &= index.with_ids(among)
    order = wanted.order
    if isinstance(order, Figure):
        return index.first_by_figure(
            marked, order.name, order.kind, most, ascending=order.ascending
        )
    return index.first(marked, order, most)


def _check_figures(index: CardIndex, wanted: Wanted, places: Collection[int]) -> None:
    """Refuse names of figures that no version has which the caller may read."""
    figures = [(name, kind) for name, kind, _, _ in wanted.compared]
    if isinstance(wanted.order, Figure):
        figures.append((wanted.order.name, wanted.order.kind))
    if not figures:
        return
    readable_cards = index.all() & index.in_repositories(places)
    for name, kind in figures:
        if not (readable_cards & index.with_figure(name, kind)).any():
            raise missing_figure(name, index.figures_of(readable_cards))


def _ranked(connection: sa.Connection, wanted: Wanted, keys: list[int]) -> list[int]:
    """Sort the newest cards by how well they fit the words."""
    looked_for = [word for word in wanted.words if word.plain]
    text = tables.card_text.c
    query = sa.select(text.card_id, text.ranked).where(text.card_id.in_(keys))
    scores = {key: words.score(lines, looked_for) for key, lines in connection.execute(query)}
    best = sorted(keys[:RANKED], key=lambda key: (-scores.get(key, 0), -key))
    return best + keys[RANKED:]


def _hits(connection: sa.Connection, keys: Sequence[int]) -> list[Hit]:
    """Read the cards that are shown; those that were deleted in this moment are left out."""
    card, text, repository = tables.card.c, tables.card_text.c, tables.repository.c
    query = (
        sa.select(card.id, namespaces.c.name, repository.name.label("repository"), text.record)
        .join(tables.repository, repository.id == card.repository_id)
        .join(namespaces, namespaces.c.id == repository.namespace_id)
        .join(tables.card_text, text.card_id == card.id)
        .where(card.id.in_(keys))
    )
    hits = {
        row.id: Hit(f"{row.name}/{row.repository}", json.loads(row.record))
        for row in connection.execute(query)
    }
    return [hits[key] for key in keys if key in hits]
