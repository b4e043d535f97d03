"""Remotes opened: the store behind an address, who it is, and what was seen of it before."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import dlv.hub.probe as probing
from dlv.canonical import timestamp
from dlv.dataclass import dataclass
from dlv.errors import RemoteError
from dlv.hub.history import History
from dlv.hub.records import MOST_REMOTE, REMOTE_FILE, RemoteFile, decode_remote
from dlv.hub.stores.interface import Store
from dlv.hub.stores.opening import open_store
from dlv.metadata import facts
from dlv.repository.handle import Change, Repository


@dataclass
class Remote:
    """A remote that was opened: its store, its identity, its history."""

    name: str
    url: str
    store: Store
    file: RemoteFile
    history: History

    def remembered(self, repository: Repository, name: str) -> tuple[int, str] | None:
        """(seq, hash) of the newest ref of a name that this repository has seen."""
        found = facts.newest(repository.database, "remote-head", f"{self.file.uuid}/{name}")
        return None if found is None else (found[1]["seq"], found[1]["hash"])

    def remember(self, change: Change, name: str) -> None:
        chain = self.history.known(name)
        if chain and self.remembered(change.repository, name) != (chain[-1].seq, chain[-1].hash):
            data = {"seq": chain[-1].seq, "hash": chain[-1].hash}
            change.record("remote-head", f"{self.file.uuid}/{name}", data)


def check_exists(url: str, environ: Mapping[str, str]) -> None:
    if open_store(url, environ).find(REMOTE_FILE, most=MOST_REMOTE) is None:
        raise RemoteError(f"no remote found at {url}", hint="check the address")


def try_out(
    repository: Repository,
    name: str,
    url: str,
    environ: Mapping[str, str],
    *,
    single_writer: bool = False,
) -> dict[str, Any]:
    """What the store does, and a remote begun there if it is a new one."""
    store = open_store(url, environ)
    if not store.writable:
        open_remote(repository, name, url, environ)
        return {"writable": False}
    if store.find(REMOTE_FILE, most=MOST_REMOTE) is None:
        opened = open_remote(
            repository, name, url, environ, create=True, single_writer=single_writer
        )
        return opened.file.probe
    found = probing.probe(store)
    probing.check(store, found, single_writer=single_writer)
    return found


def open_remote(
    repository: Repository,
    name: str,
    url: str,
    environ: Mapping[str, str],
    *,
    create: bool = False,
    single_writer: bool = False,
) -> Remote:
    """The remote at an address; with `create` a new one is begun where there is none."""
    store = open_store(url, environ)
    data = store.find(REMOTE_FILE, most=MOST_REMOTE)
    if data is None:
        if not create:
            raise RemoteError(
                f"no remote found at {url}", hint=f"to create one: dlv publish --remote {name}"
            )
        data = _begun(store, single_writer=single_writer)
    file = decode_remote(data, f"{REMOTE_FILE} at {url}")
    cache = repository.cache / "remotes" / file.uuid
    return Remote(name, url, store, file, History(store, cache, repository.tmp))


def _begun(store: Store, *, single_writer: bool) -> bytes:
    found = probing.probe(store)
    probing.check(store, found, single_writer=single_writer)
    data = RemoteFile(os.urandom(32).hex(), timestamp(), found).encode()
    if store.create(REMOTE_FILE, data):
        return data
    return store.get(REMOTE_FILE, most=MOST_REMOTE)  # somebody else was first
