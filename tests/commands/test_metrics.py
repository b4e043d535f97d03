"""`dlv metrics`: tables, curves, points."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Dlv = Callable[..., Any]
MODES = ["pipe", "tty", "json"]


@pytest.mark.parametrize("mode", MODES)
def test_one_version(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    result = dlv("metrics", "lenet@1", tty=mode == "tty", json=mode == "json")
    assert result.code == 0
    snapshot(result)


@pytest.mark.parametrize("mode", MODES)
def test_several_versions(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    words = ["metrics", "lenet@1", "lenet@2", "--metric", "loss", "--steps", "18:20"]
    snapshot(dlv(*words, tty=mode == "tty", json=mode == "json"))


@pytest.mark.parametrize("form", ["md", "csv"])
@pytest.mark.parametrize("tty", [True, False])
def test_tables_for_elsewhere(dlv: Dlv, snapshot: Dlv, filled: Path, form: str, tty: bool) -> None:
    result = dlv("metrics", "lenet@1", "lenet@2", form, "--digits", "3", tty=tty)
    snapshot(result, form)


def test_csv_is_read_back(dlv: Dlv, filled: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(dlv("metrics", "lenet@1", "--format", "csv").stdout)))
    assert [(row["metric"], row["last"], row["last step"]) for row in rows] == [
        ("accuracy", "0.72", "20"),
        ("loss", "0.7667", "20"),
    ]


def test_points_are_in_the_document_on_request(dlv: Dlv, filled: Path) -> None:
    (series,) = dlv("metrics", "lenet@1", "--metric", "acc*", json=True).document["metrics"]
    assert series["steps"] == list(range(1, 21))
    assert series["values"][-1] == 0.72
    (rounded,) = dlv("metrics", "lenet@1", "--metric", "loss", "--digits", "2", json=True).document[
        "metrics"
    ]
    assert (rounded["last"], rounded["values"][0]) == (0.77, 2.1)


def test_a_series_that_is_not_finite(dlv: Dlv, snapshot: Dlv, filled: Path) -> None:
    (filled / "log.csv").write_text("step,loss\n1,2.5\n2,nan\n3,inf\n")
    dlv("add", "log.csv")
    dlv("commit", "-m", "diverged")
    snapshot(dlv("metrics", "HEAD", tty=True))
    (series,) = dlv("metrics", "HEAD", "--metric", "loss", json=True).document["metrics"]
    assert series["values"] == [2.5, "NaN", "Infinity"]


def test_none(dlv: Dlv, workspace: Path) -> None:
    dlv("init")
    dlv("commit", "-m", "nothing", "--name", "bare", "--allow-empty")
    result = dlv("metrics", "bare", tty=True)
    assert (result.code, result.stdout, result.stderr) == (0, "", "no metrics\n")
    assert dlv("metrics", "bare", json=True).document["metrics"] == []


REFUSED: dict[str, tuple[list[str], int]] = {
    "no such version": (["lenet@7"], 4),
    "no such series": (["lenet", "--metric", "acuracy"], 4),
    "no range": (["lenet", "--steps", "10"], 2),
    "range backwards": (["lenet", "--steps", "10:1"], 2),
    "two forms": (["lenet", "--json", "--format", "csv"], 2),
    "precision of nothing": (["lenet", "--digits", "0"], 2),
    "a part of a version": (["lenet@1/100"], 2),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("mode", ["pipe", "json"])
def test_refused(dlv: Dlv, snapshot: Dlv, filled: Path, name: str, mode: str) -> None:
    words, code = REFUSED[name]
    result = dlv("metrics", *words, json=mode == "json")
    assert (result.code, result.stdout) == (code, "")
    snapshot(result)


def test_outside_a_repository(dlv: Dlv, workspace: Path) -> None:
    assert dlv("metrics", "lenet").code == 3
