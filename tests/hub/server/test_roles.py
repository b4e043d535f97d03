"""Effective roles against a table that is worked out by hand for each case."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlv.hub.server import tables
from dlv.hub.server.access import (
    Caller,
    Role,
    namespace_role,
    namespaces,
    place_of,
    readable,
    visible_repositories,
)
from dlv.hub.server.database import HubDatabase, open_database

NOW = "2026-01-01T00:00:00.000000Z"
USERS = ("ada", "bob")
NAMESPACES = ("acme", "ada", "bob")
NAMES = ("vision", "speech")
ROLES = ("reader", "writer", "maintainer", "admin")
PLACES = [(namespace, name) for namespace in NAMESPACES for name in (None, *NAMES)]

members = st.dictionaries(
    st.tuples(st.sampled_from(USERS), st.sampled_from(PLACES)), st.sampled_from(ROLES), max_size=8
)
public = st.sets(st.sampled_from([place for place in PLACES if place[1]]))
callers = st.fixed_dictionaries(
    {
        "name": st.sampled_from((None, *USERS)),
        "operator": st.booleans(),
        "highest": st.sampled_from(ROLES),
        "scope": st.sampled_from([(None, None), *PLACES]),
    }
)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HubDatabase]:
    if request.param == "sqlite":
        folder: Path = tmp_path_factory.mktemp("roles")
        opened = open_database(f"sqlite:///{folder / 'hub.db'}")
        yield opened
        opened.close()
        return
    with request.getfixturevalue("postgres").database() as url:
        opened = open_database(url)
        yield opened
        opened.close()


def role_by_hand(
    world: dict[Any, str], open_to_all: set[Any], caller: dict[str, Any], place: tuple[str, Any]
) -> Role:
    namespace, name = place
    granted = Role.NONE
    for (user, (member_of, repository)), word in world.items():
        if user == caller["name"] and member_of == namespace and repository in (None, name):
            granted = max(granted, Role[word.upper()])
    known = caller["name"] is not None
    if known and (caller["operator"] or caller["name"] == namespace):
        granted = Role.ADMIN
    scope = caller["scope"]
    if known and scope[0] is not None:
        inside = scope[0] == namespace and scope[1] in (None, name)
        granted = granted if inside else Role.NONE
    if known:
        granted = min(granted, Role[caller["highest"].upper()])
    return max(granted, Role.READER) if place in open_to_all else granted


@settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(world=members, open_to_all=public, caller=callers)
def test_roles(
    database: HubDatabase, world: dict[Any, str], open_to_all: set[Any], caller: dict[str, Any]
) -> None:
    with database.writing() as connection:
        for table in (tables.member, tables.repository, tables.account):
            connection.execute(sa.delete(table))
        ids = _fill(connection, world, open_to_all)
        number = ids.get(caller["name"])
        who = Caller()
        if number is not None:
            who = Caller(
                number, caller["name"], caller["operator"], 1, Role[caller["highest"].upper()],
                *caller["scope"],
            )  # fmt: skip
        expected = {p: role_by_hand(world, open_to_all, caller, p) for p in PLACES}
        for namespace, name in PLACES:
            role = expected[namespace, name]
            if name is None:
                assert namespace_role(connection, who, namespace.upper())[1] == role
                continue
            place = place_of(connection, who, namespace, name)
            assert (Role.NONE if place is None else place.role) == role, (namespace, name)
        for namespace in NAMESPACES:
            seen = {row["name"] for row in visible_repositories(connection, who, namespace)}
            assert seen == {n for n in NAMES if expected[namespace, n] >= Role.READER}
        query = sa.select(namespaces.c.name, tables.repository.c.name.label("repository"))
        query = query.join(namespaces, namespaces.c.id == tables.repository.c.namespace_id)
        found = {tuple(row) for row in connection.execute(query.where(readable(who)))}
        assert found == {p for p in PLACES if p[1] and expected[p] >= Role.READER}


def _fill(
    connection: sa.Connection, world: dict[Any, str], open_to_all: set[Any]
) -> dict[str, int]:
    ids: dict[str, int] = {}
    for name in NAMESPACES:
        kind = "user" if name in USERS else "organization"
        row = sa.insert(tables.account).values(
            name=name, kind=kind, operator=False, disabled=False, created=NOW, used=0, reserved=0
        )
        ids[name] = connection.execute(row.returning(tables.account.c.id)).scalar_one()
    repositories: dict[Any, int] = {}
    for place in PLACES:
        if place[1] is not None:
            row = sa.insert(tables.repository).values(
                namespace_id=ids[place[0]], name=place[1], description="", created=NOW,
                visibility="public" if place in open_to_all else "private", changed=NOW,
                uuid=f"{place}", record="{}", cards=0,
            )  # fmt: skip
            number = connection.execute(row.returning(tables.repository.c.id)).scalar_one()
            repositories[place] = number
    for (user, place), role in world.items():
        connection.execute(
            sa.insert(tables.member).values(
                namespace_id=ids[place[0]], repository_id=repositories.get(place),
                user_id=ids[user], role=role, created=NOW,
            )
        )  # fmt: skip
    return ids
