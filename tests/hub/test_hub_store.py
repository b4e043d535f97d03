"""Remotes on a hub, through a real server: the backend, and whole pushes and pulls."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

import dlv
import dlv.hub.maintenance as maintenance
import dlv.hub.pull as pulling
import dlv.hub.push as pushing
import dlv.hub.server.tables as tables
import dlv.hub.service as service
import dlv.upkeep.check as check
from dlv.canonical import hash_bytes
from dlv.errors import Conflict, NotFound, RemoteError
from dlv.hub.history import published
from dlv.hub.records import Ref, object_key
from dlv.hub.remotes import Remote, open_remote, try_out
from dlv.hub.server.access import Role
from dlv.hub.stores.interface import Store
from dlv.hub.stores.objects import ObjectStore
from dlv.hub.stores.opening import open_store
from dlv.hub.stores.server import HubStore
from dlv.metadata import versions
from dlv.repository.handle import Repository
from tests.conformance.remote_store import DATA, StoreSuite
from tests.hub.running import LIMITS, Behind, RunningHub, running_hub
from tests.hub.stores import web_server
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


def test_opening(hub: RunningHub, other: Repository, tmp_path: Path) -> None:
    """One request tells a hub from a folder on a web server; private ones look like none."""
    hub.store()
    url = f"{hub.url}/ada/models"
    store = open_store(url, {"DLV_TOKEN": hub.token})
    assert isinstance(store, HubStore)
    assert store.find("dlv-remote.json", most=1 << 16)
    assert store.traffic.requests == 1
    for environ in ({"HOME": str(tmp_path)}, {"DLV_TOKEN": hub.new_user("bob")}):
        for name in ("models", "no-such"):
            with pytest.raises(RemoteError, match="or it is private"):
                open_remote(other, "origin", f"{hub.url}/ada/{name}", environ)
    with pytest.raises(RemoteError, match="does not accept the token") as caught:
        open_remote(other, "origin", url, {"DLV_TOKEN": "dlv_wrong-token"})
    assert caught.value.hint == "set it to a valid token, or unset it to use that of dlv login"
    assert "wrong-token" not in str(caught.value)
    environ = {"DLV_TOKEN": hub.token, "DLV_TOKEN_URL": "https://hub.example.com"}
    with pytest.raises(RemoteError, match="or it is private"):  # the token is for another hub
        open_remote(other, "origin", url, environ)


def test_a_plain_web_folder_is_opened_by_one_request(tmp_path: Path) -> None:
    (tmp_path / "dlv-remote.json").write_bytes(b"{}")
    with web_server(tmp_path) as address:
        store = open_store(address, {"DLV_TOKEN": "dlv_some-token"})
        assert isinstance(store, ObjectStore)
        assert store.find("dlv-remote.json", most=10) == b"{}"
        assert store.traffic.requests == 1
        assert store.find("refs/net/hint", most=10) is None


def test_trying_out_creates_a_private_repository(hub: RunningHub, other: Repository) -> None:
    environ, url = {"DLV_TOKEN": hub.token}, f"{hub.url}/ada/models"
    assert try_out(other, "origin", url, environ)["hub"]
    assert try_out(other, "origin", url, environ) == {"hub": True, "role": "admin"}
    with pytest.raises(RemoteError, match="requires a token"):
        try_out(other, "origin", f"{hub.url}/ada/others", {})
    with pytest.raises(RemoteError):
        try_out(other, "origin", f"{hub.url}/eve/models", environ)


def test_roles(lived: Repository, hub: RunningHub) -> None:
    push(lived, hub, "lenet@2")
    reader = remote(lived, hub, hub.new_token("ada", Role.READER))
    reader.store.find("refs/lenet/00000000000000000001.json", most=1 << 16)
    request = pushing.Request(references=["wide@2"], author="Ada")
    with pytest.raises(RemoteError, match="no permission") as caught:
        pushing.publish(lived, reader, request)
    assert "writer" in str(caught.value.why)
    writer = remote(lived, hub, hub.new_token("ada", Role.WRITER))
    pushing.publish(lived, writer, request)
    for act in (
        lambda: maintenance.retire(lived, writer, "lenet@1", "Ada", None),
        lambda: maintenance.collect(lived, writer, datetime.timedelta(0)),
        lambda: service.set_alias(writer, "lenet@1", "production"),
    ):
        with pytest.raises(RemoteError, match="no permission"):
            act()


def test_retire_and_collect(lived: Repository, other: Repository, hub: RunningHub) -> None:
    _, opened = push(lived, hub, "lenet@1", "wide@2")
    (*_, ref) = opened.history.known("wide")
    maintenance.retire(lived, opened, f"wide@{ref.number}", "Ada", None)
    day = datetime.timedelta(days=1)
    listed = maintenance.collect(lived, opened, day)
    assert (listed.deleted, listed.leases) == ([], 0)
    assert object_key("manifests", ref.manifest) in listed.listed
    assert listed.until
    dry = maintenance.collect(lived, opened, datetime.timedelta(0), dry_run=True)
    assert dry.deleted == []
    done = maintenance.collect(lived, opened, datetime.timedelta(0))
    assert done.deleted == listed.listed
    assert object_key("manifests", ref.manifest) not in hub.behind()
    pulled = pull(other, remote(other, hub).store)
    assert ref.manifest not in {version.id for version in pulled.versions}


def test_aliases(
    lived: Repository, other: Repository, hub: RunningHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, opened = push(lived, hub, "lenet@2")
    assert service.aliases(opened) == []
    assert service.resolved(opened, ["lenet@2", "lenet@latest", "lenet"]) == [
        "lenet@2", "lenet@latest", "lenet",
    ]  # fmt: skip
    service.set_alias(opened, "lenet@2", "production")
    service.set_alias(opened, "lenet@1", "production")
    assert service.aliases(opened) == [service.Alias("lenet", "production", 1)]
    assert service.resolved(opened, ["lenet@production~1/100"]) == ["lenet@1~1/100"]
    request = pulling.Request(names=["lenet@production"], author="Bob")
    pulled = pulling.pull(other, remote(other, hub), request)
    assert [v.id for v in pulled.versions] == [opened.history.known("lenet")[0].manifest]
    monkeypatch.setenv("DLV_TOKEN", hub.token)
    assert dlv.open(opened.url)["lenet@production"].id == pulled.versions[0].id
    with pytest.raises(NotFound, match="no alias `producton`") as caught:
        service.resolved(opened, ["lenet@producton"])
    assert caught.value.did_you_mean == ["origin:lenet@production"]
    with pytest.raises(NotFound, match="no version lenet@9"):
        service.set_alias(opened, "lenet@9", "staging")
    service.delete_alias(opened, "lenet", "production")
    assert service.aliases(opened) == []
    with pytest.raises(NotFound, match="no alias"):
        service.delete_alias(opened, "lenet", "production")


def test_an_object_that_the_store_has_lost(
    lived: Repository, other: Repository, hub: RunningHub
) -> None:
    _, opened = push(lived, hub, "lenet@1")
    (ref,) = opened.history.known("lenet")
    (lost,) = Path(hub.hub.settings.store).rglob(f"{ref.manifest}*")
    lost.unlink()
    with pytest.raises(RemoteError, match="failed") as caught:
        pull(other, remote(other, hub).store)
    assert "lacks an object" in str(caught.value.why)


def test_a_quota(lived: Repository, tmp_path: Path) -> None:
    with running_hub(tmp_path, limits=replace(LIMITS, quota=1000)) as small:
        with pytest.raises(RemoteError, match="no room left"):
            push(lived, small, "lenet@1")
        with small.hub.database.reading() as connection:
            assert connection.execute(sa.select(tables.lease)).all() == []


def test_a_hub_that_takes_small_parts(lived: Repository, other: Repository, tmp_path: Path) -> None:
    with running_hub(tmp_path, limits=replace(LIMITS, part=20_000)) as small:
        push(lived, small, "lenet@1")
        assert pull(other, remote(other, small).store).versions


@pytest.mark.parametrize(
    "writers_and_rounds", [(4, 3), pytest.param((16, 8), marks=pytest.mark.slow)]
)
def test_writers_at_once(
    tmp_path: Path, commit_model: Callable[..., str], hub: RunningHub, writers_and_rounds: Any
) -> None:
    """Each publishes under one name until it is there: nothing is lost, and the chain is one."""
    writers, rounds = writers_and_rounds
    hub.store()

    def write(number: int) -> None:
        with Repository.init(tmp_path / f"w{number}")[0] as own:
            for turn in range(rounds):
                values = {"a": np.array([number, turn], "f4")}
                commit_model(own, "net", values, root=turn == 0)
                while True:
                    try:
                        push(own, hub)
                    except Conflict:
                        pull(own, remote(own, hub).store, "net")
                    else:
                        break

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(write, range(writers)))
    with Repository.init(tmp_path / "reader")[0] as reader:
        opened = remote(reader, hub)
        done = pull(reader, opened.store)
        chain = opened.history.chain("net", None)
        assert len(chain) == len(published(chain)) == writers * rounds
        assert [ref.number for ref in chain] == list(range(1, writers * rounds + 1))
        assert len(done.versions) == writers * rounds
