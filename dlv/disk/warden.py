"""Ends what a process has started, and all that this has started, when that process dies; run as a
file, with the standard library.

For libraries with processes of their own, in groups and sessions of their own. Its input is a pipe:
a byte says that nothing is to be ended, the end of it without one that the other side is dead.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

LOOK = 1.0  # seconds between two looks at what there is
SHIFT = 3.0  # seconds: ps computes when a process began, and not always to the same second

Row = tuple[int, float]  # parent, when it began: a number may be given to another process


def main(root: int) -> None:
    known = below(root, processes())
    while not select.select([0], [], [], LOOK)[0]:
        known = below(root, processes()) or known
    if os.read(0, 1):
        return
    there = processes()
    for pid, began in known.items():
        if pid in there and abs(there[pid][1] - began) <= SHIFT:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def processes() -> dict[int, Row]:
    """Of the whole machine."""
    words = ["ps", "-A", "-o", "pid=,ppid=,lstart="]
    try:
        plain = {**os.environ, "LC_ALL": "C"}
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=plain)
    except OSError:
        return {}
    found = {}
    for line in done.stdout.splitlines():
        pid, parent, *began = line.split()
        when = time.mktime(time.strptime(" ".join(began), "%a %b %d %H:%M:%S %Y"))
        found[int(pid)] = (int(parent), when)
    return found


def below(root: int, there: dict[int, Row]) -> dict[int, float]:
    """What descends from a process, but for this one: number -> when it began."""
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in there.items():
        children.setdefault(parent, []).append(pid)
    waiting, found = [root], {}
    while waiting:
        for pid in children.get(waiting.pop(), []):
            if pid != os.getpid():
                found[pid] = there[pid][1]
                waiting.append(pid)
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]))
