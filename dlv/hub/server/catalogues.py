"""Conditions of DQL on the cards of a hub, answered by SQLite catalogues that a process keeps.

A condition can look at other versions than the one that it is about. So each catalogue has only
what everybody sees who may use it: one has the public repositories, each private one its own.
"""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import sqlalchemy as sa

import dlv.disk.durable as durable
import dlv.disk.paths as paths
import dlv.dql.execute as execute
import dlv.dql.words.parser as parser
from dlv.canonical import loads
from dlv.dql.bind.binder import Faults
from dlv.dql.outcome import QueryOptions, Table
from dlv.dql.words import ast
from dlv.dql.words.diagnosis import SyntaxFault, query_of
from dlv.errors import DlvError, UsageError
from dlv.hub.index import Segment, load
from dlv.hub.server import tables
from dlv.hub.server.access import Caller, namespaces, readable
from dlv.hub.server.database import HubDatabase
from dlv.hub.server.hub import Hub
from dlv.hub.server.refusal import Refused
from dlv.metadata import cards, collected
from dlv.metadata.rows import VersionCell
from dlv.pas.coders.zstd import decompress
from dlv.repository.handle import Repository

SECONDS = 5.0  # for one condition, and for bringing a catalogue up to date before it
MOST_CONDITION = 2000  # characters
MOST_PRIVATE = 20  # private repositories that one condition is evaluated in
MOST_OPEN = 32  # catalogues
TOGETHER = 200  # cards that are read at once
MOST_NETWORK = 64 << 20
_PUBLIC = 0  # the key of the catalogue of all public repositories
_NO_QUERY = (ast.Define, ast.Evaluate, ast.Derived, ast.Saved, ast.Explain)
_open: WeakKeyDictionary[Hub, Catalogues] = WeakKeyDictionary()
_opening = threading.Lock()


def matches(hub: Hub, caller: Caller, condition: str, repository_id: int | None = None) -> set[str]:
    """Return ids of the versions that fulfil a condition, among those that the caller may read."""
    if len(condition) > MOST_CONDITION:
        raise UsageError(f"a condition has at most {MOST_CONDITION} characters")
    with _opening:
        catalogues = _open.get(hub)
        if catalogues is None:
            catalogues = _open[hub] = Catalogues(hub)
    cache = paths.cache(hub.environ)
    text = query_of(condition)
    ids: set[str] = set()
    try:
        check(text, cache)
        for key in catalogues.keys(caller, repository_id):
            with catalogues.current(key) as repository:
                ids.update(_answer(repository, text, cache))
    except (SyntaxFault, Faults) as fault:
        fault.move_into(condition)
        raise _refused(fault) from None
    except DlvError as error:
        raise _refused(error) from None
    return ids


def check(text: str, cache: Path) -> None:
    """Refuse all but one plain query: nothing is derived, trained, saved or read from files."""
    statements = list(parser.parse(text, cache))
    body = statements[0].body if statements and isinstance(statements[0], ast.Query) else None
    if len(statements) != 1 or not isinstance(body, ast.Select):
        raise UsageError("this is not one condition")
    for part in _parts(statements[0]):
        if isinstance(part, _NO_QUERY):
            word = type(part).__name__.lower()
            raise UsageError(f"`{word}` is not possible here", hint="run it in a clone")
        if isinstance(part, ast.Matches) or (isinstance(part, ast.Selector) and part.regular):
            # Their time has no limit.
            raise UsageError(
                "regular expressions are not possible here", hint='use a pattern: m["conv*"]'
            )


def _parts(tree: object) -> Iterator[ast.Part]:
    waiting = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, tuple):
            waiting += part
        elif isinstance(part, ast.Part):
            yield part
            waiting += [getattr(part, name) for name in part.__dataclass_fields__]


def _answer(repository: Repository, text: str, cache: Path) -> Iterator[str]:
    options = QueryOptions(cache_folder=cache, directory=repository.root, dry_run=True)
    with repository.database.within(SECONDS):
        for outcome in execute.run(repository, text, options):
            if isinstance(outcome, Table):
                cells = (cell for row in outcome.rows for cell in row)
                yield from [cell.id for cell in cells if isinstance(cell, VersionCell)]


