"""`dlv tag`: set, move, delete, list."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dlv.disk.holders as holders
import dlv.disk.locks as locks
from dlv.disk.holders import Holder
from dlv.terminal.output import Output

Dlv = Callable[..., Any]
MODES = ["pipe", "tty", "json"]


@pytest.mark.parametrize("mode", MODES)
def test_life_of_a_tag(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    how = {"tty": mode == "tty", "json": mode == "json"}
    snapshot(dlv("tag", "paper-final", "lenet@1", **how), "set")
    snapshot(dlv("tag", "paper-final", "lenet@1", **how), "again")
    snapshot(dlv("tag", "paper-final", "--move", **how), "moved to HEAD")
    snapshot(dlv("tag", **how), "listed")
    snapshot(dlv("tag", "--delete", "paper-final", **how), "deleted")
    snapshot(dlv("tag", "--list", **how), "none")


def test_a_tag_is_a_reference(dlv: Dlv, filled: Path) -> None:
    dlv("tag", "v1.0", "lenet@1")
    assert dlv("show", "v1.0", json=True).document["version"]["version"] == "lenet@1"
    assert dlv("list", "--tag", "v*", "--columns", "version").stdout == "lenet@1\n"


def test_quiet(dlv: Dlv, filled: Path) -> None:
    digest = dlv("show", "lenet@1", "-q").stdout
    assert dlv("tag", "good", "lenet@1", "-q").stdout == digest
    assert dlv("tag", "-q").stdout == digest
    assert dlv("tag", "-d", "good", "-q").stdout == digest


REFUSED: dict[str, tuple[list[str], int]] = {
    "exists": (["good", "lenet@2"], 5),
    "is a name": (["lenet"], 5),
    "of a removed version": (["other", "lenet-wide@1"], 5),
    "cannot be a tag": (["a/b"], 2),
    "no such version": (["new", "lenet@9"], 4),
    "no such tag": (["--delete", "god"], 4),
    "delete without name": (["--delete"], 2),
    "move without name": (["--move"], 2),
    "list with name": (["--list", "good"], 2),
    "a part of a version": (["new", "lenet@1/100"], 2),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("mode", ["pipe", "json"])
def test_refused(dlv: Dlv, snapshot: Dlv, filled: Path, name: str, mode: str) -> None:
    words, code = REFUSED[name]
    dlv("tag", "good", "lenet@1")
    dlv("rm", "lenet-wide@1")
    result = dlv("tag", *words, json=mode == "json")
    assert (result.code, result.stdout) == (code, "")
    snapshot(result)


def test_outside_a_repository(dlv: Dlv, workspace: Path) -> None:
    assert dlv("tag", "x").code == 3


@pytest.mark.parametrize("mode", MODES)
def test_who_waits_for_another_is_told(
    dlv: Dlv, snapshot: Dlv, filled: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(locks, "TELL_AFTER", 0.0)
    monkeypatch.setattr(holders, "of_lock", lambda _: [Holder(4711, "dlv gc -y")])
    descriptor = os.open(filled / ".dlv/gc.lock", os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)  # as a long gc does
    message = Output.message

    def told(output: Output, text: str) -> None:
        message(output, text)
        if text.startswith("Waiting"):
            os.close(descriptor)

    monkeypatch.setattr(Output, "message", told)
    snapshot(dlv("tag", "good", "lenet@1", tty=mode == "tty", json=mode == "json"))
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
