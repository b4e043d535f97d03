"""Hostile remotes cause a typed error, use little memory, and make nothing visible."""

from __future__ import annotations

import contextlib
import json
import resource
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

import dlv.hub.searching as searching
import dlv.objects.manifest as manifest_format
from dlv.canonical import dumps, hash_bytes
from dlv.errors import DlvError
from dlv.hub.index import catalogue_of
from dlv.hub.locator import Locator, decode_locator
from dlv.hub.promised import find_promised
from dlv.hub.records import decode_ref, object_key
from dlv.metadata import versions
from dlv.objects.fact import Fact
from dlv.pas.coders.zstd import ZstdCodec
from dlv.repository.handle import Repository
from dlv.weights.store import MatrixStore
from tests.hub.stores import MemoryStore
from tests.hub.test_push_pull import other, publish, pull, remote_of

__all__ = ["other"]

REF = "refs/lenet/00000000000000000001.json"


def change_ref(store: MemoryStore, **keys: Any) -> None:
    record = json.loads(store.objects[REF])
    store.objects[REF] = dumps({**record, **keys})


def change_locator(store: MemoryStore, change: Callable[[Locator], object]) -> None:
    """Replace the locator by a changed one with a valid hash, as an unsigned remote could."""
    ref = decode_ref(store.objects[REF], "ref")
    found = decode_locator(store.objects[object_key("locators", ref.locator)], "locator")
    change(found)
    data = found.encode()
    store.objects[object_key("locators", hash_bytes(data))] = data
    change_ref(store, locator=hash_bytes(data))


def change_manifest(store: MemoryStore, **fields: Any) -> None:
    ref = decode_ref(store.objects[REF], "ref")
    found = manifest_format.decode(store.objects[object_key("manifests", ref.manifest)])
    made = replace(found, **fields)
    store.objects[object_key("manifests", made.id)] = made.encode()
    change_locator(store, lambda locator: setattr(locator, "version", made.id))
    change_ref(store, manifest=made.id)


def chunks_changed(**keys: Any) -> Callable[[MemoryStore], None]:
    def lie(store: MemoryStore) -> None:
        def change(locator: Locator) -> None:
            locator.chunks = [(pack, replace(chunk, **keys)) for pack, chunk in locator.chunks]

        change_locator(store, change)

    return lie


def other_fact(store: MemoryStore) -> None:
    fact = Fact("tag", "paper", "M", "2026-01-31T12:00:00.000000Z", {"version": "a" * 64})
    store.objects[object_key("facts", fact.hash)] = fact.encode()
    change_locator(store, lambda locator: locator.facts.append(fact.hash))


def swapped_files(store: MemoryStore) -> None:
    ref = decode_ref(store.objects[REF], "ref")
    found = manifest_format.decode(store.objects[object_key("manifests", ref.manifest)])
    first = found.files[0]
    change_manifest(store, files=(replace(first, path="../../outside"), *found.files[1:]))


def all_packs(data: Callable[[bytes], bytes]) -> Callable[[MemoryStore], None]:
    def lie(store: MemoryStore) -> None:
        for key in [key for key in store.objects if key.startswith("packs/")]:
            store.objects[key] = data(store.objects[key])

    return lie


def bomb(store: MemoryStore) -> None:
    data = ZstdCodec("text").encode(bytes(1 << 30))
    store.objects[object_key("locators", hash_bytes(data))] = data
    change_ref(store, locator=hash_bytes(data))


def hint_into_the_blue(store: MemoryStore) -> None:
    store.objects["refs/lenet/hint"] = b'{"seq": 1099511627000}'
    change_ref(store, locator="a" * 64)


