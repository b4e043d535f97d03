"""A file read by position: threads may share it, short reads loop, a missing end is damage."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from dlv.errors import Damaged, NotFound, StorageError, UsageError

_MOST_PER_CALL = 1 << 30  # Linux stops a read near 2 GiB

T = TypeVar("T")


class Source:
    """An open file whose size was fixed when it was opened."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = os.path.basename(path) or path
        self._descriptor = -1
        try:
            # Without O_NONBLOCK, opening a FIFO would wait for a writer that never comes.
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            status = os.fstat(self._descriptor)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFound(f"no such file: {path}") from error
        except ValueError as error:
            raise UsageError("this is not a file name", why=str(error)) from error
        except OSError as error:
            raise StorageError(f"cannot read {path}", why=error.strerror) from error
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise UsageError(f"{path} is not a regular file")
        self.size = status.st_size

    def read(self, offset: int, size: int) -> bytearray:
        """Exactly `size` bytes; the range is checked before anything is allocated."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise Damaged(
                f"{self.name} is truncated",
                why=f"bytes {offset} to {offset + size} are needed, the file has {self.size}",
            )
        data = bytearray(size)
        rest = memoryview(data)
        while rest:
            try:
                got = os.preadv(self._descriptor, [rest[:_MOST_PER_CALL]], offset)
            except OSError as error:
                raise StorageError(f"cannot read {self.path}", why=error.strerror) from error
            if not got:
                raise Damaged(f"{self.name} was cut while it was read", why=f"at byte {offset}")
            rest = rest[got:]
            offset += got
        return data

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Source:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def opened(path: str, read: Callable[[Source], T]) -> T:
    """What `read` makes of a file, which stays open for it; closed if `read` fails."""
    file = Source(path)
    try:
        return read(file)
    except BaseException:
        file.close()
        raise
