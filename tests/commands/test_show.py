"""`dlv show`: a version, a file, a matrix, the manifest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Dlv = Callable[..., Any]
MODES = ["pipe", "tty", "json"]
# What depends on the machine or on the version of a compressor.
VARIES = {
    r'("environment": )\{(?:[^{}]|\{[^{}]*\})*\}': r"\1{..}",
    r'("?stored:?"?:?\s+)[0-9.]+( k?B)?': r"\1<stored>",
}


@pytest.mark.parametrize("mode", MODES)
def test_version(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    dlv("tag", "paper-final", "lenet@1")
    result = dlv("show", "lenet@1", tty=mode == "tty", json=mode == "json")
    assert result.code == 0
    snapshot(result, replace=VARIES)


@pytest.mark.parametrize("mode", ["pipe", "tty"])
def test_a_removed_copy(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    dlv("rm", "lenet-wide@1")
    snapshot(dlv("show", "lenet-wide@1", tty=mode == "tty"), replace=VARIES)


@pytest.mark.parametrize("mode", MODES)
def test_matrix(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    words = ["show", "lenet@1/100", "--tensor", "conv1.weight"]
    snapshot(dlv(*words, tty=mode == "tty", json=mode == "json"), replace=VARIES)


@pytest.mark.parametrize("tty", [True, False])
def test_a_file_is_its_bytes(dlv: Dlv, filled: Path, tty: bool) -> None:
    expected = (filled / "train.py").read_bytes()
    assert dlv("show", "lenet@1:train.py", tty=tty).data == expected


def test_a_file_as_json(dlv: Dlv, snapshot: Dlv, filled: Path) -> None:
    snapshot(dlv("show", "HEAD:train.py", json=True))
    (filled / "odd.bin").write_bytes(b"\xff\x00")
    dlv("add", "odd.bin", "--as", "file")
    dlv("commit", "-m", "odd")
    assert dlv("show", "HEAD:odd.bin", json=True).document["file"]["base64"] == "/wA="
    assert dlv("show", "HEAD:odd.bin").data == b"\xff\x00"


def test_the_manifest_hashes_to_the_id(dlv: Dlv, filled: Path) -> None:
    result = dlv("show", "lenet@1", "--manifest")
    stored = next(
        (filled / ".dlv" / "manifests").glob(f"*/{dlv('log', 'lenet@1', '-q').stdout[:64]}*")
    )
    assert result.data == stored.read_bytes()
    document = dlv("show", "lenet@1", "--manifest", json=True).document
    assert document["manifest"]["message"].startswith("First training")


def test_quiet(dlv: Dlv, filled: Path) -> None:
    version = dlv("show", "lenet", json=True).document["version"]
    assert dlv("show", "lenet", "-q").stdout.strip() == version["id"]
    entry = next(e for e in version["files"] if e["path"] == "train.py")
    assert dlv("show", "lenet:train.py", "-q").stdout.strip() == entry["hash"]


REFUSED: dict[str, tuple[list[str], int]] = {
    "no such version": (["lenet-wid"], 4),
    "no such step": (["lenet@1/150"], 4),
    "no such file": (["lenet:trian.py"], 4),
    "weights as a file": (["lenet@1:ckpt-100.safetensors"], 2),
    "no such matrix": (["lenet", "--tensor", "conv1.wieght"], 4),
    "two parts at once": (["lenet:train.py", "--manifest"], 2),
    "no reference": (["lenet@"], 2),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("mode", ["pipe", "json"])
def test_refused(dlv: Dlv, snapshot: Dlv, filled: Path, name: str, mode: str) -> None:
    words, code = REFUSED[name]
    result = dlv("show", *words, json=mode == "json")
    assert (result.code, result.stdout) == (code, "")
    snapshot(result)


def test_a_damaged_manifest(dlv: Dlv, filled: Path) -> None:
    digest = dlv("show", "lenet@1", "-q").stdout.strip()
    path = filled / ".dlv" / "manifests" / digest[:2] / f"{digest}.json"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().replace(b"Plain", b"Plein"))
    for words in (["lenet@1"], ["lenet@1", "--manifest"], ["lenet@1:train.py"]):
        result = dlv("show", *words)
        assert (result.code, result.stdout) == (6, "")
        assert "dlv fsck" in result.stderr


def test_outside_a_repository(dlv: Dlv, workspace: Path) -> None:
    assert dlv("show", "lenet").code == 3
