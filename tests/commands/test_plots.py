"""`dlv plots`: on a terminal, in a pipe, as a page."""

from __future__ import annotations

import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Dlv = Callable[..., Any]
MODES = ["pipe", "tty", "json"]


@pytest.mark.parametrize("mode", MODES)
def test_two_versions(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    words = ["plots", "lenet@1", "lenet@2", "--steps", "15:"]
    result = dlv(*words, tty=mode == "tty", json=mode == "json")
    assert result.code == 0
    snapshot(result)


def test_one_version_smoothed(dlv: Dlv, snapshot: Dlv, filled: Path) -> None:
    words = ["plots", "lenet@1", "--metric", "loss", "--smooth", "0.8", "--log-scale"]
    snapshot(dlv(*words, tty=True))


@pytest.mark.parametrize("mode", MODES)
def test_a_page(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    words = ["plots", "lenet@1", "lenet@2", "--output", "curves.html"]
    result = dlv(*words, tty=mode == "tty", json=mode == "json")
    text = (filled / "curves.html").read_text()
    assert text.count("<h3>") == 2
    assert text.count("lenet@2") >= 3
    if mode == "json":
        assert Path(result.document["output"]).name == "curves.html"
        assert len(result.document["metrics"]) == 4
    else:
        assert result.stdout == "curves.html\n"


def test_it_is_opened(dlv: Dlv, filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    assert dlv("plots", "lenet@1", "--output", "c.html", "--open").code == 0
    assert opened == [(filled / "c.html").resolve().as_uri()]


def test_none(dlv: Dlv, workspace: Path) -> None:
    dlv("init")
    dlv("commit", "-m", "nothing", "--name", "bare", "--allow-empty")
    result = dlv("plots", "bare", "--output", "c.html", "--open")
    assert (result.code, result.stdout, result.stderr) == (0, "", "no metrics\n")
    assert not (workspace / "c.html").exists()


def test_ids_are_those_of_the_series(dlv: Dlv, filled: Path) -> None:
    shown = dlv("-q", "plots", "lenet@1").stdout.split()
    assert shown == dlv("-q", "metrics", "lenet@1").stdout.split()


REFUSED: dict[str, tuple[list[str], int]] = {
    "no such version": (["lenet@7"], 4),
    "no such series": (["lenet", "--metric", "acuracy"], 4),
    "no picture": (["lenet", "--output", "curves.pdf"], 2),
    "nothing to open": (["lenet", "--open"], 2),
    "too smooth": (["lenet", "--smooth", "1"], 2),
    "no folder": (["lenet", "--output", "none/curves.html"], 2),
    "range backwards": (["lenet", "--steps", "10:1"], 2),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(dlv: Dlv, snapshot: Dlv, filled: Path, case: str) -> None:
    words, code = REFUSED[case]
    result = dlv("plots", *words)
    assert result.code == code
    snapshot(result)