def _refused(error: DlvError) -> Refused:
    """Return the faults of a condition, each with its line and a caret below it."""
    if "takes too long" in error.message:
        return Refused(503, "the condition takes too long", headers={"Retry-After": "10"})
    lines = [part for s in error.spots for part in (s.message, s.line, s.mark, s.hint) if part]
    why = "\n".join(lines) if lines else error.why
    return Refused(422, error.message, why=why, hint=error.hint)


class Catalogues:
    """The catalogues of one process, in a folder of its own."""

    def __init__(self, hub: Hub) -> None:
        self._database: HubDatabase = hub.database
        self._folder = _own_folder(hub.settings.data / "catalogues")
        self._kept: OrderedDict[int, _Catalogue] = OrderedDict()
        self._lock = threading.Lock()

    def keys(self, caller: Caller, repository_id: int | None) -> list[int]:
        """Return the keys of the catalogues that together have what a caller may read."""
        repository = tables.repository.c
        private = sa.and_(readable(caller), repository.visibility == "private")
        if repository_id is not None:
            return [repository_id]
        query = (
            sa.select(repository.id)
            .join(namespaces, namespaces.c.id == repository.namespace_id)
            .where(private, repository.cards > 0)
            .order_by(repository.id)
            .limit(MOST_PRIVATE + 1)
        )
        with self._database.reading() as connection:
            own = list(connection.execute(query).scalars())
        if len(own) > MOST_PRIVATE:
            raise Refused(
                422,
                f"a condition cannot be about more than {MOST_PRIVATE} private repositories",
                hint="search in one repository",
            )
        return [_PUBLIC, *own]

    @contextmanager
    def current(self, key: int) -> Iterator[Repository]:
        """Lock a catalogue, bring it up to date, and yield it."""
        with self._lock:
            catalogue = self._kept.get(key)
            if catalogue is None:
                catalogue = _Catalogue(self._database, self._folder / str(key), key)
                self._kept[key] = catalogue
            self._kept.move_to_end(key)
            for old in list(self._kept)[: max(0, len(self._kept) - MOST_OPEN)]:
                if self._kept[old].close():
                    del self._kept[old]
        end = time.monotonic() + SECONDS
        if not catalogue.lock.acquire(timeout=SECONDS):
            raise _busy()
        try:
            if not catalogue.refresh(end):
                catalogue.refresh_later()
                raise _busy()
            yield catalogue.repository
        finally:
            catalogue.lock.release()


def _busy() -> Refused:
    return Refused(
        503,
        "the cards are being prepared for conditions",
        hint="repeat the search later, or leave out the condition",
        headers={"Retry-After": "10"},
    )


