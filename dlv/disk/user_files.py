"""Files that dlv writes for the user: whole and durable when they are there, all of them or none.

Each is written beside its place, under a name that says so, synced while the next ones are written,
and renamed when all are. What stood there is kept until the caller has come to its end: after an
error all is as it was. A part belongs to its writer as long as that lives, who holds it locked, or
beside many parts one empty file for all of them. What a killed writer has left is cleared by the
next one who writes into that folder, and by `gc`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import io
import os
import re
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Self, cast

import dlv.disk.durable as durable
from dlv.dataclass import dataclass
from dlv.disk.ignore import ALWAYS
from dlv.disk.paths import Folder
from dlv.errors import DlvError, StorageError
from dlv.kinds import Raw

if TYPE_CHECKING:
    import concurrent.futures as futures

SUFFIX = ".dlv-part"
# The first eight digits are the writer's.
_PART = re.compile(r"\.(?:.*\.)?([0-9a-f]{8})[0-9a-f]*\.dlv-part\Z", re.DOTALL)


def held(descriptor: int) -> bool:
    """Lock a file that was just made; False if it is gone or another one's by now."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks, where no other command removes the file
    return os.fstat(descriptor).st_nlink > 0


def is_part(name: str) -> bool:
    """Whether a file is on its way to its place, or will never get there."""
    return _PART.match(name) is not None


def clear(folder: Path) -> None:
    """Remove the parts in a folder that no living writer has."""
    remove(_parts_in(folder))


def remove(parts: Iterable[Path]) -> list[Path]:
    """Remove the parts whose writer has died; return them."""
    return [path for path in parts if _dead(path, remove=True)]


def below(root: Path) -> Iterator[Path]:
    """All parts in a tree, but in folders that dlv never writes files of the user to."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders).difference(ALWAYS))
        for name in sorted(names):
            if name.endswith(SUFFIX) and is_part(name):
                yield Path(folder, name)


def left(parts: Iterable[Path]) -> list[tuple[Path, int]]:
    """Of these parts those that are of no use, with their bytes."""
    dead = []
    for path in parts:
        with contextlib.suppress(OSError):
            size = path.lstat().st_size
            if _dead(path, remove=False):
                dead.append((path, size))
    return dead


def _parts_in(folder: Path) -> list[Path]:
    try:
        return sorted(folder / name for name in os.listdir(folder) if is_part(name))
    except OSError:
        return []


def _dead(path: Path, *, remove: bool) -> bool:
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path, flags)
    except OSError:
        return False
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        match = _PART.match(path.name)
        token = match[1] if match is not None else ""
        # Of the file that is locked for others that it could be locked is enough.
        alone = path.name == f".{token}{SUFFIX}"
        if not alone and any(_alive(folder, token) for folder in path.absolute().parents):
            return False
        if remove:
            path.unlink()
    except OSError:
        return False  # held, or impossible to tell
    finally:
        os.close(descriptor)
    return True


def _alive(folder: Path, token: str) -> bool:
    """Whether a writer of that name holds its lock in this folder."""
    try:
        descriptor = os.open(folder / f".{token}{SUFFIX}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


_OPEN = 100  # files that wait for their fsync at most
_AT_ONCE = 16  # fsyncs: a file system writes its journal once for all of them
# What some file systems answer to an fsync of a folder, or to a second name of a file.
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS, errno.EXDEV, errno.EACCES)


@contextmanager
def replace(folder: Folder, path: str, *, mode: int = 0o644) -> Iterator[BinaryIO]:
    """One file: the old one stays whole until the new one is."""
    with Batch(folder) as batch:
        with batch.new(path, mode=mode) as out:
            yield out
        batch.put()


@contextmanager
def replacing(
    path: Path, *, mode: int = 0o666, until: ExitStack | None = None
) -> Iterator[BinaryIO]:
    """A file under a name that the user has chosen, written as `replace` does.

    `until` it is closed, an error there brings the old file back.

    A link to a file kept elsewhere stays one, the mode of what is replaced stays, and a pipe or a
    device is just written to.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        try:
            with path.open("wb") as out:
                yield out
        except OSError as error:
            raise durable.storage_error("write", path, error) from error
        return
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    with ExitStack() as own:
        batch = (until or own).enter_context(Batch(Folder(target.parent, free=True)))
        with batch.new(target.name, mode=mode) as out:
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(out.fileno(), target.stat().st_mode & 0o777)
            yield out
        batch.put()


def write(path: Path, data: bytes, *, mode: int = 0o666, folders: bool = False) -> None:
    """As `replacing`, for bytes in memory; `folders`: create missing folders."""
    if folders and not path.parent.is_dir():
        durable.make_directory(path.parent)
    with replacing(path, mode=mode) as out:
        out.write(data)


