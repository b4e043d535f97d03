"""Tokens of users, sessions of the pages, and logins that are under way.

A secret is random, shown once, and kept as a hash. A token that is limited to a namespace, a
repository or a role neither makes nor shows tokens that may do more.
"""

from __future__ import annotations

import datetime
import secrets

import sqlalchemy as sa

from dlv.canonical import current_moment, timestamp
from dlv.dataclass import dataclass
from dlv.errors import NotFound, UnsafeInput, UsageError
from dlv.hub.server import audit, tables
from dlv.hub.server.access import (
    PREFIX,
    Caller,
    Role,
    caller_of,
    hash_of_secret,
    new_secret,
    role_of,
)
from dlv.hub.server.accounts import NAME
from dlv.hub.server.members import check_role
from dlv.hub.server.repositories import NAME as REPOSITORY_NAME

DAYS = 90
MOST_DAYS = 366
MOST_TOKENS = 1000  # of one user
SESSION_DAYS = 7
DEVICE_SECONDS = 600
DEVICE_INTERVAL = 2  # seconds between two questions of `dlv login`
MOST_LOGINS = 10_000  # under way at one moment
TOKEN, SESSION = "token", "session"
_WITH_TOKEN = "token/"  # how the name of a session begins that a token began
_END = "9999"  # later than every time
_HINT = len(PREFIX) + 4
_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"  # none that looks like another one, and no words

_token, _account, _login = tables.token.c, tables.account.c, tables.login.c


@dataclass(frozen=True)
class Token:
    """A token without its secret. `hint`: how the secret begins."""

    id: int
    user: str
    name: str
    hint: str
    role: str
    namespace: str | None
    repository: str | None
    created: str
    expires: str
    used: str | None


@dataclass(frozen=True)
class Scope:
    """What a token may be used for: at most this role, in all places or in one."""

    role: Role = Role.ADMIN
    namespace: str | None = None
    repository: str | None = None

    @property
    def label(self) -> str:
        place = "/".join(part for part in (self.namespace, self.repository) if part)
        return f"{self.role.word} in {place}" if place else self.role.word

    def within(self, other: Scope) -> bool:
        """Whether this allows nothing that the other one does not."""
        return (
            self.role <= other.role
            and other.namespace in (None, self.namespace)
            and other.repository in (None, self.repository)
        )


def scope_of(caller: Caller) -> Scope:
    return Scope(caller.highest, caller.namespace, caller.repository)


def scope_from(place: str | None, role: str | None) -> Scope:
    """Return the scope that NAMESPACE or NAMESPACE/REPOSITORY and the word of a role mean."""
    namespace, _, repository = (place or "").lower().partition("/")
    if place is not None and not NAME.match(namespace):
        raise UsageError(f"`{namespace[:80]}` is not the name of a namespace")
    if place is not None and "/" in place and not REPOSITORY_NAME.match(repository):
        raise UsageError(f"`{repository[:80]}` is not the name of a repository")
    return Scope(
        Role.ADMIN if role is None else check_role(role), namespace or None, repository or None
    )


def _after(**length: float) -> str:
    return timestamp(current_moment() + datetime.timedelta(**length))


def create_token(
    connection: sa.Connection,
    caller: Caller,
    user_id: int,
    *,
    name: str,
    scope: Scope | None = None,
    days: int = DAYS,
    until: str | None = None,
) -> tuple[Token, str]:
    """Create a token, and return it with its secret.

    A token that makes another one lends it at most its own scope, and never a longer life.
    """
    scope = scope_of(caller) if scope is None else scope
    if not scope.within(scope_of(caller)):
        raise UnsafeInput(f"this token may not make one for {scope.label}")
    if not 1 <= days <= MOST_DAYS:
        raise UsageError(f"a token is valid for 1 to {MOST_DAYS} days, not {days}")
    if not name or len(name) > 100 or not name.isprintable():
        raise UsageError("the name of a token must have 1 to 100 printable characters")
    expires = min(_after(days=days), until or _END, end_of(connection, caller) or _END)
    count = sa.select(sa.func.count()).where(*_live(user_id))
    if connection.execute(count).scalar_one() >= MOST_TOKENS:
        raise UsageError(f"a user has at most {MOST_TOKENS} tokens", hint="revoke some of them")
    number, secret = _insert(connection, user_id, TOKEN, name, scope, expires)
    (token,) = tokens(connection, user_id, number=number)
    target = f"{token.user}:token/{number}"
    audit.record(connection, caller, "token.create", target, None, f"{scope.label} until {expires}")
    return token, secret


