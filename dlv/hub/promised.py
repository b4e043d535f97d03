"""What versions need and only a remote has: found by locators, fetched when it is read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from dlv.canonical import hash_bytes
from dlv.config import Config
from dlv.disk.durable import path_of
from dlv.errors import NotFound, UnsafeInput
from dlv.hub.fetching import Fetcher
from dlv.hub.locator import Locator, LocatorIndex, decode_locator
from dlv.hub.remotes import Remote, open_remote
from dlv.hub.stores.interface import Store
from dlv.kinds import EncodingRow, Piece
from dlv.metadata import dump, facts
from dlv.metadata.matrices import PackIndex
from dlv.pas.chunks import SUFFIX
from dlv.repository.handle import Repository


class PromisedIndex:
    """An index over locators, and the fetchers of the packs that they name.

    `later` finds locators of a tensor that is not known yet, or of everything for None. What is in
    the `local` repository is read from there.
    """

    def __init__(
        self,
        later: Callable[[str | None], Iterable[tuple[Fetcher, Locator]]] = lambda _: (),
        local: Repository | None = None,
    ) -> None:
        self.locators = LocatorIndex()
        self._fetchers: dict[str, Fetcher] = {}
        self._local = None if local is None else PackIndex(local.database)
        self._local_packs = Path() if local is None else local.packs
        self._later = later
        self._lock = threading.RLock()

    def promise(self, fetcher: Fetcher, locator: Locator) -> None:
        """Add what a locator lists."""
        self.locators.add(locator)
        for pack in locator.packs:
            self._fetchers.setdefault(pack, fetcher)

    def has(self, pack: str) -> bool:
        return pack in self._fetchers or (
            self._local is not None and self._local_path(pack).exists()
        )

    def _local_path(self, pack: str) -> Path:
        return path_of(self._local_packs, pack, SUFFIX)

    def encoding(self, matrix: str) -> EncodingRow | None:
        if self._local is not None and (row := self._local.encoding(matrix)) is not None:
            return row
        with self._lock:
            for which in (matrix, None):
                if matrix in self.locators.encodings:
                    break
                self._look_up(which)
            return self.locators.encoding(matrix)

    def _look_up(self, matrix: str | None) -> None:
        for fetcher, locator in self._later(matrix):
            self.promise(fetcher, locator)

    def chunks(self, matrix: str) -> list[Piece]:
        if self._local is not None and self._local.encoding(matrix) is not None:
            return self._local.chunks(matrix)
        self.encoding(matrix)
        return self.locators.chunks(matrix)

    def object_chunks(self, kind: str, name: str) -> list[Piece]:
        if self._local is not None and (pieces := self._local.object_chunks(kind, name)):
            return pieces
        with self._lock:
            if (kind, name) not in self.locators.rows:
                self._look_up(None)
            return self.locators.object_chunks(kind, name)

    def path(self, pack: str) -> Path:
        fetcher = self._fetchers.get(pack)
        return self._local_path(pack) if fetcher is None else fetcher.path(pack)

    def fetch(self, pieces: Iterable[Piece]) -> None:
        wanted: dict[Fetcher, list[Piece]] = {}
        for piece in pieces:
            if piece.pack in self._fetchers:
                wanted.setdefault(self._fetchers[piece.pack], []).append(piece)
        for fetcher, its_pieces in wanted.items():
            # No byte more than is needed, since a part of the weights is often enough.
            fetcher.fetch(fetcher.missing(its_pieces), gap=0)


def find_promised(
    repository: Repository,
    environ: Mapping[str, str],
    opened: Remote | None = None,
    local: Repository | None = None,
) -> PromisedIndex | None:
    """Return what the promises of a repository lead to, None if none stands.

    A remote is contacted when something must be fetched. `opened` is used for all promises.
    """
    promises = facts.promises(repository.database)
    if not promises:
        return None
    pending = dict(promises)
    fetchers: dict[str, Fetcher] = {}

    def remote_of(promise: Mapping[str, Any]) -> Remote:
        return opened or _open(repository, promise, environ)

    def store_of(promise: Mapping[str, Any]) -> Store:
        return remote_of(promise).store

    def later(matrix: str | None) -> Iterable[tuple[Fetcher, Locator]]:
        if matrix is None:
            wanted = list(pending)
        else:
            wanted = [v for v in dump.ids_of_matrix(repository.database, matrix) if v in pending]
        for version in wanted:
            promise = pending.pop(version)
            uuid = str(promise["uuid"])
            cache = repository.cache / "remotes" / uuid if opened is None else opened.history.cache
            if uuid not in fetchers:
                fetchers[uuid] = Fetcher(cache, partial(store_of, promise))
            data = _cached(cache, promise["locator"])
            if data is None:
                data = remote_of(promise).history.object("locators", promise["locator"])
            yield fetchers[uuid], decode_locator(data, f"locator of {version[:12]}")

    return PromisedIndex(later, local)


def _cached(cache: Path, locator: str) -> bytes | None:
    try:
        data = path_of(cache / "locators", locator, "").read_bytes()
    except OSError:
        return None
    return data if hash_bytes(data) == locator else None


def _open(repository: Repository, promise: Mapping[str, Any], environ: Mapping[str, str]) -> Remote:
    known = Config.load(repository.config_file, environ).remotes()
    name, uuid = promise["remote"], promise["uuid"]
    if name not in known:
        raise NotFound(
            f"weights are on the remote `{name}`, which is not configured",
            hint=f"dlv remote add {name} URL",
        )
    remote = open_remote(repository, name, known[name], environ)
    if remote.file.uuid != uuid:
        raise UnsafeInput(
            f"`{name}` is another remote now than the one that has the weights",
            why=f"at {remote.url}",
        )
    return remote
