"""The worker processes of this machine: started, heard, noticed when they end, let go, killed.

Each is a program of its own, not a fork: libraries with threads survive that, and nothing is
shared. It holds the read end of a pipe; when that is closed, also by the death of who holds the
other end, it finishes the interval that it is at and ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import IO

from dlv.dataclass import dataclass
from dlv.errors import DlvError, StorageError
from dlv.processors import VARIABLES

READY, BEAT = b"ready", b"beat"
SILENCE = 600.0  # seconds; a worker says each 10 that it lives, even in the middle of a step
HUNG = 75  # exit code of a worker that gave up a trial which said nothing
TOLD = 4000  # bytes of what a worker printed of its own trouble
DEVICES = "CUDA_VISIBLE_DEVICES"


@dataclass
class Worker:
    """A process that is asked to work. `name` stays with the place when another takes it."""

    place: int
    process: subprocess.Popen[bytes]
    printed: IO[bytes]  # its stderr, a file without a name
    ready: bool = False
    heard: float = field(default_factory=time.monotonic)

    @property
    def name(self) -> str:
        return f"w{self.place}"

    @property
    def pid(self) -> int:
        return self.process.pid


@dataclass(frozen=True)
class Ended:
    """A worker that ended by itself. `code`: exit code, or less than 0: the signal."""

    worker: str
    pid: int
    code: int
    ready: bool
    printed: str

    @property
    def how(self) -> str:
        if self.code >= 0:
            return f"ended with exit code {self.code}"
        with contextlib.suppress(ValueError):
            name = signal.Signals(-self.code).name
            # What the kernel does when memory is short.
            return f"was killed by {name}" + (": out of memory?" if name == "SIGKILL" else "")
        return f"was killed by signal {-self.code}"

    @property
    def reason(self) -> str:
        """What it said of it: an error of dlv, or the last line of a traceback."""
        lines = [line.strip() for line in self.printed.splitlines() if line.strip()]
        places = [place for place, line in enumerate(lines) if line.startswith("error: ")]
        if not places:
            return lines[-1] if lines else f"it {self.how}"
        error, *rest = lines[places[-1] :]
        why = [line.removeprefix("note:").strip() for line in rest if line.startswith("note:")]
        return ": ".join([error.removeprefix("error: "), *why])


class Crew:
    """As many workers as there are places, each started by `command` with its name behind it."""

    def __init__(
        self,
        command: Sequence[str],
        places: int,
        *,
        gpus: int = 0,
        environ: Mapping[str, str] = os.environ,
        silence: float = SILENCE,
    ) -> None:
        self.command = list(command)
        self.places = places
        self.workers: dict[int, Worker] = {}
        self._environ = environ
        self._devices = devices(places, gpus, environ)
        self._silence = silence
        self._closed: set[int] = set()

    def fill(self, most: int | None = None) -> list[str]:
        """Start a worker at each place that has none; at most so many are there then.

        Where some work and no more can be started, that is said, and not tried again.
        """
        for place in sorted(set(range(self.places)) - self._closed - set(self.workers)):
            if most is not None and len(self.workers) >= most:
                break
            try:
                self.workers[place] = self._start(place)
            except StorageError as error:
                if not self.workers:
                    raise
                self._closed.update(range(place, self.places))
                return [f"{error.message}: {error.why}; going on with {len(self.workers)}"]
        return []

    def close(self, name: str) -> None:
        """Start no more worker of that name."""
        self._closed.add(int(name.removeprefix("w")))

    def _start(self, place: int) -> Worker:
        printed = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            process = subprocess.Popen(
                [*self.command, f"w{place}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=printed,
                env=environment(self._environ, self._devices[place]),
                start_new_session=True,  # Ctrl-C of the terminal is for the driver alone
            )
        except OSError as error:
            printed.close()
            raise StorageError(
                "a worker cannot be started",
                why=error.strerror or str(error),
                hint="fewer workers: on local(workers=1)",
            ) from error
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        return Worker(place, process, printed)

    def look(self) -> list[Ended]:
        """Hear what the workers say; those that have ended since, which leave their places."""
        now, ended = time.monotonic(), []
        for worker in list(self.workers.values()):
            gone = _gone(worker)  # asked before it is heard: nothing is said later
            self._hear(worker, now)
            if gone or now - worker.heard > self._silence:
                kill(worker)  # and its children
                code = worker.process.wait()
                text = self._leave(worker)
                ended.append(Ended(worker.name, worker.pid, code, worker.ready, text))
        return ended

    def _hear(self, worker: Worker, now: float) -> None:
        assert worker.process.stdout is not None
        said = b""
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(worker.process.stdout.fileno(), 4096):
                said += piece
        worker.ready |= READY in said
        worker.heard = now if said else worker.heard

    def _leave(self, worker: Worker) -> str:
        del self.workers[worker.place]
        size = worker.printed.seek(0, os.SEEK_END)
        worker.printed.seek(max(0, size - TOLD))
        text = worker.printed.read().decode("utf-8", "replace").strip()
        worker.printed.close()
        for pipe in (worker.process.stdin, worker.process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        return text

    def release(self) -> None:
        """Let all go: each finishes the interval that it is at."""
        for worker in self.workers.values():
            assert worker.process.stdin is not None
            with contextlib.suppress(OSError):
                worker.process.stdin.close()

    def kill(self) -> None:
        """End all at once, with what they have started."""
        for worker in list(self.workers.values()):
            kill(worker)
            worker.process.wait()
            self._leave(worker)


def _gone(worker: Worker) -> bool:
    """Whether it has ended; it keeps its number until it is waited for."""
    if hasattr(os, "waitid"):
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        with contextlib.suppress(ChildProcessError):  # somebody waits for every child
            return os.waitid(os.P_PID, worker.pid, flags) is not None
    return worker.process.poll() is not None


def kill(worker: Worker) -> None:
    """Its whole process group, which it leads: a trainer's own program too."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(worker.pid, signal.SIGKILL)


def environment(environ: Mapping[str, str], visible: str | None) -> dict[str, str]:
    """One thread for each worker, whatever their number: sums in another order are other bits."""
    found = {**environ, **dict.fromkeys(VARIABLES, "1"), "PYTHONUNBUFFERED": "1"}
    return found if visible is None else {**found, DEVICES: visible}


def devices(places: int, gpus: int, environ: Mapping[str, str]) -> list[str | None]:
    """The GPUs that each worker sees, of the first `gpus` of those that this process may use."""
    if not gpus:
        return [None] * places
    given = environ.get(DEVICES)
    known = [str(number) for number in range(gpus)]
    if given is not None:
        known = [word.strip() for word in given.split(",") if word.strip()][:gpus]
        if len(known) < gpus:
            raise DlvError(f"{gpus} GPUs were asked for, {DEVICES} names {len(known)}")
    return [
        ",".join(known[place::places] if gpus >= places else [known[place % gpus]])
        for place in range(places)
    ]
