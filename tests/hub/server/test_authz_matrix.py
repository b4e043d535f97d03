"""Every route of the hub x who calls x what is there: who may do what, in one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dlv.dataclass import dataclass
from dlv.hub.server import accounts, serving
from dlv.hub.server.access import Role
from dlv.hub.server.exchange import Route
from tests.hub.server.site import SHELL, Published, Reply, Site

NONE, READER, WRITER, MAINTAINER, ADMIN = Role
ENDED = "2001-01-01T00:00:00.000000Z"

# A user's namespace with all kinds of repositories, and one with nothing public.
PUBLIC, PRIVATE, MISSING = "olga/open", "olga/closed", "olga/gone"
PLACES = (PUBLIC, PRIVATE, MISSING, "nowhere/gone")
NAMESPACES = ("olga", "quiet", "nowhere")


@dataclass(frozen=True)
class Actor:
    """Who calls: a user's roles, and what the token allows of them."""

    user: str | None
    roles: Mapping[str, Role]
    operator: bool = False
    role: Role = ADMIN
    namespace: str | None = None
    repository: str | None = None
    valid: bool = True

    def level(self, namespace: str, repository: str | None) -> Role:
        """Return the role in a place, as the documentation has it."""
        label = namespace if repository is None else f"{namespace}/{repository}"
        if label in (MISSING, "nowhere", "nowhere/gone"):
            return NONE
        own = [self.roles.get(namespace, NONE), self.roles.get(label, NONE)]
        role = ADMIN if self.operator else max(own)
        if self.namespace not in (None, namespace) or self.repository not in (None, repository):
            role = NONE
        role = min(role, self.role)
        return max(role, READER) if label == PUBLIC else role


def _members() -> dict[str, Role]:
    return {role.word: role for role in (READER, WRITER, MAINTAINER, ADMIN)}


ACTORS = {
    "anonymous": Actor(None, {}),
    "stranger": Actor("stranger", {}),
    **{word: Actor(word, {"olga": role, "quiet": role}) for word, role in _members().items()},
    "owner": Actor("olga", {"olga": ADMIN}),
    "operator": Actor("operator", {}, operator=True),
    "writer of one": Actor("guest", {PRIVATE: WRITER}),
    "admin of one": Actor("host", {PRIVATE: ADMIN}),
    "other namespace": Actor("admin", {"olga": ADMIN, "quiet": ADMIN}, namespace="admin"),
    "this namespace": Actor("admin", {"olga": ADMIN, "quiet": ADMIN}, namespace="olga"),
    "other repository": Actor(
        "admin", {"olga": ADMIN, "quiet": ADMIN}, namespace="olga", repository="other"
    ),
    "this repository": Actor(
        "admin", {"olga": ADMIN, "quiet": ADMIN}, namespace="olga", repository="closed"
    ),
    "lower role": Actor("admin", {"olga": ADMIN, "quiet": ADMIN}, role=READER),
    "operator of less": Actor("operator", {}, operator=True, role=WRITER),
    "operator of one": Actor("operator", {}, operator=True, namespace="olga"),
    "expired": Actor("admin", {}, valid=False),
    "revoked": Actor("admin", {}, valid=False),
    "disabled": Actor("leaver", {}, valid=False),
    "guessed": Actor(None, {}, valid=False),
}


@dataclass(frozen=True)
class Row:
    """What a route requires, a request to it, and the statuses of one that is let in.

    `role`: in the repository or namespace of the path. `needs`: token, operator, or nothing.
    """

    role: Role
    parts: Callable[[Published], Mapping[str, object]] | Mapping[str, object] | None = None
    body: Callable[[Published], Any] | Any = None
    headers: Mapping[str, str] | None = None
    passes: int = 200
    needs: str = ""


def _next_ref(published: Published) -> Mapping[str, object]:
    return {"name": "net", "seq": published.next_ref.seq}


def _pack(published: Published) -> Mapping[str, object]:
    return {"kind": "packs", "hash": published.upload[0]}


def _manifest(published: Published) -> Mapping[str, object]:
    return {"kind": "manifests", "hash": published.ref.manifest}


def _batch(published: Published) -> Any:
    digest, data = published.upload
    return {"objects": [{"kind": "packs", "hash": digest, "size": len(data)}]}


