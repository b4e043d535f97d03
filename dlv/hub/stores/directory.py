"""A remote in a folder, also on a network drive. Files are durable before they get their names."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import dlv.disk.durable as durable
from dlv.disk.durable import TemporaryFile
from dlv.errors import RemoteError
from dlv.hub.stores.interface import Entry, MissingObject, Store

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)


class DirectoryStore(Store):
    """Files below a folder. `link()` succeeds for only one of several writers."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.url = str(folder)

    def _path(self, key: str) -> Path:
        return self.folder / key

    def _get(self, key: str, most: int) -> bytes:
        with _reading(self, key), self._path(key).open("rb") as file:
            return file.read(most + 1)

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        with _reading(self, key), self._path(key).open("rb") as file:
            file.seek(start)
            return file.read(length)

    def _size(self, key: str) -> int | None:
        status = self._status(key)
        return None if status is None else status.st_size

    def _modified(self, key: str) -> float | None:
        status = self._status(key)
        return None if status is None else status.st_mtime

    def _status(self, key: str) -> os.stat_result | None:
        try:
            with _reading(self, key):
                return self._path(key).stat()
        except MissingObject:
            return None

    def _put(self, key: str, data: bytes) -> None:
        with self._file(key, data) as file:
            durable.put_in_place(file, self._path(key))

    def _create(self, key: str, data: bytes) -> bool:
        path = self._path(key)
        with self._file(key, data) as file:
            file.sync()
            try:
                os.link(file.path, path)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise durable.storage_error("write", path, error) from error
                return _created(path, data)
        durable.fsync_directory(path.parent)
        return True

    def _file(self, key: str, data: bytes) -> TemporaryFile:
        tmp = self.folder / "tmp"
        durable.make_directory(tmp)
        durable.make_directory(self._path(key).parent)
        file = TemporaryFile(tmp, suffix=".part")
        file.write(data)
        return file

    def _keys(self, prefix: str) -> list[str]:
        top = self.folder / prefix.rpartition("/")[0]
        keys = []
        for folder, _, names in os.walk(top):
            keys += [(Path(folder) / name).relative_to(self.folder).as_posix() for name in names]
        return [key for key in keys if key.startswith(prefix)]

    def entries(self, prefix: str) -> Iterator[Entry]:
        for key in self.keys(prefix):
            if (status := self._status(key)) is not None:
                yield Entry(key, status.st_size, status.st_mtime)

    def _delete(self, key: str) -> None:
        durable.unlink(self._path(key))


def _created(path: Path, data: bytes) -> bool:
    """Create a file without links. If this is interrupted, the refs after it do not match."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return False
    try:
        os.write(descriptor, data)
        durable.fsync_file(descriptor, path)
    finally:
        os.close(descriptor)
    durable.fsync_directory(path.parent)
    return True


class _reading:  # noqa: N801
    """Translates errors of the file system into those of stores."""

    def __init__(self, store: Store, key: str) -> None:
        self._store, self._key = store, key

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        if isinstance(error, (FileNotFoundError, NotADirectoryError, IsADirectoryError)):
            raise MissingObject(self._key) from error
        if isinstance(error, OSError):
            raise RemoteError(
                f"cannot read {self._key} in {self._store.url}", why=error.strerror
            ) from error
