"""The preloaded library of shim.c: compiling it, and its numbers in memory that children share."""

from __future__ import annotations

import hashlib
import mmap
import os
import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")
OFF, COUNT, BEFORE, MIDDLE, FAIL_FROM, FAIL_ONCE, SHORT_FROM, INTERRUPT, RECORD, SPOIL = range(10)
NAMES = (
    *("off", "counted", "before", "within", "failing from", "failing at", "short from"),
    *("interrupted at", "recorded", "a wrong bit at"),
)
_NUMBERS = struct.Struct("<7q")  # as in `struct control`
_CALLS = 1 << 16


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def library(cache: Path) -> Path:
    """The compiled library; made once for each content of its source."""
    source = SOURCE.read_bytes()
    target = cache / f"shim-{hashlib.sha256(source).hexdigest()[:16]}.so"
    if not target.exists():
        found = compiler()
        assert found is not None, "no C compiler"
        cache.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"{target.name}.{os.getpid()}")
        flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(part)]
        subprocess.run([found, *flags, str(SOURCE), "-ldl"], check=True)
        part.rename(target)
    return target


def environment(library: Path, control: Path, below: Path) -> dict[str, str]:
    """What a process needs to be watched."""
    return {
        "LD_PRELOAD": str(library),
        "SHIM_CONTROL": str(control),
        "SHIM_BELOW": f"{below}/",
        "SHIM_RECORD": str(record_of(control)),
    }


def record_of(control: Path) -> Path:
    """Where what the calls did is written down, while the mode is RECORD."""
    return control.with_suffix(".record")


class Control:
    """The numbers: written for the next child, read after it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        size = _NUMBERS.size + _CALLS
        with path.open("a+b") as file:
            file.truncate(size)
            self._memory = mmap.mmap(file.fileno(), size)

    def set(self, mode: int, at: int = 0, error: int = 0, *, reads: bool = False) -> None:
        """Start to count from nothing: calls that change something, or those that read."""
        _NUMBERS.pack_into(self._memory, 0, OFF, at, error, 0, 0, reads, 0)
        _NUMBERS.pack_into(self._memory, 0, mode, at, error, 0, 0, reads, 0)

    def stop(self) -> None:
        """Count no longer; the numbers stay."""
        struct.pack_into("<q", self._memory, 0, OFF)

    @property
    def count(self) -> int:
        return int(_NUMBERS.unpack_from(self._memory)[3])

    @property
    def failed(self) -> int:
        """How many calls were refused."""
        return int(_NUMBERS.unpack_from(self._memory)[4])

    @property
    def retried(self) -> int:
        """How many fsyncs were of a descriptor for which one was refused before."""
        return int(_NUMBERS.unpack_from(self._memory)[6])

    @property
    def calls(self) -> str:
        """A letter per call, in order."""
        start = _NUMBERS.size
        return self._memory[start : start + min(self.count, _CALLS)].decode()
