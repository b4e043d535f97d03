"""Signatures, histories that were changed, and what a maintainer deletes, as seen from outside."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Dlv = Callable[..., Any]
needs_ssh = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="OpenSSH is missing")


@pytest.fixture
def team(tmp_path: Path, dlv: Dlv, bounded_demo: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The models of the demo beside an empty remote, and another repository that knows of it."""
    monkeypatch.chdir(tmp_path)
    for words in (
        ["-C", "made", "remote", "add", "origin", "../team"],
        ["init", "new"],
        ["-C", "new", "remote", "add", "origin", "../team"],
    ):
        assert dlv(*words).code == 0, words
    monkeypatch.chdir("new")
    return tmp_path / "team"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    folder = tmp_path / "keys"
    folder.mkdir()
    for name in ("ada", "eve"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"{name}@x"]
        subprocess.run([*words, "-f", folder / name], check=True)
    (folder / "allowed").write_text(f"ada@x {(folder / 'ada.pub').read_text()}")
    return folder


def first_line(done: Any) -> tuple[int, str]:
    return done.code, done.stderr.splitlines()[0] if done.stderr else ""


@needs_ssh
def test_signing(dlv: Dlv, team: Path, keys: Path) -> None:
    dlv("-C", "../made", "publish", "lenet@1")
    dlv("-C", "../made", "publish", "lenet@2", "--sign", keys / "ada")
    dlv("-C", "../made", "config", "--repo", "user.signingkey", str(keys / "eve"))
    dlv("-C", "../made", "publish", "lenet@3")
    assert dlv("verify").code == 0
    found = dlv("verify", "--key", keys / "allowed", json=True)
    assert (found.code, found.document["ok"]) == (9, False)
    assert [(e["signer"], e["fault"]) for e in found.document["entries"]] == [
        (None, "not signed"),
        ("ada@x", None),
        (None, "lenet@3 is signed by an unknown key"),
    ]
    assert dlv("verify", "lenet@2", "--key", keys / "ada.pub").code == 0
    assert dlv("verify", "lenet@2", "--key", keys / "eve.pub").code == 9
    assert dlv("verify", "lenet@9").code == 4
    assert dlv("pull", "lenet@2", "--require-signature").code == 2
    dlv("config", "--repo", "core.allowedsigners", str(keys / "allowed"))
    refused = dlv("pull", "lenet@1", "--require-signature")
    assert first_line(refused) == (9, "error: lenet@1 is not signed")
    refused = dlv("pull", "lenet@3", "--require-signature")
    assert first_line(refused) == (9, "error: lenet@3 is signed by an unknown key")
    assert dlv("list").stdout == ""
    assert dlv("pull", "lenet@2", "--require-signature").code == 0
    missing = dlv("-C", "../made", "publish", "lenet-wide", "--sign", "nothing")
    assert first_line(missing) == (4, "error: no such key: nothing")
    test = "../made/test.npz"
    trusted = dlv("eval", "origin:lenet@2", test, "--progressive", json=True)
    assert trusted.document["remote"]["signed"] is True
    found = dlv("eval", "origin:lenet@3", test, "--progressive")
    assert found.stderr.endswith("guaranteed if origin is honest: no known key signed it\n")


@needs_ssh
@pytest.mark.parametrize("field", ["manifest", "locator", "number", "author", "sig"])
def test_a_signed_entry_that_was_changed(dlv: Dlv, team: Path, keys: Path, field: str) -> None:
    dlv("-C", "../made", "publish", "lenet@1", "--sign", keys / "ada")
    dlv("config", "--repo", "core.allowedsigners", str(keys / "allowed"))
    (path,) = team.glob("refs/lenet/*.json")
    record = json.loads(path.read_bytes())
    other = {"number": 7, "author": "Eve", "sig": record["sig"].replace("A", "B", 1)}
    record[field] = other.get(field, "ab" * 32)
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    path.chmod(0o644)
    path.write_text(text)
    assert dlv("pull", "lenet", "--require-signature").code == 9
    assert dlv("verify").code == 9
    assert dlv("list").stdout == ""


