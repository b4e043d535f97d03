"""Files with the elements of an ONNX model's tensors: only plain ones below the model's folder."""

from __future__ import annotations

import errno
import os
import stat
from collections import OrderedDict

from dlv.adapters.source import Source
from dlv.errors import Damaged, NotFound, StorageError, UnsafeInput

_MOST_OPEN = 16  # a model may have a file for each tensor
_MOST_FILES = 100_000
_MOST_LENGTH = 4096
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a FIFO would wait for a writer that never comes.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _Beside(Source):
    """A file that was opened step by step, no link followed."""

    def __init__(self, folder: str, location: str, what: str) -> None:
        self.path = os.path.join(folder, location)
        self.name = location
        self._descriptor = -1
        self._descriptor = _descend(folder, location, what)
        status = os.fstat(self._descriptor)
        problem = None
        if not stat.S_ISREG(status.st_mode):
            problem = "it is not a regular file"
        elif status.st_nlink != 1:
            problem = "the file has a second name elsewhere (a hard link)"
        if problem:
            self.close()
            raise _refused(what, location, problem)
        self.size = status.st_size


class External:
    """The files beside a model, opened when they are read."""

    def __init__(self, path: str) -> None:
        self.folder = os.path.dirname(os.path.abspath(path))
        self.name = os.path.basename(path)
        self.locations: dict[str, int] = {}  # with the size each file had
        self._open: OrderedDict[str, Source] = OrderedDict()

    @property
    def paths(self) -> list[str]:
        return [os.path.join(self.folder, location) for location in sorted(self.locations)]

    def check(self, location: str, offset: int, size: int) -> None:
        """Whether a file gives so many bytes; nothing is read."""
        _check_name(location, self.name)
        if location not in self.locations:
            if len(self.locations) == _MOST_FILES:
                raise UnsafeInput(f"{self.name} names too many files")
            self.locations[location] = self._file(location).size
        have = self.locations[location]
        if offset + size > have:
            raise Damaged(
                f"{location} is too short for {self.name}",
                why=f"bytes {offset} to {offset + size} are needed, the file has {have}",
            )

    def read(self, location: str, offset: int, size: int) -> bytearray:
        return self._file(location).read(offset, size)

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def _file(self, location: str) -> Source:
        file = self._open.get(location)
        if file is None:
            while len(self._open) >= _MOST_OPEN:
                self._open.popitem(last=False)[1].close()
            file = self._open[location] = _Beside(self.folder, location, self.name)
        self._open.move_to_end(location)
        return file


def _check_name(location: str, what: str) -> None:
    parts = location.split("/")
    if not location or "\0" in location or len(location) > _MOST_LENGTH:
        raise _refused(what, location, "this is no file name")
    if location.startswith("/") or "\\" in location or location[1:2] == ":":
        raise _refused(what, location, "the path is not relative to the model")
    if ".." in parts or not parts[-1].strip("."):
        raise _refused(what, location, "the path leads out of the model's folder")


def _descend(folder: str, location: str, what: str) -> int:
    parts = [part for part in location.split("/") if part not in ("", ".")]
    try:
        here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for place, part in enumerate(parts):
            flags = _FILE if place == len(parts) - 1 else _FOLDER
            try:
                following = os.open(part, flags, dir_fd=here)
            finally:
                os.close(here)
            here = following
    except FileNotFoundError as error:
        raise NotFound(
            f"{what} keeps weights in {location}, which is not there",
            why=error.strerror,
            hint="put the file beside the model, as it was exported",
        ) from error
    except OSError as error:
        # ELOOP and ENOTDIR: a link, or a file on the way.
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise _refused(what, location, "it is, or lies behind, a symbolic link") from error
        raise StorageError(f"cannot read {location}", why=error.strerror) from error
    return here


def _refused(what: str, location: str, why: str) -> UnsafeInput:
    return UnsafeInput(
        f"{what} wants its weights from {location[:200]!r}",
        why=why,
        hint="weights of a model lie in plain files in its own folder",
    )
