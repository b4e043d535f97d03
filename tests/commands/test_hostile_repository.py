"""A repository, or names in it, made to attack: nothing runs, nothing is written outside."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dlv.upkeep.check as check
from dlv.objects.fact import Fact
from dlv.objects.manifest import Manifest
from dlv.repository.handle import Repository

pytestmark = pytest.mark.hostile

Dlv = Callable[..., Any]
ROOT = Path(__file__).resolve().parents[2]

PATHS = [
    *("../outside.py", "/etc/outside.py", "a/../../outside.py", "a//b.py", "./c.py", ""),
    *(".git/hooks/pre-commit", ".GIT/config", ".g\u200cit/config", "git~1/config", ".git./config"),
    *("sub/.git/config", ".dlv/dlv.db", ".dlv/config.toml", "a\0b", "a\nb", "a\\..\\b", "\x1b[2Jx"),
    *("nul", "con.py", "C:x.py", "a/" * 2500 + "b"),
]


def forge(folder: Path, change: Callable[[Manifest], Manifest]) -> str:
    """A version as a hostile remote could send it: its manifest and number are in order."""
    with Repository.find(folder) as repository:
        assert repository.head is not None
        made = change(repository.manifest(repository.head))
        repository.write_manifest(made)
        moment = "2026-06-15T13:00:00.000000Z"
        number = {"name": "evil", "number": 1}
        fact = Fact("number", made.id, "Eve", moment, number)
        repository.write_fact(fact)
        repository.marks.end([fact])
        check.rebuild(repository)
    return made.id


def _everything(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*") if ".dlv" not in path.parts}


@pytest.mark.parametrize("path", PATHS, ids=ascii)
@pytest.mark.parametrize("kind", ["file", "weights"])
def test_a_path_that_leads_out(dlv: Dlv, filled: Path, path: str, kind: str) -> None:
    def change(manifest: Manifest) -> Manifest:
        if kind == "file":
            entry = next(file for file in manifest.files if file.path == "train.py")
            others = [file for file in manifest.files if file.path != "train.py"]
            return replace(manifest, name="evil", files=(*others, replace(entry, path=path)))
        snapshot = manifest.snapshots[-1]
        container = replace(snapshot.containers[0], path=path)
        last = replace(snapshot, containers=(container, *snapshot.containers[1:]))
        return replace(manifest, name="evil", snapshots=(*manifest.snapshots[:-1], last))

    (filled / ".git" / "hooks").mkdir(parents=True)
    forge(filled, change)
    target = filled / "target"
    before = _everything(filled.parent)
    for arguments in (
        ["checkout", "evil@1", "--to", "target"],
        ["checkout", "evil@1", "--force"],
        ["copy", "evil@1", "mine", "-f"],
        ["export", "evil@1", "target"],
    ):
        result = dlv(*arguments)
        assert result.code in (2, 6, 9), (arguments, result)
        assert "Traceback" not in result.stderr
        assert not set(result.stderr) & set("\x1b\0")
        left = _everything(filled.parent) - before - {str(target)}
        # The good part may have been written; none of it lies elsewhere.
        assert all(Path(name).is_relative_to(target) for name in left), left
        assert not (target / ".git").exists()
        shutil.rmtree(target, ignore_errors=True)
    for arguments in (["list"], ["desc", "evil@1"], ["show", "evil@1"], ["status"], ["log"]):
        result = dlv(*arguments, tty=True)
        assert "Traceback" not in result.stderr
        assert "\x1b[2J" not in result.stdout + result.stderr
        assert result.code != 70


def test_names_that_collide(dlv: Dlv, filled: Path) -> None:
    def change(manifest: Manifest) -> Manifest:
        entry = next(file for file in manifest.files if file.path == "train.py")
        return replace(
            manifest, name="evil", files=(*manifest.files, replace(entry, path="TRAIN.py"))
        )

    forge(filled, change)
    assert dlv("checkout", "evil@1", "--to", "target").code == 9


@pytest.mark.parametrize("linked", ["src", "src/deep", "train.py"])
def test_a_link_in_the_way(dlv: Dlv, filled: Path, tmp_path: Path, linked: str) -> None:
    """Planted where the files will go: nothing is written where it points to."""

    def change(manifest: Manifest) -> Manifest:
        entry = next(file for file in manifest.files if file.path == "train.py")
        more = replace(entry, path="src/deep/model.py")
        return replace(manifest, name="evil", files=(*manifest.files, more))

    forge(filled, change)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "victim").write_text("precious\n")
    target = filled / "target"
    (target / linked).parent.mkdir(parents=True)
    (target / linked).symlink_to(outside / "victim" if linked == "train.py" else outside)
    result = dlv("checkout", "evil@1", "--to", "target", "--force")
    assert (outside / "victim").read_text() == "precious\n"
    assert [path.name for path in outside.iterdir()] == ["victim"]
    if linked != "train.py":
        assert result.code in (5, 9)


def test_a_repository_that_is_a_link(dlv: Dlv, filled: Path, tmp_path: Path) -> None:
    """A pack that is a link to a file outside is not read as one."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"x" * 1000)
    pack = next(filled.glob(".dlv/packs/*/*.pack"))
    pack.unlink()
    pack.symlink_to(secret)
    assert dlv("fsck").code == 6


