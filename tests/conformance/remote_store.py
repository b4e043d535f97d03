"""What every backend of remotes must do: subclass `StoreSuite` in the backend's own test file."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import dlv.hub.probe as probing
from dlv.errors import RemoteError
from dlv.hub.stores.interface import MissingObject, Store

DATA = random.Random(1).randbytes(300_000)


class StoreSuite:
    """`store` is a fixture of the subclass; `behind` reads and writes without the backend."""

    def key(self, name: str, data: bytes) -> str:  # noqa: ARG002
        """Return the key for some content; a hub has only keys that depend on it."""
        return name

    def test_what_was_put_is_there(self, store: Store, behind: dict[str, bytes]) -> None:
        for name, data in {"a/b/c.bin": DATA, "empty": b"", "refs/x y/ü.json": b"{}"}.items():
            key = self.key(name, data)
            store.put(key, data)
            assert behind[key] == data
            assert store.get(key, most=len(data)) == data
            assert store.size(key) == len(data)

    def test_what_others_wrote_is_read(self, store: Store, behind: dict[str, bytes]) -> None:
        key = self.key("packs/aa/x.pack", DATA)
        behind[key] = DATA
        assert store.get(key, most=1 << 20) == DATA
        assert store.get_range(key, 1000, 5000) == DATA[1000:6000]
        assert store.get_range(key, len(DATA) - 5, 5) == DATA[-5:]

    def test_times_are_those_of_the_store(self, store: Store, behind: dict[str, bytes]) -> None:
        behind["first"] = b"1"
        behind["second"] = b"2"
        first, second = store.modified("first"), store.modified("second")
        assert first is not None
        assert second is not None
        assert first <= second <= first + 60
        assert store.modified("no/such") is None

    def test_ranges_beyond_the_end_are_refused(
        self, store: Store, behind: dict[str, bytes]
    ) -> None:
        key = self.key("short", b"0123456789")
        behind[key] = b"0123456789"
        with pytest.raises(RemoteError):
            store.get_range(key, 5, 20)

    def test_what_is_missing_is_said_so(self, store: Store) -> None:
        for key in ("no/such", self.key("no/such", b"missing")):
            assert store.size(key) is None
            assert store.find(key, most=10) is None
            with pytest.raises(MissingObject):
                store.get(key, most=10)
            with pytest.raises(MissingObject):
                store.get_range(key, 0, 10)

    def test_more_than_allowed_is_refused(self, store: Store, behind: dict[str, bytes]) -> None:
        key = self.key("large", DATA)
        behind[key] = DATA
        with pytest.raises(RemoteError):
            store.get(key, most=1000)

    def test_requests_and_bytes_are_counted(self, store: Store, behind: dict[str, bytes]) -> None:
        key = self.key("counted", DATA)
        behind[key] = DATA
        store.get(key, most=1 << 20)
        store.get_range(key, 0, 10)
        traffic = store.traffic
        assert (traffic.requests, traffic.received, traffic.sent) == (2, len(DATA) + 10, 0)


class WritableStoreSuite(StoreSuite):
    """The same for backends that are written to."""

    def test_overwriting_replaces_all(self, store: Store, behind: dict[str, bytes]) -> None:
        store.put("same", DATA)
        store.put("same", b"short")
        assert behind["same"] == store.get("same", most=100) == b"short"

    def test_create_only_once(self, store: Store, behind: dict[str, bytes]) -> None:
        assert store.create("refs/a/1", b"first")
        assert not store.create("refs/a/1", b"second")
        assert behind["refs/a/1"] == b"first"

    def test_of_many_one_creates(self, store: Store, behind: dict[str, bytes]) -> None:
        for turn in range(10):
            key = f"race/{turn}"

            def create(i: int, key: str = key) -> bool:
                return store.create(key, b"%d" % i)

            with ThreadPoolExecutor(8) as pool:
                won = [i for i, made in enumerate(pool.map(create, range(8))) if made]
            assert len(won) == 1
            assert behind[key] == b"%d" % won[0]

    def test_keys(self, store: Store) -> None:
        for key in ("refs/a/1", "refs/a/2", "refs/b/1", "refsx/1", "packs/1"):
            store.put(key, b"x")
        assert store.keys("refs/") == ["refs/a/1", "refs/a/2", "refs/b/1"]
        assert store.keys("refs/a/") == ["refs/a/1", "refs/a/2"]
        assert set(store.keys("")) >= {"packs/1", "refs/a/1"}
        entries = {entry.key: entry for entry in store.entries("refs/a/")}
        assert sorted(entries) == ["refs/a/1", "refs/a/2"]
        assert entries["refs/a/1"].size == store.size("refs/a/1")
        assert entries["refs/a/1"].modified == store.modified("refs/a/1")
        assert store.keys("nothing/") == []

    def test_delete(self, store: Store, behind: dict[str, bytes]) -> None:
        store.put("gone", b"x")
        store.delete("gone")
        assert "gone" not in behind
        assert store.size("gone") is None

    def test_the_probe_finds_it_safe(self, store: Store) -> None:
        found = probing.probe(store)
        assert found["create"]
        assert found["races"] == probing.RACES
        assert found["ranges"]
        assert found["list_after_write"]
        assert store.keys("probe/") == []
        probing.check(store, found, single_writer=False)


Behind = Callable[[], dict[str, bytes]]
