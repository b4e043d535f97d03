"""Searches are broken off in time, and leave the timer as it was."""

from __future__ import annotations

import re
import signal
import threading
import time

import pytest

from dlv.errors import UsageError
from dlv.network.selector import searching

BAD = "a" * 40 + "!"


def test_what_is_found_is_what_python_finds() -> None:
    search = searching(re.compile(r"^layer(\d+)\."))
    found = search("layer12.conv")
    assert found is not None
    assert found[1] == "12"
    assert search("conv") is None


@pytest.mark.parametrize("text", ["(a+)+$", "(a|a)*$", "(.*)*$X", "(a*)*b"])
def test_it_is_broken_off(text: str) -> None:
    began = time.process_time()
    with pytest.raises(UsageError, match="takes too long") as told:
        searching(re.compile(text), 0.05)(BAD)
    assert time.process_time() - began < 1
    assert told.value.why is not None
    assert text in told.value.why


def test_the_time_is_that_of_all_names_together() -> None:
    search = searching(re.compile("(a+)+$"), 0.05)
    with pytest.raises(UsageError):
        list(map(search, ["a" * 16 + "!"] * 10_000))


def test_nothing_is_left_behind() -> None:
    def own(*_: object) -> None: ...

    before = signal.signal(signal.SIGVTALRM, own)
    try:
        search = searching(re.compile("(a+)+$"), 0.05)
        search("aa")
        with pytest.raises(UsageError):
            search(BAD)
        assert signal.getsignal(signal.SIGVTALRM) is own
        assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
    finally:
        signal.signal(signal.SIGVTALRM, before)


def test_other_threads_search_without_a_limit() -> None:
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(searching(re.compile("a"))("bab")))
    thread.start()
    thread.join()
    assert found[0] is not None
