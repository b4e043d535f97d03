"""Every call that makes something durable: write once, fsync file and directory, publish."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from dlv.canonical import hash_bytes, hasher
from dlv.errors import StorageError, denied
from dlv.kinds import Raw

T = TypeVar("T")

READ_SIZE = 1 << 20
WRITE_OUT = 8 << 20  # the disk begins with what was written when there is so much of it

_ADVICE = {
    errno.ENOSPC: ("the disk is full", "free some space and run the command again"),
    errno.EDQUOT: ("the disk quota is used up", "free some space and run the command again"),
    errno.EROFS: ("the file system is read-only", "mount it writable or use another place"),
    errno.EACCES: ("permission denied", "check the permissions of the directory"),
    errno.EPERM: ("the operation is not permitted", "check the permissions of the directory"),
    errno.EIO: ("the device reported an error", "check the disk before writing again"),
    errno.EMFILE: ("too many open files", "raise the limit (ulimit -n) or use fewer jobs"),
    errno.ENFILE: ("too many open files in the system", "close other programs and repeat"),
    errno.EFBIG: ("the file is larger than the file system or a limit allows", None),
}


class Failpoints:
    """Where tests stand between dlv and the disk; by default nothing happens."""

    def hit(self, name: str) -> None:
        """Called before each durable operation; a test counts, raises OSError or dies here."""


failpoints = Failpoints()

# Directories whose own entry in their parent this process has made durable.
_settled: set[Path] = set()


def storage_error(doing: str, path: str | os.PathLike[str], error: OSError) -> StorageError:
    """What the file system said, with what was being done to which path."""
    why, hint = _ADVICE.get(error.errno or 0, (error.strerror or str(error), None))
    if error.errno in (errno.EACCES, errno.EPERM):
        why, hint = denied(path) or (why, hint)
    return StorageError(f"cannot {doing} {os.fspath(path)}", why=why, hint=hint)


def _call(
    point: str, doing: str, path: str | os.PathLike[str], function: Callable[..., T], *args: object
) -> T:
    """The seam: every durable system call of dlv goes through here."""
    try:
        failpoints.hit(point)
        return function(*args)
    except OSError as error:
        raise storage_error(doing, path, error) from error


def fsync_file(descriptor: int, path: str | os.PathLike[str]) -> None:
    """Once per descriptor: after a failure the kernel may forget the pages and answer success."""
    _call("fsync_file", "make durable", path, os.fsync, descriptor)


def read_back(descriptor: int, digest: str, path: str | os.PathLike[str]) -> None:
    """See that the open file, which has no name yet that counts, holds what was meant."""
    running, at = hasher(), 0
    while piece := _call("read", "read", path, os.pread, descriptor, READ_SIZE, at):
        running.update(piece)
        at += len(piece)
    if running.hexdigest() != digest:
        raise misread(os.fspath(path))


def misread(noun: str) -> StorageError:
    """For what a disk gives back otherwise than it was given."""
    return StorageError(
        f"{noun} did not read back as it was written",
        why="the disk, its driver or the memory may be faulty",
        hint="check them before writing again; nothing changed",
    )


def fsync_directory(path: str | os.PathLike[str]) -> None:
    """Make the names in a directory durable."""
    descriptor = _call("open", "open", path, os.open, path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _call("fsync_directory", "make durable", path, os.fsync, descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: str | os.PathLike[str]) -> Path:
    """Create a directory and its parents; each name is durable in the directory above it."""
    target = Path(path)
    missing = [target]
    while not missing[-1].parent.is_dir() and missing[-1].parent != missing[-1]:
        missing.append(missing[-1].parent)
    for directory in reversed(missing):
        _settle([directory])
    return target


def _settle(directories: Iterable[Path]) -> None:
    """See that each directory exists and that its entry in the parent is durable.

    Also when another process made it: that one may not have come to its own fsync yet.
    """
    fresh = []
    for directory in dict.fromkeys(directories):
        try:
            _call("mkdir", "create", directory, os.mkdir, directory)
        except StorageError as error:
            if not isinstance(error.__cause__, FileExistsError) or not directory.is_dir():
                raise
            if directory.absolute() in _settled:
                continue
        else:
            inherit_rights(directory)
        fresh.append(directory)
    for parent in dict.fromkeys(directory.parent for directory in fresh):
        fsync_directory(parent)
    _settled.update(directory.absolute() for directory in fresh)


class TemporaryFile:
    """A new file in `tmp`, locked as long as its writer lives, hashed as it is written."""

    def __init__(self, tmp_dir: str | os.PathLike[str], *, suffix: str = "") -> None:
        self.path, self._descriptor = _create(Path(tmp_dir), suffix)
        self._hasher = hasher()
        self._size = 0
        self._begun = 0
        self._synced = False
        self._open = True

    def write(self, data: Raw) -> int:
        view = memoryview(data).cast("B") if len(data) else memoryview(b"")
        done = 0
        while done < len(view):
            # A file system may take only part of it.
            done += _call("write", "write", self.path, os.write, self._descriptor, view[done:])
        self._hasher.update(view)
        self._size += len(view)
        if self._size - self._begun >= WRITE_OUT:
            self._write_out()
        return len(view)

    def _write_out(self) -> None:
        """Let the disk begin, so that the fsync has less to wait for; it promises nothing."""
        count, begin = self._size - self._begun, self._begun
        self._begun = self._size
        with suppress(OSError, AttributeError):  # not every system has it
            # Linux writes out what it is told that nobody needs; what it still writes it keeps.
            os.posix_fadvise(self._descriptor, begin, count, os.POSIX_FADV_DONTNEED)

    def tell(self) -> int:
        return self._size

    def hexdigest(self) -> str:
        """The hash of all that was written so far."""
        return self._hasher.hexdigest()

    def sync(self) -> None:
        """Make it durable and read it back; never twice on one descriptor, even after a failure."""
        if not self._synced:
            self._synced = True
            fsync_file(self._descriptor, self.path)
            self._read_back()

    def _read_back(self) -> None:
        read_back(self._descriptor, self._hasher.hexdigest(), self.path)

    def close(self) -> None:
        """Close, and with that give up the lock."""
        if self._open:
            self._open = False
            _call("close", "close", self.path, os.close, self._descriptor)

    def discard(self) -> None:
        """Remove the file; used after an error, so it reports none of its own."""
        if self._open:
            self._open = False
            try:
                self.path.unlink()
            except OSError:
                pass
            finally:
                os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.discard()


def _create(tmp_dir: Path, suffix: str) -> tuple[Path, int]:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    if not tmp_dir.is_dir():  # many ways to copy a repository leave empty folders out
        with suppress(OSError):  # what is wrong, the next call tells
            tmp_dir.mkdir()
    while True:
        path = tmp_dir / (os.urandom(12).hex() + suffix)
        descriptor = _call("create", "create", path, os.open, path, flags, 0o666)
        try:
            _call("lock", "lock", path, fcntl.flock, descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            inherit_rights(path)
            if os.fstat(descriptor).st_nlink:
                return path, descriptor
        except StorageError as error:
            if not isinstance(error.__cause__, BlockingIOError):
                os.close(descriptor)
                path.unlink(missing_ok=True)
                raise
        # A start that clears `tmp` took the lock between our open and our flock: a new name.
        os.close(descriptor)


def path_of(root: str | os.PathLike[str], name: str, suffix: str) -> Path:
    """Where the object called `name` lies: `root/aa/<name><suffix>`."""
    return Path(root) / name[:2] / (name + suffix)


def publish(file: TemporaryFile, root: str | os.PathLike[str], name: str, suffix: str) -> Path:
    """Give a finished temporary file its final name, durably; it is closed afterwards."""
    return publish_all([file], root, [name], suffix)[0]


def publish_all(
    files: list[TemporaryFile], root: str | os.PathLike[str], names: list[str], suffix: str
) -> list[Path]:
    """`publish` for several files: each is synced, then renamed; each directory synced once."""
    paths = [path_of(root, name, suffix) for name in names]
    for file in files:
        file.sync()
    _settle(path.parent for path in paths)
    for file, path in zip(files, paths, strict=True):
        # Closed only after it left `tmp`: without the lock it would be anyone's to clear.
        _call("rename", "publish", path, os.rename, file.path, path)
        file.close()
    for directory in dict.fromkeys(path.parent for path in paths):
        fsync_directory(directory)
    return paths


def write_once(
    tmp_dir: str | os.PathLike[str], root: str | os.PathLike[str], data: Raw, suffix: str
) -> str:
    """Store `data` under its own hash; returns the hash."""
    name = hash_bytes(data)
    path = path_of(root, name, suffix)
    if _settled_copy(path, name):
        return name
    with TemporaryFile(tmp_dir, suffix=suffix) as file:
        file.write(data)
        publish(file, root, name, suffix)
    return name


def _settled_copy(path: Path, name: str) -> bool:
    """Whether the file is there and really holds what its name says; if so, make it durable."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        running = hasher()
        while piece := os.read(descriptor, READ_SIZE):
            running.update(piece)
        if running.hexdigest() != name:
            return False
        # Whoever wrote it may have died, or may still be, before its own fsyncs.
        fsync_file(descriptor, path)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    _settle([path.parent])
    fsync_directory(path.parent)
    return True


