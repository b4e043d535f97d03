"""Versions in one file: written by the code that publishes, read by the code that pulls."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import dlv.hub.pull as pulling
import dlv.hub.push as pushing
from dlv.canonical import timestamp
from dlv.errors import Conflict, NotFound, RemoteError, UsageError
from dlv.hub.history import History
from dlv.hub.pull import Pulled
from dlv.hub.push import Published
from dlv.hub.records import MOST_REMOTE, REMOTE_FILE, RemoteFile, decode_remote
from dlv.hub.remotes import Remote
from dlv.hub.stores.bundle import BundleStore, NewBundle
from dlv.hub.stores.interface import Store
from dlv.repository.handle import Repository

Progress = Callable[[int], None]


def write(
    repository: Repository,
    references: Sequence[str],
    path: Path,
    author: str,
    *,
    force: bool = False,
    progress: Progress = lambda _: None,
    total: Progress = lambda _: None,
) -> Published:
    """Write versions and their ancestors into a bundle."""
    if path.exists() and not force:
        raise Conflict(f"{path} exists", hint="to overwrite it: add --force")
    store = NewBundle(path)
    try:
        file = RemoteFile(os.urandom(32).hex(), timestamp(), {})
        store.put(REMOTE_FILE, file.encode())
        request = pushing.Request(references, author, progress=progress, total=total)
        done = pushing.publish(repository, _remote(repository, store, file), request)
        if not done.sent:
            raise UsageError("no versions to write", why="they were removed or undone")
        store.finish()
        return done
    finally:
        store.discard()
        _forget(repository, file)


def read(
    repository: Repository,
    path: Path,
    author: str,
    *,
    name: str | None = None,
    progress: Progress = lambda _: None,
    total: Progress = lambda _: None,
) -> Pulled:
    """Store all versions of a bundle that are not here."""
    if not path.is_file():
        raise NotFound(f"no such file: {path}")
    store = BundleStore(path)
    try:
        data = store.find(REMOTE_FILE, most=MOST_REMOTE)
        if data is None:
            raise RemoteError(f"{path} is not a bundle", why=f"it has no {REMOTE_FILE}")
        file = decode_remote(data, f"{REMOTE_FILE} in {path}")
        request = pulling.Request(
            (), author, name=name, everything=True, progress=progress, total=total
        )
        try:
            return pulling.pull(repository, _remote(repository, store, file), request)
        finally:
            _forget(repository, file)
    finally:
        store.close()


def _remote(repository: Repository, store: Store, file: RemoteFile) -> Remote:
    history = History(store, repository.cache / "remotes" / file.uuid, repository.tmp)
    return Remote("bundle", store.url, store, file, history, transient=True)


def _forget(repository: Repository, file: RemoteFile) -> None:
    """Remove what was cached: a bundle is not asked again."""
    shutil.rmtree(repository.cache / "remotes" / file.uuid, ignore_errors=True)
