"""Mirrors: for each repository that is shown, its metadata as a repository in the hub's cache.

A mirror is derived, and can be deleted at any time. Processes share mirrors by locks on files that
are never deleted: `use` is held while a mirror is read, `refresh` while it is changed. Who wants to
delete one needs both. A mirror with versions that were retired is not changed but replaced by the
next one, since it may be read at the moment.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any

import dlv.disk.durable as durable
from dlv.dataclass import dataclass
from dlv.errors import Damaged, DlvError, NewerFormat, RemoteError, StorageError
from dlv.hub.mirror import OutdatedMirrorError, open_mirror, update
from dlv.hub.server.access import Place
from dlv.hub.server.hub import Hub
from dlv.hub.stores.interface import Store
from dlv.repository.handle import Repository
from dlv.ui.hub.truth import remote_of, state_of

MOST_BYTES = 8 << 30  # of all mirrors on the disk
PATIENCE = 10.0  # seconds that a page waits for a mirror
STORES = 64  # of repositories that are kept open
TIDY = 60.0  # seconds between two looks at what mirrors take
_STATE = "state.json"


class NotReady(RemoteError):
    """The mirror of a repository is being made."""


@dataclass(frozen=True)
class State:
    """What a mirror shows: `seen` of the truth, in this folder; `faults`: by model, why not."""

    seen: str
    folder: str
    faults: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Mirror:
    """An open mirror."""

    repository: Repository
    state: State


class Mirrors:
    """The mirrors of a hub in `data/mirrors`."""

    def __init__(
        self, hub: Hub, *, most_bytes: int = MOST_BYTES, patience: float = PATIENCE
    ) -> None:
        self._hub = hub
        self._folder = hub.settings.data / "mirrors"
        self._locks = durable.make_directory(self._folder / "locks")
        self._most, self._patience = most_bytes, patience
        self._stores: OrderedDict[str, Store] = OrderedDict()
        self._refreshing: dict[str, Future[None]] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="dlv-mirror")
        self._tidied = time.monotonic()

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    @contextmanager
    def open(self, place: Place) -> Iterator[Mirror]:
        """Open the mirror of a repository, which shows all that is published now.

        If making it takes long, it is shown as it was before, or NotReady is raised.
        """
        now = state_of(self._hub, place)
        state = self._read(place)
        if state is None or state.seen != now:
            self._await_refresh(place)
        for _ in range(5):
            with self._held(place, "use", fcntl.LOCK_SH):
                state = self._read(place)
                if state is not None:
                    self._note_use(place)
                    with self._opened(place, state) as mirror:
                        yield mirror
                    break
            self._await_refresh(place)  # it was deleted
        else:
            raise self._not_ready(place)
        self._tidy_sometimes()

    @contextmanager
    def _opened(self, place: Place, state: State) -> Iterator[Mirror]:
        repository = open_mirror(
            self._path(place) / state.folder, self._remote(place), self._hub.environ
        )
        with repository:
            yield Mirror(repository, state)

    def _path(self, place: Place) -> Path:
        return self._folder / place.uuid

    def _remote(self, place: Place) -> Any:
        path = durable.make_directory(self._path(place) / "cache")
        return remote_of(self._hub, place, self._objects(place), path, self._hub.tmp)

    def _objects(self, place: Place) -> Store:
        with self._lock:
            store = self._stores.pop(place.uuid, None) or self._hub.store_of(place.uuid)
            self._stores[place.uuid] = store
            while len(self._stores) > STORES:
                self._stores.popitem(last=False)
        return store

    # What a mirror shows

    def _read(self, place: Place) -> State | None:
        try:
            return State(**json.loads((self._path(place) / _STATE).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def _write(self, place: Place, state: State) -> None:
        data = json.dumps({"seen": state.seen, "folder": state.folder, "faults": state.faults})
        durable.replace(self._path(place) / _STATE, data.encode(), tmp_dir=self._hub.tmp)

    def _note_use(self, place: Place) -> None:
        with contextlib.suppress(OSError):
            os.utime(self._lock_file(place.uuid, "use"))

    # Refreshing

    def _await_refresh(self, place: Place) -> None:
        with self._lock:
            future = self._refreshing.get(place.uuid)
            if future is None:
                future = self._pool.submit(self._refresh, place)
                self._refreshing[place.uuid] = future
                future.add_done_callback(partial(self._refreshed, place.uuid))
        try:
            future.result(self._patience)
        except TimeoutError:
            if self._read(place) is None:
                raise self._not_ready(place) from None

    def _refreshed(self, uuid: str, _: Future[None]) -> None:
        with self._lock:
            self._refreshing.pop(uuid, None)

    def _not_ready(self, place: Place) -> NotReady:
        return NotReady(
            f"{place.label} is being prepared to be shown", hint="this page loads again by itself"
        )

    def _refresh(self, place: Place) -> None:
        with self._held(place, "refresh", fcntl.LOCK_EX):
            now = state_of(self._hub, place)  # read first: what comes later is seen next time
            state = self._read(place)
            if state is not None and state.seen == now:
                return  # another process was quicker
            durable.make_directory(self._path(place))
            number = 1 if state is None else int(state.folder)
            if state is None:
                number = 1 + max(map(int, self._folders(place)), default=0)
            try:
                faults = self._update(place, str(number))
            except (Damaged, NewerFormat, OutdatedMirrorError):
                number += 1
                faults = self._update(place, str(number))
            self._write(place, State(now, str(number), faults))
        self._drop_old(place)

    def _update(self, place: Place, folder: str) -> dict[str, str]:
        """Pull what is new; return the models that cannot be pulled, and why."""
        remote = self._remote(place)
        faults: dict[str, str] = {}
        with open_mirror(self._path(place) / folder, remote, self._hub.environ) as mirror:
            mirror.database  # noqa: B018  Damaged, if it is
            for name in remote.history.names():
                try:
                    update(mirror, remote, name)
                except DlvError as error:
                    if isinstance(error, (RemoteError, StorageError)):
                        raise  # it is tried again
                    faults[name] = ": ".join(filter(None, (error.message, error.why)))
                    self._hub.log("mirror", f"{place.label}:{name}", error)
        return faults

    def _folders(self, place: Place) -> list[str]:
        try:
            return [name for name in os.listdir(self._path(place)) if name.isdigit()]
        except OSError:
            return []

    # Bounds on the disk

    def _drop_old(self, place: Place) -> None:
        """Delete mirrors that were replaced, unless they are being read."""
        state = self._read(place)
        old = [name for name in self._folders(place) if state is None or name != state.folder]
        if old:
            self._alone(place.uuid, partial(self._delete_folders, place, old))

    def _delete_folders(self, place: Place, names: list[str]) -> None:
        for name in names:
            shutil.rmtree(self._path(place) / name, ignore_errors=True)

    def _tidy_sometimes(self) -> None:
        with self._lock:
            due = time.monotonic() - self._tidied > TIDY
            if due:
                self._tidied = time.monotonic()
        if due:
            self._pool.submit(self.tidy)

    def tidy(self) -> None:
        """Delete the mirrors that were read longest ago, until the others fit."""
        found = []
        for path in self._folder.iterdir():
            if path.name != self._locks.name:
                found.append((self._last_use(path.name), _size(path), path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self._most:
                break
            if self._alone(path.name, partial(shutil.rmtree, path, ignore_errors=True)):
                total -= size

    def _last_use(self, uuid: str) -> float:
        try:
            return self._lock_file(uuid, "use").stat().st_mtime
        except OSError:
            return 0.0

    def _alone(self, uuid: str, work: Callable[[], object]) -> bool:
        """Run `work` unless the mirror is in use; return whether it ran."""
        try:
            now = fcntl.LOCK_EX | fcntl.LOCK_NB
            with self._locked(uuid, "refresh", now), self._locked(uuid, "use", now):
                work()
                return True
        except BlockingIOError:
            return False

    # Locks

    def _lock_file(self, uuid: str, name: str) -> Path:
        return self._locks / f"{uuid}.{name}"

    def _held(self, place: Place, name: str, kind: int) -> contextlib.AbstractContextManager[None]:
        return self._locked(place.uuid, name, kind)

    @contextmanager
    def _locked(self, uuid: str, name: str, kind: int) -> Iterator[None]:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._lock_file(uuid, name), flags, 0o600)
        try:
            fcntl.flock(descriptor, kind)
            yield
        finally:
            os.close(descriptor)


def _size(folder: Path) -> int:
    """Bytes that a folder takes; files of packs have holes."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += 512 * os.lstat(os.path.join(parent, name)).st_blocks
    return total
