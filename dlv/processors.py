"""How many threads the linear algebra below numpy may use: the processors that are free."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

# What the libraries look at when they are loaded; later it is too late.
VARIABLES = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"),
    *("VECLIB_MAXIMUM_THREADS", "NUMEXPR_NUM_THREADS"),
)
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
