"""`dlv stats`: bytes, and what removing frees."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Dlv = Callable[..., Any]
MODES = ["pipe", "tty", "json"]
# Bytes after compression depend on the version of zstd, the database on that of SQLite.
VARIES = {
    r"([0-9.]+ k?B) +[0-9.]+ k?B +[0-9.]+x +[0-9.]+ k?B +[0-9.]+ k?B": (
        r"\1 <stored> <ratio> <freed> <needed>"
    ),
    r"([0-9.]+ k?B) +[0-9.]+ k?B +[0-9.]+x": r"\1 <stored> <ratio>",
    r"(\t[0-9]+\t[0-9]+)\t[0-9]+\t[0-9.]+\t[0-9]+\t[0-9]+": (
        r"\1\t<stored>\t<ratio>\t<freed>\t<needed>"
    ),
    r"(\t[0-9]+\t[0-9]+)\t[0-9]+\t[0-9.]+": r"\1\t<stored>\t<ratio>",
    r"((?:stored|ratio|freed|needed|packs|files\.git|database|other):?\s+)[0-9.x]+( k?B)?": (
        r"\1<n>"
    ),
    r'("(?:stored|ratio|packs|files|database|other|freed|needed)": )[0-9.]+': r"\1<n>",
    r"(?<=\S)  +(?=\S)": "  ",  # columns are as wide as those numbers
}


@pytest.mark.parametrize("mode", MODES)
def test_versions(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    result = dlv("stats", tty=mode == "tty", json=mode == "json")
    assert result.code == 0
    snapshot(result, replace=VARIES)


@pytest.mark.parametrize("by", ["tensor", "layout"])
@pytest.mark.parametrize("mode", MODES)
def test_grouped(dlv: Dlv, snapshot: Dlv, filled: Path, by: str, mode: str) -> None:
    result = dlv("stats", "lenet@1", "--by", by, tty=mode == "tty", json=mode == "json")
    snapshot(result, replace=VARIES)


@pytest.mark.parametrize("mode", MODES)
def test_codecs(dlv: Dlv, filled: Path, mode: str) -> None:
    """Which codec is chosen depends on versions, too."""
    result = dlv("stats", "--by", "codec", tty=mode == "tty", json=mode == "json")
    assert result.code == 0
    assert "zstd" in result.stdout


@pytest.mark.parametrize("mode", MODES)
def test_nothing(dlv: Dlv, snapshot: Dlv, workspace: Path, mode: str) -> None:
    dlv("init")
    snapshot(dlv("stats", tty=mode == "tty", json=mode == "json"), replace=VARIES)


def test_quiet(dlv: Dlv, filled: Path) -> None:
    rows = dlv("stats", json=True).document["rows"]
    assert dlv("stats", "-q").stdout.split() == [row["id"] for row in rows]


REFUSED: dict[str, tuple[list[str], int]] = {
    "no such version": (["lenet@7"], 4),
    "no such grouping": (["--by", "colour"], 2),
    "a part of a version": (["lenet@1:train.py"], 2),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("mode", ["pipe", "json"])
def test_refused(dlv: Dlv, snapshot: Dlv, filled: Path, name: str, mode: str) -> None:
    words, code = REFUSED[name]
    result = dlv("stats", *words, json=mode == "json")
    assert (result.code, result.stdout) == (code, "")
    snapshot(result)


def test_outside_a_repository(dlv: Dlv, workspace: Path) -> None:
    assert dlv("stats").code == 3
