"""Files beside their places that somebody is writing, or that a killed writer has left there.

They are called `.NAME.<hex>.dlv-part`. A living writer holds each locked, or beside many of them
one empty file, `.<hex>.dlv-part`, in the same folder or above.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from dlv.disk.ignore import ALWAYS

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
        return True  # a file system without locks: nobody clears it there
    return os.fstat(descriptor).st_nlink > 0


def is_part(name: str) -> bool:
    """Whether a file is on its way to its place, or will never get there."""
    return _PART.match(name) is not None


def clear(folder: Path) -> None:
    """Remove the parts in a folder that no living writer has."""
    remove(_parts_in(folder))


def remove(found: Iterable[Path]) -> list[Path]:
    """Remove the parts whose writer has died; return them."""
    return [path for path in found if _dead(path, remove=True)]


def below(root: Path) -> Iterator[Path]:
    """All parts in a tree, but in folders that dlv never writes files of the user to."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders).difference(ALWAYS))
        for name in sorted(names):
            if name.endswith(SUFFIX) and is_part(name):
                yield Path(folder, name)


def left(found: Iterable[Path]) -> list[tuple[Path, int]]:
    """Of these parts those that are of no use, with their bytes."""
    dead = []
    for path in found:
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
