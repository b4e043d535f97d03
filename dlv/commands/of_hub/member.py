"""`dlv hub member`: the roles of users in namespaces and repositories."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dlv.commands.shared.hub_place import EXITS, hub_options, opened, shell
from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, group
from dlv.terminal.table import Table, Text, Time

if TYPE_CHECKING:
    from dlv.hub.server.members import Member

ROLES = ("reader", "writer", "maintainer", "admin")
_ADD = "dlv hub user add ada --data ./hub && dlv hub member set acme ada admin --data ./hub"

run = group(
    "member",
    """Give users roles in namespaces.

    A reader may pull, a writer publish, a maintainer retire versions and move aliases, and an
    admin manage members. Setting the first admin of a new namespace creates an organization.
    """,
    table={
        "set": ("of_hub.member:set_", "Give a user a role"),
        "remove": ("of_hub.member:remove", "Take the role of a user away"),
        "list": ("of_hub.member:list_", "List members and their roles"),
    },
    examples=[
        "dlv hub member set acme ada admin --data ./hub",
        "dlv hub member set acme/vision bob writer --data ./hub",
    ],
)


@command(
    "set",
    examples=[_ADD, "dlv hub user add bob --data hub && dlv hub member set acme bob writer"
                    " --data hub"],
    exits={**EXITS, 4: "no such user or place", 5: "the last admin would be gone"},
)  # fmt: skip
@argument("place", metavar="NAMESPACE[/REPOSITORY]")
@argument("user")
@argument("role", metavar="ROLE", type=click.Choice(ROLES))
@hub_options
def set_(
    call: Invocation, place: str, user: str, role: str, data: str | None, database: str | None
) -> None:
    """Give a user a role.

    ROLE is reader, writer, maintainer or admin. It counts in all repositories of NAMESPACE, or in
    one; if both are set, the higher one counts. A namespace that does not exist becomes an
    organization, whose first member is an admin.
    """
    with opened(call, data, database) as hub:
        import dlv.hub.server.members as members

        with hub.writing() as connection:
            differs = members.set_member(connection, shell(), place, user, role)
            listed = _members(members.members(connection, *_split(place)), user)
    _emit(call, listed)
    if not differs:
        call.output.message(f"{user} already has the role {role} in {place}")


@command(
    "remove",
    examples=[
        f"{_ADD} && dlv hub user add bob --data ./hub"
        " && dlv hub member set acme bob reader --data ./hub"
        " && dlv hub member remove acme bob --data ./hub"
    ],
    exits={**EXITS, 4: "not a member", 5: "the last admin would be gone"},
)
@argument("place", metavar="NAMESPACE[/REPOSITORY]")
@argument("user")
@hub_options
def remove(call: Invocation, place: str, user: str, data: str | None, database: str | None) -> None:
    """Take the role of a user away.

    The last admin of an organization cannot be removed.
    """
    with opened(call, data, database) as hub:
        import dlv.hub.server.members as members

        with hub.writing() as connection:
            members.remove_member(connection, shell(), place, user)
    call.output.emit("hub-member", {"members": []}, f"removed {user} from {place}", ids=[])


@command(
    "list",
    examples=[f"{_ADD} && dlv hub member list acme --data ./hub"],
    exits={**EXITS, 4: "no such namespace"},
)
@argument("place", metavar="[NAMESPACE[/REPOSITORY]]", required=False)
@hub_options
def list_(call: Invocation, place: str | None, data: str | None, database: str | None) -> None:
    """List members and their roles.

    Of NAMESPACE, the members of single repositories are listed, too. Users are always admins of
    their own namespace.
    """
    with opened(call, data, database) as hub:
        import dlv.hub.server.accounts as accounts
        import dlv.hub.server.members as members

        with hub.reading() as connection:
            namespace, repository = _split(place or "")
            if namespace and not accounts.quotas(connection, namespace):
                raise accounts.no_namespace(connection, shell(), namespace)
            listed = members.members(connection, namespace or None, repository, inner=True)
    _emit(call, listed)
    if not listed:
        call.output.message("no members")


def _split(place: str) -> tuple[str, str | None]:
    namespace, _, repository = place.partition("/")
    return namespace, repository or None


def _members(members: list[Member], user: str) -> list[Member]:
    return [member for member in members if member.user == user.lower()]


def _emit(call: Invocation, members: list[Member]) -> None:
    documents = [
        {
            "namespace": member.namespace,
            "repository": member.repository,
            "user": member.user,
            "role": member.role,
            "created": member.created,
        }
        for member in members
    ]
    table = Table(
        ["place", "user", "role", "created"],
        [
            [
                f"{member.namespace}/{member.repository}"
                if member.repository
                else member.namespace,
                Text(member.user, "bold"),
                member.role,
                Time(member.created),
            ]
            for member in members
        ],
    )
    ids = [member.user for member in members]
    call.output.emit("hub-member", {"members": documents}, table, ids=ids)
