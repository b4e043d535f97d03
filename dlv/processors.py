"""What of the machine this process may use: processors and memory that are free."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

# What the libraries look at when they are loaded; later it is too late.
VARIABLES = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"),
    *("VECLIB_MAXIMUM_THREADS", "NUMEXPR_NUM_THREADS"),
)
_CGROUP = Path("/sys/fs/cgroup")
_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def bound_threads(environ: Mapping[str, str]) -> int:
    """Set the variables that nobody has set: before numpy is imported. The number of threads.

    Two threads on a machine that is busy already can take twenty times as long as one.
    """
    count = free()
    for name in VARIABLES:
        if name not in environ:
            os.environ[name] = str(count)
    return count


def free() -> int:
    """Physical processors that this process may use, less those that are busy; at least one."""
    count = physical(usable())
    with suppress(OSError):
        count -= round(os.getloadavg()[0])
    return max(count, 1)


def usable() -> set[int]:
    """The processors, threads of one core counted apart, that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def physical(processors: set[int], siblings: str = _SIBLINGS) -> int:
    """How many cores they are; all, where the system does not tell."""
    cores = set()
    for each in processors:
        try:
            cores.add(Path(siblings.format(each)).read_text().strip())
        except OSError:
            return len(processors)
    return len(cores)


def free_memory() -> int | None:
    """Bytes that this process may still take, by the machine and its limits; None: unknown."""
    found = [*_free_of_machine(), *_free_of_group(), *_free_of_addresses()]
    return max(0, min(found)) if found else None


def _free_of_machine() -> Iterator[int]:
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                yield int(line.split()[1]) << 10


def _free_of_group() -> Iterator[int]:
    with suppress(OSError, ValueError):
        most = int((_CGROUP / "memory.max").read_text())  # or the word `max`
        yield most - int((_CGROUP / "memory.current").read_text())


def _free_of_addresses() -> Iterator[int]:
    with suppress(ImportError, OSError):
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            yield limit - pages * resource.getpagesize()
