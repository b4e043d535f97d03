"""Hubs with pages, in processes of their own, with accounts and repositories.

    python -m tests.ui.hub.hubs DATA [PORT]

serves the hub in a folder and prints its address.
"""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dlv.hub.push as pushing
from dlv.hub.remotes import open_remote
from dlv.hub.server import accounts, cards, members, repositories, tokens
from dlv.hub.server.access import Caller, place_of
from dlv.hub.server.hub import Hub
from dlv.hub.server.serving import serve
from dlv.hub.server.settings import Settings
from dlv.repository.handle import Repository
from dlv.ui.hub.site import pages
from dlv.ui.serving import bound

ROOT = Path(__file__).parents[3]


def settings(data: Path, url: str = "http://127.0.0.1") -> Settings:
    return Settings(f"sqlite:///{data / 'hub.db'}", str(data / "objects"), data, url)


def main() -> None:
    data = Path(sys.argv[1])
    with bound("127.0.0.1", int(sys.argv[2]) if sys.argv[2:] else 0) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        hub = Hub(settings(data, url))
        print(url, flush=True)
        serve(hub, listening, pages(hub))


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Answers are shown as they are."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass
class Answer:
    status: int
    text: str
    headers: Any


class RunningHub:
    """A server. `address` and `root` are what tests of `dlv ui` use, too."""

    def __init__(self, data: Path) -> None:
        environ = dict(os.environ, PYTHONPATH=str(ROOT))
        self.data = data
        self.log = (data / "log.txt").open("a")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.ui.hub.hubs", str(data)],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=self.log, env=environ, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.root = self.process.stdout.readline().strip()
        assert self.root, (data / "log.txt").read_text()[-2000:]
        self.address = f"{self.root}/"
        self._opener = urllib.request.build_opener(NoRedirect)

    def get(self, path: str, session: str = "", method: str = "GET", **headers: str) -> Answer:
        return self._send(path, None, session, method, headers)

    def post(self, path: str, form: dict[str, str], session: str = "", **headers: str) -> Answer:
        return self._send(path, form, session, "POST", {"Origin": self.root, **headers})

    def _send(
        self,
        path: str,
        form: dict[str, str] | None,
        session: str,
        method: str,
        headers: dict[str, str],
    ) -> Answer:
        data = None if form is None else urllib.parse.urlencode(form).encode()
        request = urllib.request.Request(f"{self.root}{path}", data, method=method)
        if session:
            request.add_header("Cookie", f"dlv_session={session}")
        for name, value in headers.items():
            request.add_header(name.replace("_", "-"), value)
        try:
            with self._opener.open(request, timeout=60) as answer:
                return Answer(answer.status, answer.read().decode(), answer.headers)
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.read().decode(), error.headers)

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=30)
        finally:
            self.process.kill()
            self.process.stdout.close()  # type: ignore[union-attr]
            self.log.close()


class Keeper:
    """Changes a hub without a server: accounts, sessions, repositories."""

    def __init__(self, data: Path) -> None:
        self.hub = Hub(settings(data))

    def close(self) -> None:
        self.hub.close()

    def user(self, name: str, *, operator: bool = False) -> None:
        with self.hub.database.writing() as connection:
            accounts.add_user(connection, Caller(), name, operator=operator)

    def member(self, place: str, user: str, role: str) -> None:
        with self.hub.database.writing() as connection:
            members.set_member(connection, Caller(), place, user, role)

    def caller(self, name: str) -> Caller:
        with self.hub.database.reading() as connection:
            return Caller(accounts.user_id_of(connection, Caller(), name), name)

    def session(self, name: str) -> str:
        caller = self.caller(name)
        assert caller.user_id is not None
        with self.hub.database.writing() as connection:
            return tokens.start_session(connection, caller, caller.user_id)[0]

    def token(self, name: str) -> str:
        caller = self.caller(name)
        assert caller.user_id is not None
        with self.hub.database.writing() as connection:
            return tokens.create_token(connection, caller, caller.user_id, name="tests")[1]

    def repository(
        self, label: str, by: str, visibility: str = "public", description: str = ""
    ) -> None:
        from dlv.hub.server.access import namespace_role

        caller = self.caller(by)
        with self.hub.database.reading() as connection:
            namespace, _ = namespace_role(connection, caller, label.partition("/")[0])
        assert namespace is not None
        repositories.create(self.hub, caller, namespace, label, visibility, description)

    def alias(self, label: str, by: str, model: str, alias: str, number: int) -> None:
        namespace, _, name = label.partition("/")
        caller = self.caller(by)
        with self.hub.database.reading() as connection:
            place = place_of(connection, caller, namespace, name)
        assert place is not None
        repositories.set_alias(self.hub, caller, place, model, alias, number)

    def make_cards(self) -> None:
        cards.catch_up(self.hub)


def publish(
    running: RunningHub, label: str, folder: Path, token: str, refs: Sequence[str] = ()
) -> None:
    """Push a repository over HTTP, as `dlv publish` does."""
    url = f"{running.root}/{label}"
    environ = dict(os.environ, DLV_TOKEN=token, DLV_TOKEN_URL=running.root)
    with Repository.find(folder) as repository:
        remote = open_remote(repository, "hub", url, environ)
        pushing.publish(repository, remote, pushing.Request(references=refs, author="Ada"))


if __name__ == "__main__":
    main()
