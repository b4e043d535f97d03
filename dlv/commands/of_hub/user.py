"""`dlv hub user`: the people who have accounts on a hub."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlv.commands.shared.hub_place import EXITS, hub_options, opened, shell
from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, group, option
from dlv.errors import UsageError
from dlv.terminal.table import Column, Table, Text, Time

if TYPE_CHECKING:
    from dlv.hub.server.accounts import User

run = group(
    "user",
    """Add, change or list users.

    Each user owns the namespace with their own name. An operator may see and change
    everything on the hub.
    """,
    table={
        "add": ("of_hub.user:add", "Add a user"),
        "change": ("of_hub.user:change", "Change a user"),
        "disable": ("of_hub.user:disable", "Withdraw all access of a user"),
        "enable": ("of_hub.user:enable", "Give a disabled user access again"),
        "list": ("of_hub.user:list_", "List all users"),
    },
    examples=["dlv hub user add ada --operator --data ./hub", "dlv hub user list --data ./hub"],
)
_ADD = "dlv hub user add ada --data ./hub"


@command(
    "add",
    examples=[
        "dlv hub user add ada --operator --data ./hub",
        "dlv hub user add bob --email bob@example.org --data ./hub",
    ],
    exits={**EXITS, 5: "the name is taken"},
)
@argument("name", metavar="USER")
@option("--email", metavar="ADDRESS", help="Note the e-mail address of the user.")
@option("--operator", is_flag=True, help="Let the user run the hub.")
@hub_options
def add(
    call: Invocation,
    name: str,
    email: str | None,
    operator: bool,
    data: str | None,
    database: str | None,
) -> None:
    """Add a user.

    The folder of --data is created with the first user. A name has a-z, 0-9 and hyphens. Users
    need a token to log in, or the login provider of the hub.
    """
    with opened(call, data, database, create=True) as hub:
        import dlv.hub.server.accounts as accounts

        with hub.writing() as connection:
            accounts.add_user(connection, shell(), name, email=email, operator=operator)
            user = accounts.user_named(connection, name)
    assert user is not None
    _emit(call, [user])
    place = f" --data {data}" if data else f" --database {database}" if database else ""
    call.next_step(f"dlv hub token create {user.name}{place}")


@command(
    "change",
    examples=[
        f"{_ADD} && dlv hub user change ada --email ada@example.org --data ./hub",
        "dlv hub user change ada --operator --data ./hub",
    ],
    exits={**EXITS, 4: "no such user"},
)
@argument("name", metavar="USER")
@option("--email", metavar="ADDRESS", help="Note the e-mail address of the user.")
@option("--operator", is_flag=True, help="Let the user run the hub.")
@option("--no-operator", is_flag=True, help="Withdraw the right to run the hub.")
@hub_options
def change(
    call: Invocation,
    name: str,
    email: str | None,
    operator: bool,
    no_operator: bool,
    data: str | None,
    database: str | None,
) -> None:
    """Change a user."""
    if operator and no_operator:
        raise UsageError("--operator and --no-operator cannot be combined")
    if email is None and not (operator or no_operator):
        raise UsageError("nothing to change", hint="dlv hub user change --help")
    right = operator if operator or no_operator else None
    _change(call, name, data, database, email=email, operator=right)


@command(
    "disable",
    examples=[f"{_ADD} && dlv hub user disable ada --data ./hub"],
    exits={**EXITS, 4: "no such user"},
)
@argument("name", metavar="USER")
@hub_options
def disable(call: Invocation, name: str, data: str | None, database: str | None) -> None:
    """Withdraw all access of a user.

    Tokens of the user stop working and sessions end at once. What the user published stays.
    """
    _change(call, name, data, database, disabled=True)


@command(
    "enable",
    examples=[
        f"{_ADD} && dlv hub user disable ada --data ./hub && dlv hub user enable ada --data ./hub"
    ],
    exits={**EXITS, 4: "no such user"},
)
@argument("name", metavar="USER")
@hub_options
def enable(call: Invocation, name: str, data: str | None, database: str | None) -> None:
    """Give a disabled user access again.

    Tokens that have not expired work again.
    """
    _change(call, name, data, database, disabled=False)


@command("list", examples=[f"{_ADD} && dlv hub user list --data ./hub"], exits=EXITS)
@hub_options
def list_(call: Invocation, data: str | None, database: str | None) -> None:
    """List all users."""
    with opened(call, data, database) as hub:
        import dlv.hub.server.accounts as accounts

        with hub.reading() as connection:
            users = accounts.users(connection)
    _emit(call, users)
    if not users:
        call.output.message("no users yet; to add one: dlv hub user add NAME --operator")


def _change(
    call: Invocation, name: str, data: str | None, database: str | None, **values: str | bool | None
) -> None:
    with opened(call, data, database) as hub:
        import dlv.hub.server.accounts as accounts

        with hub.writing() as connection:
            differs = accounts.change_user(connection, shell(), name, **values)  # type: ignore[arg-type]
            user = accounts.user_named(connection, name)
    assert user is not None
    _emit(call, [user])
    if not differs:
        call.output.message(f"{user.name} is already so; nothing changed")


def _emit(call: Invocation, users: list[User]) -> None:
    table = Table(
        [Column("user", fixed=True), "email", "operator", "state", "created"],
        [
            [
                Text(user.name, "bold"),
                user.email,
                "operator" if user.operator else None,
                "disabled" if user.disabled else None,
                Time(user.created),
            ]
            for user in users
        ],
    )
    documents = [
        {
            "name": user.name,
            "email": user.email,
            "operator": user.operator,
            "disabled": user.disabled,
            "openid": user.openid,
            "created": user.created,
        }
        for user in users
    ]
    call.output.emit("hub-user", {"users": documents}, table, ids=[user.name for user in users])
