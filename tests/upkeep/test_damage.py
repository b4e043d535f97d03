"""Each kind of damage is named with what it reaches, and mended from a copy; nothing is deleted."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import dlv.cli as cli
import dlv.recovery.rebuild as rebuild
from dlv.repository.handle import Repository
from tests.damage import DAMAGES, Place
from tests.released import NEWEST, unpack

# What --repair promises of these files is that every byte comes back.
EXACT = ("packs", "manifests", "facts", "files.git/objects", "files.git/refs")
# One of each kind of object; `make test-slow` mends them all.
SOME = {"a pack cut off", "two versions of one number", "a table that is gone"}


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = unpack(NEWEST, tmp_path_factory.mktemp("pristine")).root
    with Repository.find(root) as repository:
        rebuild.rebuild(repository, if_outdated=True)
    return root


@pytest.fixture
def place(pristine: Path, tmp_path: Path) -> Path:
    return shutil.copytree(pristine, tmp_path / "work", symlinks=True)


def run(
    capsys: pytest.CaptureFixture[str], root: Path, *words: str
) -> tuple[int, dict[str, Any], str]:
    capsys.readouterr()
    code = cli.run(["-C", str(root), "--json", *words])
    out, err = capsys.readouterr()
    return code, json.loads(out or err), err


def held(root: Path) -> dict[str, str]:
    """Path -> hash of every file in the parts that --repair restores."""
    dlv = root / ".dlv"
    return {
        path.relative_to(dlv).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for part in EXACT
        for path in (dlv / part).rglob("*")
        if path.is_file()
    }


def test_the_table_is_long_enough() -> None:
    assert len(DAMAGES) >= 45
    assert DAMAGES.keys() >= SOME


@pytest.mark.parametrize("name", DAMAGES)
def test_it_is_named(name: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage = DAMAGES[name]
    reached = set(damage.spoil(Place(place)))
    code, said, _ = run(capsys, place, "fsck")
    assert code == (damage.refused or (6 if damage.kinds else 0))
    if damage.refused:
        error = said["error"]
        assert str(place) in error["message"]
        assert error["hint"] or error["why"]
        return
    faults = said["errors"]
    assert {fault["kind"] for fault in faults} == damage.kinds
    assert {label for fault in faults for label in fault["versions"]} >= reached
    assert all(fault["object"] and fault["why"] for fault in faults)
    # The other versions, if there are any, are not called damaged.
    if damage.kinds and reached and "pack" not in damage.kinds:
        assert {label for fault in faults for label in fault["versions"]} == reached
    cli.run(["-C", str(place), "fsck"])
    out = capsys.readouterr().out
    assert all(label in out for label in reached)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in SOME else pytest.mark.slow, id=name)
        for name, damage in DAMAGES.items()
        if damage.kinds or "database" in name
    ],
)
def test_it_is_mended(
    name: str, pristine: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From a copy, bit for bit; what was damaged is in quarantine, and not gone."""
    DAMAGES[name].spoil(Place(place))
    damaged = held(place)
    assert run(capsys, place, "fsck", "--repair", "--from", str(pristine))[:1] == (0,)
    code, said, _ = run(capsys, place, "fsck")
    assert (code, said["errors"]) == (0, [])
    now = held(place)
    wanted = held(pristine)
    if name == "a circle of differences in a pack too":  # its hash is right: stored anew
        wanted = {path: digest for path, digest in wanted.items() if not path.startswith("packs")}
    if name == "no files.git":  # git's commits only keep from git's own gc what is in use
        wanted = {path: digest for path, digest in wanted.items() if path in now}
        assert any(path.startswith("files.git") for path in wanted)
    assert {path: now.get(path) for path in wanted} == wanted
    assert run(capsys, place, "tag") == run(capsys, pristine, "tag")
    # HEAD is known to the catalogue alone.
    found = [run(capsys, root, "list")[1]["versions"] for root in (place, pristine)]
    assert [row | {"head": None} for row in found[0]] == [row | {"head": None} for row in found[1]]
    everything = {
        hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (place / ".dlv").rglob("*")
        if path.is_file()
    }
    empty = hashlib.sha256(b"").hexdigest()
    assert set(damaged.values()) - {empty} <= everything


@pytest.mark.parametrize(
    "name", [name for name, damage in DAMAGES.items() if not damage.kinds and not damage.refused]
)
def test_it_does_no_harm(name: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where fsck finds nothing, the next change works, and so does looking at all there is."""
    DAMAGES[name].spoil(Place(place))
    if name == "settings that cannot be read":
        assert run(capsys, place, "commit", "-m", "more", "--allow-empty")[0] == 2
        (place / ".dlv" / "config.toml").unlink()
    (place / "more.txt").write_text("more\n")
    run(capsys, place, "add", "--remove", "notes.txt")  # staged where the release had its folder
    for words in ("add more.txt", "commit -m more", "metrics lenet@2", "gc --grace 0 -y", "fsck"):
        assert run(capsys, place, *words.split())[0] == 0, words


def test_what_init_writes_again(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("no format.json", "format.json of garbage", "a format that cannot be"):
        DAMAGES[name].spoil(Place(place))
        (place / ".dlv" / "format.json").unlink(missing_ok=True)
        assert run(capsys, place, "init")[0] == 0
        assert run(capsys, place, "fsck")[0] == 0
