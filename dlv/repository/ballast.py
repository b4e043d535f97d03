"""A file of nothing, given up so that `gc` and `rm` can write rows on a disk that is full."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from dlv.repository.handle import Repository

NAME = "ballast"
SIZE, SMALL = 4 << 20, 256 << 10
ROOM = 16  # it is put aside again only where so many times its size is free


def path_of(repository: Repository) -> Path:
    return repository.path / NAME


def keep(repository: Repository) -> None:
    """Put it aside if there is room: a small repository needs little. It is only a help, so that
    nothing fails for its sake."""
    path = path_of(repository)
    with contextlib.suppress(OSError):
        size = SMALL if repository.database_file.stat().st_size < SIZE else SIZE
        have = path.stat().st_size if path.exists() else 0
        if have >= size or _free(repository.path) < ROOM * size:
            return
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _fill(descriptor, size)
        except OSError:
            os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)


def give_up(repository: Repository, *, least: int = ROOM * SIZE) -> bool:
    """Free it where less than that is free; whether it was there."""
    path = path_of(repository)
    with contextlib.suppress(OSError):
        if _free(repository.path) < least:
            path.unlink()
            return True
    return False


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def _fill(descriptor: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:  # macOS
        os.pwrite(descriptor, bytes(size), 0)
