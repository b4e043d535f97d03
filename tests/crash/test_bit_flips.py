"""One flipped bit in any file: fsck names the object and the versions, or nothing was in it."""

from __future__ import annotations

import json
import random
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dlv.cli as cli
from dlv.errors import DlvError
from dlv.metadata import dump
from dlv.metadata.database import Database
from dlv.repository.handle import Repository

# Kind -> its files below .dlv.
KINDS = {
    "pack": "packs/*/*.pack",
    "manifest": "manifests/*/*.json",
    "fact": "facts/*/*.json",
    "file": "files.git/objects/??/*",
    "reference": "files.git/refs/versions/*",
    "database": "dlv.db",
}
NEWER = 3  # a flip in a number of a format looks like a format of the future


def flip(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def needed(folder: Path) -> dict[str, set[str]]:
    """Label -> all hashes in the manifest of a version that was not undone, read as plain JSON."""
    with Repository.find(folder) as repository:
        labels = dump.labels(repository.database)
    found = {}
    for path in (folder / ".dlv" / "manifests").glob("*/*.json"):
        if labels[path.stem] != "lenet@3":
            words = path.read_text().replace('"', " ").split()
            hashes = {word for word in words if len(word) in (40, 64)}
            found[labels[path.stem]] = hashes | {f"is {path.stem}"}
    return found


@pytest.fixture
def fsck(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[Path], tuple[int, dict[str, Any], str]]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def run(folder: Path) -> tuple[int, dict[str, Any], str]:
        code = cli.run(["-C", str(folder), "fsck", "--json"])
        printed = capsys.readouterr()
        document = json.loads(printed.out) if printed.out else json.loads(printed.err)
        return code, document, printed.err

    return run


def one(
    folder: Path,
    path: Path,
    bit: int,
    kind: str,
    fsck: Callable[[Path], tuple[int, dict[str, Any], str]],
    holders: dict[str, set[str]],
) -> str | None:
    """What is wrong with the answer to this flip."""
    data = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(flip(data, bit))
    try:
        before = path.read_bytes()
        code, document, said = fsck(folder)
        if kind == "database" and code == 0 and path.read_bytes() == before:
            return _harmless(path, data)
        if kind == "file" and code == 0 and zlib.decompress(before) == zlib.decompress(data):
            return None  # bits that only fill up the last byte of a deflate stream
    finally:
        path.write_bytes(data)
        for journal in folder.glob(".dlv/dlv.db-*"):
            journal.unlink()
    if code not in (6, NEWER) or "Traceback" in said or "internal" in said:
        return f"exit {code}: {said}"
    if "error" in document:  # it could not even begin
        words = json.dumps(document)
        return None if path.name in words and kind == "database" else words
    faults = document["errors"]
    if kind == "database":
        return None if faults else "no fault is listed"
    name = path.parent.name + path.name if kind == "file" else path.stem
    short = name[:12]
    if not any(name in fault["object"] or short in fault["object"] for fault in faults):
        return f"{name} is not named: {faults}"
    reached = {label for fault in faults for label in fault["versions"]}
    expected = {label for label, hashes in holders.items() if name in hashes}
    if kind == "manifest":
        expected = {label for label, hashes in holders.items() if f"is {name}" in hashes}
    return None if reached >= expected else f"reaches {expected}, not {reached}"


def _harmless(path: Path, data: bytes) -> str | None:
    """Whether the flipped catalogue says the same as the right one."""
    beside = path.with_name("right.db")
    beside.write_bytes(data)
    right, flipped = Database(beside), Database(path)
    try:
        if dump.content(right) != dump.content(flipped):
            return "the database differs, and nothing was said"
        if list(dump.chunk_rows(right)) != list(dump.chunk_rows(flipped)):
            return "the chunks differ, and nothing was said"
    except DlvError as error:
        return f"nothing was said, but {error}"
    finally:
        right.close()
        flipped.close()
        for left in path.parent.glob("right.db*"):
            left.unlink()
    return None


def flips(
    lived: Path, tmp_path: Path, kind: str, count: int, fsck: Any, seed: int = 0
) -> list[str]:
    folder = tmp_path / "flipped"
    shutil.copytree(lived, folder)
    with Repository.find(folder) as repository:
        repository.database.checkpoint()
    rng = random.Random(f"{kind} {seed}")
    holders = needed(folder)
    paths = sorted((folder / ".dlv").glob(KINDS[kind]))
    wrong = []
    for _ in range(count):
        path = rng.choice(paths)
        data = path.read_bytes()
        # Most of a small database is free space, all zeros.
        used = (
            [at for at, byte in enumerate(data) if byte] if rng.random() < 0.8 else range(len(data))
        )
        bit = rng.choice(used) * 8 + rng.randrange(8)
        problem = one(folder, path, bit, kind, fsck, holders)
        if problem is not None:
            wrong.append(f"{path.relative_to(folder)}, bit {bit}: {problem}")
    assert cli.run(["-C", str(folder), "fsck", "-q"]) == 0
    return wrong


@pytest.mark.parametrize("kind", KINDS)
def test_a_flip(lived_once: Path, tmp_path: Path, kind: str, fsck: Any) -> None:
    wrong = flips(lived_once, tmp_path, kind, 12, fsck)
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_flips(lived_once: Path, tmp_path: Path, kind: str, fsck: Any) -> None:
    wrong = flips(lived_once, tmp_path, kind, 1700, fsck, seed=1)
    assert not wrong, "\n".join(wrong)


def test_a_lost_check_would_be_seen(
    lived_once: Path, tmp_path: Path, fsck: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test itself: without the comparison of hashes or rows it fails."""
    monkeypatch.setattr(dump, "differences", lambda *_: [])
    monkeypatch.setattr(dump, "integrity", lambda _: [])
    assert flips(lived_once, tmp_path, "database", 60, fsck)