N, R = "/v1/{namespace}", "/v1/{namespace}/{repository}"
IF_NEW = {"If-None-Match": "*"}
WHOLE = {"Upload-Offset": "0", "Upload-Complete": "?1"}
STAGING, PRODUCTION = ({"model": "net", "alias": word} for word in ("staging", "production"))
AS_READER = {"role": "reader"}
# A row may be there twice: the role can depend on the body.
TABLE: list[tuple[str, Row]] = [
    ("GET /v1/health", Row(NONE)),
    ("GET /v1/config", Row(NONE)),
    ("GET /v1/openapi.json", Row(NONE)),
    ("GET /v1/metrics", Row(NONE, needs="operator")),
    ("GET /v1/me", Row(NONE, needs="token")),
    ("POST /v1/login", Row(NONE)),
    ("POST /v1/login/token", Row(NONE, body={"device": "dlv_none"}, passes=404)),
    ("GET /v1/tokens", Row(NONE, needs="token")),
    ("POST /v1/tokens", Row(NONE, body={"name": "new"}, needs="token", passes=201)),
    ("DELETE /v1/tokens/{id}", Row(NONE, {"id": 999_999}, needs="token", passes=404)),
    ("GET /v1/users", Row(NONE, needs="operator")),
    ("PUT /v1/users/{user}", Row(NONE, {"user": "new1"}, {}, needs="operator", passes=201)),
    (
        "POST /v1/users/{user}/tokens",
        Row(NONE, {"user": "olga"}, {"name": "new"}, needs="operator", passes=201),
    ),
    ("POST /v1/search", Row(NONE, body={"text": "net"})),
    (f"GET {N}/-/members", Row(ADMIN)),
    (f"PUT {N}/-/members/{{user}}", Row(ADMIN, {"user": "stranger"}, AS_READER, passes=204)),
    (f"DELETE {N}/-/members/{{user}}", Row(ADMIN, {"user": "reader"}, passes=204)),
    (f"GET {N}/-/quota", Row(READER)),
    (f"PUT {N}/-/quota", Row(NONE, body={"bytes": 10**9}, needs="operator")),
    (f"GET {N}/-/audit", Row(ADMIN)),
    (f"GET {R}", Row(READER)),
    (f"PATCH {R}", Row(ADMIN, body={"description": "new"}, passes=204)),
    (f"PATCH {R}", Row(ADMIN, body={"visibility": "public"}, passes=204)),
    (f"DELETE {R}", Row(ADMIN, passes=204)),
    (f"GET {R}/refs", Row(READER)),
    (f"GET {R}/refs/{{name}}", Row(READER, {"name": "net"})),
    (f"GET {R}/refs/{{name}}/{{seq}}", Row(READER, {"name": "net", "seq": 1})),
    (
        f"PUT {R}/refs/{{name}}/{{seq}}",
        Row(WRITER, _next_ref, lambda p: p.next_ref.encode(), IF_NEW, passes=201),
    ),
    (
        f"PUT {R}/refs/{{name}}/{{seq}}",
        Row(MAINTAINER, _next_ref, lambda p: p.retiring.encode(), IF_NEW, passes=201),
    ),
    (f"GET {R}/objects/{{kind}}/{{hash}}", Row(READER, _manifest)),
    (f"POST {R}/batch", Row(WRITER, body=_batch)),
    (f"GET {R}/uploads/{{kind}}/{{hash}}", Row(WRITER, _pack, passes=204)),
    (
        f"PATCH {R}/uploads/{{kind}}/{{hash}}",
        Row(WRITER, _pack, lambda p: p.upload[1], WHOLE, passes=201),
    ),
    (f"POST {R}/uploads/{{kind}}/{{hash}}/complete", Row(WRITER, _pack, passes=409)),
    (f"DELETE {R}/uploads/{{kind}}/{{hash}}", Row(WRITER, _pack, passes=204)),
    (f"POST {R}/leases", Row(WRITER, body={"lease": "abcdefgh"}, passes=201)),
    (f"DELETE {R}/leases/{{lease}}", Row(WRITER, {"lease": "leaseleaselease"}, passes=204)),
    (f"GET {R}/models", Row(READER)),
    (f"GET {R}/cards", Row(READER)),
    (f"POST {R}/search", Row(READER, body={"text": "net"})),
    (f"GET {R}/aliases", Row(READER)),
    (f"PUT {R}/aliases/{{model}}/{{alias}}", Row(MAINTAINER, STAGING, {"number": 1})),
    (f"DELETE {R}/aliases/{{model}}/{{alias}}", Row(MAINTAINER, PRODUCTION, passes=204)),
    (f"POST {R}/gc", Row(MAINTAINER, body={"grace": 0})),
    (f"GET {R}/members", Row(ADMIN)),
    (f"PUT {R}/members/{{user}}", Row(ADMIN, {"user": "stranger"}, AS_READER, passes=204)),
    (f"DELETE {R}/members/{{user}}", Row(ADMIN, {"user": "visitor"}, passes=204)),
    (f"GET {R}/quota", Row(WRITER)),
    (f"GET {R}/audit", Row(ADMIN)),
]
# What depends on more than a role in one place has tests of its own below.
OTHERS = {f"GET {N}", f"PUT {R}"}


