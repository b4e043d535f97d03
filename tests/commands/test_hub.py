"""`dlv hub` as seen from outside: users, tokens, members, quotas, the audit log, the server."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dlv.cli as cli
import dlv.hub.server.access as access
from dlv.commands.shared.hub_place import parse_size
from dlv.errors import UsageError

Dlv = Callable[..., Any]
ROOT = Path(cli.__file__).resolve().parent.parent
SECRET = r"dlv_[A-Za-z0-9_-]+"


@pytest.fixture
def hub(dlv: Dlv, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Dlv:
    """hub("user", "list") runs `dlv hub user list` on a hub with two users and a namespace."""
    monkeypatch.setenv("DLV_HUB_DATA", str(workspace / "hub"))
    words = ["user add ada --operator", "user add bob --email bob@example.org",
             "member set acme ada admin"]  # fmt: skip
    for line in words:
        result = dlv("hub", *line.split())
        assert result.code == 0, result.stderr

    def call(*args: str, **how: Any) -> Any:
        return dlv("hub", *args, **how)

    return call


@pytest.mark.parametrize(
    "words",
    ["", "user", "nope", "usr list", "user ad x", "user add", "user list --dtaa x",
     "member set acme ada owner", "token create ada --days 0"],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["pipe", "tty"])
def test_calls_that_are_not_understood(dlv: Dlv, snapshot: Dlv, words: str, mode: str) -> None:
    result = dlv("hub", *words.split(), tty=mode == "tty")
    assert result.code == 2
    if mode == "pipe":
        snapshot(result)


@pytest.mark.parametrize("words", ["hub", "hub user", "hub token create", "hub serve"])
def test_help(dlv: Dlv, snapshot: Dlv, words: str) -> None:
    result = dlv(*words.split(), "--help")
    assert result.code == 0
    snapshot(result)
    assert dlv("help", *words.split()).stdout == result.stdout


def test_help_of_what_is_not_there(dlv: Dlv, snapshot: Dlv) -> None:
    result = dlv("help", "hub", "usr")
    assert result.code == 2
    snapshot(result)


@pytest.mark.parametrize("mode", ["pipe", "tty", "json", "quiet"])
@pytest.mark.parametrize(
    "words",
    ["user list", "user change bob --operator", "user disable bob", "member list",
     "member set acme bob writer", "member remove acme bob", "quota show",
     "quota set acme 1.5TiB", "audit list", "audit verify", "token list"],
)  # fmt: skip
def test_commands(hub: Dlv, snapshot: Dlv, words: str, mode: str) -> None:
    if words.startswith("member remove"):
        assert hub("member", "set", "acme", "bob", "reader").code == 0
    extra = ["-q"] if mode == "quiet" else []
    result = hub(*words.split(), *extra, tty=mode == "tty", json=mode == "json")
    assert result.code == 0, result.stderr
    snapshot(result)


@pytest.mark.parametrize("mode", ["pipe", "tty", "json", "quiet"])
def test_a_token_is_printed_once(
    hub: Dlv, snapshot: Dlv, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr("secrets.token_urlsafe", lambda _: "s" * 43)
    assert access.new_secret()[0] == "dlv_" + "s" * 43
    line = "token create ada --scope acme/vision --role writer --days 30 --name ci"
    words = line.split()
    extra = ["-q"] if mode == "quiet" else []
    result = hub(*words, *extra, tty=mode == "tty", json=mode == "json")
    assert result.code == 0, result.stderr
    snapshot(result)
    listed = hub("token", "list", "ada", json=True).document
    assert listed["tokens"][0]["role"] == "writer"
    assert "s" * 43 not in str(listed)
    assert hub("token", "revoke", "1").code == 0
    assert hub("token", "revoke", "1").code == 4
    assert hub("token", "list", json=True).document["tokens"] == []


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("user add ada", 5), ("user add Log_In", 2), ("user add login", 2),
        ("user add eve --email nonsense", 2), ("user disable adda", 4), ("user change ada", 2),
        ("user change ada --operator --no-operator", 2), ("token create eve", 4),
        ("token revoke 7", 4), ("token create ada --scope a_b", 2),
        ("member set new bob reader", 2), ("member set acmee bob reader", 2),
        ("member set acme/vision bob reader", 4), ("member set acme eve reader", 4),
        ("member set acme ada reader", 5), ("member remove acme ada", 5),
        ("member remove acme bob", 4), ("member list acm", 4), ("quota set acme much", 2),
        ("quota set acm 1GB", 4), ("quota show acm", 4), ("audit verify --expect x", 2),
        ("audit verify --expect 99:00000000", 6), ("audit verify --expect 1:00000000", 6),
    ],
)  # fmt: skip
def test_errors(hub: Dlv, snapshot: Dlv, words: str, code: int) -> None:
    result = hub(*words.split())
    assert result.code == code, result.stderr
    snapshot(result)


def test_a_changed_audit_log(hub: Dlv, snapshot: Dlv, workspace: Path) -> None:
    noted = hub("audit", "verify", "-q").stdout.strip()
    assert hub("audit", "verify", "--expect", noted).code == 0
    with sqlite3.connect(workspace / "hub" / "hub.db") as database:
        database.execute("UPDATE audit SET actor = 'eve' WHERE seq = 2")
        database.execute("DELETE FROM audit WHERE seq = 4")
    database.close()
    result = hub("audit", "verify", "--expect", noted)
    assert result.code == 6
    snapshot(result)
    assert hub("audit", "verify", json=True).document["faults"][0]["seq"] == 2


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("user list", 2), ("user list --data nothing", 4),
        ("user list --database mysql://x/y", 2), ("user list --database nonsense", 2),
        ("user list --database postgresql://ada:secret@127.0.0.1:1/x", 2),
        ("serve", 2), ("serve --data x --openid-issuer https://x", 2),
        ("serve --data x --openid-domain x", 2), ("serve --data x --url ftp://x --port 0", 2),
        ("serve --data x --quota much", 2),
    ],
)  # fmt: skip
def test_places_that_are_no_hub(dlv: Dlv, snapshot: Dlv, words: str, code: int) -> None:
    result = dlv("hub", *words.split())
    assert result.code == code, result.stderr
    assert "secret" not in result.stdout + result.stderr
    snapshot(result)


def test_a_database_that_does_not_answer(dlv: Dlv) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"postgresql://ada@127.0.0.1:{unused.getsockname()[1]}/x"
        assert dlv("hub", "user", "list", "--database", address).code == 7


def test_the_environment_names_a_database(
    dlv: Dlv, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dlv("hub", "user", "add", "ada", "--data", "here").code == 0
    monkeypatch.setenv("DLV_HUB_DATABASE", f"sqlite:///{workspace}/here/hub.db")
    assert dlv("hub", "user", "list", "-q").stdout == "ada\n"
    assert dlv("hub", "user", "list", "--data", "nothing").code == 4, "an option comes first"


def test_a_corrupt_database(hub: Dlv, workspace: Path) -> None:
    for name in ("first", "second"):
        assert hub("user", "add", name, "--data", name).code == 0
    whole = (workspace / "second" / "hub.db").read_bytes()
    (workspace / "first" / "hub.db").write_bytes(b"garbage")
    for path in (workspace / "second").glob("hub.db*"):
        path.unlink()
    (workspace / "second" / "hub.db").write_bytes(whole[:4096] + b"x" * (len(whole) - 4096))
    for name in ("first", "second"):
        for words in (("user", "list"), ("check",)):
            done = hub(*words, "--data", name)
            assert done.code == 6, done.stderr
            assert done.stderr.startswith("error: the database of the hub is corrupt")
            assert f"dlv hub restore DIR --data {name}" in done.stderr


def test_a_backup_into_the_hub_itself(hub: Dlv) -> None:
    for folder in ("hub", "hub/objects", "hub/objects/backup"):
        done = hub("backup", folder, "--data", "hub")
        assert done.code == 2
        assert "is a folder of the hub itself" in done.stderr


def test_a_port_that_is_taken(dlv: Dlv) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = dlv("hub", "serve", "--data", "hub", "--port", port)
    assert result.code == 5
    assert f"127.0.0.1:{port}" in result.stderr


def test_an_issuer_without_encryption(dlv: Dlv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLV_HUB_OPENID_SECRET", "x")
    words = "--data hub --port 0 --openid-client c --openid-issuer http://login.example.org"
    result = dlv("hub", "serve", *words.split())
    assert result.code == 2
    assert "https://" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_a_server_answers_until_it_is_stopped(workspace: Path, end: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "dlv", "hub", "serve", "--data", "hub", "--port", "0"],
        cwd=workspace, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    with urllib.request.urlopen(f"{url}/v1/health", timeout=60) as answer:
        assert answer.status == 200
    process.send_signal(end)
    _, log = process.communicate(timeout=60)
    assert process.returncode == 0, log
    assert "dlv hub user add NAME --operator --data hub" in log


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0), ("500GB", 500 * 10**9), ("500g", 500 * 10**9), ("1.5TiB", 3 * 2**39),
        ("2 MiB", 2**21), ("10B", 10), ("1k", 1000),
    ],
)  # fmt: skip
def test_sizes(text: str, count: int) -> None:
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "1e9", "1.GB", "10000PB", "1 GB x", "١GB"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(UsageError):
        parse_size(text)


@pytest.mark.parametrize(
    ("words", "expected"),
    [("dlv hu", ["hub"]), ("dlv hub ", ["serve", "user", "token", "member", "quota", "audit"]),
     ("dlv hub user ", ["add", "change", "disable", "enable", "list"]),
     ("dlv hub user l", ["list"]), ("dlv hub user add --op", ["--operator"])],
)  # fmt: skip
def test_completion(
    dlv: Dlv, monkeypatch: pytest.MonkeyPatch, words: str, expected: list[str]
) -> None:
    monkeypatch.setenv("COMP_LINE", words)
    monkeypatch.setenv("COMP_POINT", str(len(words)))
    monkeypatch.setenv("_DLV_COMPLETE", "bash_complete")
    found = [line.partition(",")[2] for line in dlv().stdout.split()]
    assert set(expected) <= set(found)
    assert all(word.startswith(words.rpartition(" ")[2]) for word in found)
