"""Where the commands of `dlv hub` find the hub: a folder, or the address of a database."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import option
from dlv.errors import DlvError, NotFound, UsageError, require

if TYPE_CHECKING:
    from dlv.hub.server.access import Caller
    from dlv.hub.server.database import HubDatabase
    from dlv.hub.server.hub import Hub

F = TypeVar("F", bound=Callable[..., Any])
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([kMGTP]?)(i?)B?\Z", re.IGNORECASE | re.ASCII)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
DATA, DATABASE, STORE = "DLV_HUB_DATA", "DLV_HUB_DATABASE", "DLV_HUB_STORE"
EXITS = {
    2: "invalid arguments, or the extra `hub` is not installed",
    6: "the database is corrupt",
    7: "the database cannot be reached",
}


def hub_options(function: F) -> F:
    """Add the options that say where the hub is."""
    data = option("--data", metavar="DIR", help=f"Folder of the hub [default: {DATA}].")
    database = option(
        "--database", metavar="URL", help=f"Address of its database [default: {DATABASE}]."
    )
    return data(database(function))


def named(
    call: Invocation, data: str | None, database: str | None
) -> tuple[Path | None, str | None]:
    """Return the folder and the address that options and environment name."""
    if database is not None and urlsplit(database).password:
        raise UsageError(
            "a password in an argument can be seen by other users of the machine",
            hint=f"set PGPASSWORD, or {DATABASE}",
        )
    if data is None and database is None:
        data, database = call.environ.get(DATA), call.environ.get(DATABASE)
    return (call.directory / data if data else None), database or None


def check_installed() -> None:
    """Say how to install what a hub needs, if it is missing."""
    require("sqlalchemy", "hub")


def shell() -> Caller:
    """Return the caller of these commands, as the audit log names it."""
    from dlv.hub.server.access import Caller

    return Caller()


@contextmanager
def opened(
    call: Invocation, data: str | None, database: str | None, *, create: bool = False
) -> Iterator[HubDatabase]:
    """Open the database of a hub; only with `create` a new one in a folder."""
    check_installed()
    import dlv.disk.durable as durable
    import dlv.hub.server.hub as hubs
    from dlv.hub.server.database import open_database

    folder, address = named(call, data, database)
    if address is None:
        if folder is None:
            raise UsageError(
                "no hub is named", hint=f"use --data DIR or --database URL, or set {DATA}"
            )
        path = folder.absolute() / hubs.DATABASE
        if not path.exists() and not create:
            raise NotFound(
                f"no hub in {folder}", hint=f"to begin one: dlv hub user add NAME --data {folder}"
            )
        durable.make_directory(folder.absolute())
        address = f"sqlite:///{path}"
    with _complete_hints(data, database):
        opened_database = open_database(address)
        try:
            yield opened_database
        finally:
            opened_database.close()


@contextmanager
def _complete_hints(*place: str | None) -> Iterator[None]:
    """Let commands in hints name the same hub as the command that failed."""
    import sqlalchemy as sa

    import dlv.hub.server.database as databases

    try:
        yield
    except sa.exc.DatabaseError as error:
        if not databases.is_corrupt(error):
            raise
        raise databases.corrupt(error) from error
    except DlvError as error:
        error.hint = error.hint and completed(error.hint, *place)
        raise


def completed(hint: str, data: str | None, database: str | None, store: str | None = None) -> str:
    """Add the options that name the hub to the command at the end of a hint."""
    if "dlv hub " not in hint:
        return hint
    options = {"--data": data, "--database": database, "--store": store}
    return " ".join([hint, *(f"{name} {shlex.quote(at)}" for name, at in options.items() if at)])


def parse_size(text: str) -> int:
    """Return the number of bytes that a size such as 1.5GB or 2MiB means."""
    match = _SIZE.match(text.strip())
    if match is None:
        raise UsageError(f"`{text}` is not a size", hint="examples: 500GB, 1.5TiB, 1000000")
    number, unit, binary = match.groups()
    count = int(float(number) * (1024 if binary else 1000) ** _POWERS[unit.lower()])
    if count >= 1 << 63:
        raise UsageError(f"`{text}` is too large")
    return count


def store_option(function: F) -> F:
    """Add the option that says where the objects of the hub are."""
    where = f"Folder or s3:// with its objects [default: {STORE}]."
    return option("--store", metavar="URL", help=where)(function)


@contextmanager
def opened_hub(
    call: Invocation, data: str | None, database: str | None, store: str | None, *, create: bool
) -> Iterator[Hub]:
    """Open a hub with its objects; only with `create` a new one in a folder."""
    check_installed()
    import dlv.hub.server.hub as hubs
    from dlv.hub.server.settings import Settings

    folder, address = named(call, data, database)
    if folder is None and call.environ.get(DATA):
        folder = call.directory / call.environ[DATA]
    address, objects, folder = hubs.places(folder, address, store or call.environ.get(STORE))
    path = folder / hubs.DATABASE
    if address == f"sqlite:///{path}" and not create and not path.exists():
        raise NotFound(
            f"no hub in {folder}", hint=f"to begin one: dlv hub user add NAME --data {folder}"
        )
    settings = Settings(database=address, store=objects, data=folder, url="http://localhost")
    with _complete_hints(data, database, store):
        hub = hubs.Hub(settings, call.environ)
        try:
            yield hub
        finally:
            hub.close()