class World:
    """The hub of the table, its tokens, and what is in its repositories."""

    def __init__(self, site: Site) -> None:
        self.site = site
        users = {actor.user for actor in ACTORS.values() if actor.user} - {"operator"}
        for name in sorted({*users, "visitor"}):
            site.user(name)
        site.user("operator", operator=True)
        for namespace in ("quiet", "olga"):
            for word in ("admin", "maintainer", "reader", "writer"):
                site.member(namespace, word, word)
        self.published = {
            label: site.fill(site.repository(label, visibility, "admin"), "admin")
            for label, visibility in (
                (PUBLIC, "public"), (PRIVATE, "private"), ("quiet/closed", "private"),
            )
        }  # fmt: skip
        site.member(PRIVATE, "guest", "writer")
        site.member(PRIVATE, "host", "admin")
        for label in (PUBLIC, PRIVATE):
            site.member(label, "visitor", "reader")
        self.tokens = {name: self._token(name, actor) for name, actor in ACTORS.items()}
        site.save()

    def _token(self, name: str, actor: Actor) -> str | None:
        if actor.user is None:
            return None if actor.valid else "dlv_" + "A" * 43
        secret = self.site.token(
            actor.user, role=actor.role, namespace=actor.namespace, repository=actor.repository
        )
        if name == "expired":
            self.site.spoil(secret, expires=ENDED)
        elif name == "revoked":
            self.site.spoil(secret, revoked=ENDED)
        elif name == "disabled":
            with self.site.hub.database.writing() as connection:
                accounts.change_user(connection, SHELL, actor.user, disabled=True)
        return secret

    def request(self, key: str, row: Row, actor: str, label: str) -> Reply:
        method, _, path = key.partition(" ")
        namespace, _, repository = label.partition("/")
        # Requests to what is missing are those to the private one, word for word.
        published = self.published.get(label, self.published[PRIVATE])
        parts = row.parts(published) if callable(row.parts) else row.parts or {}
        address = path.format(namespace=namespace, repository=repository, **parts)
        body = row.body(published) if callable(row.body) else row.body
        return self.site.send(
            method, address, token=self.tokens[actor], body=body,
            headers=(row.headers or {}).items(),
        )  # fmt: skip


def expected(key: str, row: Row, actor: Actor, label: str) -> int:
    """Return the status that the rules say."""
    if not actor.valid:
        return 401
    operates = actor.operator and actor.role is ADMIN and actor.namespace is None
    if row.needs == "operator" and not operates:
        return 404 if actor.user is None else 403
    if row.needs == "token" and actor.user is None:
        return 401
    if row.role is not NONE:
        if operates and label == "nowhere" and key.startswith("PUT"):
            return 422  # operators make organizations, whose first member is an admin
        namespace, _, repository = label.partition("/")
        level = actor.level(namespace, repository or None)
        if level is NONE:
            return 404
        if level < row.role:
            return 403
    if row.needs == "operator" and "{namespace}" in key and label == "nowhere":
        return 404
    return row.passes


def cells(key: str) -> tuple[str, ...]:
    return PLACES if "{repository}" in key else NAMESPACES if "{namespace}" in key else ("",)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("hub")
    site = Site(folder, f"sqlite:///{folder / 'hub.db'}")
    yield World(site)
    site.close()


def test_authz_matrix_has_every_route() -> None:
    routes = {f"{route.method} {route.path}" for route in serving.all_routes()}
    rows = {key for key, _ in TABLE} | OTHERS
    assert routes - rows == set(), "a new route needs a row in the table"
    assert rows - routes == set(), "the table has routes that do not exist"


def test_authz_matrix_and_the_routes_say_the_same() -> None:
    """The description of the API names roles: those of the table."""
    rows = dict(reversed(TABLE))
    for route in serving.all_routes():
        row = rows.get(f"{route.method} {route.path}")
        if row is not None:
            assert (route.role, _needs(route)) == (row.role, row.needs), route.path


def _needs(route: Route) -> str:
    return "operator" if route.operator else "token" if route.known else ""


