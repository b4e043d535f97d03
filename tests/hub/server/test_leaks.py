"""What a caller may not know of does not show: by hash, text, status, work, quota or address."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import sqlalchemy as sa

from dlv.canonical import hash_bytes
from dlv.hub.server import serving
from dlv.hub.server.access import Role
from dlv.hub.server.exchange import Route
from dlv.hub.server.hub import Hub
from dlv.hub.server.settings import Limits, Settings
from tests.hub.server.filling import Version
from tests.hub.server.site import GENEROUS, Published, Reply, Site

ABSENT = "ab" * 32
PARTS = {
    "name": "net", "seq": "1", "kind": "manifests", "hash": ABSENT, "lease": "leaseleaselease",
    "model": "net", "alias": "production", "user": "owner",
}  # fmt: skip


class Houses:
    """Two users with a private repository each: `own`, and `foreign` that ours must not see."""

    def __init__(self, site: Site) -> None:
        self.site = site
        for name in ("eve", "owner"):
            site.user(name)
        self.own = site.repository("eve/mine", "private", "eve")
        self.foreign = site.repository("owner/secret", "private", "owner")
        self.secret: Published = site.fill(self.foreign, "owner")
        self.eve, self.owner = site.token("eve"), site.token("owner")

    def send(self, method: str, path: str, **options: Any) -> Reply:
        return self.site.send(method, f"/v1/{path}", token=self.eve, **options)


@pytest.fixture
def houses(tmp_path: Path, hub_database_url: str) -> Iterator[Houses]:
    site = Site(tmp_path, hub_database_url)
    yield Houses(site)
    assert site.errors() == []
    site.close()


@contextmanager
def counted(hub: Hub) -> Iterator[list[str]]:
    """Collect the statements that are sent to the database."""
    statements: list[str] = []

    def note(*event: Any) -> None:
        statements.append(str(event[2]))

    sa.event.listen(hub.database.engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        sa.event.remove(hub.database.engine, "before_cursor_execute", note)


def _repository_routes() -> list[Route]:
    return [route for route in serving.all_routes() if "{namespace}" in route.path]


def test_private_and_missing_take_the_same_work(houses: Houses) -> None:
    """Equal statements for a repository that is there and for one that is not: equal times."""
    for route in _repository_routes():
        bodies = [b"{}", b"not JSON", b"x" * 100_000]
        for body in bodies if route.body or route.streams else [None]:
            seen: list[Any] = []
            for namespace, repository in (("owner", "secret"), ("owner", "x"), ("y", "secret")):
                path = route.path.format(namespace=namespace, repository=repository, **PARTS)
                headers = {"If-None-Match": "*", "Upload-Offset": "0"}
                with counted(houses.site.hub) as statements:
                    reply = houses.site.send(
                        route.method, path, token=houses.eve, body=body, headers=headers.items()
                    )
                seen.append((reply.same, statements))
            assert seen[0] == seen[1] == seen[2], (route.method, route.path)
            if route.role is not Role.NONE:
                assert seen[0][0][0] == 404, (route.method, route.path, seen[0])


def _batch(name: str, hashes: Sequence[str]) -> tuple[str, dict[str, Any]]:
    wanted = [{"kind": "packs", "hash": digest, "size": 17} for digest in hashes]
    return f"{name}/batch", {"objects": wanted}


def test_dedupe_leak_by_batch(houses: Houses) -> None:
    """Objects that another repository has must be sent again."""
    pack = next(digest for kind, digest in houses.secret.version.objects if kind == "packs")
    path, body = _batch("eve/mine", [pack, ABSENT])
    reply = houses.send("POST", path, body=body)
    known, unknown = reply.json["objects"]
    assert {**known, "hash": ""} == {**unknown, "hash": ""}
    assert not known["present"]
    for kind, digest in houses.secret.version.objects:
        there = houses.send("GET", f"eve/mine/objects/{kind}/{digest}")
        assert there.same == houses.send("GET", f"eve/mine/objects/{kind}/{ABSENT}").same
        head = houses.send("HEAD", f"eve/mine/objects/{kind}/{digest}")
        assert head.status == 404


def test_dedupe_leak_by_refs(houses: Houses) -> None:
    """A ref that names what others have is refused like one that names nothing."""
    site = houses.site
    guess = site.ref(houses.own, "net", houses.secret.version)
    nothing = site.ref(houses.own, "net", Version.of("net", "never sent", b"never sent"))
    headers = [("If-None-Match", "*")]
    replies = [
        houses.send("PUT", "eve/mine/refs/net/1", body=ref.encode(), headers=headers)
        for ref in (guess, nothing)
    ]
    assert [reply.status for reply in replies] == [409, 409]
    texts = [
        reply.body.decode().replace(ref.manifest, "").replace(ref.manifest[:2] + "/", "")
        for reply, ref in zip(replies, (guess, nothing), strict=True)
    ]
    assert texts[0] == texts[1]


def test_dedupe_leak_by_a_locator(houses: Houses) -> None:
    """A locator of one's own that names packs of others does not publish them."""
    pack = next(digest for kind, digest in houses.secret.version.objects if kind == "packs")
    from dlv.hub.locator import Locator

    version = Version.of("net", "mine", b"mine")
    stolen = Version(
        version.manifest, Locator(hash_bytes(version.manifest), [pack]).encode(), version.pack
    )
    houses.site.store(houses.own, "eve", stolen)
    ref = houses.site.ref(houses.own, "net", stolen)
    headers = [("If-None-Match", "*")]
    reply = houses.send("PUT", "eve/mine/refs/net/1", body=ref.encode(), headers=headers)
    assert reply.status == 409
    assert pack in reply.json["error"]["why"]


