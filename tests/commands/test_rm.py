"""`dlv rm`: hides, says what gc would free, refuses what is tagged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Dlv = Callable[..., Any]
MODES = ["pipe", "tty", "json"]
VARIES = {r"(no other version\s+)[0-9.]+( k?B)?": r"\1<n>", r'("reclaimable": )[0-9]+': r"\1<n>"}


@pytest.mark.parametrize("mode", MODES)
def test_a_version(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    how = {"tty": mode == "tty", "json": mode == "json"}
    snapshot(dlv("rm", "lenet@1", "--dry-run", **how), "dry", replace=VARIES)
    assert "lenet@1" in dlv("list").stdout
    snapshot(dlv("rm", "lenet@1", **how), replace=VARIES)
    assert "lenet@1" not in dlv("list", "--columns", "version").stdout


@pytest.mark.parametrize("mode", MODES)
def test_snapshots(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    words = ["rm", "lenet@1", "lenet@2", "--checkpoints", "50-150"]
    snapshot(dlv(*words, tty=mode == "tty", json=mode == "json"), replace=VARIES)
    assert dlv("show", "lenet@1/100").code == 4


@pytest.mark.parametrize("mode", ["pipe", "tty"])
def test_head_and_tags_go_by_force(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    dlv("tag", "good", "lenet-wide@1")
    dlv("tag", "better", "lenet-wide@1")
    result = dlv("rm", "-f", "lenet-wide", "lenet@1", tty=mode == "tty")
    snapshot(result, replace=VARIES)
    assert dlv("tag").stdout == ""


def test_quiet(dlv: Dlv, filled: Path) -> None:
    digest = dlv("show", "lenet@1", "-q").stdout
    result = dlv("rm", "lenet@1", "-q")
    assert (result.stdout, result.stderr) == (digest, "")


def test_it_frees_what_stats_says(dlv: Dlv, filled: Path) -> None:
    rows = dlv("stats", json=True).document["rows"]
    expected = next(row["freed"] for row in rows if row["name"] == "lenet@2")
    assert dlv("rm", "lenet@2", json=True).document["reclaimable"] == expected


REFUSED: dict[str, tuple[list[str], int]] = {
    "tagged": (["lenet@2"], 5),
    "removed already": (["lenet-wide@1"], 5),
    "own weights": (["lenet@1", "--checkpoints", "200"], 5),
    "no such step": (["lenet@1", "--checkpoints", "150"], 4),
    "no steps": (["lenet@1", "--checkpoints", "ten"], 2),
    "no such version": (["lenet@4"], 4),
    "a part of a version": (["lenet@1/100"], 2),
    "nothing": ([], 2),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("mode", ["pipe", "json"])
def test_refused(dlv: Dlv, snapshot: Dlv, filled: Path, name: str, mode: str) -> None:
    words, code = REFUSED[name]
    dlv("tag", "good", "lenet@2")
    dlv("rm", "lenet-wide@1")
    before = dlv("list", json=True).stdout
    result = dlv("rm", *words, json=mode == "json")
    assert (result.code, result.stdout) == (code, "")
    snapshot(result)
    assert dlv("list", json=True).stdout == before


def test_outside_a_repository(dlv: Dlv, workspace: Path) -> None:
    assert dlv("rm", "lenet").code == 3


@pytest.mark.parametrize("mode", MODES)
def test_a_model_of_several_versions(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    """It would have removed the latest alone."""
    how = {"tty": mode == "tty", "json": mode == "json"}
    result = dlv("rm", "lenet", **how)
    assert result.code == 2
    snapshot(result)
    assert dlv("rm", "lenet", "--all-versions", "-f").code == 0
    assert "lenet@" not in dlv("list", "--columns", "version").stdout
    assert dlv("rm", "lenet-wide").code == 0  # there is just one
