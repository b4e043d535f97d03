"""A disk of three megabytes without room for one byte more: gc and rm work, for the ballast."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import dlv.cli as cli
import dlv.repository.ballast as ballast
from tests.crash.conftest import Prepare
from tests.crash.verbs import FOURTH, HIDDEN

SIZE = 3 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place)]
    try:
        done = subprocess.run(words, capture_output=True, text=True)
    except OSError as error:
        pytest.skip(f"no mount: {error}")
    if done.returncode:
        pytest.skip(f"nothing may be mounted here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path) -> int:
    """To the last byte."""
    descriptor = os.open(disk / "filler", os.O_WRONLY | os.O_CREAT, 0o600)
    done = 0
    try:
        for size in (1 << 16, 4096, 1):
            while True:
                try:
                    done += os.write(descriptor, bytes(size))
                except OSError:
                    break
    finally:
        os.close(descriptor)
    return done


def test_gc(disk: Path, prepare: Prepare, capsys: pytest.CaptureFixture[str]) -> None:
    """What was removed goes, and room is there again."""
    root = _copied(prepare("full", *HIDDEN), disk)
    capsys.readouterr()
    assert cli.run(["-C", str(root), "commit", "-m", "more", "--allow-empty"]) == 8
    assert capsys.readouterr().err.startswith("error: ")
    assert cli.run(["-C", str(root), "fsck"]) == 0
    assert cli.run(["-C", str(root), "gc", "--grace", "0", "-y"]) == 0, capsys.readouterr().err
    assert cli.run(["-C", str(root), "fsck"]) == 0
    assert _free(disk) > 10_000
    assert cli.run(["-C", str(root), "commit", "-m", "more", "--allow-empty"]) == 0


def test_rm(disk: Path, prepare: Prepare, capsys: pytest.CaptureFixture[str]) -> None:
    """Not even a row fits; then gc goes on with the room that rm had."""
    root = _copied(prepare("filled", *FOURTH), disk)
    assert cli.run(["-C", str(root), "rm", "lenet@3"]) == 0, capsys.readouterr().err
    assert cli.run(["-C", str(root), "fsck"]) == 0
    assert cli.run(["-C", str(root), "gc", "--grace", "0", "-y"]) == 0, capsys.readouterr().err
    assert cli.run(["-C", str(root), "fsck"]) == 0


def _copied(template: Path, disk: Path) -> Path:
    root = disk / "work"
    subprocess.run(["cp", "-r", "--sparse=never", str(template), str(root)], check=True)
    assert cli.run(["-C", str(root), "tag", "kept", "lenet@4"]) == 0
    assert (root / ".dlv" / ballast.NAME).is_file()
    assert fill(disk) > 0
    assert _free(disk) == 0
    return root


def _free(disk: Path) -> int:
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize
