"""dlv.locks: waiting for what another process holds."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

import dlv.locks as locks
from dlv.errors import Conflict


def test_a_lock_and_patience(tmp_path: Path) -> None:
    def opened() -> int:
        return os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)

    holder, waiter = opened(), opened()
    locks.take(holder, fcntl.LOCK_EX, None, "lock")
    began = time.monotonic()
    with pytest.raises(Conflict, match="another dlv") as caught:
        locks.take(waiter, fcntl.LOCK_SH, 0.2, "lock")
    assert caught.value.why == "lock was held for 0.2 seconds"
    assert 0.2 <= time.monotonic() - began < 5
    timer = threading.Timer(0.1, os.close, [holder])
    timer.start()
    locks.take(waiter, fcntl.LOCK_SH, 10, "lock")
    timer.join()
    os.close(waiter)


@pytest.mark.parametrize("patience", [None, 10.0])
def test_who_waits_long_is_told_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: float | None
) -> None:
    monkeypatch.setattr(locks, "TELL_AFTER", 0.1)
    holder, waiter = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    told: list[int] = []
    locks.take(holder, fcntl.LOCK_EX, None, "lock", lambda: told.append(0))
    assert not told
    timer = threading.Timer(0.5, os.close, [holder])
    timer.start()
    locks.take(waiter, fcntl.LOCK_SH, patience, "lock", lambda: told.append(1))
    timer.join()
    assert told == [1]
    os.close(waiter)