class _Catalogue:
    """The cards of one private repository, or of all public ones."""

    def __init__(self, database: HubDatabase, folder: Path, key: int) -> None:
        self._database, self._folder, self._key = database, folder, key
        self.lock = threading.Lock()
        self._repository: Repository | None = None
        self._cards: dict[int, int] = {}  # how often cards of a repository had changed
        self._owners: dict[str, set[int]] = {}  # repositories by version
        self._own: dict[int, set[str]] = {}  # versions by repository
        self._refreshing = False

    @property
    def repository(self) -> Repository:
        if self._repository is None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._repository, _ = Repository.init(self._folder)
            cards.prepare(self._repository.database)
        return self._repository

    def close(self) -> bool:
        """Close and delete the catalogue unless it is in use."""
        if not self.lock.acquire(blocking=False):
            return False
        try:
            self._discard()
            return True
        finally:
            self.lock.release()

    def _discard(self) -> None:
        if self._repository is not None:
            self._repository.close()
            self._repository = None
        self._cards, self._owners, self._own = {}, {}, {}
        shutil.rmtree(self._folder, ignore_errors=True)

    def refresh_later(self) -> None:
        """Go on refreshing without a limit of time."""
        if not self._refreshing:
            self._refreshing = True
            threading.Thread(target=self._refresh_fully, daemon=True).start()

    def _refresh_fully(self) -> None:
        complete = False
        try:
            while not complete:
                with self.lock:
                    complete = self.refresh(time.monotonic() + SECONDS)
        finally:
            self._refreshing = False

    def refresh(self, end: float) -> bool:
        """Bring the catalogue up to date; False if the time did not suffice."""
        try:
            return self._refresh(end)
        except BaseException:  # what it has now is not known, and must not be shown
            self._discard()
            raise

    def _refresh(self, end: float) -> bool:
        repository = tables.repository.c
        own = repository.visibility == "public" if self._key == _PUBLIC else (
            repository.id == self._key
        )  # fmt: skip
        query = sa.select(repository.id, repository.cards).where(own, repository.cards > 0)
        with self._database.snapshot() as connection:
            now: dict[int, int] = {row[0]: row[1] for row in connection.execute(query)}
            changed = [key for key in now if self._cards.get(key) != now[key]]
            # First what must not be seen any more.
            gone = [key for key in self._cards if key not in now]
            kept = {key: _ids(connection, key) for key in changed}
            self._forget(
                {key: set(self._own.get(key, ())) for key in gone}
                | {key: self._own.get(key, set()) - kept[key] for key in changed}
            )
            for key in gone:
                del self._cards[key]
            for key in changed:
                new = sorted(kept[key] - self._own.get(key, set()))
                for start in range(0, len(new), TOGETHER):
                    if time.monotonic() > end:
                        return False
                    self._add(connection, key, new[start : start + TOGETHER])
                self._cards[key] = now[key]
        return True

    def _forget(self, versions: Mapping[int, set[str]]) -> None:
        lost = []
        for key, ids in versions.items():
            for digest in ids:
                self._owners[digest].discard(key)
                self._own[key].discard(digest)
                if not self._owners[digest]:
                    del self._owners[digest]
                    lost.append(digest)
        if lost:
            db = self.repository.database
            with db.atomic():
                for digest in lost:
                    row = db.value("SELECT id FROM version WHERE hash = ?", (digest,))
                    if row is not None:
                        for table, column in (
                            ("card", "version_id"),
                            ("card_tag", "version_id"),
                            ("card_words", "rowid"),
                        ):
                            db.execute(f"DELETE FROM {table} WHERE {column} = ?", (row,))
                        collected.forget_versions(db, [row])

    def _add(self, connection: sa.Connection, key: int, ids: Sequence[str]) -> None:
        segment = Segment()
        for record in _records(connection, key, ids):
            segment.cards[record["id"]] = self._named(record, key)
        networks = {record["network"] for record in segment.cards.values()} - {None}
        table = tables.network.c
        query = sa.select(table.hash, table.record).where(table.hash.in_(networks))
        for digest, data in connection.execute(query):
            noun = f"network {digest[:12]}"
            text = decompress(bytes(data), MOST_NETWORK, noun)
            segment.networks[digest] = loads(text, noun, limit=MOST_NETWORK)
        with self.repository.database.atomic():
            load(self.repository.database, segment)
        for digest in ids:
            self._owners.setdefault(digest, set()).add(key)
            self._own.setdefault(key, set()).add(digest)

    def _named(self, record: dict[str, Any], key: int) -> dict[str, Any]:
        """Return a card with another number, if a model of another repository has its own."""
        taken = "SELECT hash FROM version WHERE name = ? AND number = ?"
        db = self.repository.database
        if db.value(taken, (record["name"], record["number"])) in (None, record["id"]):
            return record
        return record | {"number": record["number"] + (key << 32)}


def _ids(connection: sa.Connection, repository_id: int) -> set[str]:
    card = tables.card.c
    query = sa.select(card.manifest).where(card.repository_id == repository_id)
    return set(connection.execute(query).scalars())


def _records(
    connection: sa.Connection, repository_id: int, ids: Sequence[str]
) -> Iterator[dict[str, Any]]:
    card, text = tables.card, tables.card_text
    query = (
        sa.select(text.c.record)
        .join(card, card.c.id == text.c.card_id)
        .where(card.c.repository_id == repository_id, card.c.manifest.in_(ids))
        .order_by(card.c.id)
    )
    for record in connection.execute(query).scalars():
        yield loads(record.encode(), "a card")


def _own_folder(folder: Path) -> Path:
    """Return an empty folder for this process; those of processes that ended are deleted."""
    durable.make_directory(folder)
    host = socket.gethostname()
    for other in folder.iterdir():
        name, _, pid = other.name.rpartition("-")
        if name == host and pid.isdigit() and (int(pid) == os.getpid() or not _runs(int(pid))):
            shutil.rmtree(other, ignore_errors=True)
    return durable.make_directory(folder / f"{host}-{os.getpid()}")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
