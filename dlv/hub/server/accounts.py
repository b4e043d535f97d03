"""Accounts of a hub: users and organizations, which each own a namespace, and their quotas.

Every function runs in a transaction of its caller, and writes its line of the audit log there.
"""

from __future__ import annotations

import re

import sqlalchemy as sa

from dlv.canonical import timestamp
from dlv.dataclass import dataclass
from dlv.errors import Conflict, NotFound, UsageError, nearest
from dlv.hub.server import audit, tables
from dlv.hub.server.access import Caller

# ASCII alone, so that no name looks like another one in a different script.
NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?\Z")
RESERVED = frozenset(
    [
        "v1", "static", "login", "logout", "search", "settings", "tokens", "metrics", "health",
        "docs", "about", "api", "hub", "new", "users", "me", "config",
    ]
)  # fmt: skip
USER, ORGANIZATION = "user", "organization"
MOST_BYTES = (1 << 63) - 1
_EMAIL = re.compile(r"[^@\s\x00-\x1f\x7f]{1,64}@[^@\s\x00-\x1f\x7f]{1,255}\Z")


def check_name(name: str) -> str:
    """Return the name of an account as it is kept, in lower case."""
    lower = name.lower() if name.isascii() else name
    if not NAME.match(lower):
        raise UsageError(
            f"`{name[:80]}` cannot be the name of an account",
            why="a-z, 0-9 and `-` between them are allowed, at most 40 characters",
        )
    if lower in RESERVED:
        raise UsageError(f"`{lower}` cannot be the name of an account", why="the name is reserved")
    return lower


@dataclass(frozen=True)
class User:
    """A user, as operators see it. `openid`: logs in at the provider."""

    name: str
    email: str | None
    operator: bool
    disabled: bool
    openid: bool
    created: str


_account = tables.account.c


def _user_of(row: sa.RowMapping) -> User:
    return User(
        name=row["name"], email=row["email"], operator=row["operator"], disabled=row["disabled"],
        openid=row["subject"] is not None, created=row["created"],
    )  # fmt: skip


def users(connection: sa.Connection) -> list[User]:
    """Return all users, by name."""
    query = sa.select(tables.account).where(_account.kind == USER).order_by(_account.name)
    return [_user_of(row) for row in connection.execute(query).mappings()]


def user_named(connection: sa.Connection, name: str) -> User | None:
    query = sa.select(tables.account).where(_account.kind == USER, _account.name == name.lower())
    row = connection.execute(query).mappings().first()
    return None if row is None else _user_of(row)


def user_id_of(connection: sa.Connection, caller: Caller, name: str) -> int:
    """Return the id of a user; similar names are suggested in the shell only."""
    query = sa.select(_account.id).where(_account.kind == USER, _account.name == name.lower())
    number = connection.execute(query).scalar()
    if number is None:
        names = () if caller.known else [user.name for user in users(connection)]
        raise NotFound(
            f"no user `{name[:80]}`",
            hint=None if caller.known else "to list all users: dlv hub user list",
            did_you_mean=nearest(name, names),
        )
    return int(number)


def add_user(
    connection: sa.Connection,
    caller: Caller,
    name: str,
    *,
    email: str | None = None,
    operator: bool = False,
    identity: tuple[str, str] | None = None,
) -> int:
    """Add a user, and return its id. `identity`: issuer and subject at the OpenID provider."""
    name = check_name(name)
    _check_email(email)
    issuer, subject = identity or (None, None)
    number = _insert(
        connection, name=name, kind=USER, email=email, operator=operator, issuer=issuer,
        subject=subject,
    )  # fmt: skip
    audit.record(connection, caller, "user.create", name, None, "operator" if operator else USER)
    return number


def add_organization(connection: sa.Connection, name: str) -> int:
    """Add an organization and return its id; the first member is added with it, by `members`."""
    return _insert(
        connection, name=check_name(name), kind=ORGANIZATION, email=None, operator=False,
        issuer=None, subject=None,
    )  # fmt: skip


def _insert(connection: sa.Connection, **values: object) -> int:
    insert = sa.insert(tables.account).values(
        **values, disabled=False, created=timestamp(), used=0, reserved=0
    )
    try:
        with connection.begin_nested():
            return int(connection.execute(insert.returning(_account.id)).scalar_one())
    except sa.exc.IntegrityError:
        raise Conflict(f"the name `{values['name']}` is taken") from None


def _check_email(email: str | None) -> None:
    if email is not None and not _EMAIL.match(email):
        raise UsageError(f"`{email[:80]}` is not an e-mail address")