def test_uploads_of_others_are_not_there(houses: Houses) -> None:
    digest, data = houses.secret.upload
    for method in ("HEAD", "GET", "DELETE"):
        for place in ("eve/mine", "owner/secret"):
            assert houses.send(method, f"{place}/uploads/packs/{digest}").status == 404
    headers = [("Upload-Offset", "0"), ("Upload-Complete", "?1")]
    path = f"eve/mine/uploads/packs/{digest}"
    assert houses.send("PATCH", path, body=data, headers=headers).status == 404


def test_conditions_are_checked_after_the_role(houses: Houses) -> None:
    """A 304 or 412 would say that something is there."""
    manifest, ref = houses.secret.ref.manifest, houses.secret.ref.hash
    for path, tag in (
        (f"objects/manifests/{manifest}", manifest), ("refs/net/1", ref),
    ):  # fmt: skip
        for condition in ("*", f'"{tag}"', f'W/"{tag}", "x"'):
            headers = [("If-None-Match", condition), ("Range", "bytes=0-")]
            reply = houses.send("GET", f"owner/secret/{path}", headers=headers)
            assert reply.same == houses.send("GET", "owner/nothing").same
    headers = [("If-None-Match", "*")]
    body = houses.secret.next_ref.encode()
    assert houses.send("PUT", "owner/secret/refs/net/1", body=body, headers=headers).status == 404


def test_quotas_of_others_do_not_show(houses: Houses) -> None:
    """Neither by their route, nor by how much is left, nor in lists and totals."""
    missing = houses.send("GET", "owner2/-/quota")
    assert houses.send("GET", "owner/-/quota").same == missing.same
    assert missing.status == 404
    assert houses.send("GET", "eve/-/quota").json["used"] == 0
    assert houses.send("GET", "owner").same == houses.send("GET", "nobody").same
    assert houses.send("GET", "owner/-/audit").status == 404
    assert b"owner" not in houses.send("GET", "eve/-/audit").body


def test_answers_are_not_kept_by_caches(houses: Houses) -> None:
    """What one caller reads, a shared cache must not show to another one."""
    manifest = houses.secret.ref.manifest
    for path in ("", "/refs", "/refs/net", "/refs/net/1", f"/objects/manifests/{manifest}"):
        reply = houses.site.send("GET", f"/v1/owner/secret{path}", token=houses.owner)
        assert reply.status == 200
        control = reply.header("cache-control") or ""
        assert "public" not in control
        assert control.startswith(("no-store", "no-cache", "private")), path