def end_of(connection: sa.Connection, caller: Caller) -> str | None:
    """Return when the token of the caller expires, or that with which the session began."""
    row = connection.execute(
        sa.select(_token.kind, _token.name, _token.expires).where(_token.id == caller.token_id)
    ).first()
    if row is None or row.kind == TOKEN:
        return None if row is None else str(row.expires)
    begun = row.name.removeprefix(_WITH_TOKEN)
    if begun == row.name:
        return None
    query = sa.select(_token.expires).where(_token.id == int(begun), _token.kind == TOKEN)
    return connection.execute(query).scalar()


def _insert(
    connection: sa.Connection, user_id: int, kind: str, name: str, scope: Scope, expires: str
) -> tuple[int, str]:
    secret, hashed = new_secret()
    values = {
        "user_id": user_id, "kind": kind, "hash": hashed, "hint": secret[:_HINT], "name": name,
        "namespace": scope.namespace, "repository": scope.repository, "role": scope.role.word,
        "created": timestamp(), "expires": expires,
    }  # fmt: skip
    insert = sa.insert(tables.token).values(**values).returning(_token.id)
    return int(connection.execute(insert).scalar_one()), secret


def _live(user_id: int | None, kind: str = TOKEN) -> list[sa.ColumnElement[bool]]:
    live = [_token.kind == kind, _token.revoked.is_(None), _token.expires > timestamp()]
    return live if user_id is None else [*live, _token.user_id == user_id]


def tokens(
    connection: sa.Connection,
    user_id: int | None = None,
    *,
    within: Scope | None = None,
    number: int | None = None,
) -> list[Token]:
    """Return the valid tokens of a user, or of all, oldest first.

    `within`: only those that may do no more than this scope.
    """
    columns = [_token[name] for name in Token.__dataclass_fields__ if name != "user"]
    query = (
        sa.select(*columns, _account.name.label("user"))
        .join(tables.account, _account.id == _token.user_id)
        .where(*_live(user_id))
        .order_by(_token.id)
    )
    if number is not None:
        query = query.where(_token.id == number)
    listed = [Token(**row) for row in connection.execute(query).mappings()]
    return [token for token in listed if within is None or _scope(token).within(within)]


def _scope(token: Token) -> Scope:
    return Scope(role_of(token.role), token.namespace, token.repository)


def revoke_token(
    connection: sa.Connection,
    caller: Caller,
    number: int,
    *,
    user_id: int | None = None,
    within: Scope | None = None,
) -> Token:
    """Revoke a token, and end the sessions that were begun with it; of one user, or of any."""
    found = tokens(connection, user_id, within=within, number=number)
    if not found:
        raise NotFound(f"no valid token {number}")
    (token,) = found
    revoked = sa.update(tables.token).values(revoked=timestamp())
    connection.execute(revoked.where(_token.id == number))
    connection.execute(revoked.where(*_live(None, SESSION), _token.name == _begun_with(number)))
    audit.record(connection, caller, "token.revoke", f"{token.user}:token/{number}")
    return token


# Sessions


def _begun_with(token: int | None) -> str:
    return "login" if token is None else f"{_WITH_TOKEN}{token}"


def start_session(
    connection: sa.Connection, caller: Caller, user_id: int, *, with_token: bool = False
) -> tuple[str, str]:
    """Start a session of a user; return its secret and when it ends.

    `with_token`: the user showed the token of the caller; the session may do no more than it, and
    ends with it.
    """
    expires = _after(days=SESSION_DAYS)
    scope, name = Scope(), _begun_with(None)
    if with_token:
        scope, name = scope_of(caller), _begun_with(caller.token_id)
        expires = min(expires, end_of(connection, caller) or _END)
    ended = sa.delete(tables.token).where(_token.kind == SESSION, _token.expires <= timestamp())
    connection.execute(ended)
    _, secret = _insert(connection, user_id, SESSION, name, scope, expires)
    user = sa.select(_account.name).where(_account.id == user_id)
    audit.record(
        connection, caller, "session.start", connection.execute(user).scalar_one(), None, name
    )
    return secret, expires