def touch(path: Path) -> None:
    """An empty file, for its name alone; the folder is synced with whatever comes next there."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
    os.close(_call("create", "create", path, os.open, path, flags, 0o666))


def remove(path: str | os.PathLike[str]) -> None:
    """Unlink a file and make that durable."""
    _call("unlink", "remove", path, os.unlink, path)
    fsync_directory(Path(path).parent)


def unlink(path: str | os.PathLike[str]) -> None:
    """Remove a file or an empty directory; that it is durable is for the caller to see to."""
    gone = os.rmdir if os.path.isdir(path) and not os.path.islink(path) else os.unlink
    _call("unlink", "remove", path, gone, path)


def move_all(pairs: Iterable[tuple[Path, Path]]) -> None:
    """Move files and folders to other folders; every directory is synced once.

    A file has both names until the new one is durable: of a rename a power cut may keep the loss
    of the old name alone.
    """
    into: dict[Path, None] = {}
    out: dict[Path, None] = {}
    twice = []
    for source, target in pairs:
        if target.parent not in into:
            make_directory(target.parent)
        if _linked(source, target):
            twice.append(source)
        else:
            _call("rename", "move", target, os.rename, source, target)
        into[target.parent] = out[source.parent] = None
    for directory in into:
        fsync_directory(directory)
    for source in twice:
        unlink(source)
    for directory in out if twice else (path for path in out if path not in into):
        fsync_directory(directory)


def _linked(source: Path, target: Path) -> bool:
    """Give a file a second name; False for a folder, and where the file system has no such."""
    if source.is_dir() or source.is_symlink():
        return False
    try:
        failpoints.hit("link")
        os.link(source, target)
    except FileExistsError:
        with suppress(OSError):
            return os.path.samefile(source, target)  # an earlier move did not come to its end
        return False
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS):
            raise storage_error("move", target, error) from error
        return False
    return True


def clear_dead(tmp_dir: str | os.PathLike[str]) -> list[str]:
    """Remove the entries of `tmp` that no living process holds locked; returns their names."""
    cleared = []
    try:
        entries = sorted(Path(tmp_dir).iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise storage_error("list", tmp_dir, error) from error
    for path in entries:
        try:
            if path.is_symlink():
                path.unlink()
                cleared.append(path.name)
                continue
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.is_dir():
                import shutil  # slow to load, seldom needed

                shutil.rmtree(path)
            else:
                path.unlink()
            cleared.append(path.name)
        except OSError:
            continue  # held, or just published: not ours to clear
        finally:
            os.close(descriptor)
    return cleared


def replace(path: Path, data: Raw, *, tmp_dir: str | os.PathLike[str]) -> None:
    """Write a file of a fixed name: whole and durable before it takes the old one's place."""
    with TemporaryFile(tmp_dir) as file:
        file.write(data)
        put_in_place(file, path)


