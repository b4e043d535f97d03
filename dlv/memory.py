"""How much memory this process may still take; freed memory returned to the system."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def free_memory(cgroup: Path = _CGROUP) -> int | None:
    """Bytes free on the machine and within the limits of this process; None if unknown."""
    limits = [*_free_of_machine(), *_free_of_group(cgroup), *_free_of_addresses()]
    return max(0, min(limits)) if limits else None


def give_back() -> None:
    """Return freed memory to the system, where the allocator supports it (glibc)."""
    import ctypes

    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _free_of_machine() -> Iterator[int]:
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                yield int(line.split()[1]) << 10


def _free_of_group(cgroup: Path) -> Iterator[int]:
    with suppress(OSError, ValueError):
        limit = int((cgroup / "memory.max").read_text())  # ValueError for `max`: no limit
        yield limit - int((cgroup / "memory.current").read_text())


def _free_of_addresses() -> Iterator[int]:
    with suppress(ImportError, OSError):
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            yield limit - pages * resource.getpagesize()
