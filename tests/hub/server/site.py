"""A hub in this process with users, roles, tokens and repositories, and exact requests to it."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import sqlalchemy as sa

from dlv.canonical import hash_bytes
from dlv.dataclass import dataclass
from dlv.hub.history import successor
from dlv.hub.records import Ref, decode_ref
from dlv.hub.server import (
    accounts,
    collecting,
    members,
    objects,
    repositories,
    serving,
    tables,
    tokens,
)
from dlv.hub.server.access import Caller, Place, Role, hash_of_secret, place_of
from dlv.hub.server.application import Application
from dlv.hub.server.database import HubDatabase
from dlv.hub.server.hub import Hub
from dlv.hub.server.settings import Limits, Settings
from tests.hub.server.filling import Version

SHELL = Caller()
GENEROUS = Limits(requests=10**9, anonymous=10**9, logins=10**9)


class Reply(NamedTuple):
    """An answer, with all headers but the id of the request in `same`."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name.lower()), None)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def same(self) -> tuple[int, list[tuple[str, str]], bytes]:
        """What must not differ between what does not exist and what may not be known."""
        headers = [pair for pair in self.headers if pair[0] not in ("x-request-id", "date")]
        return self.status, headers, self.body


class Gateway:
    """Sends requests to an ASGI application as a server does, byte for byte."""

    def __init__(self, app: Application) -> None:
        self.app = app
        self._runner = asyncio.Runner()

    def close(self) -> None:
        self._runner.close()

    def __call__(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        body: Any = None,
        headers: Iterable[tuple[str, str]] = (),
        client: str = "192.0.2.1",
        cut: bool = False,
    ) -> Reply:
        """Send one request. `body`: bytes, pieces of them, or a value for JSON; `cut`: its end."""
        pieces: list[bytes]
        if isinstance(body, list) and all(isinstance(piece, bytes) for piece in body):
            pieces = body
        else:
            pieces = [b"" if body is None else body if isinstance(body, bytes) else _json(body)]
        lines = [(key.lower().encode(), value.encode("latin-1")) for key, value in headers]
        if token is not None:
            lines.append((b"authorization", b"Bearer " + token.encode("latin-1")))
        return self._runner.run(self._send(method, path, lines, pieces, client, cut))

    async def _send(
        self,
        method: str,
        path: str,
        headers: list[tuple[bytes, bytes]],
        pieces: list[bytes],
        client: str,
        cut: bool,
    ) -> Reply:
        raw, _, query = path.partition("?")
        scope: dict[str, Any] = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1", "server": ("hub.example.org", 443), "client": (client, 4711),
            "scheme": "https", "method": method, "root_path": "", "path": unquote(raw),
            "raw_path": raw.encode("ascii", "replace"), "query_string": query.encode("latin-1"),
            "headers": headers, "state": {},
        }  # fmt: skip
        waiting = list(pieces)
        done = asyncio.Event()
        sent: list[Mapping[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if waiting:
                piece = waiting.pop(0)
                return {"type": "http.request", "body": piece, "more_body": bool(waiting) or cut}
            if not cut:
                await done.wait()
            return {"type": "http.disconnect"}

        async def send(message: Mapping[str, Any]) -> None:
            sent.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                done.set()

        await self.app(scope, receive, send)
        start = sent[0]
        lines = [(key.decode(), value.decode("latin-1")) for key, value in start["headers"]]
        body = b"".join(message.get("body", b"") for message in sent[1:])
        return Reply(start["status"], lines, body if method != "HEAD" else b"")


def _without_waiting_for_disks(database: HubDatabase) -> None:
    if not database.is_postgres:

        def connected(connection: Any, _: Any) -> None:
            connection.execute("PRAGMA synchronous=OFF")

        database.engine.dispose()
        sa.event.listen(database.engine, "connect", connected)


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


@dataclass(frozen=True)
class Published:
    """A version in a repository, and one that was sent but not published."""

    ref: Ref
    version: Version
    next_ref: Ref
    next_version: Version
    retiring: Ref
    upload: tuple[str, bytes]  # hash and bytes of a pack that was asked for


class Site:
    """A hub in a folder, over any database."""

    def __init__(self, folder: Path, url: str, limits: Limits = GENEROUS) -> None:
        self.folder = folder
        self.logged: list[str] = []
        self.use(
            Hub(Settings(url, str(folder / "objects"), folder, "https://hub.example.org", limits))
        )

    def use(self, hub: Hub) -> None:
        """Serve this hub, in which nothing happens between requests."""
        self.hub = hub
        _without_waiting_for_disks(hub.database)
        hub.note_use = lambda caller: None  # type: ignore[method-assign]  # noqa: ARG005
        self.app = serving.application(hub, log=self.logged.append)
        hub.on_published = lambda *_: None
        self.send = Gateway(self.app)

    def close(self) -> None:
        self.send.close()
        self.hub.close()

    # Accounts

    def user(self, name: str, *, operator: bool = False) -> int:
        with self.hub.database.writing() as connection:
            return accounts.add_user(connection, SHELL, name, operator=operator)

    def member(self, place: str, user: str, role: str) -> None:
        with self.hub.database.writing() as connection:
            members.set_member(connection, SHELL, place, user, role)

    def token(
        self,
        user: str,
        *,
        role: Role = Role.ADMIN,
        namespace: str | None = None,
        repository: str | None = None,
    ) -> str:
        scope = tokens.Scope(role, namespace, repository)
        with self.hub.database.writing() as connection:
            number = accounts.user_id_of(connection, SHELL, user)
            _, secret = tokens.create_token(connection, SHELL, number, name="t", scope=scope)
        return secret

    def spoil(self, secret: str, **values: str) -> None:
        """Change the row of a token."""
        with self.hub.database.writing() as connection:
            row = tables.token.c.hash == hash_of_secret(secret)
            connection.execute(sa.update(tables.token).where(row).values(**values))

    # Repositories

    def caller(self, user: str) -> Caller:
        with self.hub.database.reading() as connection:
            return Caller(user_id=accounts.user_id_of(connection, SHELL, user), name=user)

    def repository(self, label: str, visibility: str, user: str) -> Place:
        namespace = label.partition("/")[0]
        with self.hub.database.reading() as connection:
            columns = tables.account.c
            number = connection.execute(sa.select(columns.id).where(columns.name == namespace))
            owner = int(number.scalar_one())
        repositories.create(self.hub, self.caller(user), owner, label, visibility, "about")
        return self.place(label, user)

    def place(self, label: str, user: str) -> Place:
        with self.hub.database.reading() as connection:
            found = place_of(connection, self.caller(user), *label.split("/"))
        assert found is not None
        return found

    def store(self, place: Place, user: str, version: Version) -> None:
        """Send the objects of a version."""
        wanted = [objects.Wanted(*key, len(data)) for key, data in version.objects.items()]
        for each, upload in objects.batch(self.hub, self.caller(user), place, wanted):
            if upload is not None:
                data = version.objects[each.kind, each.hash]
                objects.receive(self.hub, place, upload, data, start=0, complete=True)

    def ref(self, place: Place, model: str, version: Version, kind: str = "publish") -> Ref:
        """Return the record that continues the history of a model."""
        with self.hub.database.reading() as connection:
            found = repositories.records_of(connection, place.id, model, 0, 10**6)
        chain = [decode_ref(record, model) for record in found]
        publishing = sum(each.kind == "publish" for each in chain)
        return successor(
            chain, kind, name=model, number=publishing + (kind == "publish"),
            manifest=hash_bytes(version.manifest), locator=hash_bytes(version.locator),
            author="Ada <ada@example.org>",
        )  # fmt: skip

    def publish(self, place: Place, user: str, model: str, version: Version) -> Ref:
        self.store(place, user, version)
        ref = self.ref(place, model, version)
        repositories.publish(self.hub, self.caller(user), place, model, ref.seq, ref.encode())
        return ref

    def fill(self, place: Place, user: str) -> Published:
        """Publish a version, send a second one, begin an upload, set an alias, take a lease."""
        first = Version.of("net", f"first in {place.label}", b"pack 1 of " + place.label.encode())
        second = Version.of("net", f"second in {place.label}", b"pack 2 " + place.label.encode())
        ref = self.publish(place, user, "net", first)
        self.store(place, user, second)
        pack = b"pack 3 of " + place.label.encode()
        wanted = objects.Wanted("packs", hash_bytes(pack), len(pack))
        caller = self.caller(user)
        objects.batch(self.hub, caller, place, [wanted])
        repositories.set_alias(self.hub, caller, place, "net", "production", 1)
        collecting.lease(self.hub, caller, place, "leaseleaselease")
        return Published(
            ref,
            first,
            self.ref(place, "net", second),
            second,
            self.ref(place, "net", first, "retire"),
            (hash_bytes(pack), pack),
        )

    # States

    def save(self) -> None:
        """Remember all rows and objects."""
        with self.hub.database.reading() as connection:
            self._rows = {
                table: [dict(row) for row in connection.execute(sa.select(table)).mappings()]
                for table in tables.metadata.sorted_tables
            }
        self._saved = self.folder / "saved"
        shutil.copytree(self.folder / "objects", self._saved)

    def restore(self) -> None:
        """Go back to what was remembered."""
        with self.hub.database.writing() as connection:
            for table in reversed(tables.metadata.sorted_tables):
                connection.execute(sa.delete(table))
            for table, rows in self._rows.items():
                if rows:
                    connection.execute(sa.insert(table), rows)
        shutil.rmtree(self.folder / "objects")
        shutil.copytree(self._saved, self.folder / "objects")

    def counters(self) -> dict[str, tuple[int, int]]:
        """Map namespaces to (used, reserved) as accounts have them."""
        account = tables.account.c
        with self.hub.database.reading() as connection:
            rows = connection.execute(sa.select(account.name, account.used, account.reserved))
            return {row.name: (row.used, row.reserved) for row in rows}

    def sums(self) -> dict[str, tuple[int, int]]:
        """Map namespaces to (used, reserved) as objects and uploads add up."""
        account, repository = tables.account.c, tables.repository.c
        with self.hub.database.reading() as connection:
            found: dict[str, list[int]] = {
                name: [0, 0] for name in connection.execute(sa.select(account.name)).scalars()
            }
            for index, table in enumerate((tables.object_, tables.upload)):
                query = (
                    sa.select(account.name, sa.func.sum(table.c.size))
                    .select_from(table)
                    .join(tables.repository, repository.id == table.c.repository_id)
                    .join(tables.account, account.id == repository.namespace_id)
                    .group_by(account.name)
                )
                for name, total in connection.execute(query):
                    found[name][index] = int(total)
        return {name: (used, reserved) for name, (used, reserved) in found.items()}

    def errors(self) -> list[str]:
        """Return lines of the log about errors."""
        return [line for line in self.logged if '"level": "error"' in line]