def end_session(connection: sa.Connection, secret: str, origin: str) -> bool:
    """Log out; return whether this was a session."""
    caller = caller_of(connection, secret, origin, kind=SESSION)
    if caller is None:
        return False
    ended = sa.update(tables.token).where(_token.hash == hash_of_secret(secret))
    connection.execute(ended.values(revoked=timestamp()))
    audit.record(connection, caller, "session.end", caller.name)
    return True


# Logins that are under way


@dataclass(frozen=True)
class DeviceLogin:
    """`device` is the secret of the program that waits, `code` what a person compares."""

    device: str
    code: str
    expires: str


def begin_device_login(connection: sa.Connection) -> DeviceLogin | None:
    """Begin the login of a program; None if too many are under way."""
    if not _has_room(connection):
        return None
    device, hashed = new_secret()
    letters = "".join(secrets.choice(_LETTERS) for _ in range(8))
    code, expires = f"{letters[:4]}-{letters[4:]}", _after(seconds=DEVICE_SECONDS)
    values = {"device": hashed, "code": code, "role": Role.ADMIN.word, "expires": expires}
    connection.execute(sa.insert(tables.login).values(**values))
    return DeviceLogin(device, code, expires)


def begin_browser_login(connection: sa.Connection, secret: str) -> bool:
    """Note a login at the OpenID provider, which comes back once; False if there are too many."""
    if not _has_room(connection):
        return False
    values = {"device": hash_of_secret(secret), "code": None, "role": Role.ADMIN.word}
    values["expires"] = _after(seconds=DEVICE_SECONDS)
    connection.execute(sa.insert(tables.login).values(**values))
    return True


def end_browser_login(connection: sa.Connection, secret: str) -> bool:
    """Return whether this login was under way; it no longer is."""
    under_way = sa.delete(tables.login).where(
        _login.device == hash_of_secret(secret), _login.code.is_(None),
        _login.expires > timestamp(),
    )  # fmt: skip
    return connection.execute(under_way).rowcount == 1


def _has_room(connection: sa.Connection) -> bool:
    connection.execute(sa.delete(tables.login).where(_login.expires <= timestamp()))
    count = sa.select(sa.func.count()).select_from(tables.login)
    return int(connection.execute(count).scalar_one()) < MOST_LOGINS


def waiting_code(connection: sa.Connection, code: str) -> str | None:
    """Return a code as it is kept, if a program waits for its confirmation."""
    letters = "".join(letter for letter in code.upper()[:40] if letter in _LETTERS)
    query = sa.select(_login.code).where(
        _login.code == f"{letters[:4]}-{letters[4:]}", _login.user_id.is_(None),
        _login.expires > timestamp(),
    )  # fmt: skip
    return connection.execute(query).scalar()


def confirm_device_login(connection: sa.Connection, caller: Caller, code: str) -> bool:
    """Let the program that shows this code act for the caller; False if no program waits."""
    if caller.namespace is not None:
        raise UnsafeInput(
            "a session that is limited to a namespace cannot confirm logins",
            hint="log in again with a token that is not limited",
        )
    kept = waiting_code(connection, code)
    if kept is None:
        return False
    confirmed = sa.update(tables.login).where(_login.code == kept, _login.user_id.is_(None))
    until = end_of(connection, caller)
    values = {"user_id": caller.user_id, "role": caller.highest.word, "until": until}
    if connection.execute(confirmed.values(**values)).rowcount != 1:
        return False
    audit.record(connection, caller, "login.confirm", caller.name)
    return True


def finish_device_login(
    connection: sa.Connection, device: str, origin: str
) -> tuple[Token, str] | str:
    """Return the token and its secret, once; or `pending` or `unknown`."""
    hashed = hash_of_secret(device)
    begun = (_login.device == hashed, _login.code.is_not(None), _login.expires > timestamp())
    query = sa.select(_login.user_id, _login.role, _login.until, _account.name, _account.disabled)
    row = connection.execute(
        query.outerjoin(tables.account, _account.id == _login.user_id).where(*begun)
    ).first()
    if row is None or row.disabled:
        return "unknown"
    if row.user_id is None:
        return "pending"
    if connection.execute(sa.delete(tables.login).where(*begun)).rowcount != 1:
        return "unknown"  # another request was quicker
    caller = Caller(user_id=row.user_id, name=row.name, highest=role_of(row.role), origin=origin)
    return create_token(connection, caller, row.user_id, name="dlv login", until=row.until)
