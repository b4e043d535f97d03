"""`dlv remote`, `publish`, `pull` and `clone` as seen from outside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Dlv = Callable[..., Any]


@pytest.fixture
def shared(filled: Path, dlv: Dlv) -> Path:
    """The filled repository, with an empty remote beside it."""
    assert dlv("remote", "add", "origin", "../team").code == 0
    return filled


def test_remotes(dlv: Dlv, snapshot: Dlv, filled: Path) -> None:
    snapshot(dlv("remote"), "none")
    snapshot(dlv("remote", "add", "origin", "../team"), "added")
    snapshot(dlv("remote", tty=True), "listed")
    found = dlv("remote", json=True)
    assert [each["name"] for each in found.document["remotes"]] == ["origin"]
    assert dlv("config", "remote.origin").stdout.strip().endswith("/team")
    snapshot(dlv("remote", "add", "origin", "../other"), "taken")
    assert dlv("remote", "set-url", "origin", "../other", json=True).document["probe"]["create"]
    snapshot(dlv("remote", "remove", "origin"), "removed")
    for words in (["remove", "nope"], ["add", "x"], ["probe"], ["add", "a b", "../x"]):
        assert dlv("remote", *words).code in (2, 4)


@pytest.mark.parametrize("mode", ["pipe", "tty", "json"])
def test_publish(dlv: Dlv, snapshot: Dlv, shared: Path, mode: str) -> None:
    how = {"tty": mode == "tty", "json": mode == "json"}
    snapshot(dlv("publish", "lenet-wide", "--dry-run", **how), "dry")
    snapshot(dlv("publish", "lenet-wide", **how), "sent")
    snapshot(dlv("publish", "lenet-wide", **how), "again")


@pytest.mark.parametrize("mode", ["pipe", "tty", "json"])
def test_clone_and_pull(
    dlv: Dlv, snapshot: Dlv, shared: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    how = {"tty": mode == "tty", "json": mode == "json"}
    dlv("publish", "lenet@1")
    monkeypatch.chdir(shared.parent)
    snapshot(dlv("clone", "team", "mine", **how), "clone")
    dlv("-C", shared, "publish", "lenet@2")
    monkeypatch.chdir("mine")
    snapshot(dlv("pull", "--dry-run", **how), "dry")
    snapshot(dlv("pull", **how), "pull")
    snapshot(dlv("pull", "origin:lenet", **how), "again")
    for folder in (shared, Path()):
        assert dlv("-C", folder, "checkout", "lenet@2", "--to", shared.parent / "out").code == 0
    # Existing files are compared by hash, so both repositories restored the same ones.
    assert "already up to date" in dlv("checkout", "lenet@2", "--to", shared.parent / "out").stderr
    assert dlv("fsck").code == 0


def test_what_is_not_published_is_said(dlv: Dlv, shared: Path) -> None:
    assert "not on" not in dlv("status").stdout  # the remote was not contacted yet
    dlv("publish", "lenet@1")
    assert "2 versions are not on origin" in dlv("status").stdout
    document = dlv("status", json=True).document
    assert [each["version"] for each in document["unpublished"]] == ["lenet-wide@1", "lenet@2"]
    assert "(origin)" in dlv("log", "--oneline").stdout
    published = [each["published"] for each in dlv("log", json=True).document["versions"]]
    assert published == [False, False, True]
    dlv("publish")
    assert "not on" not in dlv("status").stdout


def test_what_goes_wrong(dlv: Dlv, snapshot: Dlv, filled: Path, monkeypatch: Any) -> None:
    lines = []
    situations = """
publish
pull
pull lenet
remote probe nope
remote add web http://127.0.0.1:9/models
remote add odd ftp://host/models
clone nowhere
clone ../team .
publish --remote nope
""".strip().splitlines()
    monkeypatch.setattr("dlv.hub.stores.objects._RETRY", {"max_retries": 0})
    for line in situations:
        found = dlv(*line.split())
        assert found.code in (2, 4, 5, 7), line
        lines.append(f"$ dlv {line}\nexit {found.code}\n{found.stderr}")
    text = "\n".join(lines)
    assert "Traceback" not in text
    for line in text.splitlines():
        assert len(line) < 200
    dlv("remote", "add", "origin", "../team")
    assert dlv("publish", "--remote", "origni").code == 4
    assert dlv("publish", "nope").code == 4
    assert dlv("pull", "origin:nope").code == 4
    assert dlv("pull", "--all", "lenet").code == 2


def test_a_damaged_remote(dlv: Dlv, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dlv("publish", "lenet@2")
    team = shared.parent / "team"
    for path in team.glob("packs/??/*"):
        data = bytearray(path.read_bytes())
        data[len(data) // 3] ^= 1
        path.write_bytes(data)
    monkeypatch.chdir(shared.parent)
    found = dlv("clone", "team", "mine")
    assert found.code == 9
    assert "corrupt" in found.stderr
    assert not Path("mine").exists()


def test_undo_of_a_pull(dlv: Dlv, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dlv("publish", "lenet@2")
    assert dlv("undo").code == 9
    monkeypatch.chdir(shared.parent)
    dlv("clone", "team", "mine")
    monkeypatch.chdir("mine")
    assert dlv("undo").code == 0
    assert dlv("list").stdout == ""
    assert "removed here" in dlv("pull", "--all").stderr


def test_the_history_is_what_it_was(dlv: Dlv, shared: Path) -> None:
    dlv("publish", "lenet@2")
    team = shared.parent / "team"
    refs = sorted(team.glob("refs/lenet/*.json"))
    refs[-1].unlink()
    (shared / ".dlv" / "cache" / "remotes").rename(shared / "aside")
    found = dlv("publish", "lenet@2")
    assert found.code == 9
    assert "was changed" in found.stderr


def test_bundles(dlv: Dlv, snapshot: Dlv, filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = dlv("export", "lenet", "lenet-wide", "../all.bundle", json=True)
    assert made.document["written"][0]["format"] == "bundle"
    assert dlv("export", "../all.bundle").code == 5
    assert dlv("export", "nope", "../no.bundle").code == 4
    assert dlv("export", "--file-format", "bundle").code == 2
    monkeypatch.chdir(filled.parent)
    dlv("init", "mine")
    monkeypatch.chdir("mine")
    snapshot(dlv("import", "bundle", "../all.bundle"), "import")
    assert dlv("import", "bundle", "../all.bundle", json=True).document["versions"] == []
    assert dlv("import", "bundle", "../missing.bundle").code == 4
    assert dlv("import", "bundle", "../mine/.dlv/format.json").code == 7
    assert dlv("fsck").code == 0
    # A bundle is also a remote that can be read.
    monkeypatch.chdir(filled.parent)
    assert dlv("clone", "all.bundle", "again").code == 0
    monkeypatch.chdir("again")
    assert dlv("publish").code == 7
    assert dlv("desc", "origin:lenet").code == 0
