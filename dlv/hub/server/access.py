"""Who may do what: roles, callers, and the answer 404 for what a caller may not know of."""

from __future__ import annotations

import hashlib
import secrets
from enum import IntEnum

import sqlalchemy as sa

from dlv.canonical import timestamp
from dlv.dataclass import dataclass
from dlv.hub.server import tables

PREFIX = "dlv_"


class Role(IntEnum):
    """What a role may do includes all that those before it may."""

    NONE = 0
    READER = 1
    WRITER = 2
    MAINTAINER = 3
    ADMIN = 4

    @property
    def word(self) -> str:
        return self.name.lower()


ROLES = tuple(role.word for role in Role if role)


def role_of(word: str) -> Role:
    return Role[word.upper()]


@dataclass(frozen=True)
class Caller:
    """Who sends a request. `highest` and the scope are those of the token."""

    user_id: int | None = None
    name: str = "-"
    operator: bool = False
    token_id: int | None = None
    highest: Role = Role.ADMIN
    namespace: str | None = None
    repository: str | None = None
    origin: str = "-"

    @property
    def known(self) -> bool:
        return self.user_id is not None

    @property
    def runs_the_hub(self) -> bool:
        """Whether this is an operator, with a token that is not limited."""
        return self.operator and self.highest is Role.ADMIN and self.namespace is None

    @property
    def operates(self) -> bool:
        """Whether the caller may run the hub; a token for one place may not."""
        return self.operator and self.highest is Role.ADMIN and self.namespace is None

    def in_scope(self, namespace: str, repository: str | None) -> bool:
        """Whether the token is for this namespace, or for this repository in it."""
        if self.namespace is not None and self.namespace != namespace:
            return False
        return self.repository is None or self.repository == repository


@dataclass(frozen=True)
class Place:
    """A repository, and the role of the caller in it."""

    id: int
    namespace_id: int
    namespace: str
    name: str
    uuid: str
    public: bool
    record: str
    description: str
    role: Role

    @property
    def label(self) -> str:
        return f"{self.namespace}/{self.name}"


def new_secret() -> tuple[str, str]:
    """Return a new token, and what is kept of it."""
    secret = PREFIX + secrets.token_urlsafe(32)
    return secret, hash_of_secret(secret)


