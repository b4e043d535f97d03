"""Open remotes: find the store of an address, create a remote in it, remember its history."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dlv.disk.durable as durable
import dlv.hub.probe as probing
from dlv.canonical import timestamp
from dlv.dataclass import dataclass
from dlv.errors import RemoteError
from dlv.hub.history import History
from dlv.hub.names import note_published
from dlv.hub.records import MOST_REMOTE, REMOTE_FILE, Ref, RemoteFile, decode_remote
from dlv.hub.stores.interface import Store
from dlv.hub.stores.opening import open_store
from dlv.metadata import facts
from dlv.repository.handle import Change, Repository


@dataclass
class Remote:
    """An open remote."""

    name: str
    url: str
    store: Store
    file: RemoteFile
    history: History
    accept_rollback: bool = False
    signers: Path | None = None  # whose signatures count; required if `signed`
    signed: bool = False
    transient: bool = False  # a bundle, of which nothing is remembered

    def remembered(self, repository: Repository, name: str) -> tuple[int, str] | None:
        """Return (seq, hash) of the newest ref of a model that this repository has seen."""
        if self.accept_rollback:
            return None
        fact = facts.newest(repository.database, "remote-head", f"{self.file.uuid}/{name}")
        return None if fact is None else (fact[1]["seq"], fact[1]["hash"])

    def chain(self, repository: Repository, name: str) -> list[Ref]:
        """Return the history of a model; UnsafeInput if refs seen before are missing or changed."""
        return self.history.chain(name, self.remembered(repository, name))

    def note(self, repository: Repository, ids: set[str]) -> None:
        """Remember that the remote has these versions, for commands that do not contact it."""
        if not self.transient:
            note_published(repository, self.name, ids)

    def remember(self, change: Change, name: str) -> None:
        """Record the newest ref of a model, so that later changes of its history are noticed."""
        if self.transient:
            return
        chain = self.history.known(name)
        last = (chain[-1].seq, chain[-1].hash) if chain else None
        if chain and (self.accept_rollback or self.remembered(change.repository, name) != last):
            data = {"seq": chain[-1].seq, "hash": chain[-1].hash}
            change.record("remote-head", f"{self.file.uuid}/{name}", data)


def check_exists(url: str, environ: Mapping[str, str]) -> None:
    store = open_store(url, environ)
    if store.find(REMOTE_FILE, most=MOST_REMOTE) is None:
        raise store.absent()


def try_out(
    repository: Repository,
    name: str,
    url: str,
    environ: Mapping[str, str],
    *,
    single_writer: bool = False,
) -> dict[str, Any]:
    """Probe the store and return what it does; create the remote if there is none."""
    store = open_store(url, environ)
    if not store.writable:
        open_remote(repository, name, url, environ)
        return {"writable": False}
    if store.find(REMOTE_FILE, most=MOST_REMOTE) is None:
        opened = open_remote(
            repository, name, url, environ, create=True, single_writer=single_writer
        )
        return opened.file.probe
    if store.managed:
        return {"hub": True, "role": store.call("GET", "").get("role")}
    abilities = probing.probe(store)
    probing.check(store, abilities, single_writer=single_writer)
    return abilities


def open_remote(
    repository: Repository,
    name: str,
    url: str,
    environ: Mapping[str, str],
    *,
    create: bool = False,
    single_writer: bool = False,
) -> Remote:
    """Open the remote at an address; with `create`, create it if there is none."""
    store = open_store(url, environ)
    data = store.find(REMOTE_FILE, most=MOST_REMOTE)
    if data is None:
        if not create and store.managed:
            raise store.absent()
        if not create:
            if not store.writable:
                raise store.absent()
            way = f"to create one: dlv publish --remote {name}"
            raise RemoteError(f"no remote found at {url}", hint=way)
        data = _create(store, single_writer=single_writer)
    return _opened(name, url, store, data, repository.cache / "remotes", repository.tmp)


def open_address(url: str, environ: Mapping[str, str], cache: Path) -> Remote:
    """Open the remote at an address that no repository knows, with a cache of the user."""
    store = open_store(url, environ)
    data = store.find(REMOTE_FILE, most=MOST_REMOTE)
    if data is None:
        raise store.absent()
    durable.make_directory(cache / "tmp")
    return _opened(url, url, store, data, cache, cache / "tmp")


def _opened(name: str, url: str, store: Store, data: bytes, cache: Path, tmp: Path) -> Remote:
    file = decode_remote(data, f"{REMOTE_FILE} at {url}")
    return Remote(name, url, store, file, History(store, cache / file.uuid, tmp))


def _create(store: Store, *, single_writer: bool) -> bytes:
    """Return the content of the remote's file; another client can have created it first."""
    if store.managed:
        return store.create_remote()
    abilities = probing.probe(store)
    probing.check(store, abilities, single_writer=single_writer)
    data = RemoteFile(os.urandom(32).hex(), timestamp(), abilities).encode()
    if store.create(REMOTE_FILE, data):
        return data
    return store.get(REMOTE_FILE, most=MOST_REMOTE)