def test_secrets_are_in_no_log_and_no_answer(houses: Houses) -> None:
    send, site = houses.send, houses.site
    made = send("POST", "tokens", body={"name": "n"}).json["token"]
    send("GET", f"me?token={made}")
    site.send("GET", "/v1/me", token=made)
    site.send("GET", "/v1/me", token=made[:-1])
    assert made not in send("GET", "tokens").body.decode()
    lines = "\n".join(site.logged)
    assert made not in lines
    assert houses.eve not in lines
    with site.hub.database.reading() as connection:
        from dlv.hub.server import tables

        for table in tables.metadata.sorted_tables:
            rows = connection.execute(sa.select(table)).all()
            assert made not in repr(rows), table.name


@pytest.fixture
def direct(
    tmp_path: Path, bucket: Callable[[], str], s3_environ: Mapping[str, str]
) -> Iterator[tuple[Site, str]]:
    """A hub whose clients read and write packs at signed addresses of a bucket."""
    name = bucket()
    site = Site(tmp_path, f"sqlite:///{tmp_path / 'hub.db'}")
    site.hub.close()
    settings = Settings(
        f"sqlite:///{tmp_path / 'hub.db'}", f"s3://{name}/hub", tmp_path,
        "https://hub.example.org", GENEROUS, direct=True,
    )  # fmt: skip
    site.use(Hub(settings, s3_environ))
    yield site, name
    site.close()


def test_signed_addresses_are_for_one_object(direct: tuple[Site, str]) -> None:
    """They name one key of the own repository, for some minutes, and have no token."""
    site, bucket = direct
    houses = Houses(site)
    uuid = houses.foreign.uuid
    pack = next(digest for kind, digest in houses.secret.version.objects if kind == "packs")
    path = f"owner/secret/objects/packs/{pack}"
    assert houses.send("GET", path).same == houses.send("GET", "owner/no").same
    reply = site.send("GET", f"/v1/{path}", token=houses.owner)
    assert reply.status == 307
    location = urlsplit(reply.header("location") or "")
    assert location.path == f"/{bucket}/hub/{uuid}/packs/{pack[:2]}/{pack}.pack"
    assert int(parse_qs(location.query)["X-Amz-Expires"][0]) <= 900
    assert "dlv_" not in location.query
    path, body = _batch("eve/mine", [pack])
    (answer,) = houses.send("POST", path, body=body).json["objects"]
    href = urlsplit(answer["upload"]["href"])
    assert href.path.startswith(f"/{bucket}/hub/{houses.own.uuid}/uploads/")
    assert answer["upload"]["method"] == "PUT"


def test_a_direct_upload_is_checked(direct: tuple[Site, str]) -> None:
    """Wrong bytes, too many bytes, or none, at a signed address: nothing is kept of them."""
    import urllib3

    site, _ = direct
    houses = Houses(site)
    data = b"a pack " * 99
    digest = hash_bytes(data)
    body = {"objects": [{"kind": "packs", "hash": digest, "size": len(data)}]}
    complete = f"eve/mine/uploads/packs/{digest}/complete"

    def begin() -> str:
        (answer,) = houses.send("POST", "eve/mine/batch", body=body).json["objects"]
        return str(answer["upload"]["href"])

    begin()
    assert houses.send("POST", complete).status == 409
    with urllib3.PoolManager() as pool:
        for wrong in (data + b"more", data[:-1], b"x" * len(data)):
            assert pool.request("PUT", begin(), body=wrong).status == 200
            assert houses.send("POST", complete).status == 422
            assert site.counters() == site.sums()
            assert site.counters()["eve"] == (0, 0)
            assert site.hub.store_of(houses.own.uuid).keys("uploads/") == []
        assert pool.request("PUT", begin(), body=data).status == 200
    assert houses.send("POST", complete).status == 201
    assert site.counters()["eve"] == (len(data), 0)
    assert site.hub.store_of(houses.own.uuid).keys("uploads/") == []


def test_search_hides_what_may_not_be_known(houses: Houses) -> None:
    """The number of hits is that of those which the caller may read."""
    reply = houses.send("POST", "search", body={"text": "net"})
    assert reply.status == 200
    assert b"secret" not in reply.body


def test_roles_have_no_gap() -> None:
    assert [role.word for role in Role] == ["none", "reader", "writer", "maintainer", "admin"]
    assert Limits().logins < Limits().anonymous < Limits().requests
