"""Cards of a hub: made from what was published, like those of the index, and safe to make."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import dlv.hub.locator as locators
import dlv.hub.server.published_card as published_card
from dlv.canonical import hash_bytes
from dlv.errors import RemoteError
from dlv.hub.history import History, published
from dlv.hub.index import Index
from dlv.hub.locator import decode_locator
from dlv.hub.records import Ref, object_key
from dlv.hub.server import cards, repositories, tables
from dlv.hub.server.access import Caller, Place
from dlv.hub.server.search import parse, search
from dlv.hub.stores.directory import DirectoryStore
from dlv.hub.stores.interface import Store
from dlv.objects.manifest import Manifest
from tests.hub.server.filling import Version
from tests.hub.server.site import Site

CARD = """---
license: MIT
tags: [tiny, "Zürich"]
pipeline_tag: Image Classification
---
A network that reads digits\x00 and \u202eother things.
"""


class Sent(Version):
    """A version with any number of packs."""

    packs: tuple[bytes, ...] = ()

    @property
    def objects(self) -> dict[tuple[str, str], bytes]:
        named = [("manifests", self.manifest), ("locators", self.locator)]
        named += [("packs", pack) for pack in self.packs]
        return {(kind, hash_bytes(data)): data for kind, data in named}


def sent(manifest: bytes, locator: bytes, packs: Iterator[bytes]) -> Sent:
    version = Sent(manifest, locator, b"")
    object.__setattr__(version, "packs", tuple(packs))
    return version


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory remote with the versions of the demo, and one that has a card."""
    folder = tmp_path_factory.mktemp("remote")

    def dlv(*words: str) -> None:
        subprocess.run(
            [sys.executable, "-m", "dlv", *words],
            cwd=folder / "demo" if words[0] != "demo" else folder,
            check=True,
            capture_output=True,
        )

    dlv("demo", "demo")
    (folder / "demo" / "CARD.md").write_text(CARD)
    dlv("checkout", "lenet@latest", "-f")
    dlv("add", "CARD.md")
    dlv("commit", "-m", "With a card")
    dlv("remote", "add", "origin", "../team")
    dlv("publish")
    return folder / "team"


class Source:
    """What a directory remote has, as versions to be sent to a hub."""

    def __init__(self, folder: Path) -> None:
        self.store = DirectoryStore(folder)
        self.history = History(self.store, folder.parent / "cache", folder.parent)
        self.refs: list[Ref] = [
            ref
            for name in self.history.names()
            for ref in published(self.history.chain(name, None)).values()
        ]

    def version(self, ref: Ref) -> Sent:
        locator = self.history.object("locators", ref.locator)
        packs = decode_locator(locator, "locator").packs
        read = (self.store.get(object_key("packs", pack), most=1 << 30) for pack in packs)
        return sent(self.history.object("manifests", ref.manifest), locator, read)

    def records(self) -> dict[str, dict[str, Any]]:
        """The cards that the publisher wrote into the index."""
        index = Index(self.store)
        found: dict[str, dict[str, Any]] = {}
        for segment in index.segments(0, index.last()):
            found |= segment.cards
        return found


@pytest.fixture(scope="module")
def source(remote: Path) -> Source:
    return Source(remote)


@pytest.fixture
def site(tmp_path: Path, hub_database_url: str) -> Iterator[Site]:
    site = Site(tmp_path / "hub", hub_database_url)
    site.user("acme")
    yield site
    site.close()


@pytest.fixture
def place(site: Site) -> Place:
    return site.repository("acme/vision", "public", "acme")


def stored(site: Site) -> dict[str, dict[str, Any]]:
    """All cards of the hub by the id of the version."""
    query = sa.select(tables.card_text.c.record)
    with site.hub.database.reading() as connection:
        found = [json.loads(text) for text in connection.execute(query).scalars()]
    assert len({record["id"] for record in found}) == len(found)
    return {record["id"]: record for record in found}


def is_whole(site: Site) -> bool:
    with site.hub.database.reading() as connection:
        return bool(connection.execute(sa.select(tables.card.c.whole)).scalar_one())


def make(site: Site, place: Place) -> int:
    return cards.make_cards(site.hub, place.id, place.uuid, place.label)


def with_card(source: Source) -> Ref:
    return next(ref for ref in source.refs if b"CARD.md" in source.version(ref).manifest)


def test_cards_are_those_of_the_index(site: Site, place: Place, source: Source) -> None:
    for ref in source.refs:
        site.publish(place, "acme", ref.name, source.version(ref))
    assert make(site, place) == len(source.refs)
    assert not site.errors()
    expected = source.records()
    for digest, record in stored(site).items():
        written = expected[digest] | {"number": record["number"]}
        assert record | {"tags": []} == json.loads(json.dumps(written)) | {
            "tags": [],
            "text": written["text"].replace("\0", "\ufffd"),
        }
    card = stored(site)[with_card(source).manifest]
    assert (card["task"], card["license"]) == ("Image Classification", "MIT")
    assert card["tags"] == ["tiny", "Zürich"]
    everybody = Caller()
    for text in ("digits tag:zürich", "license:mit net:conv*", 'task:"image classification"'):
        found = search(site.hub.database, everybody, parse(text))
        assert card["id"] in {hit.record["id"] for hit in found.hits}, text
    assert make(site, place) == 0
    with site.hub.database.reading() as connection:
        assert connection.execute(sa.select(sa.func.count(tables.network.c.hash))).scalar()


