"""`dlv login`, and the commands of remotes on a hub, as seen from outside."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import dlv.hub.credentials as credentials
import dlv.hub.login as logins
import dlv.hub.server.tokens as tokens
from dlv.errors import DlvError, UnsafeInput, UsageError
from dlv.hub.credentials import Credential
from dlv.hub.server.access import Caller
from tests.hub.running import RunningHub, running_hub

Dlv = Callable[..., Any]


@pytest.fixture
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with running_hub(tmp_path_factory.mktemp("hub")) as running:
        yield running


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without tokens."""
    folder = tmp_path / "home"
    folder.mkdir(exist_ok=True)
    monkeypatch.setenv("HOME", str(folder))
    for name in ("XDG_CONFIG_HOME", "DLV_TOKEN", "DLV_TOKEN_URL"):
        monkeypatch.delenv(name, raising=False)
    return folder


def file_of(home: Path) -> Path:
    return home / ".config" / "dlv" / "credentials.json"


def test_login_with_a_token(dlv: Dlv, hub: RunningHub, home: Path) -> None:
    stdin = f"{hub.token}\n"
    done = dlv("login", f"{hub.url}/ada/models", "--token-stdin", json=True, stdin=stdin)
    assert (done.code, done.document["url"], done.document["name"]) == (0, hub.url, "ada")
    assert hub.token not in done.stdout + done.stderr
    path = file_of(home)
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text())["hubs"][hub.url]["token"] == hub.token
    assert credentials.token_for(f"{hub.url}/ada/models", os.environ) == hub.token
    assert credentials.token_for("http://127.0.0.2/ada/models", os.environ) is None
    assert dlv("logout", json=True).document["url"] == hub.url
    assert hub.token not in path.read_text()
    assert dlv("logout").code == 4


@pytest.mark.parametrize("token", ["", "dlv_wrong-token", "no token at all", "dlv_\x1b[2J"])
def test_a_token_that_is_not_valid(dlv: Dlv, hub: RunningHub, home: Path, token: str) -> None:
    done = dlv("login", hub.url, "--token-stdin", stdin=token)
    assert done.code in (2, 7)
    assert not file_of(home).exists()


@pytest.mark.parametrize("words", [["dlv_secret"], ["--token", "dlv_secret"]])
def test_a_token_as_an_argument(dlv: Dlv, home: Path, words: list[str]) -> None:
    done = dlv("login", "https://hub.example.com", *words)
    assert done.code == 2
    assert "--token-stdin" in done.stderr
    assert "secret" not in done.stdout + done.stderr


def test_login_in_the_browser(hub: RunningHub, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "INTERVALS", (0.01, 0.05))
    login = logins.Login(hub.url)
    begun = login.begin()
    assert begun.url.startswith(f"{hub.url}/login/device?code={begun.code}")
    assert login.may_open(begun)
    asked = threading.Event()

    def confirm() -> None:
        asked.wait(30)
        with hub.hub.database.writing() as connection:
            session, secret = tokens.create_token(
                connection, Caller(), hub.users["ada"], name="session"
            )
            caller = Caller(user_id=hub.users["ada"], name="ada", token_id=session.id)
            assert tokens.confirm_device_login(connection, caller, begun.code)
            assert secret

    thread = threading.Thread(target=confirm)
    thread.start()

    def sleep(_: float) -> None:
        if asked.is_set():
            thread.join()
        asked.set()

    credential = login.wait(begun, sleep)
    thread.join()
    login.close()
    assert credential.name == "ada"
    assert login.check(str(credential.token)).name == "ada"


def test_what_is_not_a_hub(dlv: Dlv, home: Path) -> None:
    assert dlv("login", "http://127.0.0.1:9").code == 7
    for url in ("hub.example.com", "ftp://hub", "https://ada:secret@hub"):
        done = dlv("login", url)
        assert done.code == 2
        assert home.exists()


def test_a_file_that_others_can_read_or_a_link(home: Path, tmp_path: Path) -> None:
    hub = "https://hub.example.com"
    entry = Credential(hub, "ada", None, "dlv_token-of-ada")
    credentials.store(entry, os.environ, in_keyring=False)
    path = file_of(home)
    path.chmod(0o644)
    with pytest.raises(UnsafeInput, match="other users can read") as caught:
        credentials.token_for(hub, os.environ)
    assert caught.value.hint == f"chmod 600 {path}"
    path.unlink()
    target = tmp_path / "target"
    target.write_text("{}")
    path.symlink_to(target)
    with pytest.raises(UnsafeInput, match="symbolic link"):
        credentials.known(os.environ)
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(UnsafeInput, match="not a regular file"):
        credentials.known(os.environ)
    path.unlink()
    for text in ("", "[]", "{", '{"format": "dlv/credentials/9"}', "[" * 100_000):
        path.write_text(text)
        path.chmod(0o600)
        with pytest.raises(UsageError, match="is not valid"):
            credentials.known(os.environ)


def test_hubs_below_one_address_have_their_own_tokens(home: Path) -> None:
    for hub, token in (("https://h", "dlv_token-a"), ("https://h/team", "dlv_token-b")):
        credentials.store(Credential(hub, "ada", None, token), os.environ, in_keyring=False)
    assert credentials.token_for("https://H:443/ada/models", os.environ) == "dlv_token-a"
    assert credentials.token_for("https://h/team/ada/models", os.environ) == "dlv_token-b"
    assert credentials.token_for("https://h/teams/models", os.environ) == "dlv_token-a"
    for url in ("http://h/ada/models", "https://h:444/a/b", "https://h.evil/a/b"):
        assert credentials.token_for(url, os.environ) is None


