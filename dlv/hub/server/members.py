"""Members of namespaces and repositories, and the roles that they have there."""

from __future__ import annotations

import sqlalchemy as sa

from dlv.canonical import timestamp
from dlv.dataclass import dataclass
from dlv.errors import Conflict, NotFound, UnsafeInput, UsageError
from dlv.hub.server import accounts, audit, tables
from dlv.hub.server.access import ROLES, Caller, Role, role_of

_member, _account, _repository = tables.member.c, tables.account.c, tables.repository.c


@dataclass(frozen=True)
class Member:
    """The role of a user in a namespace, or in one repository of it."""

    user: str
    role: str
    namespace: str
    repository: str | None
    created: str


def check_role(role: str) -> Role:
    if role not in ROLES:
        raise UsageError(f"`{role[:80]}` is not a role", why=f"roles: {', '.join(ROLES)}")
    return role_of(role)


def members(
    connection: sa.Connection,
    namespace: str | None = None,
    repository: str | None = None,
    *,
    inner: bool = False,
) -> list[Member]:
    """Return the members of a namespace or repository, by name.

    `inner`: those of all repositories of the namespace too. Without a namespace: all.
    """
    owner = tables.account.alias("owner")
    query = (
        sa.select(
            _account.name.label("user"), _member.role, owner.c.name.label("namespace"),
            _repository.name.label("repository"), _member.created,
        )
        .join(tables.account, _account.id == _member.user_id)
        .join(owner, owner.c.id == _member.namespace_id)
        .outerjoin(tables.repository, _repository.id == _member.repository_id)
        .order_by(owner.c.name, sa.func.coalesce(_repository.name, ""), _account.name)
    )  # fmt: skip
    if namespace is not None:
        query = query.where(owner.c.name == namespace.lower())
        if repository is not None:
            query = query.where(_repository.name == repository.lower())
        elif not inner:
            query = query.where(_member.repository_id.is_(None))
    return [Member(**row) for row in connection.execute(query).mappings()]


def set_member(
    connection: sa.Connection,
    caller: Caller,
    place: str,
    user: str,
    role: str,
    *,
    own: Role = Role.ADMIN,
) -> bool:
    """Give a user a role in NAMESPACE or NAMESPACE/REPOSITORY; return whether anything differs.

    `own`: the role of the caller there. A namespace that does not exist becomes an organization,
    if the caller is the shell or an operator; its first member is an admin.
    """
    wanted = check_role(role)
    if wanted > own:
        raise UnsafeInput(f"the role {role} is above your own, {own.word}")
    namespace, _, repository = place.lower().partition("/")
    user_id = accounts.user_id_of(connection, caller, user)
    owner = _locked(connection, namespace)
    if owner is None:
        owner = _new_organization(connection, caller, namespace, repository, user, wanted)
    repository_id = _repository_id(connection, owner, place)
    where = _where(owner.id, repository_id, user_id)
    before = _role(connection, where)
    if before == wanted:
        return False
    if repository_id is None and before == Role.ADMIN:
        _keep_an_admin(connection, owner, user_id, user)
    if before:
        connection.execute(sa.update(tables.member).where(*where).values(role=role))
    else:
        connection.execute(
            sa.insert(tables.member).values(
                namespace_id=owner.id, repository_id=repository_id, user_id=user_id, role=role,
                created=timestamp(),
            )
        )  # fmt: skip
    was = before.word if before else None
    audit.record(connection, caller, "member.set", f"{place.lower()}:{user.lower()}", was, role)
    return True


def remove_member(connection: sa.Connection, caller: Caller, place: str, user: str) -> None:
    """Take the role of a user in NAMESPACE or NAMESPACE/REPOSITORY away."""
    namespace = place.lower().partition("/")[0]
    user_id = accounts.user_id_of(connection, caller, user)
    owner = _locked(connection, namespace)
    if owner is None:
        raise accounts.no_namespace(connection, caller, namespace)
    repository_id = _repository_id(connection, owner, place)
    where = _where(owner.id, repository_id, user_id)
    before = _role(connection, where)
    if not before:
        raise NotFound(f"`{user}` is not a member of {place}")
    if repository_id is None and before == Role.ADMIN:
        _keep_an_admin(connection, owner, user_id, user)
    connection.execute(sa.delete(tables.member).where(*where))
    target = f"{place.lower()}:{user.lower()}"
    audit.record(connection, caller, "member.remove", target, before.word, None)


def _locked(connection: sa.Connection, namespace: str) -> sa.Row[int, str, str] | None:
    """Return a namespace and lock its members until the transaction ends."""
    query = sa.select(_account.id, _account.kind, _account.name).where(_account.name == namespace)
    return connection.execute(query.with_for_update(key_share=True)).first()


def _new_organization(
    connection: sa.Connection,
    caller: Caller,
    namespace: str,
    repository: str,
    user: str,
    role: Role,
) -> sa.Row[int, str, str]:
    missing = accounts.no_namespace(connection, caller, namespace)
    if repository or (caller.known and not caller.operator):
        raise missing
    accounts.check_name(namespace)
    if role != Role.ADMIN:
        raise UsageError(
            f"no namespace `{namespace}`; the first member of a new one must be an admin",
            hint=f"dlv hub member set {namespace} {user} admin",
            did_you_mean=missing.did_you_mean,
        )
    accounts.add_organization(connection, namespace)
    audit.record(connection, caller, "organization.create", namespace)
    owner = _locked(connection, namespace)
    assert owner is not None
    return owner


def _repository_id(
    connection: sa.Connection, owner: sa.Row[int, str, str], place: str
) -> int | None:
    name = place.lower().partition("/")[2]
    if "/" not in place:
        return None
    query = sa.select(_repository.id).where(
        _repository.namespace_id == owner.id, _repository.name == name
    )
    number = connection.execute(query).scalar()
    if number is None:
        raise NotFound(f"no repository `{place}`")
    return int(number)


def _where(
    owner: int, repository_id: int | None, user_id: int
) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        _member.namespace_id == owner,
        _member.repository_id.is_(None)
        if repository_id is None
        else _member.repository_id == repository_id,
        _member.user_id == user_id,
    )


def _role(connection: sa.Connection, where: tuple[sa.ColumnElement[bool], ...]) -> Role:
    words = connection.execute(sa.select(_member.role).where(*where)).scalars()
    return max((role_of(word) for word in words), default=Role.NONE)


def _keep_an_admin(
    connection: sa.Connection, owner: sa.Row[int, str, str], user_id: int, user: str
) -> None:
    """Refuse to leave an organization without an admin who can log in."""
    if owner.kind != accounts.ORGANIZATION:
        return  # a user is the admin of the own namespace
    others = (
        sa.select(_member.id)
        .join(tables.account, _account.id == _member.user_id)
        .where(
            _member.namespace_id == owner.id,
            _member.repository_id.is_(None),
            _member.role == Role.ADMIN.word,
            _member.user_id != user_id,
            ~_account.disabled,
        )
    )
    if connection.execute(others.limit(1)).first() is None:
        raise Conflict(
            f"{user.lower()} is the last admin of {owner.name}",
            hint="make another member an admin first",
        )
