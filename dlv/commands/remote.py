"""`dlv remote`: where a repository publishes to and pulls from."""

from __future__ import annotations

from typing import Any

import click

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.errors import Conflict, NotFound, UsageError
from dlv.terminal.table import Cell, Column, Table, Text

ACTIONS = ("list", "add", "remove", "set-url", "probe")


@command(
    "remote",
    examples=[
        "dlv remote add origin ../team",
        "dlv remote",
        "dlv remote probe origin",
        "dlv remote remove origin",
    ],
    exits={
        4: "no such remote",
        5: "the name is taken",
        7: "the remote cannot be reached, or cannot be shared safely",
    },
)
@argument("action", type=click.Choice(ACTIONS), default="list")
@argument("name", required=False, complete="remote")
@argument("url", required=False)
@option("--single-writer", is_flag=True, help="Accept a store that only one person writes to.")
def run(
    call: Invocation, action: str, name: str | None, url: str | None, single_writer: bool
) -> None:
    """List, add or change remotes.

    URL is a folder, s3://BUCKET/PREFIX, gs://.., az://.., or the https:// address of a folder,
    which can only be read. add tries out what the store does, and
    refuses one on which two writers could lose a version.
    """
    import dlv.hub.names as names
    import dlv.hub.remotes as remotes
    from dlv.hub.stores.opening import absolute

    repository = call.repository
    known = call.config.remotes()
    if action == "list":
        if name is not None:
            raise UsageError("dlv remote list takes no name", hint="dlv remote list")
        _emit(call, known)
        if not known:
            call.output.message("no remotes yet")
        return
    if name is None:
        raise UsageError(f"dlv remote {action} requires a NAME", hint="dlv remote --help")
    if (url is not None) != (action in ("add", "set-url")):
        words = "NAME URL" if action in ("add", "set-url") else "NAME"
        raise UsageError(f"usage: dlv remote {action} {words}", hint="dlv remote --help")
    names.check_remote_name(name)
    if action == "add" and name in known:
        raise Conflict(
            f"remote `{name}` exists", why=known[name], hint=f"dlv remote set-url {name} {url}"
        )
    if action != "add" and name not in known:
        raise NotFound(f"no remote `{name}`", hint="dlv remote list")
    if action == "remove":
        call.config.unset("repository", f"remote.{name}")
        call.output.message(f"removed the remote {name}; its data stays at {known[name]}")
    else:
        address = known[name] if url is None else absolute(url, call.directory)
        probe: dict[str, Any] = remotes.try_out(
            repository, name, address, call.environ, single_writer=single_writer
        )
        if url is not None:
            names.forget(repository, name)
            call.config.set("repository", f"remote.{name}", address)
        known[name] = address
        _emit(call, {name: address}, probe)
        return
    del known[name]
    _emit(call, known)


def _emit(call: Invocation, known: dict[str, str], probe: dict[str, Any] | None = None) -> None:
    rows: list[list[Cell]] = [[Text(name, "bold"), url] for name, url in sorted(known.items())]
    table = Table([Column("remote", fixed=True), Column("url", least=20)], rows)
    document: dict[str, Any] = {
        "remotes": [{"name": name, "url": url} for name, url in sorted(known.items())],
        "probe": probe,
    }
    call.output.emit("remote", document, table, ids=sorted(known))
