"""`dlv fsck`: what is printed of a sound and of a damaged repository."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlv.repository.handle import Repository

Dlv = Callable[..., Any]
MODES = ["pipe", "tty", "json"]


def call(dlv: Dlv, mode: str, *args: str) -> Any:
    return dlv("fsck", *args, tty=mode == "tty", json=mode == "json")


def flip(path: Path, at: int) -> None:
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def largest(folder: Path) -> Path:
    return max(folder.glob(".dlv/packs/*/*.pack"), key=lambda path: path.stat().st_size)


@pytest.fixture
def damaged(filled: Path) -> Path:
    """A chunk of weights, a manifest and a file of lenet@1."""
    flip(min(filled.glob(".dlv/packs/*/*.pack")), 40)
    first = next(
        path
        for path in filled.glob(".dlv/manifests/*/*.json")
        if "First training" in path.read_text()
    )
    flip(first, 20)
    return filled


@pytest.mark.parametrize("mode", MODES)
def test_sound(dlv: Dlv, filled: Path, snapshot: Dlv, mode: str) -> None:
    result = call(dlv, mode)
    assert result.code == 0
    snapshot(result)


@pytest.mark.parametrize("mode", ["pipe", "json"])
def test_quick_and_of_one_version(dlv: Dlv, filled: Path, snapshot: Dlv, mode: str) -> None:
    result = call(dlv, mode, "--quick", "lenet@1")
    assert result.code == 0
    snapshot(result)


@pytest.mark.parametrize("mode", MODES)
def test_faults(dlv: Dlv, damaged: Path, snapshot: Dlv, mode: str) -> None:
    result = call(dlv, mode)
    assert result.code == 6
    snapshot(result)


def test_quiet_prints_the_objects(dlv: Dlv, damaged: Path) -> None:
    result = dlv("fsck", "-q")
    assert result.code == 6
    assert min(damaged.glob(".dlv/packs/*/*.pack")).stem in result.stdout.split()


@pytest.mark.parametrize("mode", MODES)
def test_rebuild(dlv: Dlv, filled: Path, snapshot: Dlv, mode: str) -> None:
    for path in filled.glob(".dlv/dlv.db*"):
        path.unlink()
    assert dlv("list").code == 6
    result = call(dlv, mode, "--rebuild")
    assert result.code == 0
    snapshot(result)
    assert dlv("list").code == 0


@pytest.mark.parametrize("mode", ["pipe", "json"])
def test_without_a_catalogue(dlv: Dlv, filled: Path, snapshot: Dlv, mode: str) -> None:
    for path in filled.glob(".dlv/dlv.db*"):
        path.unlink()
    result = call(dlv, mode)
    assert result.code == 6
    snapshot(result)


def test_a_hostile_name_does_not_reach_the_terminal(dlv: Dlv, filled: Path) -> None:
    """A file object that is gone, under a name with control characters in the catalogue."""
    (filled / "we[red]ird.py").write_text("x\n")
    assert dlv("add", "we[red]ird.py").code == 0
    assert dlv("commit", "-m", "odd").code == 0
    for path in filled.glob(".dlv/files.git/objects/??/*"):
        flip(path, -1)
    result = dlv("fsck", tty=True)
    assert result.code == 6
    assert "we[red]ird.py" not in result.stdout  # one row for a version
    assert "to list all 14 errors: dlv fsck -v" in result.stderr
    assert "we[red]ird.py" in dlv("fsck", "-v", tty=True).stdout


def test_an_unknown_version(dlv: Dlv, filled: Path) -> None:
    assert dlv("fsck", "lenet@9").code == 4


def test_outside_of_a_repository(dlv: Dlv) -> None:
    assert dlv("fsck").code == 3


def test_what_belongs_to_no_version_is_said_with_verbose(dlv: Dlv, filled: Path) -> None:
    assert "belong to no version" not in dlv("fsck", "-v").stderr
    with Repository.find(filled) as repository:
        assert repository.head is not None
        manifest = replace(repository.manifest(repository.head), message="never committed")
        repository.write_manifest(manifest)
    assert "1 object belongs to no version" in dlv("fsck", "-v").stderr
    assert dlv("fsck", json=True).document["dangling"] == [
        {"kind": "manifest", "object": manifest.id}
    ]