LIES: dict[str, Callable[[MemoryStore], object]] = {
    "a ref that is not JSON": lambda store: store.objects.update({REF: b"{"}),
    "a ref of megabytes": lambda store: store.objects.update({REF: b" " * (1 << 20)}),
    "a ref of another name": lambda store: change_ref(store, name="wide"),
    "a ref of another place": lambda store: change_ref(store, seq=7),
    "a ref with a predecessor": lambda store: change_ref(store, prev="a" * 64),
    "a ref to itself": lambda store: change_ref(store, prev=hash_bytes(store.objects[REF])),
    "a ref of a later kind": lambda store: change_ref(store, kind="steal"),
    "a ref to a manifest that is not there": lambda store: change_ref(store, manifest="a" * 64),
    "a ref to a locator that is not there": lambda store: change_ref(store, locator="a" * 64),
    "a locator that unpacks to a gigabyte": bomb,
    "a locator of another version": lambda store: change_locator(
        store, lambda locator: setattr(locator, "version", "a" * 64)
    ),
    "a locator without chunks": lambda store: change_locator(
        store, lambda locator: locator.chunks.clear()
    ),
    "a locator of packs that are not there": lambda store: change_locator(
        store, lambda locator: setattr(locator, "packs", ["a" * 64 for _ in locator.packs])
    ),
    "chunks of petabytes": chunks_changed(length=1 << 50),
    "chunks that unpack to petabytes": chunks_changed(raw=1 << 50),
    "chunks somewhere else": chunks_changed(offset=9),
    "chunks beyond the end": chunks_changed(offset=1 << 40),
    "chunks with another hash": chunks_changed(blake3="a" * 64),
    "chunks with another codec": chunks_changed(codec={"id": "none-such"}),
    "packs of nothing": all_packs(lambda _: b""),
    "packs that are cut": all_packs(lambda data: data[: len(data) // 2]),
    "packs of zeros": all_packs(lambda data: bytes(len(data))),
    "a fact about something else": other_fact,
    "a fact that is not there": lambda store: change_locator(
        store, lambda locator: locator.facts.append("b" * 64)
    ),
    "files outside the project": swapped_files,
    "files of another tree": lambda store: change_manifest(store, tree="1" * 40),
    "a hint into the blue": hint_into_the_blue,
}


@pytest.mark.parametrize("lie", LIES)
def test_nothing_becomes_visible(lived: Repository, other: Repository, lie: str) -> None:
    store = MemoryStore()
    publish(lived, store, "lenet@1")
    LIES[lie](store)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DlvError) as caught:
        pull(other, store, "lenet")
    assert caught.value.exit_code in (3, 4, 6, 7, 9)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 300_000, "kilobytes"
    assert versions.all_versions(other.database) == []
    assert list(other.packs.glob("??/*")) == []
    assert other.head is None


def test_a_hint_that_is_wrong_only_costs_requests(lived: Repository, other: Repository) -> None:
    store = MemoryStore()
    publish(lived, store, "lenet@1")
    for hint in (b"", b"[]", b"nonsense", b'{"seq": -1}', b'{"seq": 99}', b'{"seq": "x"}'):
        store.objects["refs/lenet/hint"] = hint
        pull(other, store, "lenet", dry_run=True)
    assert pull(other, store, "lenet").versions


@pytest.mark.parametrize("lie", LIES)
def test_promised_weights_are_never_wrong(lived: Repository, other: Repository, lie: str) -> None:
    """Weights that are fetched when they are read are those that the version names, or none."""
    store = MemoryStore()
    publish(lived, store, "lenet@1")
    LIES[lie](store)
    remote = remote_of(other, store)
    other.find_promised = lambda found: find_promised(found, {}, remote)
    wrong = 0
    try:
        pull(other, store, "lenet", metadata_only=True)
    except DlvError:
        assert versions.all_versions(other.database) == []
        return
    (version,) = versions.all_versions(other.database)
    with closing(MatrixStore.of(other)) as weights, closing(MatrixStore.of(lived)) as right:
        for snapshot in other.manifest(version.id).snapshots:
            for digest in filter(None, snapshot.hashes):
                try:
                    assert weights.matrix(digest) == right.matrix(digest)
                except DlvError:
                    wrong += 1
    assert wrong or lie in ("files of another tree", "a hint into the blue")


INDEX = "index/00000000000000000001.zst"
INDEX_LIES: dict[str, dict[str, bytes]] = {
    "a hint into the blue": {"index/hint": b'{"seq": 1099511627000}'},
    "a hint that is none": {"index/hint": b"[" * 100_000},
    "a segment of nothing": {INDEX: b""},
    "a segment that is cut": {INDEX: ZstdCodec("text").encode(b"{}" * 1000)[:20]},
    "a segment that unpacks to too much": {INDEX: ZstdCodec("text").encode(bytes(8 << 20))},
    "a segment of nested lists": {INDEX: ZstdCodec("text").encode(b"[" * 1_000_000)},
    "cards that are none": {
        INDEX: ZstdCodec("text").encode(
            dumps(
                {
                    "format": "dlv/index/1",
                    "writer": "x",
                    "cards": [1, None, {"id": "x"}],
                    "networks": {"a" * 64: {"nodes": "many"}},
                    "retired": ["x", 5],
                }
            )
        )
    },
}


@pytest.mark.parametrize("lie", INDEX_LIES)
def test_an_index_that_lies(
    lived: Repository, other: Repository, lie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlv.hub.index.MOST_DECODED", 1 << 20)
    store = MemoryStore()
    publish(lived, store, "lenet@1")
    store.objects.update(INDEX_LIES[lie])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with contextlib.suppress(DlvError):
        catalogue = catalogue_of(remote_of(other, store), True, lambda _: None, lambda _: None)
        searching.search(catalogue.database, "lenet")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000, "kilobytes"
    # A publisher is not stopped by it.
    assert publish(lived, store, "wide@1").sent