def put_in_place(file: TemporaryFile, path: Path) -> None:
    """Give a file that was written its name, and durably; its writer still holds it locked.

    Where it lay needs no fsync: at worst a second name is left there for `clear_dead`.
    """
    file.sync()
    _call("rename", "put in place", path, os.rename, file.path, path)
    fsync_directory(path.parent)


def sync_path(path: Path) -> None:
    """Make durable what another writer put into `path`."""
    descriptor = _call("open", "open", path, os.open, path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fsync_file(descriptor, path)
    finally:
        os.close(descriptor)


def inherit_rights(*paths: str | os.PathLike[str]) -> None:
    """Give what is new the rights that its folder gives: several users may write there."""
    for path in paths:
        with suppress(OSError):
            mode = os.stat(path).st_mode
            rights = os.stat(os.path.dirname(path) or ".").st_mode & 0o077
            wanted = mode | (rights if stat.S_ISDIR(mode) else rights & 0o066)
            if wanted != mode:
                os.chmod(path, stat.S_IMODE(wanted))


def limit_rights(folder: Path) -> None:
    """For the folder of a repository itself: where others do not write, the umask counts."""
    if not folder.parent.stat().st_mode & stat.S_IWGRP:
        mask = os.umask(0o077)  # which can only be asked by setting it
        os.umask(mask)
        folder.chmod(stat.S_IMODE(folder.stat().st_mode) & ~(mask & 0o077))


def share_rights(folder: Path, *, others: bool) -> None:
    """Let the group of a folder, and with `others` everybody read, use all that lies in it as its
    owner does; what is made there later follows."""
    for here, _, names in os.walk(folder):
        for place in (here, *(os.path.join(here, name) for name in names)):
            if os.path.islink(place):
                continue
            mode = stat.S_IMODE(os.stat(place).st_mode)
            own = mode & 0o700
            wanted = mode | own >> 3 | ((own & 0o500) >> 6 if others else 0)
            wanted |= stat.S_ISGID if os.path.isdir(place) else 0
            if wanted == mode:
                continue
            try:
                os.chmod(place, wanted)
            except OSError as error:
                why, hint = denied(place) or (error.strerror, None)
                raise StorageError(f"cannot share {place}", why=why, hint=hint) from error
