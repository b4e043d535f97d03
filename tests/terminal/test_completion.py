"""Completion: the words offered, the scripts, and silence whatever goes wrong."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path

import pytest

from dlv.terminal.completion import SHELLS, complete, install_path, script

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Three versions and a tag in a catalogue with the real schema."""
    (tmp_path / ".dlv").mkdir()
    database = sqlite3.connect(tmp_path / ".dlv" / "dlv.db")
    database.executescript(files("dlv.metadata").joinpath("schema.sql").read_text())
    database.execute("PRAGMA foreign_keys = OFF")
    for name, number, letter in (
        ("lenet", 1, "a"),
        ("lenet", 2, "b"),
        ("vgg", 1, "c"),
        ("gone", 1, "d"),
    ):
        insert(database, "version", name=name, number=number, hash=letter * 64)
    database.execute("UPDATE version SET state = 'removed' WHERE name = 'gone'")
    insert(database, "version", name="undone", number=1, hash="e" * 64, net_id=2)
    database.execute("UPDATE version SET state = 'undone' WHERE name = 'undone'")
    database.execute("UPDATE version SET net_id = 1 WHERE name = 'vgg'")
    for name, run, tag in (("vgg", "", "accuracy"), ("vgg", "val", "loss"), ("gone", "", "auc")):
        key = database.execute("SELECT id FROM version WHERE name = ?", (name,)).fetchone()[0]
        insert(database, "metric", version_id=key, run=run, tag=tag)
    version = database.execute("SELECT id FROM version WHERE name = 'vgg'").fetchone()[0]
    insert(database, "tag", name="paper-final", version_id=version)
    insert(database, "layer", id=1, name="conv1", op="CONV", alias="first")
    insert(database, "hyperparameter", version_id=version, key="lr", type="float", num=0.1)
    insert(database, "saved_query", name="good ones", text="select m", created="")
    insert(database, "layer", id=2, name="conv_undone", op="CONV", alias="x")
    insert(database, "node", net_id=1, pos=0, layer_id=1)
    insert(database, "node", net_id=2, pos=0, layer_id=2)
    gone = database.execute("SELECT id FROM version WHERE name = 'gone'").fetchone()[0]
    insert(database, "tag", name="paper-draft", version_id=gone)
    database.commit()
    database.close()
    return tmp_path


def insert(database: sqlite3.Connection, table: str, **values: object) -> None:
    """A row in which every other column that needs a value has an empty one."""
    row: dict[str, object] = {}
    for _, column, kind, needed, default, key in database.execute(f"PRAGMA table_info({table})"):
        if column in values:
            row[column] = values[column]
        elif needed and default is None and not key:
            row[column] = 0 if kind == "INTEGER" else ""
    marks = ", ".join("?" * len(row))
    database.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", [*row.values()])


@pytest.mark.parametrize(
    ("kind", "incomplete", "expected"),
    [
        ("name", "", ["lenet", "vgg"]),
        ("name", "l", ["lenet"]),
        ("tag", "", ["paper-final"]),
        ("layer", "c", ["conv1"]),
        ("node", "", ["conv1", "first"]),
        ("hyperparameter", "l", ["lr"]),
        ("saved", "g", ["good ones"]),
        ("reference", "", ["HEAD", "lenet", "paper-final", "vgg"]),
        ("reference", "lenet@", ["lenet@1", "lenet@2"]),
        ("reference", "lenet@l", ["lenet@latest"]),
        ("reference", "vgg@best:", ["vgg@best:accuracy", "vgg@best:val/loss"]),
        ("reference", "vgg@best:val", ["vgg@best:val/loss"]),
        ("reference", "undone", []),
        ("reference", "gone@", []),
        ("reference", "gone@b", []),
        ("reference", "eeee", []),
        ("metric", "", ["accuracy", "val/loss"]),
        ("reference", "bbbb", ["b" * 12]),
        ("reference", "bbb", []),
        ("reference", "gone", []),
        ("reference", "100%", []),
        ("reference", "_enet", []),
        (
            "key",
            "core.",
            [f"core.{name}" for name in ("allowedsigners", "pager", "color", "hints", "jobs")]
            + ["core.singlehost", "core.wait"],
        ),
        ("nonsense", "", []),
    ],
)
def test_words(repository: Path, kind: str, incomplete: str, expected: list[str]) -> None:
    assert sorted(complete(kind, incomplete, str(repository), {})) == sorted(expected)


