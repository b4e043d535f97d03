"""The interface of backends: objects by key. Requests and bytes are counted."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dlv.errors import RemoteError, UsageError

PUBLISH_AGAIN = "ask the author to publish the version again"


class MissingObject(Exception):
    """Raised for an object that does not exist."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class Entry(NamedTuple):
    """An object in a listing; `modified` is in seconds, by the store's clock."""

    key: str
    size: int
    modified: float


class Traffic:
    """Counts requests and bytes of all threads."""

    def __init__(self) -> None:
        self.requests = self.sent = self.received = 0
        self._lock = threading.Lock()

    def add(self, *, sent: int = 0, received: int = 0, requests: int = 0) -> None:
        with self._lock:
            self.requests += requests
            self.sent += sent
            self.received += received


class Store(ABC):
    """Objects by key. Keys are relative paths with slashes; subclasses move the bytes.

    All methods but `create` can be repeated safely, and backends retry them.
    """

    url: str
    writable = True
    managed = False  # a hub: it makes the index, the hints and the list of names, and deletes

    @property
    def listable(self) -> bool:
        """Whether keys can be listed."""
        return self.writable

    def __init__(self) -> None:
        self.traffic = Traffic()

    def get(self, key: str, *, most: int) -> bytes:
        """Return an object; RemoteError if it is longer than `most` bytes."""
        data = self._get(key, most)
        self._count(requests=1, received=len(data))
        if len(data) > most:
            raise self.broken(f"{key} has more than {most} bytes")
        return data

    def find(self, key: str, *, most: int) -> bytes | None:
        """Return an object, or None if it does not exist."""
        try:
            return self.get(key, most=most)
        except MissingObject:
            return None

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return exactly these bytes of an object."""
        data = self._get_range(key, start, length)
        self._count(requests=1, received=len(data))
        if len(data) != length:
            raise self.broken(f"{key}: {len(data)} bytes came for {length} from {start}")
        return data

    def size(self, key: str) -> int | None:
        """Return the length of an object, or None if it does not exist."""
        self._count(requests=1)
        return self._size(key)

    def modified(self, key: str) -> float | None:
        """Return when an object was written, in seconds by the store's clock; None if missing."""
        self._count(requests=1)
        return self._modified(key)

    def put(self, key: str, data: bytes) -> None:
        """Write an object. Its key determines its content, so overwriting is safe."""
        self._count(requests=1, sent=len(data))
        self._put(key, data)

    def create(self, key: str, data: bytes) -> bool:
        """Write an object if it does not exist; return False if it does.

        After an error, the object may have been written. Read it to find out.
        """
        self._count(requests=1, sent=len(data))
        return self._create(key, data)

    def keys(self, prefix: str) -> list[str]:
        """Return keys that begin with a prefix, sorted; RemoteError if the store cannot list."""
        self._count(requests=1)
        return sorted(self._keys(prefix))

    def names(self) -> list[str]:
        """Return the names of all models, as a listing of refs shows them."""
        keys = self.keys("refs/")
        return list(dict.fromkeys(key.split("/")[1] for key in keys if key.count("/") >= 2))

    def entries(self, prefix: str) -> Iterator[Entry]:
        """Yield the objects whose keys begin with a prefix, in any order."""
        for key in self.keys(prefix):
            size, modified = self.size(key), self.modified(key)
            if size is not None and modified is not None:
                yield Entry(key, size, modified)

    def delete(self, key: str) -> None:
        self._count(requests=1)
        self._delete(key)

    def add(self, key: str, data: bytes) -> int:
        """Write an object unless it is there; return the number of bytes sent."""
        if self.size(key) == len(data):
            return 0
        self.put(key, data)
        return len(data)

    def put_all(self, objects: Mapping[str, bytes]) -> None:
        """Write objects in their order. A hub is asked once which of them it lacks."""
        for key, data in objects.items():
            self.put(key, data)

    def call(self, method: str, path: str, body: Any = None) -> Any:  # noqa: ARG002
        """Send a request to a route of a hub, and return its JSON answer."""
        raise UsageError(f"{self.url} is not on a hub", why=f"only a hub has {path.split('/')[0]}")

    def create_remote(self) -> bytes:
        """Create the remote on a hub, and return the content of its file."""
        raise NotImplementedError

    def records(self, name: str, after: int) -> list[bytes]:
        """Return at most 1000 refs of a model on a hub that follow a number."""
        raise NotImplementedError

    def absent(self) -> RemoteError:
        """The error about a remote that does not exist."""
        hint = "check the address"
        if self.url.startswith(("http://", "https://")):
            hint = f"{hint}; that of a repository on a hub is HUB/NAMESPACE/REPOSITORY"
        return RemoteError(f"no remote found at {self.url}", hint=hint)

    def _count(self, *, requests: int, sent: int = 0, received: int = 0) -> None:
        self.traffic.add(requests=requests, sent=sent, received=received)

    def broken(self, why: str) -> RemoteError:
        return RemoteError(f"{self.url} sent something unexpected", why=why)

    def incomplete(self, error: MissingObject) -> RemoteError:
        """The error about an object that others name and that is missing."""
        return RemoteError(f"{error.key} is missing at {self.url}", hint=PUBLISH_AGAIN)

    @abstractmethod
    def _get(self, key: str, most: int) -> bytes: ...
    @abstractmethod
    def _get_range(self, key: str, start: int, length: int) -> bytes: ...
    @abstractmethod
    def _size(self, key: str) -> int | None: ...
    @abstractmethod
    def _modified(self, key: str) -> float | None: ...
    @abstractmethod
    def _put(self, key: str, data: bytes) -> None: ...
    @abstractmethod
    def _create(self, key: str, data: bytes) -> bool: ...
    @abstractmethod
    def _keys(self, prefix: str) -> list[str]: ...
    @abstractmethod
    def _delete(self, key: str) -> None: ...
