"""Which processes hold a lock, as far as the system tells: for messages, nothing hangs on it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import dlv.disk.children as children
from dlv.dataclass import dataclass

PROCESSES = Path("/proc")
MOST_SAID = 100  # characters of a command line
_SECONDS = 5.0  # for lsof or ps to answer
_WAL_WRITE = 120  # the byte of SQLite's shared memory that its writer has locked
_LOCK = re.compile(
    r"(FLOCK|POSIX) +\S+ +(READ|WRITE) +(\d+) +([0-9a-f]+):([0-9a-f]+):(\d+) +(\d+) "
)


@dataclass(frozen=True)
class Holder:
    """A process, what it was started as (nothing if that is not to be seen), whether it stands."""

    pid: int
    command: str = ""
    stopped: bool = False

    def __str__(self) -> str:
        return f"process {self.pid}" + (f" ({self.command})" if self.command else "")


def of_lock(path: Path) -> list[Holder]:
    """Those that hold a file by flock."""
    return _known(_locking(path, "FLOCK"), [path])


def of_database(path: Path) -> list[Holder]:
    """Those that write to an SQLite database, or keep others from it."""
    memory = path.with_name(f"{path.name}-shm")
    found = {*_locking(memory, "POSIX", _WAL_WRITE), *_locking(path, "POSIX", written=True)}
    return _known(found, [memory, path])


def _locking(path: Path, kind: str, byte: int | None = None, *, written: bool = False) -> set[int]:
    """Process numbers from the kernel's own list, which Linux has."""
    try:
        status = path.stat()
        lines = (PROCESSES / "locks").read_text().splitlines()
    except OSError:
        return set()
    found: dict[bool, set[int]] = {True: set(), False: set()}
    for line in lines:
        lock = None if "->" in line else _LOCK.search(line)  # an arrow: it only waits for it
        if lock is None or lock[1] != kind or int(lock[6]) != status.st_ino:
            continue
        if (byte is not None and int(lock[7]) != byte) or (written and lock[2] != "WRITE"):
            continue
        device = os.makedev(int(lock[4], 16), int(lock[5], 16))
        found[device == status.st_dev].add(int(lock[3]))
    return found[True] or found[False]  # some file systems show another device there


def _known(holders: set[int], paths: Sequence[Path]) -> list[Holder]:
    """Return the holders of a lock, or without a kernel list those that have the file open."""
    if not holders and not (PROCESSES / "locks").exists():
        for path in paths:
            holders = holders or _opening(path)
    return [_holder(pid) for pid in sorted(holders) if pid > 0]


def _opening(path: Path) -> set[int]:
    said = _answer("lsof", "-nPt", "--", str(path))
    return {int(word) for word in said.split() if word.isdigit()} - {os.getpid()}


def _holder(pid: int) -> Holder:
    process = PROCESSES / str(pid)
    if (PROCESSES / "self").exists():
        words, state = [], ""
        with suppress(OSError):
            text = (process / "cmdline").read_bytes().rstrip(b"\0")
            words = [os.fsdecode(word) for word in text.split(b"\0")]
            state = (process / "stat").read_text("utf-8", "replace").rpartition(")")[2].strip()
    else:
        state, _, text_of_it = _answer("ps", "-o", "stat=,args=", "-p", str(pid)).partition(" ")
        words = text_of_it.split()
    return Holder(pid, _said(words), state[:1] in ("T", "t"))


def _answer(*command: str) -> str:
    try:
        pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        said = children.run(command, timeout=_SECONDS, **pipe).stdout
        return said.decode("utf-8", "replace").strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _said(words: Sequence[str]) -> str:
    """A command line as a person would type it: `dlv gc`, not the interpreter with all paths."""
    place = next(_programs(words), None)
    text = shlex.join(words if place is None else ["dlv", *words[place + 1 :]])
    return text if len(text) <= MOST_SAID else text[: MOST_SAID - 1] + "…"


def _programs(words: Sequence[str]) -> Iterator[int]:
    """Where `dlv` itself stands in a command line: its script, or `-m dlv`."""
    for place, word in enumerate(words[:5]):
        module = place > 0 and word == "dlv" and words[place - 1] == "-m"
        if module or (place < 2 and Path(word).name == "dlv"):
            yield place
