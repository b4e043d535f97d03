"""`dlv hub token`: secrets with which programs and people use a hub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dlv.commands.shared.hub_place import EXITS, hub_options, opened, shell
from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, group, option
from dlv.terminal.table import Cell, Column, Table, Text, Time

if TYPE_CHECKING:
    from dlv.hub.server.tokens import Token

ROLES = ("reader", "writer", "maintainer", "admin")
_ADD = "dlv hub user add ada --data ./hub"

run = group(
    "token",
    """Create, list or revoke tokens.

    A token may do what its user may, or less: only in one namespace or repository, or only up to a
    role. The hub keeps a hash of it.
    """,
    table={
        "create": ("of_hub.token:create", "Create a token and print it once"),
        "list": ("of_hub.token:list_", "List valid tokens"),
        "revoke": ("of_hub.token:revoke", "Revoke a token"),
    },
    examples=[
        "dlv hub token create ada --data ./hub",
        "dlv hub token create ada --scope acme/vision --role writer --days 30 --name ci",
    ],
)


@command(
    "create",
    examples=[
        f"{_ADD} && dlv hub token create ada --data ./hub",
        "dlv hub token create ada --scope acme/vision --role writer --days 30 --name ci --data hub",
    ],
    exits={**EXITS, 4: "no such user"},
)
@argument("user")
@option("--scope", metavar="PLACE", help="Allow only NAMESPACE, or NAMESPACE/REPOSITORY.")
@option("--role", type=click.Choice(ROLES), help="Allow only up to this role [default: admin].")
@option("--days", type=click.IntRange(1, 366), metavar="N", help="Expire in N days [default: 90].")
@option("--name", metavar="NAME", help="Note what the token is for [default: shell].")
@hub_options
def create(
    call: Invocation,
    user: str,
    scope: str | None,
    role: str | None,
    days: int | None,
    name: str | None,
    data: str | None,
    database: str | None,
) -> None:
    """Create a token and print it once.

    Keep it: it cannot be shown again. To use it: dlv login URL --token-stdin.
    """
    with opened(call, data, database) as hub:
        import dlv.hub.server.accounts as accounts
        import dlv.hub.server.tokens as tokens

        with hub.writing() as connection:
            user_id = accounts.user_id_of(connection, shell(), user)
            token, secret = tokens.create_token(
                connection,
                shell(),
                user_id,
                name=name or "shell",
                scope=tokens.scope_from(scope, role),
                days=days or tokens.DAYS,
            )
    document = {"tokens": [_document(token)], "token": secret}
    call.output.emit("hub-token", document, secret, ids=[secret])
    call.output.message(f"token {token.id} of {token.user} expires on {token.expires[:10]}")


@command(
    "list",
    examples=[f"{_ADD} && dlv hub token list --data ./hub", "dlv hub token list ada --data ./hub"],
    exits={**EXITS, 4: "no such user"},
)
@argument("user", required=False)
@hub_options
def list_(call: Invocation, user: str | None, data: str | None, database: str | None) -> None:
    """List valid tokens.

    Without USER: of all users. Revoked and expired tokens are in the audit log alone.
    """
    with opened(call, data, database) as hub:
        import dlv.hub.server.accounts as accounts
        import dlv.hub.server.tokens as tokens

        with hub.reading() as connection:
            number = None if user is None else accounts.user_id_of(connection, shell(), user)
            valid = tokens.tokens(connection, number)
    _emit(call, valid)
    if not valid:
        call.output.message("no valid tokens")


@command(
    "revoke",
    examples=[f"{_ADD} && dlv hub token create ada -q --data ./hub"
              " && dlv hub token revoke 1 --data ./hub"],
    exits={**EXITS, 4: "no such token"},
)  # fmt: skip
@argument("number", metavar="ID", type=click.IntRange(1))
@hub_options
def revoke(call: Invocation, number: int, data: str | None, database: str | None) -> None:
    """Revoke a token.

    ID is its number in dlv hub token list. Sessions that were begun with the token end.
    """
    with opened(call, data, database) as hub:
        import dlv.hub.server.tokens as tokens

        with hub.writing() as connection:
            token = tokens.revoke_token(connection, shell(), number)
    _emit(call, [token])
    call.output.message(f"revoked token {token.id} of {token.user}")


def _document(token: Token) -> dict[str, Any]:
    return {
        "id": token.id,
        "user": token.user,
        "name": token.name,
        "hint": token.hint,
        "role": token.role,
        "namespace": token.namespace,
        "repository": token.repository,
        "created": token.created,
        "expires": token.expires,
        "used": token.used,
    }


def _emit(call: Invocation, tokens: list[Token]) -> None:
    columns = ["id", "user", "name", "begins", "role", "scope", "expires", "used"]
    rows: list[list[Cell]] = []
    for token in tokens:
        scope = "/".join(part for part in (token.namespace, token.repository) if part)
        used = None if token.used is None else Time(token.used)
        rows.append(
            [token.id, Text(token.user, "bold"), token.name, token.hint, token.role,
             scope or None, token.expires[:10], used]
        )  # fmt: skip
    document = {"tokens": [_document(token) for token in tokens], "token": None}
    table = Table([Column(title, fixed=title == "id") for title in columns], rows)
    call.output.emit("hub-token", document, table, ids=[str(token.id) for token in tokens])
