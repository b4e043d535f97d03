"""Processes that dlv starts: each of them ends when dlv does, however that comes about.

Nobody who was killed can end its children. Linux does it, if the child asks for it before it turns
into the program that it is to be; elsewhere a shell beside the child waits for the end of a pipe.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

GRACE = 5.0  # seconds for a worker to come to its next log when its driver has died
LOOK = 0.25
WARDEN = Path(__file__).with_name("warden.py")
_ON_DEATH = 1  # PR_SET_PDEATHSIG
_prctl: Any = None
if sys.platform == "linux":
    with contextlib.suppress(OSError, AttributeError):
        # Looked up here: between fork and exec no library may be loaded.
        _prctl = ctypes.CDLL(None, use_errno=True).prctl
_WATCH = 'read _ || kill -"$2" "$1"'


def python(module: str, *arguments: str) -> list[str]:
    """The command that calls `main` of a module of dlv in a new Python process.

    The folder of dlv comes last in its path, so that no module beside dlv hides an installed one.
    """
    code = f"import sys; sys.path.append(sys.argv.pop(1)); from {module} import main; main()"
    return [sys.executable, "-P", "-c", code, str(Path(__file__).absolute().parents[2]), *arguments]


def start(command: Sequence[str], *, ends_by: int = signal.SIGKILL, **how: Any) -> Child:
    """As `subprocess.Popen`; `ends_by` is sent to it when this process dies.

    It must be waited for by the thread that starts it: Linux takes the end of that for the end of
    the process.
    """
    return Child(command, ends_by, **how)


def run(
    command: Sequence[str], *, timeout: float | None = None, **how: Any
) -> subprocess.CompletedProcess[bytes]:
    """As `subprocess.run` of a program that is read, or that prints where this one does."""
    with start(command, **how) as process:
        try:
            said, told = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, said, told)


class Child(subprocess.Popen[bytes]):
    """A process that does not outlive this one."""

    def __init__(self, command: Sequence[str], ends_by: int, **how: Any) -> None:
        self._watch: subprocess.Popen[bytes] | None = None
        super().__init__(command, preexec_fn=_tied(os.getpid(), ends_by), **how)
        if _prctl is None:
            words = ["/bin/sh", "-c", _WATCH, "sh", str(self.pid), str(int(ends_by))]
            with contextlib.suppress(OSError):
                self._watch = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)

    def poll(self) -> int | None:
        code = super().poll()
        if code is not None:
            self._let_go()
        return code

    def wait(self, timeout: float | None = None) -> int:
        code = super().wait(timeout)
        self._let_go()
        return code

    def _let_go(self) -> None:
        """It has ended: its number may soon be another's."""
        watch, self._watch = self._watch, None
        if watch is not None:
            with contextlib.suppress(OSError):
                watch.communicate(b"\n")


def _tied(parent: int, ends_by: int) -> Callable[[], None]:
    """What a child does before it is another program."""

    def tie() -> None:
        if _prctl is not None:
            _prctl(_ON_DEATH, int(ends_by), 0, 0, 0)
            if os.getppid() != parent:  # it died before that was asked for
                os.kill(os.getpid(), signal.SIGKILL)

    return tie


@contextlib.contextmanager
def ended_with_this() -> Iterator[None]:
    """Processes that a library starts in this block end, with theirs, if this one is killed."""
    words = [sys.executable, "-I", "-S", str(WARDEN), str(os.getpid())]
    try:
        watch = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)
    except OSError:
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            watch.communicate(b".")


def end_with_parent(end: Callable[[], object], grace: float = GRACE) -> None:
    """In a process that has something to bring to its end: `end` is called so many seconds after
    the death of whoever started it."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK)
        time.sleep(grace)
        end()

    threading.Thread(target=watch, name="parent", daemon=True).start()
