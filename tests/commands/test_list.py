"""`dlv list`: on a terminal, in a pipe, as JSON; what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Dlv = Callable[..., Any]
MODES = ["pipe", "tty", "json"]


@pytest.mark.parametrize("mode", MODES)
def test_versions(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    dlv("tag", "paper-final", "lenet@2")
    result = dlv("list", tty=mode == "tty", json=mode == "json")
    assert result.code == 0
    snapshot(result)


@pytest.mark.parametrize("mode", MODES)
def test_names(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    snapshot(dlv("list", "--names", tty=mode == "tty", json=mode == "json"))


@pytest.mark.parametrize("mode", MODES)
def test_chosen_columns(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    columns = "version,loss.min,accuracy,lr,optimizer.name,author,network"
    words = ["list", "--columns", columns, "--sort", "accuracy", "--where", "lr<=0.1"]
    snapshot(dlv(*words, tty=mode == "tty", json=mode == "json"))


@pytest.mark.parametrize("mode", ["pipe", "tty"])
def test_removed_and_undone(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    dlv("rm", "lenet@1")
    dlv("undo", "--op", "4")  # the commit of lenet-wide@1
    assert "lenet@1" not in dlv("list", "--columns", "version").stdout
    snapshot(dlv("list", "--removed", tty=mode == "tty"))


def test_a_wide_terminal_has_room(
    dlv: Dlv, snapshot: Dlv, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    snapshot(dlv("list", tty=True))


@pytest.mark.parametrize("tty", [True, False])
def test_nothing(dlv: Dlv, snapshot: Dlv, workspace: Path, tty: bool) -> None:
    dlv("init")
    snapshot(dlv("list", tty=tty))
    assert dlv("list", json=True).document["versions"] == []
    assert dlv("list", "--exit-code").code == 1


def test_quiet_prints_ids(dlv: Dlv, filled: Path) -> None:
    ids = [version["id"] for version in dlv("list", json=True).document["versions"]]
    assert dlv("list", "-q").stdout.split() == ids
    assert dlv("list", "--names", "-q").stdout.split() == ["lenet", "lenet-wide"]


def test_found_or_not_as_exit_code(dlv: Dlv, filled: Path) -> None:
    assert dlv("list", "--exit-code").code == 0
    assert dlv("list", "x*").code == 0
    result = dlv("list", "x*", "--exit-code")
    assert (result.code, result.stdout) == (1, "")
    assert result.stderr == "no matching versions\n"
    assert dlv("list", "x*", "--exit-code", json=True).document["versions"] == []


def test_options_as_the_paper_spells_them(dlv: Dlv, filled: Path) -> None:
    words = ["list", "--model_name", "lenet", "--commit_msg", "rate", "--last", "2"]
    found = dlv(*words, json=True).document["versions"]
    assert [version["version"] for version in found] == ["lenet@2"]
    assert "model_name" not in dlv("list", "--help").stdout
    assert dlv("ls", "-n", "1", "--columns", "version").stdout == "lenet-wide@1\n"


REFUSED: dict[str, tuple[list[str], int]] = {
    "no such name": (["lent"], 4),
    "a version for a name": (["lenet@2"], 2),
    "no such metric": (["--where", "acuracy>0.9"], 4),
    "no such figure": (["--where", "accuracy.mim>0.9"], 4),
    "part of a key": (["--where", "name=sgd"], 4),
    "condition without comparison": (["--where", "accuracy"], 2),
    "condition with or": (["--where", "lr=1 or lr=2"], 2),
    "no such column": (["--columns", "version,mesage"], 4),
    "no such sort key": (["--sort", "creatd"], 4),
    "no time": (["--since", "yesterday"], 2),
    "no number": (["--last", "few"], 2),
    "no such option": (["--wehre", "lr=1"], 2),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("mode", ["pipe", "json"])
def test_refused(dlv: Dlv, snapshot: Dlv, filled: Path, name: str, mode: str) -> None:
    words, code = REFUSED[name]
    result = dlv("list", *words, json=mode == "json")
    assert (result.code, result.stdout) == (code, "")
    snapshot(result)


def test_columns_as_they_are_titled(dlv: Dlv, filled: Path) -> None:
    ages = dlv("list", "--columns", "age", "--sort", "age").stdout.split()
    assert ages == sorted(ages, reverse=True)


def test_outside_a_repository(dlv: Dlv, workspace: Path) -> None:
    assert dlv("list").code == 3


def test_names_cannot_act_on_the_terminal(dlv: Dlv, filled: Path) -> None:
    dlv("commit", "-m", "\x1b[2Jgone", "--allow-empty", "--param", "k\x1b=1")
    result = dlv("list", "--columns", "message,k\x1b", tty=True)
    assert "\x1b[2J" not in result.stdout
    assert "\\x1b[2Jgone" in result.stdout
