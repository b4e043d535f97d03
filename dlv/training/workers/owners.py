"""Who drives a sweep and who works on its trials, and whether these processes still live."""

from __future__ import annotations

import fcntl
import os
import platform
import subprocess
import time
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import dlv.disk.children as children
import dlv.disk.durable as durable
from dlv.dataclass import dataclass

PROCESSES = Path("/proc")


@dataclass(frozen=True)
class Owner:
    """`started` tells a process from a later one that got its number."""

    pid: int
    started: float
    host: str
    worker: str

    @classmethod
    def here(cls, worker: str) -> Owner:
        """This process."""
        pid = os.getpid()
        return cls(pid, start_of(pid) or 0.0, host(), worker)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@cache
def host() -> str:
    """Where the number of a process means something: machine, boot, namespace of processes."""
    words = [platform.node() or "localhost"]
    for path in ("/etc/machine-id", "/proc/sys/kernel/random/boot_id"):
        text = ""
        with suppress(OSError):
            text = Path(path).read_text().strip()
        words.append(text or "-")
    namespace = "-"
    with suppress(OSError):
        namespace = os.readlink(PROCESSES / "self" / "ns" / "pid")
    return " ".join([*words, namespace])


def start_of(pid: int) -> float | None:
    """When the process began, by a clock of its own; None: there is none, or it is a zombie."""
    try:
        text = (PROCESSES / str(pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return None if PROCESSES.joinpath("self").exists() else _start_by_ps(pid)
    # The name of the program stands in brackets and may hold anything.
    state, *rest = text.rpartition(")")[2].split()
    return None if state in "ZXx" else float(rest[18])


def _start_by_ps(pid: int) -> float | None:
    done = children.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "LC_ALL": "C"},
    )
    state, _, began = done.stdout.decode("utf-8", "replace").strip().partition(" ")
    if not state or state.startswith("Z"):
        return None
    return time.mktime(time.strptime(" ".join(began.split()), "%a %b %d %H:%M:%S %Y"))


def dead(owner: Owner) -> bool:
    """Whether it is certain that the process is gone: else only its lease tells."""
    here, there = host().split(), owner.host.split()
    if len(there) != 4 or here[:2] != there[:2]:
        return False
    if here[2] != there[2]:
        return here[1] != "-" and "-" not in (here[2], there[2])  # the machine was started anew
    if here[3] != there[3]:
        return False
    return start_of(owner.pid) != owner.started


_MARK = ".sweep-"


def driving(tmp: Path, run: str) -> durable.TemporaryFile:
    """A file of the repository's `tmp` that shows, while its block lasts, that this process drives
    the sweep. It is locked: no process that has died drives any. What such left behind goes."""
    for path in tmp.glob(f"*{_MARK}*"):
        if not _locked(path):
            path.unlink(missing_ok=True)
    return durable.TemporaryFile(tmp, suffix=_suffix(run))


def driven(tmp: Path, run: str) -> bool:
    """Whether a living process drives the sweep."""
    return any(map(_locked, tmp.glob(f"*{_suffix(run)}")))


def _suffix(run: str) -> str:
    return f"{_MARK}{run[:16]}"


def _locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # a file system without locks
    finally:
        os.close(descriptor)
    return False
