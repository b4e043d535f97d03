"""`dlv gc`: the plan and what is done print the same, nothing is deleted without a word."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlv.repository.handle import Repository

Dlv = Callable[..., Any]
MODES = ["pipe", "tty", "json"]
LATER = "2026-07-15T12:00:00Z"
VARIES = {
    r"20260715T120000-[0-9a-f]{6}": "<quarantine>",
    r'("bytes": |"freed": |"kept": |"needed": |"unused": )[0-9]+': r"\1<n>",
    r"\b[0-9.]+ k?B": "<size>",
    r"(\tw[a-z ]*taken\t|\ttaken\t)[0-9]+": r"\1<n>",
    r"(freed\t)[0-9]+": r"\1<n>",
    r"((?:packs|manifests|files|quarantine)\t[0-9]+,)[0-9]+": r"\1<n>",
    r"(\tlenet@1\t)[0-9]+": r"\1<n>",
    r" +(?=<size>)": " ",
    r"─+": "─",
}


def call(dlv: Dlv, mode: str, *args: str, **how: Any) -> Any:
    return dlv("gc", *args, tty=mode == "tty", json=mode == "json", **how)


@pytest.fixture
def removed(dlv: Dlv, filled: Path) -> Path:
    assert dlv("rm", "lenet@1").code == 0
    return filled


@pytest.mark.parametrize("mode", MODES)
def test_within_the_grace(dlv: Dlv, removed: Path, snapshot: Dlv, mode: str) -> None:
    result = call(dlv, mode)
    assert result.code == 0
    snapshot(result, replace=VARIES)
    assert dlv("undo").code == 0


@pytest.mark.parametrize("mode", MODES)
def test_after_the_grace(
    dlv: Dlv, removed: Path, snapshot: Dlv, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLV_NOW", LATER)
    snapshot(call(dlv, mode, "--dry-run"), "dry", replace=VARIES)
    assert "lenet@1" in dlv("list", "--removed").stdout
    snapshot(call(dlv, mode), replace=VARIES)
    assert "lenet@1" not in dlv("list", "--removed", "--columns", "version").stdout
    assert dlv("fsck").code == 0
    place = next((removed / ".dlv" / "quarantine").iterdir()).name
    snapshot(call(dlv, mode, "--restore", place), "restored", replace=VARIES)
    assert "lenet@1" in dlv("list", "--removed").stdout
    assert dlv("fsck").code == 0


@pytest.mark.parametrize("mode", ["pipe", "json"])
def test_at_once_only_with_a_word(dlv: Dlv, removed: Path, snapshot: Dlv, mode: str) -> None:
    refused = call(dlv, mode, "--grace", "0")
    assert refused.code == 9
    snapshot(refused, "refused", replace={r"[0-9]+ bytes": "<n> bytes"})
    assert "lenet@1" in dlv("list", "--removed").stdout
    result = call(dlv, mode, "--grace", "0", "-y")
    snapshot(result, replace=VARIES)
    assert list((removed / ".dlv" / "quarantine").iterdir()) == []


@pytest.mark.parametrize("mode", MODES)
def test_policies(dlv: Dlv, filled: Path, snapshot: Dlv, mode: str) -> None:
    dlv("tag", "good", "lenet@1")
    snapshot(call(dlv, mode, "--keep-last", "1", "--dry-run"), "dry", replace=VARIES)
    dlv("tag", "--delete", "good")
    snapshot(call(dlv, mode, "--keep-last", "1"), replace=VARIES)
    assert dlv("undo").code == 0
    assert "lenet@1" in dlv("list").stdout


def test_quiet_prints_what_was_taken(dlv: Dlv, removed: Path) -> None:
    digest = dlv("list", "--removed", json=True).document["versions"]
    taken = dlv("gc", "--grace", "0", "-y", "-q").stdout.split()
    assert taken == [row["id"] for row in digest if row["version"] == "lenet@1"]


def test_the_grace_is_a_setting(dlv: Dlv, removed: Path) -> None:
    assert dlv("config", "--repo", "gc.grace", "0").code == 0
    assert dlv("gc").code == 9
    assert dlv("gc", "--grace", "1d").code == 0
    assert dlv("config", "--repo", "gc.grace", "soon").code == 2


REFUSED: dict[str, tuple[list[str], int]] = {
    "no duration": (["--grace", "14"], 2),
    "no policy": (["--keep-best", "accuracy"], 2),
    "which way": (["--keep-best", "zork:3"], 2),
    "no metric": (["--keep-best", "zork:max:3"], 4),
    "none at all": (["--keep-last", "0"], 2),
    "no quarantine": (["--restore", "20260101T000000-abcdef"], 4),
    "restore and more": (["--restore", "x", "--dry-run"], 2),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("mode", ["pipe", "json"])
def test_refused(dlv: Dlv, snapshot: Dlv, filled: Path, name: str, mode: str) -> None:
    words, code = REFUSED[name]
    result = call(dlv, mode, *words)
    assert (result.code, result.stdout) == (code, "")
    snapshot(result)


def test_damage_stops_it(dlv: Dlv, removed: Path, snapshot: Dlv) -> None:
    with Repository.find(removed) as repository:
        head = repository.head
    path = next(removed.glob(f".dlv/manifests/*/{head}.json"))
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().replace(b"digits", b"DIGITS"))
    result = dlv("gc", "--grace", "0", "-y")
    assert result.code == 6
    snapshot(result)


def test_outside_a_repository(dlv: Dlv, workspace: Path) -> None:
    assert dlv("gc").code == 3
