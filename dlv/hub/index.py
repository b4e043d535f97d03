"""The index of a remote: cards of all versions, so that they can be searched without a server.

Each publish appends one segment, which is written once, like a ref. Segment n also contains the
segments since n - 16 if n is divisible by 16, since n - 256 if it is divisible by 256, and so on.
Reading everything takes few segments, and a card is rewritten only a few times. The index is
derived from the refs. If a publisher dies before it has appended its cards, its next publish does.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import dlv.disk.durable as durable
import dlv.versions.card as cards
from dlv.canonical import NON_FINITE, WRITER, dumps, is_hash, read_json
from dlv.errors import Damaged, DlvError, RemoteError
from dlv.hub.records import Ref
from dlv.hub.remotes import Remote
from dlv.hub.stores.interface import Store
from dlv.metadata import cards as card_rows
from dlv.metadata import networks, versions
from dlv.metadata.database import Database
from dlv.network.graph import Network
from dlv.objects.manifest import NAME, PARENT_KINDS
from dlv.pas.coders.zstd import ZstdCodec, decompress
from dlv.repository.handle import Repository
from dlv.versions.card import Card
from dlv.weights.store import node_figures

FORMAT = "dlv/index/1"
HINT = "index/hint"
FAN = 16
MOST_SEGMENT, MOST_DECODED = 128 << 20, 512 << 20
MOST_TEXT = 16 << 10  # characters of a card's text
_SUMMARY = {"run", "tag", "hash", "n", "last_step", "last", "min", "min_step", "max", "max_step"}
_SUMMARY |= {"nonfinite"}
_FIGURES = ("last", "min", "max")
_TEXTS = ("author", "message", "text")


def segment_key(seq: int) -> str:
    return f"index/{seq:020}.zst"


def record_of(card: Card, ref: Ref) -> dict[str, Any]:
    """Return a card as it is stored in the index."""
    version = card.version
    layers = [*card.operations, *(node.name for node in card.network.nodes)] if card.network else []
    return {
        "id": ref.manifest,
        "name": ref.name,
        "number": ref.number,
        "author": version.author,
        "created": version.created,
        "message": version.message,
        "framework": version.framework,
        "parents": [[parent.id, parent.kind] for parent in card.manifest.parents],
        "hyperparameters": dict(card.manifest.hyperparameters),
        "metrics": [_plain(asdict(summary)) for summary in card.metrics],
        "network": None if card.network is None else card.network.id,
        "layers": list(dict.fromkeys(layers))[:500],
        "task": card.own.task,
        "license": card.own.license,
        "tags": card.tags,
        "bytes": card.bytes,
        "parameters": card.parameters,
        "text": card.own.text[:MOST_TEXT],
    }


def _plain(summary: dict[str, Any]) -> dict[str, Any]:
    """Return a summary with words for NaN and the infinities, which JSON cannot express."""
    words = {repr(value): word for word, value in NON_FINITE.items()}
    return {
        key: words.get(repr(value), value) if isinstance(value, float) else value
        for key, value in summary.items()
    }


class Segment:
    """Cards, the networks that they name, and versions that were retired."""

    def __init__(self) -> None:
        self.cards: dict[str, dict[str, Any]] = {}
        self.networks: dict[str, Any] = {}
        self.retired: dict[str, None] = {}

    def add(self, record: dict[str, Any], network: Network | None) -> None:
        self.cards[record["id"]] = record
        if network is not None:
            self.networks[network.id] = network.canonical()

    def merge(self, older: Segment) -> None:
        """Add the entries of an older segment; those of this one take precedence."""
        self.cards = older.cards | self.cards
        self.networks = older.networks | self.networks
        self.retired = older.retired | self.retired

    def encode(self) -> bytes:
        text = dumps(
            {
                "format": FORMAT,
                "writer": WRITER,
                "cards": list(self.cards.values()),
                "networks": self.networks,
                "retired": list(self.retired),
            }
        )
        return ZstdCodec("text").encode(text)


def decode_segment(data: bytes, noun: str) -> Segment:
    """Read a segment; cards that are not valid are left out."""
    record = read_json(decompress(data, MOST_DECODED, noun), noun, limit=MOST_DECODED)
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise Damaged(f"{noun} is not valid", why="unknown format")
    segment = Segment()
    for card in record.get("cards") or ():
        if is_card(card):
            segment.cards[card["id"]] = card
    stored_networks = record.get("networks")
    segment.networks = stored_networks if isinstance(stored_networks, dict) else {}
    segment.retired = dict.fromkeys(filter(is_hash, record.get("retired") or ()))
    return segment


def is_card(card: Any) -> bool:
    """Return whether all fields have the types that the database expects."""
    try:
        dumps(card)  # all of its text is valid Unicode
        return (
            is_hash(card["id"])
            and NAME.match(card["name"]) is not None
            and type(card["number"]) is int
            and 0 < card["number"] < 1 << 53
            and all(isinstance(card[key], str) for key in (*_TEXTS, "created"))
            and all(isinstance(card[key], str | None) for key in ("framework", "task", "license"))
            and (card["network"] is None or is_hash(card["network"]))
            and all(isinstance(text, str) for text in [*card["tags"], *card["layers"]])
            and all(type(card[key]) is int for key in ("bytes", "parameters"))
            and 0 <= card["bytes"] < 1 << 60
            and 0 <= card["parameters"] < 1 << 60
            and bool(datetime.datetime.fromisoformat(card["created"]).tzinfo)
            and all(map(_is_value, card["hyperparameters"].values()))
            and all(is_hash(key) and kind in PARENT_KINDS for key, kind in card["parents"])
            and all(_is_summary(summary) for summary in card["metrics"])
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return False


def numbers_of(summary: dict[str, Any]) -> dict[str, Any]:
    """Undo `_plain`."""
    return {
        key: NON_FINITE.get(value, None) if key in _FIGURES and isinstance(value, str) else value
        for key, value in summary.items()
    }


def _is_summary(summary: Any) -> bool:
    return (
        summary.keys() == _SUMMARY
        and isinstance(summary["run"], str)
        and isinstance(summary["tag"], str)
        and is_hash(summary["hash"])
        and all(_is_value(summary[key]) for key in _SUMMARY - {"run", "tag", "hash"})
    )


def _is_value(value: Any) -> bool:
    """Return whether SQLite can store a value."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return isinstance(value, float | str | None)


