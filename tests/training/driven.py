"""Drivers in processes of their own: what they say, how they are interrupted and killed."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from dlv.training.workers.owners import start_of
from tests.training.pooled import Place

ROOT = Path(__file__).resolve().parents[2]


class Driver:
    """`tests.training.driving` in a process; what it says is read as it comes."""

    def __init__(self, place: Place, run: str, workers: int, where: str) -> None:
        words = [str(place.folder), run, str(workers), where]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.training.driving", *words],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.said: list[str] = []

    def until(self, wanted: Callable[[str], bool]) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.strip())
            if wanted(self.said[-1]):
                return self.said[-1]
        raise AssertionError("\n".join(self.said))

    def end(self) -> int:
        with contextlib.suppress(AssertionError):
            self.until(lambda _: False)
        return self.process.wait()


def steps(line: str) -> int:
    return int(line.split()[1]) if line.startswith("steps") else 0


@contextlib.contextmanager
def driven(place: Place, run: str, workers: int = 2, where: str = "local") -> Iterator[Driver]:
    driver = Driver(place, run, workers, where)
    try:
        yield driver
    finally:
        driver.process.kill()
        driver.process.communicate()


def gone(pids: list[int]) -> bool:
    """Whether all have ended; waits as long as it takes, within reason."""
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        if not any(start_of(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False