# Names of tensors

NAMES = [
    *("../../etc/passwd", "a\x1b[31mred", "a\nb", "a\tb", "a\rb", "[bold]x[/bold]", "<script>"),
    *(
        "\u202egnp.exe",
        "a" * 5000,
        "a\u0301",
        "",
        " ",
        "'; DROP TABLE version; --",
        "\x7f",
        "--help",
    ),
]


def test_names_of_tensors(dlv: Dlv, workspace: Path) -> None:
    """They are data: no control character reaches the terminal, and they come back."""
    entries, at = {}, 0
    for name in NAMES:
        entries[name] = {"dtype": "F32", "shape": [2], "data_offsets": [at, at + 8]}
        at += 8
    header = json.dumps(entries).encode()
    data = len(header).to_bytes(8, "little") + header + bytes(range(at % 256)) * 1
    data += bytes(at - at % 256)
    (workspace / "odd.safetensors").write_bytes(data)
    assert dlv("init").code == 0
    added = dlv("add", "odd.safetensors")
    assert added.code == 0, added.stderr
    assert dlv("commit", "-m", "odd", "--name", "odd").code == 0
    for arguments in (
        ["list"],
        ["desc", "odd@1"],
        ["desc", "odd@1", "--full"],
        ["show", "odd@1"],
        ["log"],
        ["stats", "odd@1"],
        ["status"],
        ["diff", "odd@1", "odd@1"],
        ["fsck"],
    ):
        for tty in (True, False):
            result = dlv(*arguments, tty=tty)
            assert result.code in (0, 2), (arguments, result.stderr)
            text = result.stdout + result.stderr
            assert "\x1b[31mred" not in text, arguments
            assert not set(text) & set("\r\x7f\u202e\0"), arguments
    (workspace / "odd.safetensors").unlink()
    assert dlv("checkout", "odd@1").code == 0
    assert (workspace / "odd.safetensors").read_bytes() == data
    assert dlv("fsck").code == 0


# The user's git around the project


@pytest.fixture
def project(tmp_path: Path) -> tuple[Path, Path]:
    """A git repository that would run things, and the file that would tell."""
    folder, sign = tmp_path / "project", tmp_path / "it-ran"
    folder.mkdir()
    shout = tmp_path / "shout.sh"
    shout.write_text(f"#!/bin/sh\necho $0 $@ >> {sign}\ncat\n")
    shout.chmod(0o755)

    def git(*arguments: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
            cwd=folder,
            check=True,
            capture_output=True,
        )

    git("init", "-q")
    (folder / "train.py").write_text("x = 1\n")
    git("add", "train.py")
    git("commit", "-q", "-m", "first")
    (folder / "train.py").write_text("x = 2\n")
    for hook in ("pre-commit", "post-checkout", "post-index-change", "fsmonitor-watchman"):
        shutil.copy(shout, folder / ".git" / "hooks" / hook)
    return folder, sign


# The whole program; test_environment.py has more of them.
ATTACKS = {
    "fsmonitor": ["core.fsmonitor", "{shout}"],
    "filter": ["filter.x.clean", "{shout}"],
    "promisor": ["remote.origin.url", "ext::{shout}"],
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_of_the_users_git_runs(
    project: tuple[Path, Path], tmp_path: Path, attack: str
) -> None:
    folder, sign = project
    (folder / ".gitattributes").write_text("* filter=x diff=x\n")
    key, value = ATTACKS[attack]
    settings = {key: value.format(shout=tmp_path / "shout.sh")}
    if attack == "promisor":  # git would fetch what it lacks
        settings |= {"remote.origin.promisor": "true", "extensions.partialClone": "origin"}
        settings |= {"protocol.ext.allow": "always", "core.repositoryformatversion": "1"}
        _lose_tree(folder)
    for name, given in settings.items():
        subprocess.run(["git", "config", name, given], cwd=folder, check=True)
    environ = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    environ |= {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    environ |= {"GIT_EXTERNAL_DIFF": str(tmp_path / "shout.sh"), "GIT_SSH_COMMAND": "false"}
    environ |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.fsmonitor"}
    environ |= {"GIT_CONFIG_VALUE_0": str(tmp_path / "shout.sh")}
    for command in (["init"], ["add", "."], ["commit", "-m", "x", "--name", "m"], ["status"]):
        done = subprocess.run(
            [sys.executable, "-m", "dlv", *command],
            cwd=folder,
            env=environ,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    assert not sign.exists(), sign.read_text()


def _lose_tree(folder: Path) -> None:
    found = subprocess.run(
        ["git", "rev-parse", "HEAD^{tree}"], cwd=folder, check=True, capture_output=True, text=True
    )
    name = found.stdout.strip()
    (folder / ".git" / "objects" / name[:2] / name[2:]).unlink()


def test_git_alone_would_run_them(project: tuple[Path, Path], tmp_path: Path) -> None:
    """So that the test above can fail."""
    folder, sign = project
    subprocess.run(["git", "config", "core.fsmonitor", f"{tmp_path}/shout.sh"], cwd=folder)
    subprocess.run(["git", "status"], cwd=folder, capture_output=True)
    assert "shout" in sign.read_text()