class Index:
    """The segments of a remote."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def last(self, known: int = 0) -> int:
        """Return the number of the newest segment; the hint only saves requests."""
        seq = known
        with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError, RemoteError):
            hint = json.loads(self._store.find(HINT, most=1000) or b"{}")["seq"]
            if type(hint) is int and known < hint < 1 << 40 and self._has(hint):
                seq = hint
        while self._has(seq + 1):
            seq += 1
        return seq

    def _has(self, seq: int) -> bool:
        return self._store.size(segment_key(seq)) is not None

    def segments(self, known: int, last: int) -> Iterator[Segment]:
        """Yield the segments after a known one, the newest first."""
        wanted = list(_cover(known, last))
        with ThreadPoolExecutor(8) as pool:
            yield from pool.map(self.segment, wanted)

    def segment(self, seq: int) -> Segment:
        data = self._store.find(segment_key(seq), most=MOST_SEGMENT)
        if data is None:
            return Segment()
        return decode_segment(data, f"segment {seq} of the index at {self._store.url}")

    def append(self, segment: Segment) -> None:
        """Write the next segment; if another writer has just written it, try the one after it."""
        seq = self.last()
        while True:
            seq += 1
            whole = Segment()
            whole.merge(segment)
            for older in self.segments(seq - _span(seq), seq - 1):
                whole.merge(older)
            if self._store.create(segment_key(seq), whole.encode()):
                self._store.put(HINT, json.dumps({"seq": seq}).encode())
                return


def _span(seq: int) -> int:
    """Return how many segments, itself included, a segment stands for."""
    span = 1
    while seq % (span * FAN) == 0:
        span *= FAN
    return span


def _cover(known: int, last: int) -> Iterator[int]:
    """Yield numbers of segments that together hold all after `known`, the newest first."""
    seq = last
    while seq > known:
        yield seq
        seq -= _span(seq)


class Pending:
    """Versions that this repository has published and may not have added to the index yet."""

    def __init__(self, repository: Repository, remote: Remote) -> None:
        self._repository, self._remote = repository, remote
        self._path = remote.history.cache / "index-pending.json"

    def note(self, ids: Iterable[str]) -> None:
        """Remember versions before they are published or retired."""
        if self._remote.store.managed:
            return  # the hub makes the cards
        known = self._read()
        durable.make_directory(self._path.parent)
        data = json.dumps(sorted({*known, *ids})).encode()
        durable.replace(self._path, data, tmp_dir=self._repository.tmp)

    def write(self, refs: Mapping[str, Ref]) -> None:
        """Add the noted versions to the index; those without a ref in `refs` were retired.

        If this fails, the publish has succeeded all the same, and the next one tries again.
        """
        ids = self._read()
        if not ids:
            return
        segment = Segment()
        for digest in ids:
            version = versions.by_id(self._repository.database, digest)
            if digest in refs and version is not None:
                card = cards.card_of(self._repository, version)
                segment.add(record_of(card, refs[digest]), card.network)
            elif digest not in refs:
                segment.retired[digest] = None
        with contextlib.suppress(RemoteError):
            Index(self._remote.store).append(segment)
            self._path.unlink(missing_ok=True)

    def _read(self) -> list[str]:
        try:
            return [digest for digest in json.loads(self._path.read_bytes()) if is_hash(digest)]
        except (OSError, ValueError, TypeError):
            return []


def catalogue_of(
    remote: Remote, refresh: bool, progress: Callable[[int], None], total: Callable[[int], None]
) -> Repository:
    """Return a repository whose database has the cards of a remote; `refresh` reads new ones."""
    folder = remote.history.cache / "search"
    catalogue, _ = Repository.init(folder)
    try:
        known = card_rows.prepare(catalogue.database)
    except Damaged:  # it can be made again
        catalogue.close()
        shutil.rmtree(folder)
        catalogue, _ = Repository.init(folder)
        known = card_rows.prepare(catalogue.database)
    db = catalogue.database
    index = Index(remote.store)
    last = index.last(known) if refresh else known
    if last == known:
        return catalogue
    segments = list(index.segments(known, last))
    total(sum(len(segment.cards) for segment in segments))
    with db.atomic():
        for segment in reversed(segments):
            load(db, segment, progress)
        card_rows.loaded(db, last)
    return catalogue


def load(db: Database, segment: Segment, progress: Callable[[int], None] = lambda _: None) -> None:
    """Insert the cards of a segment, and hide the versions that it says were retired."""
    net_ids: dict[str, int] = {}
    for digest, canonical in segment.networks.items():
        with contextlib.suppress(DlvError, TypeError, ValueError, KeyError):
            network = Network.from_canonical(canonical)
            if network.id == digest:
                net_ids[digest] = networks.insert(db, network, node_figures(network))
    for number, card in enumerate(segment.cards.values()):
        metrics = [numbers_of(summary) for summary in card["metrics"]]
        card_rows.insert(db, card | {"metrics": metrics}, net_ids.get(card["network"] or ""))
        if number % 500 == 499:
            progress(500)
    card_rows.withdraw(db, segment.retired)
