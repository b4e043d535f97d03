"""`dlv quantize`: a model of its own, and the exact one is never confused with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Dlv = Callable[..., Any]
MODES = ["pipe", "tty", "json"]
VARIES = {
    r"[0-9]+( B|\.[0-9] kB)": "<size>",
    r'("(?:before|after|raw)": )[0-9]+': r"\1<n>",
    r"(\t)[0-9]+(\t)[0-9]+(\t)[0-9]+(\ttrue)": r"\1<n>\2<n>\3<n>\4",
}


def how(mode: str) -> dict[str, bool]:
    return {"tty": mode == "tty", "json": mode == "json"}


@pytest.mark.parametrize("mode", MODES)
def test_a_model_of_its_own(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    snapshot(dlv("quantize", "lenet@2", "--to", "fp16", **how(mode)), replace=VARIES)
    assert "lenet-fp16@1" in dlv("list", "--columns", "version").stdout
    assert (
        dlv("show", "lenet-fp16@1", json=True).document["version"]["parents"][0]["kind"]
        == "quantize"
    )


def test_the_exact_one_stays_the_latest_and_the_best(dlv: Dlv, filled: Path) -> None:
    dlv("quantize", "lenet@2", "--to", "uniform:8", "--name", "lenet", "-m", "smaller")
    for reference in ("lenet", "lenet@latest"):
        assert dlv("show", reference, json=True).document["version"]["number"] == 2
    assert dlv("show", "lenet@3", json=True).document["version"]["message"] == "smaller"
    best = dlv("show", "lenet@best:loss:min", json=True).document["version"]["number"]
    assert best in (1, 2)


def test_alone_it_is_the_latest(dlv: Dlv, filled: Path) -> None:
    dlv("quantize", "lenet@1", "--to", "uniform:8")
    dlv("quantize", "lenet@2", "--to", "uniform:8")
    assert dlv("show", "lenet-uniform8", json=True).document["version"]["number"] == 2


def test_twice_is_once(dlv: Dlv, filled: Path) -> None:
    first = dlv("quantize", "lenet@2", "--to", "fp16", "-q").stdout
    again = dlv("quantize", "lenet@2", "--to", "fp16", json=True).document["quantized"]
    assert [(row["id"], row["made"]) for row in again] == [(first.strip(), False)]


REFUSED: dict[str, tuple[list[str], int]] = {
    "no scheme": (["lenet@2"], 2),
    "no such scheme": (["lenet@2", "--to", "fp61"], 2),
    "no such version": (["lenet@7", "--to", "fp16"], 4),
    "no name": (["lenet@2", "--to", "fp16", "--name", "a b"], 2),
    "a tag": (["lenet@2", "--to", "fp16", "--name", "good"], 5),
    "one step": (["lenet@2/100", "--to", "fp16"], 2),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(dlv: Dlv, snapshot: Dlv, filled: Path, name: str) -> None:
    words, code = REFUSED[name]
    dlv("tag", "good", "lenet@1")
    result = dlv("quantize", *words)
    assert result.code == code
    snapshot(result)
