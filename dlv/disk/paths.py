"""Files of the user: which names are safe, reading them whole, staying below one folder."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import dlv.disk.durable as durable
from dlv.canonical import hasher
from dlv.errors import Conflict, StorageError, UnsafeInput

MAX_BYTES = 4096
_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9]|conin\$|conout\$) *(\..*)?\Z")
# Code points that HFS+ drops when it compares names, so that ".g\u200cit" would be ".git".
_IGNORED = dict.fromkeys(
    [*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF]
)
_RESERVED = re.compile(r"(\.git|git~[0-9]+|\.dlv|dlv~[0-9]+)\Z")


def check(path: str) -> str:
    """The path itself, if it may be written below any folder on any system; else UnsafeInput."""
    why = _fault(path)
    if why is not None:
        raise UnsafeInput(
            f"the file name {path[:200]!r} is not allowed",
            why=why,
            hint="give the file another name",
        )
    return path


def _fault(path: str) -> str | None:
    if not path or path.startswith("/"):
        return "it must be a relative path inside the project"
    try:
        if len(path.encode("utf-8")) > MAX_BYTES:
            return "it is too long"
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    if "\0" in path or "\\" in path or any(unicodedata.category(c) == "Cc" for c in path):
        return "it contains a control character or backslash"
    for part in path.split("/"):
        plain = unicodedata.normalize("NFKC", part.translate(_IGNORED)).lower()
        # Windows opens `x:y` as a stream of x, and drops dots and blanks at the end of x.
        plain = plain.partition(":")[0].rstrip(". ")
        if not plain and ":" not in part:
            return f"it has the component {part!r}"
        if _RESERVED.match(plain):
            return f"{part!r} belongs to git or dlv"
        if _DEVICE.match(plain) or ":" in part[:2]:
            return f"{part!r} is a device on some systems"
    return None


def check_together(paths: Iterable[str]) -> None:
    """Refuse names that some file systems take for one, and a file where a folder must be."""
    seen: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path in paths:
        check(path)
        key = _fold(path)
        if key in seen:
            raise UnsafeInput(
                f"the file names {seen[key]!r} and {path!r} collide",
                why="they differ only in case or Unicode form",
            )
        seen[key] = path
        parts = key.split("/")
        for depth in range(1, len(parts)):
            folders["/".join(parts[:depth])] = path
    for key in seen.keys() & folders.keys():
        raise UnsafeInput(f"{seen[key]!r} is a file and {folders[key]!r} is in it")


def _fold(path: str) -> str:
    """Equal for names that some file system takes for one."""
    plain = unicodedata.normalize("NFC", path.translate(_IGNORED)).casefold()
    return "/".join(part.rstrip(". ") for part in unicodedata.normalize("NFC", plain).split("/"))


class Folder:
    """A place to write to; nothing leaves it, whatever links lie on the way.

    `free`: the user has chosen the name, so that it need not be one for all systems.
    """

    def __init__(self, root: Path, *, free: bool = False) -> None:
        self.root, self._free = root, free

    @contextmanager
    def parent(self, path: str, created: list[str] | None = None) -> Iterator[tuple[int, str]]:
        """A descriptor of the directory that holds `path`, every component opened without links.

        With `created` folders that are missing are created, and noted there.
        """
        *folders, name = path.split("/") if self._free else check(path).split("/")
        try:
            here = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise durable.storage_error("write", self.root / path, error) from error
        try:
            for depth, folder in enumerate(folders, 1):
                if created is not None:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(folder, dir_fd=here)
                        created.append("/".join(folders[:depth]))
                below = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
                os.close(here)
                here = below
            yield here, name
        except NotADirectoryError as error:
            raise Conflict(
                f"cannot write {path}",
                why="a file or link is in the way of a directory",
                hint="move it away",
            ) from error
        except OSError as error:
            raise durable.storage_error("write", self.root / path, error) from error
        finally:
            os.close(here)

    def kind(self, path: str) -> str | None:
        """None, "file", or "other" (folder, link, device) for what stands at `path` now."""
        try:
            with self.parent(path) as (parent, name):
                mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        except Conflict:
            return "other"
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise
        return "file" if stat.S_ISREG(mode) else "other"


def read_back(out: BinaryIO, digest: str, path: Path) -> None:
    """Read back what was written for `path`; raise StorageError if it differs."""
    out.flush()
    durable.read_back(out.fileno(), digest, path)


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading, never a pipe or device that would hang."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise durable.storage_error("read", path, error) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Conflict(f"{path} is not a regular file")
    return os.fdopen(descriptor, "rb")


def hash_file(
    path: Path, progress: Callable[[int], None] = lambda _: None
) -> tuple[str, os.stat_result]:
    """BLAKE3 of a file and its status, both of one moment: Conflict if it changes meanwhile."""
    running = hasher()
    with open_regular(path) as file:
        before = os.fstat(file.fileno())
        buffer = memoryview(bytearray(1 << 20))
        while count := file.readinto(buffer):  # type: ignore[attr-defined]
            running.update(buffer[:count])
            progress(count)
        after = os.fstat(file.fileno())
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise Conflict(
            f"{path} is being written by another process", hint="add it again when it is complete"
        )
    return running.hexdigest(), after


def cache(environ: Mapping[str, str]) -> Path:
    """What can be made again."""
    return _folder(environ, "XDG_CACHE_HOME", ".cache")


def state(environ: Mapping[str, str]) -> Path:
    """What one would miss, but can do without: a history of what was typed."""
    return _folder(environ, "XDG_STATE_HOME", ".local/state")


def _folder(environ: Mapping[str, str], variable: str, usual: str) -> Path:
    home = Path(environ.get("HOME") or "~").expanduser()
    return Path(environ.get(variable) or home / usual) / "dlv"