def settle(folder: Path) -> None:
    """Make durable what others have written into a folder, but for hidden things."""
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.name.startswith("."):
            durable.sync_path(path)
    _sync_folder(folder)
    _sync_folder(folder.absolute().parent)


@dataclass
class _Part:
    """A file on its way to `path`. `old`: where that which stood there is kept meanwhile."""

    path: str
    aside: str
    out: BinaryIO | None
    late: bool  # the first one: it stays open, and locked, to the end
    old: str | None = None
    there: bool = False  # whether anything stood there
    put: bool = False
    removal: bool = False  # the file is removed, nothing takes its place


class Batch:
    """Files for one folder that get their names together: `new` for each, then `put`.

    It is left in peace when all that had to follow has followed; on an error the files that it has
    put are what they were before.
    """

    def __init__(self, folder: Folder, *, create: bool = False) -> None:
        """`create`: the folder itself may have to be made."""
        self.folder = folder
        self._create_root = create
        self._token = os.urandom(4).hex()
        self._parts: list[_Part] = []
        self._made: list[str] = []
        self._above: list[Path] = []  # folders that were made for the batch's own
        self._cleared: set[str] = set()
        self._owner: int | None = None
        self._lock = threading.Lock()
        self._room = threading.BoundedSemaphore(_OPEN)
        self._syncing: list[futures.Future[None]] = []

    @cached_property
    def _pool(self) -> futures.ThreadPoolExecutor:
        import concurrent.futures as futures

        return futures.ThreadPoolExecutor(_AT_ONCE)

    @contextmanager
    def new(self, path: str, *, mode: int = 0o644) -> Iterator[BinaryIO]:
        """A file beside its place, to be written to."""
        with self._lock:
            part = self._create(path, mode)
            self._parts.append(part)
        assert part.out is not None
        try:
            yield part.out
            part.out.flush()
        except OSError as error:
            raise durable.storage_error("write", self.folder.root / path, error) from error
        if not part.late:
            self._room.acquire()
            with self._lock:
                self._syncing.append(self._pool.submit(self._synced, part))

    def clear(self, paths: Iterable[str]) -> None:
        """Remove what killed writers have left beside the places of these."""
        for above in {path.rpartition("/")[0] for path in paths} - self._cleared:
            self._cleared.add(above)
            clear(self.folder.root / above)

    def drop(self, path: str) -> None:
        """One of them is not wanted after all."""
        self._wait()
        for part in [part for part in self._parts if part.path == path]:
            self._remove(part.path, part.aside)
            self._close(part)
            self._parts.remove(part)

    def remove(self, path: str) -> None:
        """Remove a file when `put` runs, and folders that become empty at the end."""
        if self._owner is None:
            self._own()  # nothing else says that the file is still wanted
        name = path.rpartition("/")[2]
        aside = f".{name[:40]}.{self._token}{os.urandom(4).hex()}0{SUFFIX}"
        self._parts.append(_Part(path, aside, None, late=False, removal=True))

    def _create(self, path: str, mode: int) -> _Part:
        if self._parts and self._owner is None:
            self._own()
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self.clear([path])
        with self.folder.parent(path, self._made) as (parent, name):
            while True:
                aside = f".{name[:40]}.{self._token}{os.urandom(4).hex()}{SUFFIX}"
                descriptor = os.open(aside, flags, mode, dir_fd=parent)
                if held(descriptor):
                    out = cast(BinaryIO, io.BufferedRandom(_Raw(descriptor, "r+")))
                    return _Part(path, aside, out, late=not self._parts)
                os.close(descriptor)  # it was cleared by another process

    def _own(self) -> None:
        """One lock for all parts, of which most cannot stay open."""
        path = self.folder.root / f".{self._token}{SUFFIX}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(OSError):  # then they stay open as long as there is room for it
            while self._owner is None:
                descriptor = os.open(path, flags, 0o600)
                if held(descriptor):
                    self._owner = descriptor
                else:
                    os.close(descriptor)
                    path.unlink(missing_ok=True)

    def _synced(self, part: _Part) -> None:
        try:
            self._sync(part)
            if self._owner is not None:
                self._close(part)
        finally:
            self._room.release()

    def _sync(self, part: _Part) -> None:
        assert part.out is not None
        durable.fsync_file(part.out.fileno(), self.folder.root / part.path)

    def _close(self, part: _Part) -> None:
        out, part.out = part.out, None
        if out is not None:
            with contextlib.suppress(OSError):
                out.close()

    def sync(self) -> None:
        """See that all that was written is on the disk."""
        self._wait()
        for part in self._parts:
            if part.late:
                part.late = False
                self._sync(part)

    def _wait(self) -> None:
        for each in self._syncing:
            each.result()
        self._syncing.clear()

    def put(self) -> None:
        """Give all of them their names, durably."""
        self.sync()
        for part in self._parts:
            with self.folder.parent(part.path) as (parent, name):
                if part.removal:
                    os.rename(name, part.aside, src_dir_fd=parent, dst_dir_fd=parent)
                    part.old = part.aside
                else:
                    self._keep_old(part, parent, name)
                    os.rename(part.aside, name, src_dir_fd=parent, dst_dir_fd=parent)
                part.put = True
        self._sync_folders()

    def _keep_old(self, part: _Part, parent: int, name: str) -> None:
        """Hard-link the existing file, if the file system supports links."""
        try:
            os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return
        part.there = True
        if self._owner is None:
            self._own()  # nothing else says that the old file is still wanted
        old = f"{part.aside.removesuffix(SUFFIX)}0{SUFFIX}"
        try:
            os.link(name, old, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
            part.old = old
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise

    def _sync_folders(self) -> None:
        """Each once, with those above it: who has made them may have died before its own fsync."""
        folders = {""}
        for part in self._parts:
            *above, _ = part.path.split("/")
            folders |= {"/".join(above[:depth]) for depth in range(1, len(above) + 1)}
        if not self._parts:
            return
        found = [self.folder.root / folder for folder in sorted(folders)]
        each = self._pool.map if len(found) > 1 else map
        list(each(_sync_folder, found))

    # The end

    def __enter__(self) -> Self:
        root = self.folder.root
        if self._create_root:
            self._above = [each for each in (root, *root.parents) if not os.path.lexists(each)]
        if self._above:
            durable.make_directory(root)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if "_pool" in self.__dict__:
            self._pool.shutdown(cancel_futures=True)
        stay = [] if kind is None and all(part.put for part in self._parts) else self._back()
        for part in self._parts:
            if part.old is not None:
                self._remove(part.path, part.old)
            if part.removal and part.old is not None:
                self._remove_empty(part.path.rpartition("/")[0])
            self._close(part)
        if self._owner is not None:
            with contextlib.suppress(OSError):
                os.unlink(self.folder.root / f".{self._token}{SUFFIX}")
            os.close(self._owner)
        if isinstance(error, StorageError):
            self._tell(error, stay)

    def _back(self) -> list[str]:
        """Everything as it was; the paths of which that could not be had."""
        stay = []
        for part in reversed(self._parts):
            if not part.put:
                if not part.removal:
                    self._remove(part.path, part.aside)
                continue
            try:
                with self.folder.parent(part.path) as (parent, name):
                    if part.old is not None:
                        os.rename(part.old, name, src_dir_fd=parent, dst_dir_fd=parent)
                        part.old = None
                    elif not part.there:
                        os.unlink(name, dir_fd=parent)
                    else:
                        stay.append(part.path)
            except DlvError:
                stay.append(part.path)
        for made in reversed(self._made):
            with contextlib.suppress(DlvError), self.folder.parent(made) as (parent, name):
                os.rmdir(name, dir_fd=parent)
        with contextlib.suppress(OSError):
            for folder in self._above:
                folder.rmdir()
        return stay[::-1]

    def _remove(self, path: str, name: str) -> None:
        """At the end only, where an error has no one to go to: what is left is cleared later."""
        with contextlib.suppress(DlvError), self.folder.parent(path) as (parent, _):
            os.unlink(name, dir_fd=parent)

    def _remove_empty(self, folder: str) -> None:
        """Remove a folder and those above it, up to the first that holds something."""
        with contextlib.suppress(DlvError, OSError):
            while folder:
                with self.folder.parent(folder) as (parent, name):
                    os.rmdir(name, dir_fd=parent)
                folder = folder.rpartition("/")[0]

    def _tell(self, error: StorageError, stay: list[str]) -> None:
        if not self._parts:
            return
        what = f"nothing changed in {self.folder.root}"
        if stay:
            more = f" and {len(stay) - 3} more" if len(stay) > 3 else ""
            verb = "is" if len(stay) == 1 else "are"
            what = f"{', '.join(stay[:3])}{more} {verb} the new one{'s' * (len(stay) > 1)} already"
            error.hint = f"{error.hint}; " if error.hint else ""
            error.hint += "to continue, run the command again"
        error.why = f"{error.why}; {what}" if error.why else what


class _Raw(io.FileIO):
    """Lets the disk begin with what was written, so that the fsync has less to wait for."""

    _count = _begun = 0

    def write(self, data: Raw, /) -> int:  # type: ignore[override]
        done = super().write(data) or 0
        self._count += done
        if self._count - self._begun >= durable.WRITE_OUT:
            with contextlib.suppress(AttributeError):  # not every system has it
                places = (self._begun, self._count - self._begun)
                _libc().sync_file_range(self.fileno(), *map(ctypes.c_int64, places), 2)
            self._begun = self._count
        return done


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _sync_folder(path: Path) -> None:
    try:
        durable.fsync_directory(path)
    except StorageError as error:
        if not (isinstance(error.__cause__, OSError) and error.__cause__.errno in _NO_SYNC):
            raise