def test_the_keyring(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import keyring
    from keyring.backend import KeyringBackend
    from keyring.errors import PasswordDeleteError

    class Memory(KeyringBackend):  # type: ignore[misc]
        priority = 1
        kept: ClassVar[dict[tuple[str, str], str]] = {}

        def get_password(self, service: str, username: str) -> str | None:
            return self.kept.get((service, username))

        def set_password(self, service: str, username: str, password: str) -> None:
            self.kept[service, username] = password

        def delete_password(self, service: str, username: str) -> None:
            if self.kept.pop((service, username), None) is None:
                raise PasswordDeleteError("none")

    before = keyring.get_keyring()
    keyring.set_keyring(Memory())
    try:
        hub = "https://hub.example.com"
        entry = Credential(hub, "ada", None, "dlv_token-of-ada")
        credentials.store(entry, os.environ, in_keyring=True)
        assert "dlv_token" not in file_of(home).read_text()
        assert credentials.token_for(f"{hub}/a/b", os.environ) == "dlv_token-of-ada"
        assert Memory.kept
        credentials.forget(hub, os.environ)
        assert not Memory.kept
        with pytest.raises(DlvError):
            credentials.forget(hub, os.environ)
    finally:
        keyring.set_keyring(before)


def test_a_day_with_a_hub(
    dlv: Dlv, filled: Path, hub: RunningHub, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Add, publish, search, name, pull, evaluate from afar, retire, collect."""
    url = f"{hub.url}/ada/models"
    assert dlv("remote", "add", "origin", url).code == 7  # without a token
    monkeypatch.setenv("DLV_TOKEN", hub.token)
    assert dlv("remote", "add", "origin", url, json=True).document["probe"]["hub"]
    assert dlv("publish").code == 0
    again = dlv("publish", json=True).document
    assert (again["sent"], again["bytes_sent"]) == ([], 0)
    assert again["requests"] <= 5
    named = dlv("remote", "alias", "origin:lenet@1", "production", json=True)
    assert named.document["aliases"] == [{"model": "lenet", "alias": "production", "number": 1}]
    assert "lenet@1" in dlv("remote", "alias", "origin").stdout
    assert dlv("remote", "alias", "origin:lenet").code == 0
    assert dlv("desc", "origin:lenet@production").code == 0
    assert dlv("diff", "origin:lenet@production", "origin:lenet@2").code == 0
    assert dlv("list", "origin:").code == 0
    hub.hub.close()  # waits for the cards
    assert dlv("remote", "alias", "origin:lenet", "production").code == 2
    assert dlv("remote", "alias", "lenet", "production").code == 2
    assert dlv("remote", "probe", "origin", "--delete").code == 2


def test_search_and_clone(
    dlv: Dlv, filled: Path, hub: RunningHub, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLV_TOKEN", hub.token)
    url = f"{hub.url}/ada/models"
    dlv("remote", "add", "origin", url)
    dlv("publish")
    hub.hub._after.submit(lambda: None).result()  # the cards are made in turn
    found = dlv("search", "lenet", json=True)
    assert found.document["count"] >= 2, found.stderr
    assert {each["version"] for each in found.document["results"]} >= {"lenet@1", "lenet@2"}
    assert "origin:lenet@" in dlv("search", "lenet").stdout
    assert dlv("search", "nothing-like-this", "--exit-code").code == 1
    assert dlv("search", "--sort", "lss").code == dlv("search", "lss>1").code == 4
    assert dlv("search", "loss>>1").code == 2
    wrong = dlv("search", "--where", "m.number = 1 and m.nam = 1")
    assert wrong.code == 2
    assert wrong.stderr.splitlines()[0].startswith("condition:1:20: `nam` is not an attribute")
    assert wrong.stderr.splitlines()[1:] == ["    m.number = 1 and m.nam = 1", " " * 23 + "^"]
    assert dlv("search", "--where", 'm.name = "lenet"', json=True).document["count"] == 2
    monkeypatch.chdir(filled.parent)
    assert dlv("clone", url, "mine").code == 0
    monkeypatch.chdir("mine")
    assert dlv("fsck").code == 0
    assert dlv("remote", "alias", "origin:lenet@2", "staging").code == 0
    assert dlv("pull", "origin:lenet@staging").code == 0
    assert dlv("remote", "retire", "origin:lenet@2").code == 0
    assert dlv("remote", "alias", "origin", json=True).document["aliases"] == []
    assert dlv("pull", "origin:lenet@staging").code == 4
    assert dlv("remote", "gc", "origin", json=True).document["gc"]["listed"]
    assert dlv("verify").code == 0


def test_a_token_in_the_environment(
    dlv: Dlv, hub: RunningHub, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = ("clone", f"{hub.url}/ada/models")
    monkeypatch.setenv("DLV_TOKEN", "wrong")
    done = dlv(*clone)
    assert done.code == 2
    assert "the value of DLV_TOKEN is not a token" in done.stderr
    monkeypatch.setenv("DLV_TOKEN", "dlv_" + "x" * 43)
    done = dlv(*clone)
    assert done.code == 7
    assert "does not accept the token in DLV_TOKEN" in done.stderr
    monkeypatch.setenv("DLV_TOKEN_URL", "http://other.example")
    done = dlv(*clone)
    assert done.code == 7
    assert "DLV_TOKEN was not sent: it is for http://other.example" in done.stderr


def test_a_hub_that_is_down(dlv: Dlv, home: Path) -> None:
    done = dlv("clone", "http://127.0.0.1:9/ada/models")
    assert done.code == 7
    assert "note:  Connection refused" in done.stderr
