"""Kernel locks, how all of dlv waits for others, and on which file systems locks can be trusted.

No process that has died holds a lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from dlv.dataclass import dataclass
from dlv.errors import Conflict

if TYPE_CHECKING:
    from dlv.disk.holders import Holder

SECONDS = 30.0  # to wait, if nothing else is said
TELL_AFTER = 1.0  # seconds
_PAUSES = (0.001, 0.05)  # between two tries: first, longest
# A lock for one alone would never be free as long as others come and share it one after the
# other. So who waits for it closes a gate to newcomers: for so many seconds, then it is open for
# so many, as somebody who is inside may take long.
GATE = "gate.lock"
CLOSED, OPEN = 5.0, 1.0

_inside: Counter[tuple[int, int]] = Counter()  # locks that this process shares, by file
_turn = threading.Lock()


def _default() -> float:
    return SECONDS


@dataclass(frozen=True)
class Patience:
    """How long to wait for others, and who is told for whom."""

    seconds: Callable[[], float] = _default
    tell: Callable[[str], object] | None = None

    def at_most(self, seconds: float) -> Patience:
        """Shorter, and without a word: for what can be left to another time."""
        return Patience(lambda: min(seconds, self.seconds()))

    def for_lock(self, path: Path) -> Wait:
        return Wait(self, path.name, lambda: _holders().of_lock(path))

    def for_database(self, path: Path) -> Wait:
        return Wait(self, path.name, lambda: _holders().of_database(path))


def _holders() -> ModuleType:
    import dlv.disk.holders as holders  # few ever wait

    return holders


class Wait:
    """One time that something is waited for."""

    def __init__(self, patience: Patience, what: str, who: Callable[[], Sequence[Holder]]) -> None:
        self.seconds = patience.seconds()
        self._tell = patience.tell
        self._what, self._who = what, who
        self._began = time.monotonic()
        self._pause = _PAUSES[0]

    def again(self) -> bool:
        """Whether to try again, after a pause; for whom this waits is told after a second."""
        waited = time.monotonic() - self._began
        if not waited < self.seconds:
            return False
        if self._tell is not None and waited >= TELL_AFTER:
            self._tell(self._told())
            self._tell = None
        time.sleep(max(0.0, min(self._pause, self.seconds - waited)))
        self._pause = min(2 * self._pause, _PAUSES[1])
        return True

    def _told(self) -> str:
        found = self._who()
        stands = " ".join(_wake(each) for each in found if each.stopped)
        until = "" if self.seconds == float("inf") else f", for {self.seconds:g} s at most"
        return f"Waiting for {_named(found)} to release {self._what}{until} ... {stands}".strip()

    def conflict(self, message: str = "another dlv process is using the repository") -> Conflict:
        """What to say when that was in vain."""
        found = self._who()
        how = "is held" if not self.seconds else f"was held for {self.seconds:g} seconds"
        stands = [_wake(each) for each in found if each.stopped]
        return Conflict(
            message,
            why=f"{self._what} {how} by {_named(found)}",
            hint=" ".join(stands) or "to wait longer: dlv --wait 300 ...",
        )


def _named(holders: Sequence[Holder]) -> str:
    if not holders:
        return "another process"
    more = f" and {len(holders) - 3} more" if len(holders) > 3 else ""
    return ", ".join(map(str, holders[:3])) + more


def _wake(holder: Holder) -> str:
    return f"process {holder.pid} is suspended; to resume it: kill -CONT {holder.pid}"


def take(descriptor: int, kind: int, wait: Wait) -> None:
    """Take a kernel lock as soon as it is free; Conflict when that is not in time."""
    while not _taken(descriptor, kind):
        if not wait.again():
            raise wait.conflict()


def _taken(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def fairly(descriptor: int, kind: int, wait: Wait, gate: Path) -> Iterator[None]:
    """Hold a lock fairly: a waiting exclusive holder is not overtaken for long."""
    status = os.fstat(descriptor)
    file = status.st_dev, status.st_ino
    closer = _opened(gate)
    try:
        if kind == fcntl.LOCK_EX:
            _take_alone(descriptor, closer, wait)
        else:
            # Who is inside already must not wait for somebody who waits for it to leave.
            newcomer = closer is not None and not _inside[file] and wait.seconds > 0
            _take_shared(descriptor, closer if newcomer else None, wait)
    finally:
        if closer is not None:
            os.close(closer)
    if kind == fcntl.LOCK_EX:
        yield
        return
    with _turn:
        _inside[file] += 1
    try:
        yield
    finally:
        with _turn:
            _inside[file] -= 1


def _opened(gate: Path) -> int | None:
    """Skip the gate if its file cannot be created."""
    for flags in (os.O_RDWR | os.O_CREAT, os.O_RDONLY):
        with contextlib.suppress(OSError):
            return os.open(gate, flags | os.O_CLOEXEC, 0o666)
    return None


def _take_shared(descriptor: int, gate: int | None, wait: Wait) -> None:
    while True:
        if gate is None or _taken(gate, fcntl.LOCK_SH):
            taken = _taken(descriptor, fcntl.LOCK_SH)
            if gate is not None:
                fcntl.flock(gate, fcntl.LOCK_UN)
            if taken:
                return
        if not wait.again():
            raise wait.conflict()


def _take_alone(descriptor: int, gate: int | None, wait: Wait) -> None:
    closed, turn = False, 0.0
    while not _taken(descriptor, fcntl.LOCK_EX):
        now = time.monotonic()
        if gate is not None and now >= turn:
            if closed:
                fcntl.flock(gate, fcntl.LOCK_UN)
                closed, turn = False, now + OPEN
            elif _taken(gate, fcntl.LOCK_EX):
                closed, turn = True, now + CLOSED
        if not wait.again():
            raise wait.conflict()


MOUNTS = Path("/proc/self/mountinfo")
_NETWORK_DISKS = {
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre"),
    *("gpfs", "beegfs", "wekafs", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs"),
}


def network_disk(path: Path, mounts: Path = MOUNTS) -> bool:
    """Whether the repository lies where SQLite's WAL is unsafe."""
    return file_system(path, mounts) in _NETWORK_DISKS


def file_system(path: Path, mounts: Path = MOUNTS) -> str | None:
    """The type of file system that holds `path`, as the kernel names it."""
    try:
        lines = mounts.read_bytes().splitlines()
    except OSError:
        return None
    best, kind = "", None
    target = os.path.realpath(path)
    for line in lines:
        left, _, right = line.partition(b" - ")
        # Blanks and backslashes are octal there, all else stands as it is.
        raw = re.sub(rb"\\([0-7]{3})", lambda digits: bytes([int(digits[1], 8)]), left.split()[4])
        point = os.fsdecode(raw)
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, os.fsdecode(right.split()[0])
    return kind
