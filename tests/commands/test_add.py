"""`dlv add` as seen from outside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Dlv = Callable[..., Any]
MODES = ["pipe", "tty", "json"]


def how(mode: str) -> dict[str, bool]:
    return {"tty": mode == "tty", "json": mode == "json"}


@pytest.fixture
def project(dlv: Dlv, filled: Path) -> Path:
    """Some files to add beside those of HEAD."""
    (filled / "config.json").write_text('{"lr": 0.2}')
    (filled / "notes").mkdir()
    (filled / "notes" / "today.md").write_text("# Notes\n")
    (filled / "old.pkl").write_bytes(b"\x80\x02.")
    return filled


@pytest.mark.parametrize("mode", MODES)
def test_a_folder(dlv: Dlv, snapshot: Dlv, project: Path, mode: str) -> None:
    result = dlv("add", ".", **how(mode))
    assert result.code == 0
    snapshot(result)


@pytest.mark.parametrize("mode", MODES)
def test_options(dlv: Dlv, snapshot: Dlv, project: Path, mode: str) -> None:
    given = ["--as", "weights", "--step", "300", "ckpt-200.safetensors"]
    snapshot(dlv("add", *given, **how(mode)), "weights")
    given = ["--as", "data", "--file-format", "text", "train.py"]
    snapshot(dlv("add", *given, **how(mode)), "data")


@pytest.mark.parametrize("mode", MODES)
def test_remove(dlv: Dlv, snapshot: Dlv, project: Path, mode: str) -> None:
    dlv("add", "notes")
    result = dlv("add", "--remove", "train.py", "notes", **how(mode))
    assert result.code == 0
    snapshot(result)
    assert dlv("status", "-q").stdout == "train.py\nconfig.json\n"


def test_quiet(dlv: Dlv, project: Path) -> None:
    assert dlv("add", "notes", "-q").stdout == "notes/today.md\n"


def test_nothing_to_take(dlv: Dlv, snapshot: Dlv, project: Path) -> None:
    (project / "empty").mkdir()
    snapshot(dlv("add", "empty"))


def test_many_passed_over(dlv: Dlv, snapshot: Dlv, filled: Path) -> None:
    (filled / "old").mkdir()
    for number in range(12):
        (filled / "old" / f"{number:02}.pt").write_bytes(b"\x80\x02.")
    snapshot(dlv("add", "old"))
    assert "old/11.pt" in dlv("add", "old", "-v").stderr


def test_a_log_with_columns_of_its_own(dlv: Dlv, filled: Path) -> None:
    (filled / "own.csv").write_text("batch,when,loss\n5,2026-01-01,0.5\n")
    assert dlv("add", "own.csv", "--log-step", "batch", "--log-time", "when").code == 0
    result = dlv("commit", "-m", "log")
    assert result.code == 0, result.stderr


def test_optimizer_state(dlv: Dlv, filled: Path) -> None:
    torch = pytest.importorskip("torch")
    state = {"model": {"w": torch.ones(2)}, "optimizer": {"state": {0: {"m": torch.ones(2)}}}}
    torch.save({**state, "step": 3}, filled / "ckpt.pt")
    told = "optimizer tensors skipped"
    assert told not in dlv("add", "ckpt.pt").stderr
    assert told in dlv("add", "--no-optimizer", "ckpt.pt").stderr
    dlv("config", "commit.optimizer", "drop")
    assert told in dlv("add", "ckpt.pt").stderr


@pytest.mark.parametrize("mode", ["pipe", "json"])
@pytest.mark.parametrize(
    ("name", "code", "args"),
    [
        ("no_such_file", 4, ["trian.py"]),
        ("not_tracked", 4, ["--remove", "trian.py"]),
        ("a_pickle", 9, ["old.pkl"]),
        ("nothing_named", 2, []),
        ("unknown_role", 2, ["--as", "weight", "train.py"]),
        ("unknown_format", 2, ["--file-format", "safetensor", "ckpt-200.safetensors"]),
        ("no_weights", 2, ["--as", "weights", "train.py"]),
        ("damaged", 6, ["broken.safetensors"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_errors(
    dlv: Dlv, snapshot: Dlv, project: Path, mode: str, name: str, code: int, args: list[str]
) -> None:
    whole = (project / "ckpt-200.safetensors").read_bytes()
    (project / "broken.safetensors").write_bytes(whole[:-5])
    result = dlv("add", *args, **how(mode))
    assert result.code == code
    snapshot(result)
    assert dlv("status", json=True).document["staged"] == []


def test_outside_a_repository(dlv: Dlv, snapshot: Dlv) -> None:
    result = dlv("add", ".")
    assert result.code == 3
    snapshot(result)
