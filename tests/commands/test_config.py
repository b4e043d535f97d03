"""`dlv config` as seen from outside: every rendering, every listed exit code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Dlv = Callable[..., Any]


@pytest.fixture
def repository(workspace: Path) -> Path:
    (workspace / ".dlv").mkdir()
    return workspace / ".dlv"


@pytest.mark.parametrize("mode", ["pipe", "tty", "json"])
def test_all_values(dlv: Dlv, snapshot: Dlv, repository: Path, mode: str) -> None:
    (repository / "config.toml").write_text('[commit]\noptimizer = "drop"\n')
    result = dlv("config", "--show-origin", tty=mode == "tty", json=mode == "json")
    assert result.code == 0
    snapshot(result)


def test_set_get_and_unset(dlv: Dlv, repository: Path) -> None:
    assert dlv("config", "user.name", "Ada").code == 0
    assert (repository / "config.toml").read_text() == '[user]\nname = "Ada"\n'
    assert dlv("config", "user.name").stdout == "Ada\n"
    assert dlv("config", "--unset", "user.name").code == 0
    assert dlv("config", "user.name").stdout == "\n"


def test_user_file(dlv: Dlv, workspace: Path) -> None:
    assert dlv("config", "--user", "core.jobs", "3").code == 0
    path = workspace.parent / "home" / ".config" / "dlv" / "config.toml"
    assert path.read_text() == "[core]\njobs = 3\n"
    result = dlv("config", "core.jobs", "--show-origin")
    assert result.stdout == f"3\t{path}:2\n"


def test_set_prints_json(dlv: Dlv, repository: Path) -> None:
    document = dlv("config", "core.singlehost", "true", json=True).document
    assert document["values"][0]["value"] is True
    assert document["values"][0]["origin"]["line"] == 2


def test_repository_may_not_name_a_program(dlv: Dlv, snapshot: Dlv, repository: Path) -> None:
    (repository / "config.toml").write_text('[core]\npager = "evil"\n')
    result = dlv("config", "core.pager", "--show-origin")
    assert "evil" not in result.stdout
    assert result.stderr.count("core.pager") == 1
    snapshot(result)
    assert dlv("config", "core.pager", "evil").code == 2


@pytest.mark.parametrize("mode", ["pipe", "json"])
@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("unknown_key", ["user.nmae", "x"]),
        ("wrong_type", ["core.jobs", "many"]),
        ("wrong_choice", ["commit.optimizer", "dorp"]),
        ("unset_without_key", ["--unset"]),
        ("bad_option", ["--sow-origin"]),
        ("too_many", ["a", "b", "c"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_usage(
    dlv: Dlv, snapshot: Dlv, repository: Path, mode: str, name: str, args: list[str]
) -> None:
    result = dlv("config", *args, json=mode == "json")
    assert result.code == 2
    snapshot(result)


def test_no_repository(dlv: Dlv, snapshot: Dlv) -> None:
    result = dlv("config", "user.name", "Ada")
    assert result.code == 2
    snapshot(result)


def test_broken_file_is_named(dlv: Dlv, snapshot: Dlv, repository: Path) -> None:
    (repository / "config.toml").write_text("[core]\n\njobs = true\n")
    result = dlv("config")
    assert result.code == 2
    snapshot(result)


def test_unreadable_file(dlv: Dlv, repository: Path) -> None:
    (repository / "config.toml").mkdir()
    assert dlv("config").code == 8


def test_writing_where_nothing_can_be_written(dlv: Dlv, workspace: Path) -> None:
    (workspace.parent / "home" / ".config").write_text("a file where a folder must be")
    result = dlv("config", "--user", "user.name", "Ada")
    assert result.code == 8
    assert "cannot create" in result.stderr


def test_on_a_real_terminal(dlv_pty: Dlv, repository: Path) -> None:
    result = dlv_pty("config")
    assert result.code == 0
    assert "commit.optimizer" in result.stdout
    assert "\x1b[1mkey\x1b[0m" in result.stdout
