"""dlv.disk.locks: waiting for what another process holds."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import dlv.disk.holders as holders
import dlv.disk.locks as locks
from dlv.disk.holders import Holder
from dlv.disk.locks import Patience
from dlv.errors import Conflict


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.lock"


@contextmanager
def opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def patience(seconds: float, told: list[str] | None = None) -> Patience:
    return Patience(lambda: seconds, None if told is None else told.append)


def test_a_lock_and_patience(path: Path) -> None:
    with opened(path) as waiter, opened(path) as holder:
        locks.take(holder, fcntl.LOCK_EX, Patience().for_lock(path))
        began = time.monotonic()
        with pytest.raises(Conflict, match="another dlv") as caught:
            locks.take(waiter, fcntl.LOCK_SH, patience(0.2).for_lock(path))
        assert 0.2 <= time.monotonic() - began < 5
        assert caught.value.exit_code == 5
        why = caught.value.why or ""
        assert why.startswith("some.lock was held for 0.2 seconds by process ")
        timer = threading.Timer(0.1, fcntl.flock, [holder, fcntl.LOCK_UN])
        timer.start()
        locks.take(waiter, fcntl.LOCK_SH, patience(10).for_lock(path))
        timer.join()


def test_no_patience_at_all(path: Path) -> None:
    told: list[str] = []
    with opened(path) as holder, opened(path) as waiter:
        fcntl.flock(holder, fcntl.LOCK_EX)
        began = time.monotonic()
        with pytest.raises(Conflict) as caught:
            locks.take(waiter, fcntl.LOCK_SH, patience(0, told).for_lock(path))
        assert time.monotonic() - began < 1
        assert (caught.value.why or "").startswith("some.lock is held by ")
        assert told == []


@pytest.mark.parametrize("seconds", [10.0, float("inf")])
def test_who_waits_long_is_told_so_once(
    path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(locks, "TELL_AFTER", 0.1)
    monkeypatch.setattr(holders, "of_lock", lambda _: [Holder(7, "dlv gc", stopped=True)])
    told: list[str] = []
    with opened(path) as holder, opened(path) as waiter:
        locks.take(holder, fcntl.LOCK_EX, patience(seconds, told).for_lock(path))
        assert not told
        timer = threading.Timer(0.5, fcntl.flock, [holder, fcntl.LOCK_UN])
        timer.start()
        locks.take(waiter, fcntl.LOCK_SH, patience(seconds, told).for_lock(path))
        timer.join()
    until = ", for 10 s at most" if seconds == 10 else ""
    assert told == [
        f"Waiting for process 7 (dlv gc) to release some.lock{until} ..."
        " process 7 is suspended; to resume it: kill -CONT 7"
    ]


def test_many_holders_are_cut_short(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holders, "of_lock", lambda _: [Holder(n) for n in range(1, 6)])
    found = patience(0).for_lock(path).conflict()
    assert found.why == "some.lock is held by process 1, process 2, process 3 and 2 more"
    monkeypatch.setattr(holders, "of_lock", lambda _: [])
    assert patience(0).for_lock(path).conflict().why == "some.lock is held by another process"


class Nobody(Counter[tuple[int, int]]):
    """Threads as if they were processes: none knows who else is inside."""

    def __setitem__(self, *_: object) -> None: ...


class TestFairly:
    """A lock that many share, and one wants alone."""

    def turns(self, path: Path, shares: int, until: threading.Event) -> list[threading.Thread]:
        """Threads, each as a process of its own, that share it one after the other for ever."""

        def share() -> None:
            with opened(path) as descriptor:
                while not until.is_set():
                    with self.shared(descriptor, path):
                        time.sleep(0.02)

        made = [threading.Thread(target=share) for _ in range(shares)]
        for thread in made:
            thread.start()
        return made

    @contextmanager
    def shared(self, descriptor: int, path: Path, seconds: float = 60) -> Iterator[None]:
        wait = patience(seconds).for_lock(path)
        with locks.fairly(descriptor, fcntl.LOCK_SH, wait, path.with_name(locks.GATE)):
            try:
                yield
            finally:
                fcntl.flock(descriptor, fcntl.LOCK_UN)

    def test_who_wants_it_alone_is_not_passed_over(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(locks, "_inside", Nobody())
        over = threading.Event()
        threads = self.turns(path, 6, over)
        try:
            with opened(path) as descriptor:
                for _ in range(3):
                    wait = patience(30).for_lock(path)
                    gate = path.with_name(locks.GATE)
                    with locks.fairly(descriptor, fcntl.LOCK_EX, wait, gate):
                        pass
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            over.set()
            for thread in threads:
                thread.join()

    def test_the_gate_opens_again_where_somebody_stays_inside(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(locks, "CLOSED", 0.3)
        monkeypatch.setattr(locks, "_inside", Nobody())
        over = threading.Event()

        def alone() -> None:
            with opened(path) as descriptor:
                wait = patience(30).for_lock(path)
                with locks.fairly(descriptor, fcntl.LOCK_EX, wait, path.with_name(locks.GATE)):
                    over.set()

        with opened(path) as inside, opened(path) as other:
            fcntl.flock(inside, fcntl.LOCK_SH)
            thread = threading.Thread(target=alone)
            thread.start()
            for _ in range(3):
                with self.shared(other, path):
                    assert not over.is_set()
                    time.sleep(0.1)
            fcntl.flock(inside, fcntl.LOCK_UN)
            thread.join(30)
            assert over.is_set()

    def test_who_is_inside_may_go_further_in(self, path: Path) -> None:
        """Else both would wait for each other."""
        gate = path.with_name(locks.GATE)
        with opened(path) as first, opened(path) as second, opened(gate) as closed:
            with locks.fairly(first, fcntl.LOCK_SH, patience(5).for_lock(path), gate):
                fcntl.flock(closed, fcntl.LOCK_EX)
                with locks.fairly(second, fcntl.LOCK_SH, patience(0.5).for_lock(path), gate):
                    pass
            with (
                pytest.raises(Conflict),
                locks.fairly(second, fcntl.LOCK_SH, patience(0.2).for_lock(path), gate),
            ):
                pass
