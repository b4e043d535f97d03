"""The cards of a hub in memory, as columns and lists of words that one process searches.

A search over 100,000 cards takes some milliseconds, whichever conditions it has, and all databases
give the same results. The index is derived: each process reads it from the database, and before a
search reads what has changed since.
"""

from __future__ import annotations

import bisect
import threading
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import sqlalchemy as sa

from dlv.hub.server import tables
from dlv.hub.server.database import HubDatabase
from dlv.hub.server.words import Word
from dlv.kinds import Array

TOGETHER = 10_000  # rows that are read at once
_COMPARE = {
    "<": np.less,
    "<=": np.less_equal,
    "=": np.equal,
    ">=": np.greater_equal,
    ">": np.greater,
}
_open: WeakKeyDictionary[HubDatabase, CardIndex] = WeakKeyDictionary()
_opening = threading.Lock()


def prepare(database: HubDatabase) -> None:
    """Read all cards, so that the first search does not wait for it."""
    index = index_of(database)
    with database.snapshot() as connection, index.lock:
        index.refresh(connection)


def index_of(database: HubDatabase) -> CardIndex:
    """Return the index of a database, which this process keeps."""
    with _opening:
        return _open.setdefault(database, CardIndex())


class Vocabulary:
    """Sorted words, so that those with one beginning are found."""

    def __init__(self) -> None:
        self._sorted: list[str] = []
        self._new: list[str] = []

    def add(self, word: str) -> None:
        self._new.append(word)

    def beginning(self, prefix: str) -> Sequence[str]:
        """Return all words with a beginning."""
        if self._new:
            self._sorted = sorted([*self._sorted, *self._new])
            self._new = []
        start = bisect.bisect_left(self._sorted, prefix)
        end = bisect.bisect_left(self._sorted, prefix + "\U0010ffff")
        return self._sorted[start:end]


class Lists:
    """A list of small numbers for each word."""

    def __init__(self) -> None:
        self._lists: dict[str, array[int]] = {}
        self._vocabulary = Vocabulary()

    def add(self, words: Iterable[str], number: int) -> None:
        lists = self._lists
        for word in words:
            try:
                lists[word].append(number)
            except KeyError:  # rare, and faster than a look at each
                lists[word] = array("i", (number,))
                self._vocabulary.add(word)

    def marked(self, word: str, size: int, *, prefix: bool) -> Array:
        """Return which of `size` numbers a word has, or any word with this beginning."""
        marked = np.zeros(size, bool)
        words = self._vocabulary.beginning(word) if prefix else [word]
        lists = [self._lists[entry].tobytes() for entry in words if entry in self._lists]
        marked[np.frombuffer(b"".join(lists), np.intc)] = True
        return marked


class Figures:
    """The values of one figure, and the slots of their cards."""

    def __init__(self) -> None:
        self._values, self._slots = array("d"), array("i")

    def add(self, value: float, slot: int) -> None:
        self._values.append(value)
        self._slots.append(slot)

    @property
    def columns(self) -> tuple[Array, Array]:
        return np.array(self._values), np.array(self._slots)


