"""Runs a program that must not outlive who started it; run as a file, with the standard library.

Its input is a pipe that nobody writes to: when that ends, because it was closed or because the
other side died, the program and all that it started are killed. SIGTERM is handed on.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from types import FrameType


def _tied() -> Callable[[], object] | None:
    """On Linux the program ends, too, when somebody kills this process."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


def main(words: list[str]) -> int:
    """The program's exit code; 128 + N if signal N ended it."""
    # Whoever started this may ignore Ctrl-C for its own reasons.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    program = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_tied()
    )

    def tell(number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(program.pid, number)

    def hand_on(number: int, _: FrameType | None) -> None:
        tell(number)

    def watch() -> None:
        while os.read(0, 1):
            pass
        tell(signal.SIGKILL)

    signal.signal(signal.SIGTERM, hand_on)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever watches decides when it ends
    threading.Thread(target=watch, daemon=True).start()
    code = program.wait()
    tell(signal.SIGKILL)  # what it left behind
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    # Without the clean-up of the interpreter: a thread waits for input.
    found = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(found)
