"""Worker processes: what they see of the machine, and how their end is told."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dlv.errors import DlvError
from dlv.processors import VARIABLES
from dlv.training.workers.crew import Crew, Ended, devices, environment
from dlv.training.workers.owners import start_of

SAY = "print('ready', flush=True)"
WAIT = f"import sys, time; {SAY}; sys.stdin.read()"


def crew(script: str, places: int = 1, silence: float = 600.0) -> Crew:
    return Crew([sys.executable, "-c", script], places, silence=silence)


def until(crew: Crew, what: Callable[[], bool]) -> list[Ended]:
    """Look until something holds."""
    ends, found = time.monotonic() + 60, list[Ended]()
    while time.monotonic() < ends:
        found += crew.look()
        if what():
            return found
        time.sleep(0.01)
    raise AssertionError(f"not in a minute; ended: {found}")


@pytest.mark.parametrize(
    ("places", "gpus", "visible", "expected"),
    [
        (2, 0, None, [None, None]),
        (2, 0, "3", [None, None]),
        (2, 2, None, ["0", "1"]),
        (4, 2, None, ["0", "1", "0", "1"]),
        (2, 4, None, ["0,2", "1,3"]),
        (1, 2, None, ["0,1"]),
        (2, 2, "5, 7,9", ["5", "7"]),
        (3, 1, "GPU-ab", ["GPU-ab"] * 3),
    ],
)
def test_gpus_are_dealt_out(
    places: int, gpus: int, visible: str | None, expected: list[str | None]
) -> None:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert devices(places, gpus, environ) == expected


def test_more_gpus_than_there_are_is_an_error() -> None:
    with pytest.raises(DlvError, match="2 GPUs were asked for"):
        devices(1, 2, {"CUDA_VISIBLE_DEVICES": "0"})


def test_a_worker_has_one_thread_whatever_was_set() -> None:
    found = environment({"OMP_NUM_THREADS": "8", "HOME": "/root"}, "1")
    assert {found[name] for name in VARIABLES} == {"1"}
    assert (found["HOME"], found["CUDA_VISIBLE_DEVICES"]) == ("/root", "1")
    assert "CUDA_VISIBLE_DEVICES" not in environment({}, None)


def test_workers_begin_are_let_go_and_end() -> None:
    workers = crew(WAIT, 3)
    assert workers.fill(2) == []
    assert len(workers.workers) == 2
    workers.fill(2)
    assert len(workers.workers) == 2
    workers.fill()
    until(workers, lambda: all(worker.ready for worker in workers.workers.values()))
    names = {worker.name for worker in workers.workers.values()}
    assert names == {"w0", "w1", "w2"}
    workers.release()
    ended = until(workers, lambda: not workers.workers)
    assert {(each.worker, each.code, each.ready) for each in ended} == {
        (name, 0, True) for name in names
    }


def test_a_worker_that_ends_leaves_no_process_of_its_own(tmp_path: Path) -> None:
    """Such as a program that loads data."""
    file = tmp_path / "pid"
    script = (
        "import os, signal, subprocess, sys;"
        f"child = subprocess.Popen(['sleep', '600']); {SAY};"
        f"open({str(file)!r}, 'w').write(str(child.pid)); os.kill(os.getpid(), signal.SIGKILL)"
    )
    workers = crew(script)
    workers.fill()
    (ended,) = until(workers, lambda: not workers.workers)
    assert (ended.code, ended.how) == (-9, "was killed by SIGKILL: out of memory?")
    child = int(file.read_text())
    ends = time.monotonic() + 60
    while start_of(child) is not None:
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_a_worker_that_says_nothing_any_more_is_killed() -> None:
    workers = crew(WAIT, silence=0.2)
    workers.fill()
    (ended,) = until(workers, lambda: not workers.workers)
    assert ended.code == -9


def test_all_are_killed_at_once() -> None:
    workers = crew(WAIT, 2)
    workers.fill()
    pids = [worker.pid for worker in workers.workers.values()]
    workers.kill()
    assert not workers.workers
    assert [start_of(pid) for pid in pids] == [None, None]


@pytest.mark.parametrize(
    ("code", "printed", "how", "reason"),
    [
        (3, "", "ended with exit code 3", "it ended with exit code 3"),
        (-11, "", "was killed by SIGSEGV", "it was killed by SIGSEGV"),
        (-63, "", "was killed by signal 63", "it was killed by signal 63"),
        (1, "Traceback\nImportError: no x\n", "ended with exit code 1", "ImportError: no x"),
        (4, "error: no such\nnote:  a\n", "ended with exit code 4", "no such: a"),
        (8, "error: full\n", "ended with exit code 8", "full"),
    ],
)
def test_how_a_worker_ended(code: int, printed: str, how: str, reason: str) -> None:
    ended = Ended("w0", os.getpid(), code, False, printed)
    assert (ended.how, ended.reason) == (how, reason)