class CardIndex:
    """All cards, each in a slot. Hold `lock` while using it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._state: tuple[Any, ...] | None = None
        self._slots: dict[int, int] = {}  # by key, of cards that exist
        self._exist = bytearray()  # 1 for the slots of these
        self._manifests: list[str] = []
        self._names: dict[str, int] = {}
        self._ranked: Array = np.zeros(0, np.int64)
        self._networks: dict[str, int] = {"": 0}
        self._numbers = {
            key: array("q")
            for key in ("id", "repository", "number", "created", "bytes", "parameters")
        }
        self._name, self._network = array("i"), array("i")
        self._words, self._layers = Lists(), Lists()
        self._figures: dict[tuple[str, str], Figures] = defaultdict(Figures)

    # Reading what has changed

    def refresh(self, connection: sa.Connection) -> None:
        """Read the cards that were added, and leave out those that were deleted."""
        repository, card = tables.repository.c, tables.card.c
        changes = connection.execute(
            sa.select(
                sa.select(sa.func.sum(repository.cards)).scalar_subquery(),
                sa.select(sa.func.count()).select_from(tables.repository).scalar_subquery(),
                sa.select(sa.func.max(card.id)).scalar_subquery(),
            )
        ).one()
        if self._state == tuple(changes):
            return
        last = max(self._numbers["id"], default=0)
        self._read(connection, card.id > last)
        count = sa.select(sa.func.count()).select_from(tables.card)
        if connection.execute(count).scalar_one() != len(self._slots):
            # Some were deleted, or were written by a transaction that ended late.
            keys = set(connection.execute(sa.select(card.id)).scalars())
            for key in self._slots.keys() - keys:
                self._exist[self._slots.pop(key)] = 0
            late = sorted(keys - self._slots.keys())
            for start in range(0, len(late), 500):
                self._read(connection, card.id.in_(late[start : start + 500]))
        self._state = tuple(changes)
        if len(self._manifests) > 2 * len(self._slots) + 1000:
            self._clear()
            self.refresh(connection)

    def _read(self, connection: sa.Connection, which: sa.ColumnElement[bool]) -> None:
        card, text, figure = tables.card.c, tables.card_text.c, tables.card_figure.c
        columns = [card.id, card.repository_id, card.manifest, card.name, card.number]
        columns += [card.created, card.bytes, card.parameters, card.network, text.words]
        streamed = connection.execution_options(yield_per=TOGETHER)
        query = sa.select(*columns).join(tables.card_text, text.card_id == card.id)
        networks: dict[str, int] = {}
        added: set[int] = set()
        for row in streamed.execute(query.where(which).order_by(card.id)):
            if row.id not in self._slots:
                self._add(row, networks)
                added.add(row.id)
        query = sa.select(figure.card_id, figure.name, figure.kind, figure.value)
        query = query.join(tables.card, card.id == figure.card_id).where(which)
        for key, name, kind, value in streamed.execute(query):
            if key in added:
                self._figures[name, kind].add(value, self._slots[key])
        self._read_layers(streamed, networks)

    def _add(self, row: Any, networks: dict[str, int]) -> None:
        slot = self._slots[row.id] = len(self._manifests)
        self._manifests.append(row.manifest)
        self._exist.append(1)
        # The digits of a time, without the century, order like it.
        created = int("".join(filter(str.isdigit, row.created[2:])))
        values = (row.id, row.repository_id, row.number, created, row.bytes, row.parameters)
        for column, value in zip(self._numbers.values(), values, strict=True):
            column.append(value)
        self._name.append(self._names.setdefault(row.name, len(self._names)))
        network = row.network or ""
        if network not in self._networks:
            networks[network] = self._networks[network] = len(self._networks)
        self._network.append(self._networks[network])
        self._words.add(row.words.split(), slot)

    def _read_layers(self, connection: sa.Connection, networks: Mapping[str, int]) -> None:
        layer = tables.network_layer.c
        hashes = list(networks)
        for start in range(0, len(hashes), 500):
            some = hashes[start : start + 500]
            query = sa.select(layer.network, layer.layer).where(layer.network.in_(some))
            for digest, name in connection.execute(query):
                self._layers.add([name], networks[digest])

    # Conditions, each as a column that says of which slots it holds

    @property
    def size(self) -> int:
        return len(self._manifests)

    def all(self) -> Array:
        """All cards that exist."""
        return np.array(self._exist, bool)

    def in_repositories(self, keys: Collection[int]) -> Array:
        repositories = self._column("repository")
        allowed = np.zeros(max([*keys, int(repositories.max(initial=0))]) + 1, bool)
        allowed[list(keys)] = True
        return np.asarray(allowed[repositories])

    def with_word(self, word: Word) -> Array:
        return self._words.marked(word.code, self.size, prefix=word.prefix)

    def with_layer(self, value: str) -> Array:
        """Cards whose network has a layer of this name or operation; a star is any ending."""
        prefix = value.endswith("*")
        name = value[:-1] if prefix else value
        networks = self._layers.marked(name, len(self._networks), prefix=prefix)
        return np.asarray(networks[np.array(self._network, np.int64)])

    def with_figure(self, name: str, kind: str, op: str | None = None, value: float = 0) -> Array:
        """Cards with a figure, or with one that compares so with a value."""
        values, slots = self._figure(name, kind)
        marked = np.zeros(self.size, bool)
        marked[slots if op is None else slots[_COMPARE[op](values, value)]] = True
        return marked

    def figures_of(self, marked: Array) -> list[str]:
        """Return the names of all figures that marked cards have."""
        return sorted(
            {key[0] for key in self._figures if marked[self._figures[key].columns[1]].any()}
        )

    def with_ids(self, ids: Collection[str]) -> Array:
        known = frozenset(ids)
        return np.fromiter((each in known for each in self._manifests), bool, self.size)

    def _column(self, key: str) -> Array:
        return np.array(self._numbers[key], np.int64)

    def _figure(self, name: str, kind: str) -> tuple[Array, Array]:
        """Return (values, slots) of a metric, or of the hyperparameter of this name."""
        columns = [
            self._figures[key].columns
            for key in ((name, kind), (name, "setting"))
            if key in self._figures
        ]
        if not columns:
            return np.zeros(0), np.zeros(0, np.int64)
        return np.concatenate([v for v, _ in columns]), np.concatenate([s for _, s in columns])

    # Orders

    @property
    def _ranks(self) -> Array:
        """The places of names in their order."""
        if len(self._ranked) != len(self._names):
            numbers = [self._names[name] for name in sorted(self._names)]
            self._ranked = np.empty(len(numbers), np.int64)
            self._ranked[numbers] = np.arange(len(numbers))
        return self._ranked

    def first(self, marked: Array, order: str | None, most: int) -> list[int]:
        """Return the keys of the first marked cards, by default of the newest."""
        slots = np.flatnonzero(marked)
        keys = -self._column("id")[slots]
        if order is None:
            columns = [keys]
        elif order == "name":
            columns = [
                self._ranks[np.array(self._name)[slots]],
                self._column("number")[slots],
                -keys,
            ]
        else:
            columns = [-self._column(order)[slots], keys]
        ids = self._column("id")[slots]
        return [int(key) for key in ids[_first(columns, most)]]

    def first_by_figure(
        self, marked: Array, name: str, kind: str, most: int, *, ascending: bool
    ) -> list[int]:
        """Return the keys of marked cards by a figure; of several runs the best one counts."""
        values, slots = self._figure(name, kind)
        inside = marked[slots]
        values, slots = values[inside], slots[inside]
        ids = self._column("id")[slots]
        columns = [values, ids] if ascending else [-values, -ids]
        count = 4 * most
        while True:
            keys = list(dict.fromkeys(ids[_first(columns, count)].tolist()))
            if len(keys) >= most or count >= len(ids):
                return keys[:most]
            count *= 4


def _first(columns: Sequence[Array], most: int) -> Array:
    """Return where the rows are that come first by these columns."""
    leading = columns[0]
    rows = np.arange(len(leading))
    if len(leading) > most:
        rows = np.flatnonzero(leading <= np.partition(leading, most)[most])
    order = np.lexsort([column[rows] for column in reversed(columns)])
    return np.asarray(rows[order[:most]])
