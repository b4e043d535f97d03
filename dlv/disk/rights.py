"""Rights of files in a repository: those that its folder gives, whatever the umask takes away."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from dlv.errors import StorageError, denied


def inherit(*paths: str | os.PathLike[str]) -> None:
    """Give what is new the rights that its folder gives: several users may write there."""
    for path in paths:
        with suppress(OSError):
            mode = os.stat(path).st_mode
            rights = os.stat(os.path.dirname(path) or ".").st_mode & 0o077
            wanted = mode | (rights if stat.S_ISDIR(mode) else rights & 0o066)
            if wanted != mode:
                os.chmod(path, stat.S_IMODE(wanted))


def begin(folder: Path) -> None:
    """For the folder of a repository itself: where others do not write, the umask counts."""
    if not folder.parent.stat().st_mode & stat.S_IWGRP:
        mask = os.umask(0o077)  # which can only be asked by setting it
        os.umask(mask)
        folder.chmod(stat.S_IMODE(folder.stat().st_mode) & ~(mask & 0o077))


def share(folder: Path, *, others: bool) -> None:
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