def check(world: World, key: str, row: Row, names: Sequence[str] = tuple(ACTORS)) -> int:
    """Send the request of a row as all actors to every place; return the number of cells."""
    count = 0
    for label in cells(key):
        hidden: list[Any] = []
        for name in names:
            actor, reply = ACTORS[name], world.request(key, row, name, label)
            status = expected(key, row, actor, label)
            assert reply.status == status, (key, name, label, reply)
            if status == 404 and row.role is not NONE and not actor.operator:
                hidden.append(reply.same)
            if reply.status < 300 and not key.startswith("GET"):
                world.site.restore()
            count += 1
        assert all(each == hidden[0] for each in hidden), (key, label)
        if hidden:
            assert hidden[0] == world.request(key, row, "stranger", "nowhere/gone").same
    assert world.site.errors() == []
    return count


@pytest.mark.parametrize(
    ("key", "row"), TABLE, ids=[f"{key}-{row.role.word}" for key, row in TABLE]
)
def test_authz_matrix(world: World, key: str, row: Row) -> None:
    assert check(world, key, row) == len(cells(key)) * len(ACTORS)


def test_authz_matrix_creates(world: World) -> None:
    """Creating takes the role of a writer in the namespace, or a token for the new name."""
    key = f"PUT {R}"
    row = Row(NONE, body={}, needs="token", passes=201)
    for label in (*PLACES, "quiet/closed", "quiet/gone"):
        namespace, _, repository = label.partition("/")
        for name, actor in ACTORS.items():
            reply = world.request(key, row, name, label)
            level = actor.level(namespace, None)
            if actor.namespace == namespace and actor.repository == repository:
                level = min(actor.roles[namespace], actor.role)
            exists = label not in (MISSING, "quiet/gone")
            status = (
                401 if not actor.valid or actor.user is None
                else 404 if level is NONE
                else 403 if level < WRITER
                else 409 if exists
                else 201
            )  # fmt: skip
            assert reply.status == status, (name, label, reply)
            if status == 201:
                world.site.restore()
            if status == 404:
                assert reply.same == world.request(key, row, "stranger", "nowhere/gone").same


def test_authz_matrix_lists(world: World) -> None:
    """A list has what the caller may read, and an empty one is that of no namespace."""
    key, row = f"GET {N}", Row(NONE)
    for namespace in NAMESPACES:
        names = {"olga": ("open", "closed"), "quiet": ("closed",), "nowhere": ()}[namespace]
        for name, actor in ACTORS.items():
            reply = world.request(key, row, name, namespace)
            visible = [each for each in names if actor.level(namespace, each) >= READER]
            if not actor.valid:
                assert reply.status == 401
            elif not visible:
                assert reply.same == world.request(key, row, "anonymous", "nowhere").same
                assert reply.status == 404
            else:
                listed = [each["name"] for each in reply.json["repositories"]]
                assert listed == sorted(visible), (name, namespace)


def test_authz_matrix_file_of_the_remote(world: World) -> None:
    """The file by which a client knows a hub is there for readers only."""
    for label in PLACES:
        for name, actor in ACTORS.items():
            reply = world.site.send("GET", f"/{label}/dlv-remote.json", token=world.tokens[name])
            readable = actor.level(*label.split("/")) >= READER
            assert reply.status == (401 if not actor.valid else 200 if readable else 404)
            assert reply.header("dlv-hub") == "1"


def test_authz_matrix_on_postgresql(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Reading, publishing, deleting and members, on the other database."""
    server = request.getfixturevalue("postgres")
    keys = (f"GET {R}", f"GET {R}/objects/{{kind}}/{{hash}}", f"POST {R}/batch", f"POST {R}/gc")
    chosen = [(key, row) for key, row in TABLE if key in keys or key.startswith("PUT /v1/{n")]
    names = ("anonymous", "stranger", "reader", "writer", "writer of one", "other namespace")
    with server.database() as url:
        site = Site(tmp_path, url)
        try:
            world = World(site)
            for key, row in chosen:
                check(world, key, row, names)
        finally:
            site.close()


def test_tokens_make_no_wider_ones(world: World) -> None:
    """Neither by a role, nor by another place."""

    def status(secret: str, **wanted: str) -> int:
        body = {"name": "x", **wanted}
        return world.site.send("POST", "/v1/tokens", token=secret, body=body).status

    lower = world.site.token("admin", role=WRITER)
    here = world.site.token("admin", namespace="olga")
    one = world.site.token("admin", namespace="olga", repository="open")
    assert (status(lower), status(lower, role="reader"), status(lower, role="admin")) == (
        201, 201, 403,
    )  # fmt: skip
    assert (status(here), status(here, namespace="quiet")) == (201, 403)
    assert status(here, namespace="olga", repository="open") == 201
    assert status(one, namespace="olga", repository="closed") == 403
    world.site.restore()