def test_retired_versions_have_no_card(site: Site, place: Place) -> None:
    first, second = (Version.of("net", text, text.encode()) for text in ("one", "two"))
    for version in (first, second):
        site.publish(place, "acme", "net", version)
    assert make(site, place) == 2
    retiring = replace(site.ref(place, "net", first, "retire"), number=1)
    repositories.publish(
        site.hub, site.caller("acme"), place, "net", retiring.seq, retiring.encode()
    )
    assert make(site, place) == 0
    assert stored(site).keys() == {hash_bytes(second.manifest)}
    assert search(site.hub.database, Caller(), parse("one")).count == 0
    site.publish(place, "acme", "net", first)
    assert make(site, place) == 1
    assert stored(site)[hash_bytes(first.manifest)]["number"] == 3


def test_two_processes_make_each_card_once(site: Site, place: Place, hub_database_url: str) -> None:
    for number in range(40):
        version = Version.of("net", f"message {number}", str(number).encode())
        site.publish(place, "acme", "net", version)
    other = Site(site.folder, hub_database_url)
    try:
        with ThreadPoolExecutor(4) as pool:
            counts = list(pool.map(lambda i: make((site, other)[i % 2], place), range(8)))
    finally:
        other.close()
    assert sum(counts) == 40
    assert len(stored(site)) == 40


def test_what_was_missed_is_made_at_start(site: Site, place: Place) -> None:
    version = Version.of("net", "one", b"1")
    site.publish(place, "acme", "net", version)
    assert cards.catch_up(site.hub) == 1
    assert cards.catch_up(site.hub) == 0
    with site.hub.database.writing() as connection:
        connection.execute(sa.delete(tables.need))  # as retiring it does
        connection.execute(sa.update(tables.ref).values(kind="retire"))
    assert cards.catch_up(site.hub) == 0
    assert stored(site) == {}
    assert cards.rebuild(site.hub, place.id, place.uuid, place.label) == 0


def test_a_store_that_cannot_be_read_now(
    site: Site, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.publish(place, "acme", "net", Version.of("net", "one", b"1"))

    def fail(*_: object, **__: object) -> bytes:
        raise RemoteError("the store does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "get", fail)
        with pytest.raises(RemoteError, match="does not answer"):
            make(site, place)
    assert stored(site) == {}
    assert make(site, place) == 1


def _without_chunks(version: Sent) -> Sent:
    locator = decode_locator(version.locator, "locator")
    locator.chunks = []
    return sent(version.manifest, locator.encode(), iter(version.packs))


def _foreign_packs(version: Sent) -> Sent:
    locator = decode_locator(version.locator, "locator")
    packs = [bytes(len(pack)) for pack in version.packs]
    locator.packs = [hash_bytes(pack) + "" for pack in packs]
    return sent(version.manifest, locator.encode(), iter(packs))


def _wrong_codecs(version: Sent) -> Sent:
    locator = decode_locator(version.locator, "locator")
    locator.chunks = [
        (pack, replace(chunk, codec={"id": "zstd", "level": "x", "window": 1 << 62}))
        for pack, chunk in locator.chunks
    ]
    return sent(version.manifest, locator.encode(), iter(version.packs))


@pytest.mark.parametrize(
    "spoil", [_without_chunks, _foreign_packs, _wrong_codecs], ids=lambda f: f.__name__
)
def test_hostile_locators_give_minimal_cards(
    site: Site, place: Place, source: Source, spoil: Any
) -> None:
    ref = with_card(source)
    good = source.version(ref)
    bad = spoil(good)
    site.publish(place, "acme", ref.name, bad)
    assert make(site, place) == 1
    assert not is_whole(site)
    assert len(site.errors()) == 1
    (card,) = stored(site).values()
    assert (card["network"], card["text"], card["message"]) == (None, "", "With a card")
    assert card["parameters"] > 0
    assert make(site, place) == 0
    # With other packs, everything can be read.
    site.store(place, "acme", good)
    again = site.ref(place, ref.name, good, "reencode")
    again = replace(again, number=1)
    repositories.publish(site.hub, site.caller("acme"), place, ref.name, again.seq, again.encode())
    assert make(site, place) == 1
    assert is_whole(site)


def test_texts_that_databases_cannot_store(site: Site, place: Place) -> None:
    plain = Version.of("net", "x", b"1")
    manifest = Manifest(
        name="net",
        message="a\x00b \u202e" + "word " * 5000,
        author="\x00" * 3000,
        created="2026-01-01T00:00:00.000000Z",
        hyperparameters={"\x00": 1.0, "a": {"b": 1}, "lr": 0.1, "x" * 300: 2.0, "n": "NaN"},
    ).encode()
    locator = replace(decode_locator(plain.locator, "locator"), version=hash_bytes(manifest))
    site.publish(place, "acme", "net", sent(manifest, locator.encode(), iter([plain.pack])))
    assert make(site, place) == 1
    (card,) = stored(site).values()
    assert len(card["message"]) <= 4000
    assert len(card["author"]) <= 200
    assert card["hyperparameters"] == {"\x00": 1.0, "lr": 0.1, "n": "NaN"}
    for text in ("lr=0.1", "word", "\x00=1", "author:\x00 b"):
        assert search(site.hub.database, Caller(), parse(text)).count == 1, text


def test_long_series_are_left_out(
    site: Site, place: Place, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published_card, "MOST_POINTS", 1)
    ref = next(ref for ref in source.refs if source.records()[ref.manifest]["metrics"])
    site.publish(place, "acme", ref.name, source.version(ref))
    make(site, place)
    (card,) = stored(site).values()
    assert card["metrics"] == []
    assert is_whole(site)


def test_large_chunks_are_not_read(
    site: Site, place: Place, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert published_card.MOST_CHUNK <= locators.MOST_CHUNK
    monkeypatch.setattr(published_card, "MOST_CHUNK", 100)
    ref = with_card(source)
    site.publish(place, "acme", ref.name, source.version(ref))
    assert make(site, place) == 1
    assert not is_whole(site)
    assert "too large" in site.errors()[0]