def test_a_history_that_was_turned_back(dlv: Dlv, team: Path) -> None:
    """It is noticed with a cache and without one, and by who publishes; it can be accepted."""
    dlv("-C", "../made", "publish", "lenet@2")
    dlv("pull")
    dlv("pull", "lenet")
    last = max(team.glob("refs/lenet/*.json"))
    data = last.read_bytes()
    last.unlink()
    for words in (["pull", "lenet"], ["verify"], ["list", "origin:"], ["desc", "origin:lenet@1"]):
        assert first_line(dlv(*words)) == (
            9,
            f"error: the history of lenet at {team} was changed",
        ), words
    dlv("checkout", "lenet@1")
    dlv("commit", "--allow-empty", "-m", "more")
    assert dlv("publish").code == 9
    assert not last.exists()
    shutil.rmtree(".dlv/cache")
    assert dlv("pull", "lenet").code == 9
    assert dlv("pull", "lenet", "--accept-rollback").code == 0
    assert dlv("pull", "lenet").code == 0
    last.write_bytes(data)
    assert dlv("pull", "lenet").code == 0


def test_retired_versions_are_deleted_in_time(dlv: Dlv, team: Path) -> None:
    dlv("-C", "../made", "publish", "lenet", "lenet-wide")
    before = set(team.rglob("*.*"))
    assert dlv("remote", "gc", "origin").stderr == "nothing to delete\n"
    assert dlv("remote", "retire", "origin:lenet-wide@1").code == 0
    again = dlv("remote", "retire", "origin:lenet-wide@1")
    assert first_line(again) == (4, "error: origin has no version lenet-wide@1")
    assert dlv("remote", "retire", "origin").code == 2
    assert dlv("desc", "origin:lenet-wide@1").code == 4
    assert "lenet-wide" not in dlv("list", "origin:").stdout
    listed = dlv("remote", "gc", "origin", json=True).document["gc"]
    assert listed["deleted"] == []
    assert len(listed["listed"]) >= 3
    assert before <= set(team.rglob("*.*"))
    assert dlv("remote", "gc", "origin", "--grace", "0", "--dry-run").code == 0
    (team / "leases").mkdir(exist_ok=True)
    lease = team / "leases" / "other.json"
    lease.write_text("{}")
    held = dlv("remote", "gc", "origin", "--grace", "0")
    assert held.stderr.startswith(
        "warning: nothing was deleted, because a publish is running; try again later\n"
    )
    lease.unlink()
    gone = dlv("remote", "gc", "origin", "--grace", "0", json=True).document["gc"]
    assert set(gone["deleted"]) == set(listed["listed"])
    assert dlv("pull", "--all").code == 0
    assert dlv("fsck").code == 0
    assert dlv("-C", "../made", "publish", "lenet-wide", "--name", "wide").code == 0
    assert dlv("pull", "wide").code == 0
    assert dlv("fsck").code == 0


def test_publishing_waits_for_a_deletion(
    dlv: Dlv, team: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dlv("-C", "../made", "publish", "lenet@1")
    (team / "gc").mkdir(exist_ok=True)
    (team / "gc" / f"{1:020}.json").write_text('{"format": "dlv/gc/1", "since": {}}')
    (team / "gc" / f"{1:020}.closing").write_text("x")
    monkeypatch.setattr("dlv.hub.deletion.WAIT", 0.0)
    found = dlv("-C", "../made", "publish", "lenet@2")
    assert first_line(found) == (5, f"error: objects are being deleted at {team}")
    assert dlv("remote", "gc", "origin").code == 5
    assert dlv("remote", "gc", "origin", "--abandon").code == 0
    assert dlv("-C", "../made", "publish", "lenet@2").code == 0
    assert not list((team / "leases").iterdir())
