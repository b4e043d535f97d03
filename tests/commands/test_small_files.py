"""Small files of a repository that are lost or broken: named, mended, and nothing lost by it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dlv.repository.handle as handle
from dlv.canonical import WRITER, dumps, hash_bytes, read_json
from dlv.errors import NewerFormat

Dlv = Callable[..., Any]
Spoil = Callable[[Path], object]


def _folder(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    (path / "inside").mkdir(parents=True)
    (path / "inside" / "kept.txt").write_text("kept")


def _file(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    path.write_text("kept")


def _loose(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("nowhere")


def _unreadable(path: Path) -> None:
    path.touch()
    path.chmod(0)


def _flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)


FORMAT: dict[str, Spoil] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(os.urandom(64)),
    "half": lambda path: path.write_bytes(path.read_bytes()[:9]),
    "zeros": lambda path: path.write_bytes(bytes(40)),
    "another document": lambda path: path.write_text("[1]"),
    "no number": lambda path: path.write_text('{"format":"one"}'),
    "deep": lambda path: path.write_text("[" * 5000),
    "flipped": _flipped,
    "another writer": lambda path: path.write_text('{"format":1,"writer":"dlx 0.1.0"}'),
    "a folder": _folder,
    "a loose link": _loose,
    "mode 000": _unreadable,
}


def _sound(dlv: Dlv, before: str) -> None:
    again = dlv("fsck", json=True)
    assert (again.code, again.document["errors"]) == (0, [])
    assert dlv("list").stdout == before
    assert dlv("tag", "mended", "lenet@1").code == 0


@pytest.mark.parametrize("how", FORMAT)
def test_a_format_that_is_broken(dlv: Dlv, filled: Path, how: str) -> None:
    before = dlv("list").stdout
    path = filled / ".dlv" / "format.json"
    FORMAT[how](path)
    plain = dlv("list")
    if how in ("another writer", "mode 000"):  # no reason to stop for whoever can read it
        assert plain.code in (0, 8)
    else:
        assert plain.code == 6
        assert "dlv fsck --repair" in plain.stderr
    named = dlv("fsck", json=True)
    assert named.code == 6
    assert [(f["kind"], f["object"]) for f in named.document["errors"]] == [
        ("format", "format.json")
    ]
    mended = dlv("fsck", "--repair", json=True)
    assert mended.code == 0, mended.stderr
    assert mended.document["repaired"][0]["object"] == "format.json"
    assert read_json(path.read_bytes()) == {"format": 1, "writer": WRITER}
    _sound(dlv, before)


@pytest.mark.parametrize(
    "text",
    [
        '{"format": 2, "writer": "dlv 7"}',
        '{"format":2,"writer":"dlv 0.1.0"}',
        '{"format":3}',
        '{"format":9,"writer":"dlv 9.0"}',
        '{"format": 99}',
    ],
)
def test_a_newer_format_is_refused_and_never_written_over(
    dlv: Dlv, filled: Path, text: str
) -> None:
    path = filled / ".dlv" / "format.json"
    path.write_text(text)
    for words in (["list"], ["fsck"], ["fsck", "--repair"], ["fsck", "--rebuild"], ["init"]):
        assert dlv(*words).code == 3
        assert path.read_text() == text


def test_what_is_left_tells_that_it_is_a_newer_one(dlv: Dlv, filled: Path) -> None:
    """With the file gone, the catalogue or an object says whose repository it is."""
    path = filled / ".dlv" / "format.json"
    path.unlink()
    manifest = next((filled / ".dlv" / "manifests").glob("*/*.json"))
    data = json.loads(manifest.read_bytes())
    data["format"] = "dlv/manifest/9"
    changed = dumps(data)
    name = hash_bytes(changed)
    target = filled / ".dlv" / "manifests" / name[:2] / f"{name}.json"
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(changed)
    result = dlv("fsck", "--repair")
    assert result.code == 3, result.stderr
    assert not path.exists()


def test_each_flipped_bit_of_a_format_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "packs").mkdir()
    path = tmp_path / "format.json"
    right = dumps({"format": 1, "writer": WRITER})
    path.write_bytes(right)
    assert handle.format_fault(tmp_path) is None
    for place in range(8 * len(right)):
        data = bytearray(right)
        data[place // 8] ^= 1 << place % 8
        path.write_bytes(data)
        try:
            found = handle.format_fault(tmp_path)
        except NewerFormat:  # a number of two bits more
            pytest.fail(f"{bytes(data)!r} counts as newer")
        if found is None:  # which dlv wrote it is told to nobody but in messages
            assert read_json(bytes(data))["format"] == 1
            assert len(read_json(bytes(data))["writer"]) == len(WRITER)


SETTINGS: dict[str, Spoil] = {
    "not UTF-8": lambda path: path.write_bytes(b'[core]\ncolor = "\xff"\n'),
    "not TOML": lambda path: path.write_text("= what"),
    "zeros": lambda path: path.write_bytes(bytes(100)),
    "a wrong value": lambda path: path.write_text('[core]\njobs = "many"\n'),
    "too large": lambda path: path.write_bytes(b"#" * (2 << 20)),
    "a folder": _folder,
    "mode 000": _unreadable,
}


@pytest.mark.parametrize("how", SETTINGS)
def test_settings_that_are_broken(dlv: Dlv, filled: Path, how: str) -> None:
    before = dlv("list").stdout
    path = filled / ".dlv" / "config.toml"
    SETTINGS[how](path)
    held = path.read_bytes() if path.is_file() and how != "mode 000" else b""
    if how not in ("mode 000", "a wrong value"):
        plain = dlv("tag", "good", "lenet@1")
        assert plain.code in (2, 8)
        assert "dlv fsck --repair" in " ".join(plain.stderr.split())
    named = dlv("fsck", json=True)
    assert named.code == 6
    assert [(f["kind"], f["object"]) for f in named.document["errors"]] == [
        ("settings", "config.toml")
    ]
    mended = dlv("fsck", "--repair", json=True)
    assert mended.code == 0, mended.stderr
    aside = list((filled / ".dlv" / "quarantine").glob("*/config.toml"))
    if how == "a folder":
        assert (aside[0] / "inside" / "kept.txt").read_text() == "kept"
    elif how != "mode 000":
        assert [each.read_bytes() for each in aside] == [held]
    _sound(dlv, before)
    assert dlv("config", "core.jobs", "2").code == 0


PLACES: dict[str, tuple[str, Spoil]] = {
    **{f"{name}, a folder": (name, _folder) for name in (
        "gc.lock", "files.lock", "archive.lock", "gate.lock", "live.db.lock", "ballast",
        "archive.json", "live.db", "trials.db", "dlv.db",
    )},
    **{f"{name}, mode 000": (name, _unreadable) for name in ("gc.lock", "files.lock")},
    **{f"{name}, a file": (name, _file) for name in ("tmp", "quarantine", "cache", "trials")},
    **{f"{name}, a loose link": (name, _loose) for name in ("gc.lock", "ballast")},
    "archive.json, garbage": ("archive.json", lambda path: path.write_bytes(b"\xff{")),
}  # fmt: skip


@pytest.mark.parametrize("what", PLACES)
def test_what_stands_where_a_small_file_should(dlv: Dlv, filled: Path, what: str) -> None:
    before = dlv("list").stdout
    name, spoil = PLACES[what]
    spoil(filled / ".dlv" / name)
    named = dlv("fsck", json=True)
    if name == "dlv.db":
        assert named.code in (6, 8)
    else:
        assert named.code == 6, named.stderr
        assert [fault["object"] for fault in named.document["errors"]] == [name]
    mended = dlv("fsck", "--repair", json=True)
    assert mended.code == 0, mended.stderr
    assert name in {each["object"] for each in mended.document["repaired"]}
    if "mode" not in what and "link" not in what and "garbage" not in what:
        kept = [each.read_text() for each in (filled / ".dlv" / "quarantine").rglob("kept.txt")]
        kept += [
            each.read_text()
            for each in (filled / ".dlv" / "quarantine").glob(f"*/{name}-*")
            if each.is_file()
        ]
        assert kept == ["kept"]
    _sound(dlv, before)
    assert dlv("gc", "--grace", "0", "-y").code == 0
    assert dlv("archive").code == 0


def test_a_list_of_quarantine(dlv: Dlv, filled: Path) -> None:
    """Made again from the folder, so that what is there can be taken back."""
    before = dlv("list").stdout
    dlv("rm", "lenet-wide@1")
    dlv("gc", "--grace", "1s", "-y")
    lists = list((filled / ".dlv" / "quarantine").glob("*/origins.json"))
    if not lists:
        pytest.skip("nothing was old enough")
    lists[0].write_text("{")
    assert [f["kind"] for f in dlv("fsck", json=True).document["errors"]] == ["quarantine"]
    assert dlv("fsck", "--repair").code == 0
    assert dlv("fsck").code == 0
    assert dlv("gc", "--restore", lists[0].parent.name).code == 0
    assert before


def test_a_repository_that_lost_its_format_is_not_passed_over(
    dlv: Dlv, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For one in a folder above, which a commit would go to without a word."""
    inner = filled / "inner"
    inner.mkdir()
    assert dlv("init", "inner").code == 0
    (inner / ".dlv" / "format.json").unlink()
    monkeypatch.chdir(inner)
    assert dlv("list").code == 6
    assert dlv("fsck", "--repair").code == 0
    assert dlv("list").code == 0
