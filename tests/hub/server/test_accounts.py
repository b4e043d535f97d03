"""Accounts, members, tokens, sessions and logins, on both databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

import dlv.canonical as canonical
from dlv.errors import Conflict, DlvError, NotFound, UnsafeInput, UsageError
from dlv.hub.server import accounts, audit, members, tables, tokens
from dlv.hub.server.access import Caller, Role, caller_of, namespace_role
from dlv.hub.server.database import HubDatabase

SHELL = Caller()
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@contextmanager
def clock(moment: datetime) -> Iterator[None]:
    canonical.fix_clock(moment)
    try:
        yield
    finally:
        canonical.fix_clock(None)


def add(database: HubDatabase, *names: str, operator: bool = False) -> list[int]:
    with database.writing() as connection:
        return [accounts.add_user(connection, SHELL, name, operator=operator) for name in names]


def caller(database: HubDatabase, secret: str, kind: str = "token") -> Caller | None:
    with database.reading() as connection:
        return caller_of(connection, secret, "192.0.2.1", kind=kind)


def make_token(
    database: HubDatabase, by: Caller, user_id: int, place: str | None = None,
    role: str | None = None, days: int = 90,
) -> tuple[tokens.Token, str]:  # fmt: skip
    scope = tokens.scope_from(place, role)
    with database.writing() as connection:
        return tokens.create_token(connection, by, user_id, name="ci", scope=scope, days=days)


def known(database: HubDatabase, user_id: int, **limits: Any) -> Caller:
    """Return the caller with a new token of a user."""
    found = caller(database, make_token(database, SHELL, user_id, **limits)[1])
    assert found is not None
    return found


def actions(database: HubDatabase) -> list[tuple[str, str, str | None, str | None]]:
    with database.reading() as connection:
        assert list(audit.faults(connection)) == []
        lines = audit.lines(connection)
    return [(line["action"], line["target"], line["before"], line["after"]) for line in lines]


# Names


@pytest.mark.parametrize("name", ["a", "ada", "Ada", "a-b", "1", "x" * 40])
def test_names(name: str) -> None:
    assert accounts.check_name(name) == name.lower()


@pytest.mark.parametrize(
    "name",
    [
        "", "-", "-a", "a-", "a_b", "a.b", "a/b", "a b", "x" * 41, "аda", "ad\u0131", "\u212aim",
        "ada\n", "v1", "V1", "login", "hub", "users", "me", "..", "a\x00",
    ],
)  # fmt: skip
def test_refused_names(name: str) -> None:
    with pytest.raises(UsageError):
        accounts.check_name(name)


def test_one_name_has_one_account(hub_database: HubDatabase) -> None:
    add(hub_database, "ada")
    with pytest.raises(Conflict):
        add(hub_database, "ADA")
    with pytest.raises(UsageError), hub_database.writing() as connection:
        accounts.add_user(connection, SHELL, "bob", email="not an address")
    assert actions(hub_database) == [("user.create", "ada", None, "user")]


# Users


def test_a_user_is_changed_with_audit_lines(hub_database: HubDatabase) -> None:
    add(hub_database, "ada")
    with hub_database.writing() as connection:
        change = accounts.change_user
        assert change(connection, SHELL, "Ada", email="ada@example.org", operator=True)
        assert not change(connection, SHELL, "ada", operator=True)
        assert change(connection, SHELL, "ada", disabled=True)
        assert change(connection, SHELL, "ada", disabled=False)
    assert actions(hub_database)[1:] == [
        ("user.email", "ada", None, None),
        ("user.role", "ada", "user", "operator"),
        ("user.disable", "ada", None, None),
        ("user.enable", "ada", None, None),
    ]
    with hub_database.reading() as connection:
        (user,) = accounts.users(connection)
    assert (user.email, user.operator, user.disabled) == ("ada@example.org", True, False)


def test_unknown_users_are_suggested_in_the_shell_only(hub_database: HubDatabase) -> None:
    (ada,) = add(hub_database, "ada")
    for by, meant in ((SHELL, ["ada"]), (known(hub_database, ada), [])):
        with hub_database.reading() as connection, pytest.raises(NotFound) as caught:
            accounts.user_id_of(connection, by, "adda")
        assert caught.value.did_you_mean == meant


def test_a_disabled_user_has_no_access(hub_database: HubDatabase) -> None:
    (ada,) = add(hub_database, "ada")
    _, secret = make_token(hub_database, SHELL, ada)
    with hub_database.writing() as connection:
        session, _ = tokens.start_session(connection, SHELL, ada)
        accounts.change_user(connection, SHELL, "ada", disabled=True)
    assert caller(hub_database, secret) is None
    with hub_database.writing() as connection:
        accounts.change_user(connection, SHELL, "ada", disabled=False)
    assert caller(hub_database, secret) is not None
    assert caller(hub_database, session, "session") is None, "sessions end for good"


def test_the_last_operator_stays(hub_database: HubDatabase) -> None:
    ada, _ = add(hub_database, "ada", "eve", operator=True)
    by = known(hub_database, ada)

    def change(operator: bool | None = None, disabled: bool | None = None) -> None:
        with hub_database.writing() as connection:
            accounts.change_user(connection, by, "ada", operator=operator, disabled=disabled)

    with hub_database.writing() as connection:
        accounts.change_user(connection, by, "eve", operator=False)
    with pytest.raises(Conflict):
        change(disabled=True)
    with pytest.raises(Conflict):
        change(operator=False)
    assert caller(hub_database, make_token(hub_database, SHELL, ada)[1]) is not None


# Members


def set_member(
    database: HubDatabase, place: str, user: str, role: str, by: Caller = SHELL, **own: Role
) -> bool:
    with database.writing() as connection:
        return members.set_member(connection, by, place, user, role, **own)


def remove(database: HubDatabase, place: str, user: str) -> None:
    with database.writing() as connection:
        members.remove_member(connection, SHELL, place, user)


def test_an_organization_begins_with_an_admin(hub_database: HubDatabase) -> None:
    (ada, _) = add(hub_database, "ada", "bob")
    with pytest.raises(UsageError):
        set_member(hub_database, "acme", "ada", "writer")
    with pytest.raises(NotFound):
        set_member(hub_database, "acme/vision", "ada", "admin")
    with pytest.raises(NotFound):
        set_member(hub_database, "acme", "ada", "admin", known(hub_database, ada))
    assert set_member(hub_database, "Acme", "Ada", "admin")
    assert not set_member(hub_database, "acme", "ada", "admin")
    assert set_member(hub_database, "acme", "bob", "reader")
    assert set_member(hub_database, "acme", "bob", "writer")
    with hub_database.reading() as connection:
        found = [(m.user, m.role) for m in members.members(connection, "acme")]
        role = namespace_role(connection, known(hub_database, ada), "acme")[1]
    assert found == [("ada", "admin"), ("bob", "writer")]
    assert role is Role.ADMIN
    remove(hub_database, "acme", "bob")
    with pytest.raises(NotFound):
        remove(hub_database, "acme", "bob")
    assert [line for line in actions(hub_database) if line[0][:4] in ("memb", "orga")] == [
        ("organization.create", "acme", None, None),
        ("member.set", "acme:ada", None, "admin"),
        ("member.set", "acme:bob", None, "reader"),
        ("member.set", "acme:bob", "reader", "writer"),
        ("member.remove", "acme:bob", "writer", None),
    ]


def test_the_last_admin_of_an_organization_stays(hub_database: HubDatabase) -> None:
    add(hub_database, "ada", "bob")
    set_member(hub_database, "acme", "ada", "admin")
    with pytest.raises(Conflict):
        remove(hub_database, "acme", "ada")
    with pytest.raises(Conflict):
        set_member(hub_database, "acme", "ada", "maintainer")
    set_member(hub_database, "acme", "bob", "admin")
    remove(hub_database, "acme", "ada")
    with pytest.raises(Conflict):
        remove(hub_database, "acme", "bob")
    # Of the own namespace a user is the admin without being a member.
    set_member(hub_database, "ada", "bob", "admin")
    remove(hub_database, "ada", "bob")


def test_a_disabled_admin_does_not_count(hub_database: HubDatabase) -> None:
    add(hub_database, "ada", "bob")
    set_member(hub_database, "acme", "ada", "admin")
    set_member(hub_database, "acme", "bob", "admin")
    with hub_database.writing() as connection:
        accounts.change_user(connection, SHELL, "bob", disabled=True)
    with pytest.raises(Conflict):
        remove(hub_database, "acme", "ada")


def test_a_role_above_the_own_is_not_granted(hub_database: HubDatabase) -> None:
    add(hub_database, "ada", "bob")
    set_member(hub_database, "acme", "ada", "admin")
    with pytest.raises(UnsafeInput):
        set_member(hub_database, "acme", "bob", "admin", own=Role.MAINTAINER)
    with pytest.raises(UsageError):
        set_member(hub_database, "acme", "bob", "owner")


# Tokens


def test_a_token_is_kept_as_a_hash(hub_database: HubDatabase) -> None:
    (ada,) = add(hub_database, "ada")
    with clock(NOW):
        token, secret = make_token(hub_database, SHELL, ada, "acme/vision", "writer", 30)
        found = caller(hub_database, secret)
    assert secret.startswith("dlv_")
    assert len(secret) == 47
    assert token.hint == secret[:8]
    assert token.expires[:10] == "2026-03-31"
    assert found is not None
    assert (found.highest, found.namespace, found.repository) == (Role.WRITER, "acme", "vision")
    with hub_database.reading() as connection:
        row = connection.execute(sa.select(tables.token)).first()
    assert secret not in str(row)
    assert secret not in str(actions(hub_database))


def test_a_token_expires_and_is_revoked(hub_database: HubDatabase) -> None:
    (ada,) = add(hub_database, "ada")
    with clock(NOW):
        token, secret = make_token(hub_database, SHELL, ada, days=1)
    with clock(NOW + timedelta(hours=23, minutes=59)):
        assert caller(hub_database, secret) is not None
    with clock(NOW + timedelta(hours=24, minutes=1)):
        assert caller(hub_database, secret) is None
    with clock(NOW + timedelta(hours=1)):
        with hub_database.writing() as connection:
            tokens.revoke_token(connection, SHELL, token.id)
        assert caller(hub_database, secret) is None
        with hub_database.writing() as connection, pytest.raises(NotFound):
            tokens.revoke_token(connection, SHELL, token.id)
    assert actions(hub_database)[-1][:2] == ("token.revoke", f"ada:token/{token.id}")


@pytest.mark.parametrize(
    ("place", "role", "days", "name"),
    [
        (None, None, 0, "ci"), (None, None, 367, "ci"), (None, None, 90, ""),
        (None, None, 90, "x" * 101), (None, None, 90, "a\nb"), (None, "owner", 90, "ci"),
        ("acme/", None, 90, "ci"), ("a_b", None, 90, "ci"), ("", None, 90, "ci"),
    ],
)  # fmt: skip
def test_tokens_that_make_no_sense(
    hub_database: HubDatabase, place: str | None, role: str | None, days: int, name: str
) -> None:
    (ada,) = add(hub_database, "ada")

    def create() -> None:
        scope = tokens.scope_from(place, role)
        with hub_database.writing() as connection:
            tokens.create_token(connection, SHELL, ada, name=name, scope=scope, days=days)

    with pytest.raises(UsageError):
        create()


SCOPES = [
    (None, "admin"), (None, "reader"), ("acme", "admin"), ("acme", "writer"),
    ("acme/vision", "admin"), ("acme/vision", "reader"), ("other", "writer"),
    ("other/vision", "writer"),
]  # fmt: skip


def test_a_token_makes_and_shows_no_wider_one(hub_database: HubDatabase) -> None:
    (ada,) = add(hub_database, "ada")
    order = {word: number for number, word in enumerate(("reader", "writer", "admin"))}
    for place, role in SCOPES:
        by = known(hub_database, ada, place=place, role=role)
        for inner, inner_role in SCOPES:
            narrow = place is None or inner == place or (inner or "").startswith(f"{place}/")
            allowed = narrow and order[inner_role] <= order[role]
            try:
                token, _ = make_token(hub_database, by, ada, inner, inner_role)
            except UnsafeInput:
                assert not allowed, (place, role, inner, inner_role)
                token, _ = make_token(hub_database, SHELL, ada, inner, inner_role)
            else:
                assert allowed, (place, role, inner, inner_role)
            with hub_database.writing() as connection:
                within = tokens.scope_of(by)
                seen = {t.id for t in tokens.tokens(connection, ada, within=within)}
                assert (token.id in seen) == allowed
                if not allowed:
                    with pytest.raises(NotFound):
                        tokens.revoke_token(connection, by, token.id, within=within)


def test_a_token_lends_no_longer_life(hub_database: HubDatabase) -> None:
    (ada,) = add(hub_database, "ada")
    with clock(NOW):
        by = known(hub_database, ada, days=2)
        token, _ = make_token(hub_database, by, ada, days=90)
        with hub_database.writing() as connection:
            session, ends = tokens.start_session(connection, by, ada, with_token=True)
        inner = caller(hub_database, session, "session")
        assert inner is not None
        of_session, _ = make_token(hub_database, inner, ada, days=90)
        with hub_database.writing() as connection:
            login = tokens.begin_device_login(connection)
            assert login is not None
            assert tokens.confirm_device_login(connection, inner, login.code)
            done = tokens.finish_device_login(connection, login.device, "-")
    assert isinstance(done, tuple)
    ends_at = {token.expires, of_session.expires, done[0].expires, ends}
    assert {end[:19] for end in ends_at} == {"2026-03-03T12:00:00"}


def test_a_token_of_another_user_is_not_revoked(hub_database: HubDatabase) -> None:
    ada, bob = add(hub_database, "ada", "bob")
    token, secret = make_token(hub_database, SHELL, ada)
    by = known(hub_database, bob)
    with hub_database.writing() as connection, pytest.raises(NotFound):
        tokens.revoke_token(connection, by, token.id, user_id=bob)
    assert caller(hub_database, secret) is not None


# Sessions and logins


def test_a_session_is_no_token(hub_database: HubDatabase) -> None:
    (ada,) = add(hub_database, "ada")
    _, secret = make_token(hub_database, SHELL, ada)
    with hub_database.writing() as connection:
        session, _ = tokens.start_session(connection, SHELL, ada)
    assert caller(hub_database, session, "session") is not None
    assert caller(hub_database, session) is None
    assert caller(hub_database, secret, "session") is None
    with hub_database.writing() as connection:
        assert tokens.end_session(connection, session, "-")
        assert not tokens.end_session(connection, session, "-")
        assert not tokens.end_session(connection, secret, "-"), "a token must not end as a session"
    assert caller(hub_database, session, "session") is None
    assert [line[0] for line in actions(hub_database)[2:]] == ["session.start", "session.end"]


def test_sessions_that_have_ended_are_deleted(hub_database: HubDatabase) -> None:
    (ada,) = add(hub_database, "ada")
    with clock(NOW), hub_database.writing() as connection:
        old, _ = tokens.start_session(connection, SHELL, ada)
    with clock(NOW + timedelta(days=8)):
        assert caller(hub_database, old, "session") is None
        with hub_database.writing() as connection:
            tokens.start_session(connection, SHELL, ada)
            rows = sa.select(sa.func.count()).select_from(tables.token)
            assert connection.execute(rows).scalar_one() == 1


def test_a_session_ends_with_its_token(hub_database: HubDatabase) -> None:
    (ada,) = add(hub_database, "ada")
    token, secret = make_token(hub_database, SHELL, ada, "acme", "writer")
    by = caller(hub_database, secret)
    assert by is not None
    with hub_database.writing() as connection:
        session, _ = tokens.start_session(connection, by, ada, with_token=True)
        other, _ = tokens.start_session(connection, by, ada)
    found = caller(hub_database, session, "session")
    assert found is not None
    assert (found.namespace, found.highest) == ("acme", Role.WRITER)
    with hub_database.writing() as connection:
        with pytest.raises(UnsafeInput):
            tokens.confirm_device_login(connection, found, "BBBB-BBBB")
        tokens.revoke_token(connection, SHELL, token.id)
    assert caller(hub_database, session, "session") is None
    assert caller(hub_database, other, "session") is not None


def test_a_device_login_is_confirmed_and_fetched_once(hub_database: HubDatabase) -> None:
    (ada,) = add(hub_database, "ada")
    by = known(hub_database, ada, role="writer")
    with hub_database.writing() as connection:
        login = tokens.begin_device_login(connection)
        assert login is not None
        assert tokens.finish_device_login(connection, login.device, "-") == "pending"
        assert tokens.finish_device_login(connection, login.code, "-") == "unknown"
        assert not tokens.confirm_device_login(connection, by, "BBBB-BBBB")
        typed = login.code.lower().replace("-", " ")
        assert tokens.waiting_code(connection, typed) == login.code
        assert tokens.confirm_device_login(connection, by, typed)
        assert not tokens.confirm_device_login(connection, by, login.code)
        assert tokens.waiting_code(connection, login.code) is None
        done = tokens.finish_device_login(connection, login.device, "192.0.2.7")
        assert isinstance(done, tuple)
        assert tokens.finish_device_login(connection, login.device, "-") == "unknown"
    found = caller(hub_database, done[1])
    assert found is not None
    assert (found.name, found.highest) == ("ada", Role.WRITER)
    assert [line[0] for line in actions(hub_database)[-2:]] == ["login.confirm", "token.create"]


def test_a_device_login_expires(hub_database: HubDatabase) -> None:
    (ada,) = add(hub_database, "ada")
    with clock(NOW), hub_database.writing() as connection:
        login = tokens.begin_device_login(connection)
        assert login is not None
        assert tokens.confirm_device_login(connection, Caller(ada, "ada"), login.code)
    with clock(NOW + timedelta(minutes=11)), hub_database.writing() as connection:
        assert tokens.finish_device_login(connection, login.device, "-") == "unknown"
        assert tokens.begin_device_login(connection) is not None
        count = sa.select(sa.func.count()).select_from(tables.login)
        assert connection.execute(count).scalar_one() == 1, "the old one is gone"


def test_logins_under_way_are_limited(
    hub_database: HubDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "MOST_LOGINS", 2)
    with hub_database.writing() as connection:
        assert tokens.begin_device_login(connection) is not None
        assert tokens.begin_browser_login(connection, "secret")
        assert tokens.begin_device_login(connection) is None
        assert tokens.finish_device_login(connection, "secret", "-") == "unknown"
        assert tokens.end_browser_login(connection, "secret")
        assert not tokens.end_browser_login(connection, "secret")


# Quotas


def test_quotas(hub_database: HubDatabase) -> None:
    add(hub_database, "ada")
    with hub_database.writing() as connection:
        assert accounts.set_quota(connection, SHELL, "Ada", 500).quota == 500
        assert accounts.set_quota(connection, SHELL, "ada", None).quota is None
        with pytest.raises(UsageError):
            accounts.set_quota(connection, SHELL, "ada", -1)
        with pytest.raises(UsageError):
            accounts.set_quota(connection, SHELL, "ada", 1 << 63)
        with pytest.raises(NotFound) as caught:
            accounts.set_quota(connection, SHELL, "adda", 1)
    assert caught.value.did_you_mean == ["ada"]
    assert actions(hub_database)[1:] == [
        ("quota.set", "ada", None, "500"),
        ("quota.set", "ada", "500", None),
    ]


# Races


def race(count: int, act: Callable[[int], object]) -> list[object]:
    """Do a thing in several threads at once; their results, or the errors for users."""

    def attempt(number: int) -> object:
        try:
            return act(number)
        except DlvError as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(attempt, range(count)))


def test_two_creators_of_one_name(hub_database: HubDatabase) -> None:
    results = race(8, lambda _: add(hub_database, "ada"))
    assert sum(isinstance(result, Conflict) for result in results) == 7
    assert len(actions(hub_database)) == 1


def test_an_organization_is_made_once(hub_database: HubDatabase) -> None:
    names = [f"user{number}" for number in range(8)]
    add(hub_database, *names)
    results = race(8, lambda number: set_member(hub_database, "acme", names[number], "admin"))
    assert {type(result) for result in results} <= {bool, Conflict}
    lines = [line for line in actions(hub_database) if line[0] == "organization.create"]
    assert len(lines) == 1


def test_two_last_admins_cannot_both_leave(hub_database: HubDatabase) -> None:
    names = [f"user{number}" for number in range(6)]
    add(hub_database, *names)
    for name in names:
        set_member(hub_database, "acme", name, "admin")
    results = race(6, lambda number: remove(hub_database, "acme", names[number]))
    assert sum(isinstance(result, Conflict) for result in results) == 1
    with hub_database.reading() as connection:
        assert len(members.members(connection, "acme")) == 1


def test_two_last_operators_cannot_both_leave(hub_database: HubDatabase) -> None:
    names = [f"user{number}" for number in range(4)]
    by = known(hub_database, add(hub_database, *names, operator=True)[0])

    def leave(number: int) -> None:
        with hub_database.writing() as connection:
            accounts.change_user(connection, by, names[number], operator=False)

    results = race(4, leave)
    assert sum(isinstance(result, Conflict) for result in results) == 1
    with hub_database.reading() as connection:
        assert sum(user.operator for user in accounts.users(connection)) == 1


def test_a_confirmed_login_gives_one_token(hub_database: HubDatabase) -> None:
    (ada,) = add(hub_database, "ada")
    with hub_database.writing() as connection:
        login = tokens.begin_device_login(connection)
        assert login is not None
        tokens.confirm_device_login(connection, Caller(ada, "ada"), login.code)

    def finish(_: int) -> object:
        with hub_database.writing() as connection:
            return tokens.finish_device_login(connection, login.device, "-")

    results = race(6, finish)
    assert sum(isinstance(result, tuple) for result in results) == 1
    assert sum(result == "unknown" for result in results) == 5


def test_members_of_one_user_are_set_at_once(hub_database: HubDatabase) -> None:
    add(hub_database, "ada", "bob")
    set_member(hub_database, "acme", "ada", "admin")
    roles = ["reader", "writer", "maintainer"] * 3
    race(9, lambda number: set_member(hub_database, "acme", "bob", roles[number]))
    with hub_database.reading() as connection:
        assert len(members.members(connection, "acme")) == 2
    actions(hub_database)
