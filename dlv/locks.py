"""Kernel locks: no process that has died holds one."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable

from dlv.errors import Conflict

TELL_AFTER = 1.0  # seconds


def take(
    descriptor: int,
    kind: int,
    patience: float | None,
    name: str,
    tell: Callable[[], None] | None = None,
) -> None:
    """Take a kernel lock: wait till it is free or, with `patience`, so many seconds.

    `tell` is called once if it is not free after a while: whoever looks on wants to know.
    """
    began, pause = time.monotonic(), 0.001
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            waited = time.monotonic() - began
            if patience is not None and waited >= patience:
                raise Conflict(
                    "another dlv is at work on the repository",
                    why=f"{name} was held for {patience:g} seconds",
                    hint="repeat it later",
                ) from error
        if waited >= TELL_AFTER:
            if tell is not None:
                tell()
                tell = None
            if patience is None:
                fcntl.flock(descriptor, kind)
                return
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
