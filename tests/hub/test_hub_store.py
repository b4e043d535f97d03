"""Remotes on a hub, through a real server: the backend, and whole pushes and pulls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import dlv.hub.push as pushing
import dlv.upkeep.check as check
from dlv.canonical import hash_bytes
from dlv.errors import Conflict, RemoteError
from dlv.hub.records import Ref, object_key
from dlv.hub.remotes import Remote, open_remote
from dlv.hub.stores.server import HubStore
from dlv.metadata import versions
from dlv.repository.handle import Repository
from tests.conformance.remote_store import DATA, StoreSuite
from tests.hub.running import Behind, RunningHub, running_hub
from tests.hub.test_push_pull import contents, other, pull, repository

__all__ = ["other", "repository"]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RunningHub]:
    (tmp_path / "hub").mkdir()
    with running_hub(tmp_path / "hub") as running:
        yield running


class TestHub(StoreSuite):
    @pytest.fixture
    def store(self, hub: RunningHub) -> HubStore:
        return hub.store()

    @pytest.fixture
    def behind(self, store: HubStore, hub: RunningHub) -> Behind:  # noqa: ARG002
        return hub.behind()

    def key(self, name: str, data: bytes) -> str:  # noqa: ARG002
        return object_key("packs", hash_bytes(data))

    def test_times_are_those_of_the_store(self, store: Store, behind: dict[str, bytes]) -> None:
        """Only deletion asks for times, and a hub deletes by itself."""
        behind[self.key("", DATA)] = DATA
        assert store.modified(self.key("", DATA)) == 0.0
        assert store.modified("no/such") is None

    def test_what_was_put_again_is_not_sent(self, store: HubStore) -> None:
        key = self.key("", DATA)
        assert store.add(key, DATA) == len(DATA)
        sent = store.traffic.sent
        assert store.add(key, DATA) == 0
        assert store.traffic.sent - sent < 1000

    def test_bytes_with_another_hash_are_refused(self, store: HubStore) -> None:
        with pytest.raises(RemoteError, match="refused"):
            store.put(self.key("", b"right"), b"wrong")

    def test_refs_are_created_once(self, store: HubStore) -> None:
        assert store.find("refs/net/hint", most=100) is None
        assert store.keys("refs/") == []
        assert store.records("net", 0) == []
        ref = Ref(1, "publish", "net", 1, "a" * 64, "b" * 64, None, "Ada", "x", "n")
        with pytest.raises((Conflict, RemoteError)):
            store.create("refs/net/00000000000000000001.json", ref.encode())

    def test_what_a_hub_makes_by_itself_is_not_written(self, store: HubStore) -> None:
        store.put("refs/net/hint", b"{}")
        assert store.keys("gc/") == []
        assert store.find("index/hint", most=100) is None
        assert store.traffic.requests == 0
        for key in ("index/hint", "gc/00000000000000000001.json"):
            with pytest.raises(RemoteError, match="by itself"):
                store.put(key, b"{}")
            with pytest.raises(RemoteError, match="by itself"):
                store.create(key, b"{}")
        with pytest.raises(RemoteError, match="cannot be deleted"):
            store.delete(self.key("", DATA))


def remote(repository: Repository, hub: RunningHub, token: str | None = None) -> Remote:
    """Open the repository ada/models as a user would."""
    environ = {"DLV_TOKEN": token or hub.token}
    return open_remote(repository, "origin", f"{hub.url}/ada/models", environ, create=True)


def push(repository: Repository, hub: RunningHub, *refs: str) -> tuple[pushing.Published, Remote]:
    opened = remote(repository, hub)
    done = pushing.publish(repository, opened, pushing.Request(references=refs, author="Ada"))
    return done, opened


def test_a_history_of_all_kinds(lived: Repository, other: Repository, hub: RunningHub) -> None:
    push(lived, hub, "lenet@4", "wide@2")
    pull(other, remote(other, hub).store)
    ids = {v.id for v in versions.all_versions(other.database)}
    assert ids == {v.id for v in versions.all_versions(lived.database)}
    for version_id in ids:
        assert contents(other, version_id) == contents(lived, version_id)
    assert check.check(other).faults == []


def test_an_unchanged_push_takes_few_requests(lived: Repository, hub: RunningHub) -> None:
    first, opened = push(lived, hub, "lenet@1")
    assert first.sent
    # Each pack and the other objects of a version take one question, and one answer each.
    assert opened.store.traffic.sent <= first.bytes * 1.02 + 60_000
    second, opened = push(lived, hub, "lenet@1")
    print(opened.store.traffic.requests, "requests")
    assert second.sent == []
    assert opened.store.traffic.requests <= 5
    assert opened.store.traffic.sent == 0