def change_user(
    connection: sa.Connection,
    caller: Caller,
    name: str,
    *,
    email: str | None = None,
    operator: bool | None = None,
    disabled: bool | None = None,
) -> bool:
    """Change what is set; return whether anything differs. A disabled user has no access."""
    _check_email(email)
    number = user_id_of(connection, caller, name)
    before = _locked_user(connection, number, operators=operator is False or disabled is True)
    values: dict[str, object] = {}
    if email is not None and email != before["email"]:
        values["email"] = email
    if operator is not None and operator != before["operator"]:
        values["operator"] = operator
    if disabled is not None and disabled != before["disabled"]:
        values["disabled"] = disabled
    if not values:
        return False
    connection.execute(sa.update(tables.account).where(_account.id == number).values(**values))
    if caller.known and (disabled or operator is False) and not _operators(connection):
        raise Conflict(f"`{before['name']}` is the last operator of this hub")
    if disabled:
        _end_logins(connection, number)
    if "email" in values:
        audit.record(connection, caller, "user.email", before["name"])
    if "operator" in values:
        words = ("operator", "user")
        was, now = words if before["operator"] else words[::-1]
        audit.record(connection, caller, "user.role", before["name"], was, now)
    if "disabled" in values:
        action = "user.disable" if disabled else "user.enable"
        audit.record(connection, caller, action, before["name"])
    return True


def _locked_user(connection: sa.Connection, number: int, *, operators: bool) -> sa.RowMapping:
    """Lock the row of a user, with those of all operators if one of them could be the last."""
    query = sa.select(tables.account).where(
        sa.or_(_account.id == number, _account.operator) if operators else _account.id == number
    )
    rows = connection.execute(
        query.order_by(_account.id).with_for_update(key_share=True)
    ).mappings()
    return next(row for row in rows if row["id"] == number)


def _operators(connection: sa.Connection) -> int:
    query = sa.select(sa.func.count()).where(_account.operator, ~_account.disabled)
    return int(connection.execute(query).scalar_one())


def _end_logins(connection: sa.Connection, number: int) -> None:
    """End the sessions of a user, and the logins that the user confirmed."""
    token, login = tables.token, tables.login
    live = (token.c.user_id == number, token.c.kind == "session", token.c.revoked.is_(None))
    connection.execute(sa.update(token).where(*live).values(revoked=timestamp()))
    connection.execute(sa.delete(login).where(login.c.user_id == number))


def is_empty(connection: sa.Connection) -> bool:
    """Whether a hub has no users yet."""
    return connection.execute(sa.select(_account.id).limit(1)).first() is None


# Quotas


@dataclass(frozen=True)
class Quota:
    """Bytes of all repositories of a namespace. `quota`: the most, unlimited if None."""

    namespace: str
    used: int
    reserved: int
    quota: int | None


def quotas(connection: sa.Connection, namespace: str | None = None) -> list[Quota]:
    """Return the quotas of all namespaces, or of one; none if it does not exist."""
    query = sa.select(
        _account.name.label("namespace"), _account.used, _account.reserved, _account.quota
    ).order_by(_account.name)
    if namespace is not None:
        query = query.where(_account.name == namespace.lower())
    return [Quota(*row) for row in connection.execute(query)]


def set_quota(
    connection: sa.Connection, caller: Caller, namespace: str, quota: int | None
) -> Quota:
    """Set how many bytes a namespace may use; None: as many as the hub allows by default."""
    if quota is not None and not 0 <= quota <= MOST_BYTES:
        raise UsageError(f"{quota} is not a number of bytes")
    query = sa.select(_account.quota).where(_account.name == namespace.lower())
    row = connection.execute(query.with_for_update(key_share=True)).first()
    if row is None:
        raise no_namespace(connection, caller, namespace)
    connection.execute(
        sa.update(tables.account).where(_account.name == namespace.lower()).values(quota=quota)
    )
    before, after = (None if size is None else str(size) for size in (row.quota, quota))
    audit.record(connection, caller, "quota.set", namespace.lower(), before, after)
    return quotas(connection, namespace)[0]


def no_namespace(connection: sa.Connection, caller: Caller, namespace: str) -> NotFound:
    """The error about a namespace that does not exist; the shell also sees similar names."""
    names = () if caller.known else connection.execute(sa.select(_account.name)).scalars().all()
    return NotFound(f"no namespace `{namespace[:80]}`", did_you_mean=nearest(namespace, names))
