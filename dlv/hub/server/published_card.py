"""The card of a published version, made from what its publisher sent and never from what it says.

Manifest, network, series and the author's text are read from the store, like on any remote; no
weights are decoded. All of it can be hostile, so that everything has a limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import dlv.objects.manifest as manifest_format
import dlv.versions.card as cards
from dlv.canonical import hash_bytes
from dlv.errors import Damaged, RemoteError, StorageError, UnsafeInput
from dlv.hub.fetching import Fetcher
from dlv.hub.history import History
from dlv.hub.index import is_card, record_of
from dlv.hub.promised import PromisedIndex
from dlv.hub.records import Ref
from dlv.hub.server.card_rows import NewCard
from dlv.hub.server.words import clean
from dlv.hub.stores.interface import PUBLISH_AGAIN, Store
from dlv.kinds import Piece
from dlv.metadata.metrics import Summary
from dlv.metadata.versions import Version
from dlv.network.graph import Network
from dlv.objects.manifest import FileEntry, Manifest
from dlv.versions.card import Card, OwnText
from dlv.weights.store import MatrixStore, stored_network, summary_of

MOST_SERIES, MOST_POINTS = 500, 1_000_000  # of one version
MOST_CHUNK = 64 << 20  # what dlv writes at most
MOST_FETCHED = 256 << 20  # bytes of all chunks of one version
_MOST = {"author": 200, "message": 4000, "framework": 64, "task": 200, "license": 200}


class CardMaker:
    """Makes the cards of one repository; `folder` has what was fetched, until it is deleted."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store, self._folder = store, folder
        self._history = History(store, folder, folder)

    def card(self, ref: Ref) -> tuple[NewCard, Exception | None]:
        """Return the card of a version; a minimal one, and why, if not all can be read.

        RemoteError and StorageError: the store cannot be read now.
        """
        manifest: Manifest | None = None
        try:
            data = self._history.object("manifests", ref.manifest)
            manifest = manifest_format.decode(data, f"manifest of {ref.name}@{ref.number}")
            record, network = self._whole(ref, manifest)
            return NewCard(record, ref.locator, True, network), None
        except StorageError:
            raise
        except Exception as error:  # whatever hostile bytes lead to
            if isinstance(error, RemoteError) and error.hint != PUBLISH_AGAIN:
                raise
            return NewCard(_minimal(ref, manifest), ref.locator, False), error

    def _whole(self, ref: Ref, manifest: Manifest) -> tuple[dict[str, Any], Network | None]:
        index = PromisedIndex()
        fetcher = Fetcher(self._folder, lambda: self._store)
        index.promise(fetcher, self._history.locator(ref))
        store = MatrixStore(self._folder / "none", self._folder, index.locators, promised=index)
        with closing(store):
            reader = _Reader(index, store)
            try:
                return self._record(ref, manifest, reader)
            finally:
                fetcher.forget(reader.packs)

    @staticmethod
    def _record(
        ref: Ref, manifest: Manifest, reader: _Reader
    ) -> tuple[dict[str, Any], Network | None]:
        reader.fetch(_first_read(manifest))
        network = None
        if manifest.network is not None:
            reader.need("network", manifest.network.id)
            network = stored_network(reader.store, manifest.network.id)
        own = cards.text_among(manifest.files, reader.file)
        card = Card(_version(ref, manifest), manifest, network, reader.summaries(manifest), own)
        record = _bounded(record_of(card, ref))
        if not is_card(record):
            raise Damaged(f"the card of {ref.name}@{ref.number} has values out of range")
        return record, network