def test_found_from_a_folder_below_and_through_the_variable(repository: Path) -> None:
    below = repository / "a" / "b"
    below.mkdir(parents=True)
    assert complete("name", "v", str(below), {}) == ["vgg"]
    assert complete("name", "v", "/", {"DLV_DIR": str(repository / ".dlv")}) == ["vgg"]


def test_at_most_fifty(repository: Path) -> None:
    with sqlite3.connect(repository / ".dlv" / "dlv.db") as database:
        for number in range(3, 100):
            insert(database, "version", name="lenet", number=number, hash=f"{number:064}")
    database.close()
    assert len(complete("reference", "lenet@", str(repository), {})) == 50


def test_a_writer_is_not_disturbed(repository: Path) -> None:
    writer = sqlite3.connect(repository / ".dlv" / "dlv.db", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    assert complete("name", "v", str(repository), {}) == ["vgg"]
    insert(writer, "layer", name="fc", op="FC")
    writer.execute("COMMIT")
    writer.close()


@pytest.mark.parametrize("damage", ["garbage", "empty", "missing", "folder", "locked"])
def test_silent_on_errors(repository: Path, damage: str) -> None:
    path = repository / ".dlv" / "dlv.db"
    holder = None
    if damage == "locked":
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
    else:
        path.unlink()
    if damage == "garbage":
        path.write_bytes(b"x" * 5000)
    elif damage == "empty":
        path.touch()
    elif damage == "folder":
        path.mkdir()
    begun = time.monotonic()
    assert complete("name", "", str(repository), {}) == []
    assert time.monotonic() - begun < 2, "a prompt must not wait for a lock"
    if damage == "missing":
        assert not path.exists()
    if holder:
        holder.close()


def run_bash(line: str, folder: Path, point: int | None = None) -> list[str]:
    """What bash would offer after `line`, by the script that dlv prints."""
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    (tools / "dlv").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dlv "$@"\n')
    (tools / "dlv").chmod(0o755)
    (folder / "script").write_text(script("bash"))
    commands = (
        'source ./script; compopt() { echo "compopt $*"; }; '
        "_dlv_completion dlv; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    kept = {k: v for k, v in os.environ.items() if not k.startswith("DLV_")}
    environ = {**kept, "PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    environ |= {"COMP_LINE": line, "COMP_POINT": str(len(line) if point is None else point)}
    done = subprocess.run(
        ["bash", "--norc", "-c", commands],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("dlv conf", ["config"]),
        ("dlv config --show", ["--show-origin"]),
        ("dlv --js", ["--json"]),
        ("dlv completion ", ["bash", "zsh", "fish"]),
        ("dlv completion f", ["fish"]),
        ("dlv config commit.o", ["commit.optimizer"]),
        ("dlv -q config core.j", ["core.jobs"]),
        ("dlv config --color=al", ["always"]),
        ("dlv config 'unfinished", []),
    ],
)
def test_bash(repository: Path, line: str, expected: list[str]) -> None:
    assert run_bash(line, repository) == expected


def test_bash_completes_queries(repository: Path) -> None:
    offered = run_bash("""dlv query 'select m where m["co""", repository)
    assert " ".join(offered) == 'select m where m["conv1"]'
    offered = run_bash("""dlv query 'select m where m.name = "v""", repository)
    assert " ".join(offered) == 'select m where m.name = "vgg"'
    assert run_bash("dlv query --show g", repository) == ["good", "ones"]


def test_bash_completes_where_the_cursor_is(repository: Path) -> None:
    assert run_bash("dlv conf user.name", repository, point=8) == ["config"]


@pytest.mark.parametrize("shell", SHELLS)
def test_script_names_the_variable(shell: str) -> None:
    assert "_DLV_COMPLETE" in script(shell)
    assert f"{shell}_complete" in script(shell)


def test_where_scripts_go() -> None:
    environ = {"HOME": "/h"}
    assert install_path("bash", environ) == Path("/h/.local/share/bash-completion/completions/dlv")
    assert install_path("zsh", environ) == Path("/h/.local/share/zsh/site-functions/_dlv")
    assert install_path("fish", environ) == Path("/h/.config/fish/completions/dlv.fish")
    assert install_path("fish", {"XDG_CONFIG_HOME": "/c"}) == Path("/c/fish/completions/dlv.fish")