def hash_of_secret(secret: str) -> str:
    """The hash of a token. Tokens are random, so that a fast hash is enough."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


_token = (
    sa.select(
        tables.token.c.id,
        tables.token.c.user_id,
        tables.account.c.name,
        tables.account.c.operator,
        tables.token.c.role,
        tables.token.c.namespace,
        tables.token.c.repository,
        tables.token.c.used,
    )
    .join(tables.account, tables.account.c.id == tables.token.c.user_id)
    .where(
        tables.token.c.hash == sa.bindparam("hash"),
        tables.token.c.kind == sa.bindparam("kind"),
        tables.token.c.revoked.is_(None),
        tables.token.c.expires > sa.bindparam("now"),
        ~tables.account.c.disabled,
    )
)


def caller_of(
    connection: sa.Connection, secret: str, origin: str, *, kind: str = "token"
) -> Caller | None:
    """Return whose token (or session) this is; None if it is not valid."""
    values = {"hash": hash_of_secret(secret), "kind": kind, "now": timestamp()}
    row = connection.execute(_token, values).first()
    if row is None:
        return None
    return Caller(
        user_id=row.user_id,
        name=row.name,
        operator=row.operator,
        token_id=row.id,
        highest=role_of(row.role),
        namespace=row.namespace,
        repository=row.repository,
        origin=origin,
    )


namespaces = tables.account.alias("namespace")
_roles = (
    sa.select(sa.func.max(sa.case({"reader": 1, "writer": 2, "maintainer": 3, "admin": 4},
                                  value=tables.member.c.role, else_=0)))
    .where(
        tables.member.c.user_id == sa.bindparam("user"),
        tables.member.c.namespace_id == namespaces.c.id,
        sa.or_(
            tables.member.c.repository_id.is_(None),
            tables.member.c.repository_id == tables.repository.c.id,
        ),
    )
    .correlate(namespaces, tables.repository)
    .scalar_subquery()
)  # fmt: skip
_place = (
    sa.select(
        tables.repository.c.id, tables.repository.c.namespace_id, tables.repository.c.name,
        tables.repository.c.uuid, tables.repository.c.visibility, tables.repository.c.record,
        tables.repository.c.description, namespaces.c.name.label("namespace"),
        _roles.label("role"),
    )
    .join(namespaces, namespaces.c.id == tables.repository.c.namespace_id)
    .where(
        namespaces.c.name == sa.bindparam("namespace"),
        tables.repository.c.name == sa.bindparam("repository"),
    )
)  # fmt: skip


def place_of(
    connection: sa.Connection, caller: Caller, namespace: str, repository: str
) -> Place | None:
    """Return a repository with the caller's role; None if it does not exist or may not be known.

    Both cases take the same query.
    """
    namespace, repository = namespace.lower(), repository.lower()
    values = {"user": caller.user_id or 0, "namespace": namespace, "repository": repository}
    row = connection.execute(_place, values).first()
    if row is None:
        return None
    public = row.visibility == "public"
    role = _effective(
        caller, namespace, repository, granted=Role(row.role or 0),
        owner=row.namespace_id == caller.user_id, public=public,
    )  # fmt: skip
    if role < Role.READER:
        return None
    return Place(
        id=row.id, namespace_id=row.namespace_id, namespace=row.namespace, name=row.name,
        uuid=row.uuid, public=public, record=row.record, description=row.description, role=role,
    )  # fmt: skip


def _effective(
    caller: Caller, namespace: str, repository: str | None, *, granted: Role, owner: bool,
    public: bool,
) -> Role:  # fmt: skip
    role = Role.ADMIN if owner or caller.operator else granted
    role = min(role, caller.highest) if caller.in_scope(namespace, repository) else Role.NONE
    return max(role, Role.READER) if public else role


_namespace_role = (
    sa.select(tables.account.c.id, tables.member.c.role)
    .outerjoin(
        tables.member,
        sa.and_(
            tables.member.c.namespace_id == tables.account.c.id,
            tables.member.c.user_id == sa.bindparam("user"),
            tables.member.c.repository_id.is_(None),
        ),
    )
    .where(tables.account.c.name == sa.bindparam("namespace"))
)


def namespace_role(
    connection: sa.Connection, caller: Caller, namespace: str, repository: str | None = None
) -> tuple[int | None, Role]:
    """Return the id of a namespace and the role of the caller in all of it.

    `repository`: a token for it alone counts, too, such as for creating it.
    """
    namespace = namespace.lower()
    values = {"user": caller.user_id or 0, "namespace": namespace}
    rows = connection.execute(_namespace_role, values).all()
    if not rows:
        return None, Role.NONE
    granted = max((role_of(row.role) for row in rows if row.role), default=Role.NONE)
    owner = rows[0].id == caller.user_id
    role = _effective(caller, namespace, repository, granted=granted, owner=owner, public=False)
    return rows[0].id, role


def readable(caller: Caller) -> sa.ColumnElement[bool]:
    """Return the condition on `repository`, joined to its namespace, that the caller may read it.

    The namespace is the table `namespaces`.
    """
    repository, member = tables.repository.c, tables.member.c
    public = repository.visibility == "public"
    if not caller.known:
        return public
    private: sa.ColumnElement[bool] = sa.true()
    if not caller.operator:
        private = sa.or_(
            repository.namespace_id == caller.user_id,
            sa.exists().where(
                member.user_id == caller.user_id,
                member.namespace_id == repository.namespace_id,
                sa.or_(member.repository_id.is_(None), member.repository_id == repository.id),
            ),
        )
    if caller.namespace is not None:
        private = sa.and_(private, namespaces.c.name == caller.namespace)
    if caller.repository is not None:
        private = sa.and_(private, repository.name == caller.repository)
    return sa.or_(public, private)


def visible_repositories(
    connection: sa.Connection, caller: Caller, namespace: str
) -> list[dict[str, str]]:
    """Return the repositories of a namespace that the caller may read, by name."""
    columns = tables.repository.c
    query = (
        sa.select(columns.name, columns.visibility, columns.description, columns.changed)
        .join(namespaces, namespaces.c.id == columns.namespace_id)
        .where(namespaces.c.name == namespace.lower(), readable(caller))
        .order_by(columns.name)
    )
    return [dict(row) for row in connection.execute(query).mappings()]
