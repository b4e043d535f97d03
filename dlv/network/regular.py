"""Regular expressions that somebody typed: looked for in names, but not for ever."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

from dlv.errors import UsageError

SECONDS = 1.0  # of the processor, for all names together

Search = Callable[[str], "re.Match[str] | None"]


class _OverError(Exception):
    """The time is."""


def searching(pattern: re.Pattern[str], seconds: float = SECONDS) -> Search:
    """`pattern.search`, until its time is over: (a+)+ takes years on a long name.

    Python breaks off a search for a signal alone, and gets signals in the main thread alone; in
    another thread there is no limit.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(
        signal, "setitimer"
    ):
        return pattern.search
    left = seconds

    def search(text: str) -> re.Match[str] | None:
        nonlocal left
        if left <= 0:
            raise _over_time(pattern, text)
        began = time.thread_time()
        before = signal.signal(signal.SIGVTALRM, _over)
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, max(left, 1e-3))  # 0 would be no limit
            try:
                return pattern.search(text)
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        except _OverError:
            raise _over_time(pattern, text) from None
        finally:
            # What the timer has left says too little: some kernels count it in whole ticks, and
            # many searches shorter than a tick would cost nothing.
            left -= time.thread_time() - began
            signal.signal(signal.SIGVTALRM, signal.SIG_DFL if before is None else before)

    return search


def _over_time(pattern: re.Pattern[str], text: str) -> UsageError:
    return UsageError(
        "the regular expression takes too long",
        why=f're"{pattern.pattern}" was broken off at a name of {len(text)} characters',
        hint="repeat nothing in which something repeats, as (a+)+ does: a+",
    )


def _over(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    raise _OverError
