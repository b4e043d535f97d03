"""A remote in one file, to be sent by mail or carried on a stick: a zip without compression.

A bundle is written once. What a remote overwrites (hints, leases) stays in memory until it is
closed, and only what readers need is kept.
"""

from __future__ import annotations

import os
import threading
import zipfile
from pathlib import Path

import dlv.disk.durable as durable
from dlv.errors import RemoteError
from dlv.hub.stores.interface import MissingObject, Store

_ONCE = ("packs/", "manifests/", "locators/", "facts/", "refs/", "dlv-remote.json")
_TIME = (1980, 1, 1, 0, 0, 0)  # equal contents are equal bytes


class BundleStore(Store):
    """Reads a bundle; it can be listed, but not written to."""

    writable = False

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.url = path, str(path)
        try:
            self._zip = zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise RemoteError(f"{path} is not a bundle", why=str(error)) from error
        self._entries = {info.filename: info for info in self._zip.infolist()}

    @property
    def listable(self) -> bool:
        return True

    def close(self) -> None:
        self._zip.close()

    def _get(self, key: str, most: int) -> bytes:
        return self._read(key, 0, most + 1)

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        return self._read(key, start, length)

    def _read(self, key: str, start: int, length: int) -> bytes:
        info = self._entries.get(key)
        if info is None:
            raise MissingObject(key)
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            raise self.broken(f"{key} is compressed or encrypted")
        try:
            with self._zip.open(info) as file:
                file.seek(min(start, info.file_size))
                return file.read(max(0, min(length, info.file_size - start)))
        except (OSError, zipfile.BadZipFile, EOFError, ValueError, NotImplementedError) as error:
            raise self.broken(f"{key}: {error}") from error

    def _size(self, key: str) -> int | None:
        info = self._entries.get(key)
        return None if info is None else info.file_size

    def _modified(self, key: str) -> float | None:
        return 0.0 if key in self._entries else None

    def _keys(self, prefix: str) -> list[str]:
        return [key for key in self._entries if key.startswith(prefix)]

    def _put(self, key: str, data: bytes) -> None:  # noqa: ARG002
        raise RemoteError(f"{self.path} is a bundle and cannot be changed")

    def _create(self, key: str, data: bytes) -> bool:
        self._put(key, data)
        return False

    def _delete(self, key: str) -> None:
        self._put(key, b"")


class NewBundle(Store):
    """Writes a bundle, which gets its name when it is complete."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.url = path, str(path)
        self._part = path.with_name(f"{path.name}.{os.urandom(4).hex()}.part")
        try:
            self._zip = zipfile.ZipFile(self._part, "x", zipfile.ZIP_STORED)
        except OSError as error:
            raise durable.storage_error("write", path, error) from error
        self._sizes: dict[str, int] = {}
        self._small: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def finish(self) -> None:
        """Give the bundle its name, and durably."""
        self._zip.close()
        durable.sync_path(self._part)
        os.replace(self._part, self.path)
        durable.fsync_directory(self.path.parent)

    def discard(self) -> None:
        """Remove what was written of a bundle that is not finished."""
        self._zip.close()
        self._part.unlink(missing_ok=True)

    def _get(self, key: str, most: int) -> bytes:  # noqa: ARG002
        with self._lock:
            if key in self._small:
                return self._small[key]
        raise MissingObject(key)

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        return self._get(key, 0)[start : start + length]

    def _size(self, key: str) -> int | None:
        return self._sizes.get(key)

    def _modified(self, key: str) -> float | None:
        return 0.0 if key in self._sizes or key in self._small else None

    def _put(self, key: str, data: bytes) -> None:
        with self._lock:
            if not key.startswith("packs/"):
                self._small[key] = data
            if key.startswith(_ONCE) and not key.endswith("/hint") and key not in self._sizes:
                self._sizes[key] = len(data)
                try:
                    self._zip.writestr(zipfile.ZipInfo(key, _TIME), data)
                except OSError as error:
                    raise durable.storage_error("write", self.path, error) from error

    def _create(self, key: str, data: bytes) -> bool:
        if key in self._small:
            return False
        self._put(key, data)
        return True

    def _keys(self, prefix: str) -> list[str]:
        return [key for key in {*self._sizes, *self._small} if key.startswith(prefix)]

    def _delete(self, key: str) -> None:
        self._small.pop(key, None)
