"""Routes of accounts, tokens, members, quotas, the audit log, and the login of programs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from dlv.dataclass import dataclass
from dlv.errors import NotFound, UnsafeInput
from dlv.hub.server import accounts, audit, members, tables, tokens
from dlv.hub.server.access import ROLES, Role, role_of
from dlv.hub.server.exchange import Answer, Exchange, Route
from dlv.hub.server.refusal import Refused, not_found
from dlv.objects.record import as_json

MOST_LINES = 1000


@contextmanager
def _changing(call: Exchange) -> Iterator[sa.Connection]:
    """A transaction, in which what the caller may not grant is answered with 403."""
    try:
        with call.hub.database.writing() as connection:
            yield connection
    except UnsafeInput as error:
        raise Refused(403, error.message, why=error.why, hint=error.hint) from None


def _place(call: Exchange) -> str:
    """Return NAMESPACE, or NAMESPACE/REPOSITORY, as the path names it."""
    return call.place.label if "repository" in call.parts else call.parts["namespace"].lower()


# The caller, and tokens


def show_caller(call: Exchange) -> Answer:
    caller = call.caller
    query = sa.select(tables.token.c.expires).where(tables.token.c.id == caller.token_id)
    with call.hub.database.reading() as connection:
        expires = connection.execute(query).scalar_one()
    return Answer.of_json(
        {
            "name": caller.name,
            "operator": caller.operator,
            "role": caller.highest.word,
            "namespace": caller.namespace,
            "repository": caller.repository,
            "expires": expires,
        }
    )


@dataclass(frozen=True)
class NewToken:
    """Without a role and a place, the token may do what that of the caller may."""

    name: str
    role: str | None = None
    namespace: str | None = None
    repository: str | None = None
    days: int = tokens.DAYS


def _scope(call: Exchange, base: tokens.Scope) -> tokens.Scope:
    body: NewToken = call.body
    namespace = base.namespace if body.namespace is None else body.namespace.lower()
    repository = base.repository if namespace == base.namespace else None
    repository = repository if body.repository is None else body.repository.lower()
    if repository is not None and namespace is None:
        raise Refused(422, "a repository requires its namespace")
    place = "/".join(part for part in (namespace, repository) if part is not None)
    return tokens.scope_from(place if namespace is not None else None, body.role or base.role.word)


def _create(call: Exchange, user_id: int, base: tokens.Scope) -> Answer:
    body: NewToken = call.body
    scope = _scope(call, base)
    with _changing(call) as connection:
        token, secret = tokens.create_token(
            connection, call.caller, user_id, name=body.name, scope=scope, days=body.days
        )
    return Answer.of_json({**as_json(token), "token": secret}, 201)


def create_token(call: Exchange) -> Answer:
    assert call.caller.user_id is not None
    return _create(call, call.caller.user_id, tokens.scope_of(call.caller))


def list_tokens(call: Exchange) -> Answer:
    within = tokens.scope_of(call.caller)
    with call.hub.database.reading() as connection:
        found = tokens.tokens(connection, call.caller.user_id, within=within)
    return Answer.of_json({"tokens": [as_json(token) for token in found]})


def revoke_token(call: Exchange) -> Answer:
    text = call.parts["id"]
    if not (text.isascii() and text.isdigit()) or len(text) > 16:
        raise not_found()
    try:
        with call.hub.database.writing() as connection:
            tokens.revoke_token(
                connection,
                call.caller,
                int(text),
                user_id=call.caller.user_id,
                within=tokens.scope_of(call.caller),
            )
    except NotFound:
        raise not_found() from None
    return Answer(204)


# Users, for operators


@dataclass(frozen=True)
class UserChange:
    email: str | None = None
    operator: bool | None = None
    disabled: bool | None = None


def list_users(call: Exchange) -> Answer:
    with call.hub.database.reading() as connection:
        return Answer.of_json({"users": [as_json(user) for user in accounts.users(connection)]})


def set_user(call: Exchange) -> Answer:
    """Add a user, or change one."""
    body: UserChange = call.body
    name = call.parts["user"].lower()
    with call.hub.database.writing() as connection:
        exists = accounts.user_named(connection, name) is not None
        if not exists:
            accounts.add_user(
                connection, call.caller, name, email=body.email, operator=bool(body.operator)
            )
        accounts.change_user(
            connection, call.caller, name, email=body.email, operator=body.operator,
            disabled=body.disabled,
        )  # fmt: skip
        user = accounts.user_named(connection, name)
    return Answer.of_json(as_json(user), 200 if exists else 201)


def create_token_of_user(call: Exchange) -> Answer:
    with call.hub.database.reading() as connection:
        user_id = accounts.user_id_of(connection, call.caller, call.parts["user"])
    return _create(call, user_id, tokens.Scope())


# Members


@dataclass(frozen=True)
class NewRole:
    role: str


def list_members(call: Exchange) -> Answer:
    namespace, _, repository = _place(call).partition("/")
    with call.hub.database.reading() as connection:
        if not accounts.quotas(connection, namespace):
            raise not_found()
        found = members.members(connection, namespace, repository or None)
    return Answer.of_json({"members": [as_json(member) for member in found]})


def set_member(call: Exchange) -> Answer:
    body: NewRole = call.body
    if body.role in ROLES and role_of(body.role) > call.caller.highest:
        raise Refused(403, f"the role {body.role} is above your own")
    with _changing(call) as connection:
        members.set_member(connection, call.caller, _place(call), call.parts["user"], body.role)
    return Answer(204)


def remove_member(call: Exchange) -> Answer:
    with _changing(call) as connection:
        members.remove_member(connection, call.caller, _place(call), call.parts["user"])
    return Answer(204)


# Quotas, and the audit log


@dataclass(frozen=True)
class NewQuota:
    """`bytes` of null: what the hub allows by default."""

    bytes: int | None = None


def show_quota(call: Exchange) -> Answer:
    """Show the quota of a namespace, which all of its repositories share."""
    with call.hub.database.reading() as connection:
        found = accounts.quotas(connection, _place(call).partition("/")[0])
    if not found:
        raise not_found()
    return _quota(call, found[0])


def set_quota(call: Exchange) -> Answer:
    body: NewQuota = call.body
    with call.hub.database.writing() as connection:
        quota = accounts.set_quota(connection, call.caller, call.parts["namespace"], body.bytes)
    return _quota(call, quota)


def _quota(call: Exchange, quota: accounts.Quota) -> Answer:
    most = call.hub.limits.quota if quota.quota is None else quota.quota
    return Answer.of_json({"used": quota.used, "reserved": quota.reserved, "quota": most})


def show_audit(call: Exchange) -> Answer:
    after, most = call.number("after", 0), call.number("most", 100, MOST_LINES)
    with call.hub.database.reading() as connection:
        if not accounts.quotas(connection, _place(call).partition("/")[0]):
            raise not_found()
        lines = audit.lines(connection, _place(call), after=after, most=most)
    return Answer.of_json({"lines": lines})


# The login of a program, which a person confirms in a browser


@dataclass(frozen=True)
class Device:
    device: str


def begin_login(call: Exchange) -> Answer:
    with call.hub.database.writing() as connection:
        login = tokens.begin_device_login(connection)
    if login is None:
        raise Refused(503, "too many logins are under way", headers={"Retry-After": "60"})
    url = f"{call.hub.settings.url.rstrip('/')}/login/device?code={login.code}"
    return Answer.of_json({**as_json(login), "url": url, "interval": tokens.DEVICE_INTERVAL})


def finish_login(call: Exchange) -> Answer:
    body: Device = call.body
    with call.hub.database.writing() as connection:
        done = tokens.finish_device_login(connection, body.device, call.caller.origin)
    if done == "pending":
        return Answer.of_json({"state": done}, 202)
    if isinstance(done, str):
        raise Refused(404, "no such login", why="it has expired or ended", hint="dlv login URL")
    token, secret = done
    return Answer.of_json({"token": secret, "name": token.user, "expires": token.expires})


# The table


def _object(**properties: Any) -> dict[str, Any]:
    """Return the JSON schema of an object with these keys."""
    kinds = {
        key: {"type": kind} if isinstance(kind, (str, list)) else kind
        for key, kind in properties.items()
    }
    return {"type": "object", "properties": kinds, "required": sorted(kinds)}


def _list(**properties: Any) -> dict[str, Any]:
    return {"type": "array", "items": _object(**properties)}


_TEXT = ["string", "null"]
_NUMBER = ["integer", "null"]
_TOKEN: dict[str, Any] = {
    "id": "integer", "user": "string", "name": "string", "hint": "string", "role": "string",
    "namespace": _TEXT, "repository": _TEXT, "created": "string", "expires": "string",
    "used": _TEXT,
}  # fmt: skip
_USER: dict[str, Any] = {
    "name": "string", "email": _TEXT, "operator": "boolean", "disabled": "boolean",
    "openid": "boolean", "created": "string",
}  # fmt: skip
_NEW_TOKEN = _object(**_TOKEN, token="string")
_TOKENS = _object(tokens=_list(**_TOKEN))
_ME = _object(
    name="string", operator="boolean", role="string", namespace=_TEXT, repository=_TEXT,
    expires="string",
)  # fmt: skip
_MEMBERS = _object(
    members=_list(
        user="string", role="string", namespace="string", repository=_TEXT, created="string"
    )
)
_QUOTA = _object(used="integer", reserved="integer", quota=_NUMBER)
_AUDIT = _object(
    lines=_list(
        seq="integer", time="string", actor="string", origin="string", action="string",
        target="string", before=_TEXT, after=_TEXT, prev="string", hash="string",
    )
)  # fmt: skip
_BEGUN = _object(device="string", code="string", url="string", interval="integer", expires="string")
_LOGIN: dict[str, Any] = {
    "type": "object",
    "properties": {key: {"type": "string"} for key in ("state", "token", "name", "expires")},
}
_PAGE = {"after": "only lines after this number", "most": "the most lines [default: 100]"}
_NONE, _READER, _WRITER, _ADMIN = Role.NONE, Role.READER, Role.WRITER, Role.ADMIN
N = "/v1/{namespace}/-"
R = "/v1/{namespace}/{repository}"

ROUTES = [
    Route("GET", "/v1/me", _NONE, show_caller, "Show whose token this is", known=True, answer=_ME),
    Route(
        "POST", "/v1/login", _NONE, begin_login, "Begin the login of a program", answer=_BEGUN,
        statuses=(200, 503),
    ),
    Route(
        "POST", "/v1/login/token", _NONE, finish_login,
        "Fetch the token of a login that was confirmed", body=Device, answer=_LOGIN,
        statuses=(200, 202),
    ),
    Route("GET", "/v1/tokens", _NONE, list_tokens, "List your tokens", known=True, answer=_TOKENS),
    Route(
        "POST", "/v1/tokens", _NONE, create_token, "Create a token; it is shown once", known=True,
        body=NewToken, answer=_NEW_TOKEN, statuses=(201,),
    ),
    Route(
        "DELETE", "/v1/tokens/{id}", _NONE, revoke_token, "Revoke a token", known=True,
        statuses=(204,),
    ),
    Route(
        "GET", "/v1/users", _NONE, list_users, "List all users", operator=True,
        answer=_object(users=_list(**_USER)),
    ),
    Route(
        "PUT", "/v1/users/{user}", _NONE, set_user, "Add or change a user", operator=True,
        body=UserChange, answer=_object(**_USER), statuses=(200, 201, 409),
    ),
    Route(
        "POST", "/v1/users/{user}/tokens", _NONE, create_token_of_user,
        "Create a token for a user; it is shown once", operator=True, body=NewToken,
        answer=_NEW_TOKEN, statuses=(201,),
    ),
    Route(
        "GET", f"{N}/members", _ADMIN, list_members, "List the members of a namespace",
        answer=_MEMBERS,
    ),
    Route(
        "PUT", f"{N}/members/{{user}}", _ADMIN, set_member,
        "Set the role of a user in a namespace", body=NewRole, statuses=(204, 409),
    ),
    Route(
        "DELETE", f"{N}/members/{{user}}", _ADMIN, remove_member,
        "Remove a user from a namespace", statuses=(204, 409),
    ),
    Route(
        "GET", f"{N}/quota", _READER, show_quota, "Show how much a namespace uses", answer=_QUOTA
    ),
    Route(
        "PUT", f"{N}/quota", _NONE, set_quota, "Set the quota of a namespace", operator=True,
        body=NewQuota, answer=_QUOTA,
    ),
    Route(
        "GET", f"{N}/audit", _ADMIN, show_audit, "Show the audit log of a namespace",
        query=_PAGE, answer=_AUDIT,
    ),
    Route(
        "GET", f"{R}/members", _ADMIN, list_members, "List the members of a repository",
        answer=_MEMBERS,
    ),
    Route(
        "PUT", f"{R}/members/{{user}}", _ADMIN, set_member,
        "Set the role of a user in a repository", body=NewRole, statuses=(204, 409),
    ),
    Route(
        "DELETE", f"{R}/members/{{user}}", _ADMIN, remove_member,
        "Remove a user from a repository", statuses=(204, 409),
    ),
    # Not for readers: of a public repository, that is everybody.
    Route(
        "GET", f"{R}/quota", _WRITER, show_quota, "Show how much the namespace uses",
        answer=_QUOTA,
    ),
    Route(
        "GET", f"{R}/audit", _ADMIN, show_audit, "Show the audit log of a repository",
        query=_PAGE, answer=_AUDIT,
    ),
]  # fmt: skip