class _Reader:
    """Reads named objects, each from a chunk of a reasonable size."""

    def __init__(self, index: PromisedIndex, store: MatrixStore) -> None:
        self._index, self.store = index, store
        self._left, self._points = MOST_FETCHED, MOST_POINTS
        self._fetched: set[tuple[str, int]] = set()
        self.packs: set[str] = set()

    def _pieces(self, kind: str, name: str) -> list[Piece]:
        return self._index.object_chunks(kind, name)

    def fetch(self, objects: Iterator[tuple[str, str]]) -> None:
        """Fetch objects together as far as the limits allow."""
        wanted: list[Piece] = []
        for kind, name in objects:
            pieces = self._pieces(kind, name)
            if self._admit(pieces):
                wanted += pieces
        self._index.fetch(wanted)

    def _admit(self, pieces: list[Piece]) -> bool:
        """Whether these are within the limits, which count each chunk once."""
        new = {(p.pack, p.offset): p for p in pieces if (p.pack, p.offset) not in self._fetched}
        size = sum(max(piece.length, piece.raw) for piece in new.values())
        if size > self._left or any(max(p.length, p.raw) > MOST_CHUNK for p in new.values()):
            return False
        self._left -= size
        self._fetched |= new.keys()
        self.packs |= {piece.pack for piece in new.values()}
        return True

    def need(self, kind: str, name: str) -> None:
        """Refuse an object that is absent or too large."""
        pieces = self._pieces(kind, name)
        if not pieces:
            raise Damaged(f"the locator lacks {kind} {name[:12]}")
        if not self._admit(pieces):
            raise UnsafeInput(f"{kind} {name[:12]} is too large for a card")

    def file(self, entry: FileEntry) -> bytes:
        self.need("file", entry.blake3)
        data = bytes(self.store.object("file", entry.blake3))
        if len(data) != entry.bytes or hash_bytes(data) != entry.blake3:
            raise UnsafeInput(f"the file {entry.path} does not match its manifest")
        return data

    def summaries(self, manifest: Manifest) -> list[Summary]:
        """Return the figures of the first series that have numbers and are not too long."""
        import dlv.events.formats.series as series_format

        summaries = []
        for reference in manifest.series[:MOST_SERIES]:
            self.need("series", reference.hash)
            head = bytes(self.store.object("series", reference.hash))
            decoded = series_format.decode_head(head)
            points = sum(count for _, count in decoded.points)
            if decoded.data_class != series_format.SCALARS or points > self._points:
                continue
            self._points -= points
            for digest, _ in decoded.points:
                self.need("points", digest)
            scalars = series_format.decode_scalars(head, self._object)
            summaries.append(summary_of(scalars, reference.hash))
        return sorted(summaries, key=lambda summary: (summary.run, summary.tag))

    def _object(self, kind: str, name: str) -> bytes:
        return bytes(self.store.object(kind, name))


def _first_read(manifest: Manifest) -> Iterator[tuple[str, str]]:
    if manifest.network is not None:
        yield "network", manifest.network.id
    yield from (("file", e.blake3) for e in manifest.files if e.path in cards.NAMES)
    yield from (("series", reference.hash) for reference in manifest.series[:MOST_SERIES])


def _version(ref: Ref, manifest: Manifest) -> Version:
    """Return the version as a repository would have it that pulled it."""
    return Version(
        key=0,
        id=ref.manifest,
        name=ref.name,
        number=ref.number,
        created=manifest.created,
        author=manifest.author,
        message=manifest.message,
        framework=manifest.framework,
        dirty=None,
        state="live",
    )


def _minimal(ref: Ref, manifest: Manifest | None) -> dict[str, Any]:
    """Return a card of what the ref says, and the manifest if it can be read."""
    empty = Manifest(name=ref.name, message="", author=ref.author, created=ref.time)
    for known in (manifest, empty):
        if known is not None:
            card = Card(_version(ref, known), known, None, [], OwnText())
            record = _bounded(record_of(card, ref)) | {"network": None}
            if is_card(record):
                return record
    raise Damaged(f"the ref {ref.name}@{ref.number} has values out of range")


def _bounded(record: dict[str, Any]) -> dict[str, Any]:
    """Return a card whose parts are of a size that people read."""
    short = {key: None if record[key] is None else clean(record[key], _MOST[key]) for key in _MOST}
    settings = {
        name: clean(value, 200) if isinstance(value, str) else value
        for name, value in list(record["hyperparameters"].items())[:1000]
        if len(name) <= 200 and isinstance(value, str | int | float | None)
    }
    return (
        record
        | short
        | {
            "hyperparameters": settings,
            "parents": record["parents"][:1000],
            "layers": [clean(name, 200) for name in record["layers"]],
            "tags": [clean(tag, 200) for tag in record["tags"][:200]],
            "text": clean(record["text"], len(record["text"])),
            "metrics": [summary for summary in record["metrics"] if len(summary["tag"]) <= 200],
        }
    )
