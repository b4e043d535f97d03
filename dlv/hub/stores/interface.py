"""What a remote asks of the place that keeps its bytes; requests and bytes are counted."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod

from dlv.errors import RemoteError


class MissingObject(Exception):
    """No object has this key."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class Traffic:
    """Requests and bytes so far, counted in all threads."""

    def __init__(self) -> None:
        self.requests = self.sent = self.received = 0
        self._lock = threading.Lock()

    def add(self, *, sent: int = 0, received: int = 0, requests: int = 0) -> None:
        with self._lock:
            self.requests += requests
            self.sent += sent
            self.received += received


class Store(ABC):
    """Objects by key. A subclass moves bytes; keys are relative, with slashes.

    All but `create` may be repeated without harm; backends repeat what failed on the way.
    """

    url: str
    writable = True

    def __init__(self) -> None:
        self.traffic = Traffic()

    def get(self, key: str, *, most: int) -> bytes:
        """A whole object of at most `most` bytes."""
        data = self._get(key, most)
        self.traffic.add(requests=1, received=len(data))
        if len(data) > most:
            raise self.broken(f"{key} has more than {most} bytes")
        return data

    def find(self, key: str, *, most: int) -> bytes | None:
        """The object, or None if there is none."""
        try:
            return self.get(key, most=most)
        except MissingObject:
            return None

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Exactly these bytes of an object."""
        data = self._get_range(key, start, length)
        self.traffic.add(requests=1, received=len(data))
        if len(data) != length:
            raise self.broken(f"{key}: {len(data)} bytes came for {length} from {start}")
        return data

    def size(self, key: str) -> int | None:
        """The length of an object, None if there is none."""
        self.traffic.add(requests=1)
        return self._size(key)

    def put(self, key: str, data: bytes) -> None:
        """Write an object whose content its key determines: overwriting does no harm."""
        self.traffic.add(requests=1, sent=len(data))
        self._put(key, data)

    def create(self, key: str, data: bytes) -> bool:
        """Write an object only if none has this key; False: there was one.

        An error leaves open whether it was written: read the object to know.
        """
        self.traffic.add(requests=1, sent=len(data))
        return self._create(key, data)

    def keys(self, prefix: str) -> list[str]:
        """Keys that begin so, in order; RemoteError of a store that cannot list."""
        self.traffic.add(requests=1)
        return sorted(self._keys(prefix))

    def delete(self, key: str) -> None:
        self.traffic.add(requests=1)
        self._delete(key)

    def broken(self, why: str) -> RemoteError:
        return RemoteError(f"{self.url} sent something unexpected", why=why)

    @abstractmethod
    def _get(self, key: str, most: int) -> bytes: ...
    @abstractmethod
    def _get_range(self, key: str, start: int, length: int) -> bytes: ...
    @abstractmethod
    def _size(self, key: str) -> int | None: ...
    @abstractmethod
    def _put(self, key: str, data: bytes) -> None: ...
    @abstractmethod
    def _create(self, key: str, data: bytes) -> bool: ...
    @abstractmethod
    def _keys(self, prefix: str) -> list[str]: ...
    @abstractmethod
    def _delete(self, key: str) -> None: ...
