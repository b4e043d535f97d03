"""`dlv hub quota`: how many bytes a namespace may use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlv.commands.shared.hub_place import EXITS, hub_options, opened, parse_size, shell
from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, group
from dlv.terminal.table import Bytes, Column, Table, Text

if TYPE_CHECKING:
    from dlv.hub.server.accounts import Quota

_ADD = "dlv hub user add ada --data ./hub"

run = group(
    "quota",
    """Limit the bytes of namespaces.

    The quota of a namespace counts what all of its repositories store, and what running uploads
    have reserved.
    """,
    table={
        "show": ("of_hub.quota:show", "Show how much namespaces use"),
        "set": ("of_hub.quota:set_", "Set the quota of a namespace"),
    },
    examples=["dlv hub quota set acme 500GB --data ./hub", "dlv hub quota show --data ./hub"],
)


@command(
    "show",
    examples=[f"{_ADD} && dlv hub quota show --data ./hub", "dlv hub quota show ada --data ./hub"],
    exits={**EXITS, 4: "no such namespace"},
)
@argument("namespace", required=False)
@hub_options
def show(call: Invocation, namespace: str | None, data: str | None, database: str | None) -> None:
    """Show how much namespaces use.

    Without a quota of its own, a namespace has that of dlv hub serve --quota.
    """
    with opened(call, data, database) as hub:
        import dlv.hub.server.accounts as accounts

        with hub.reading() as connection:
            quotas = accounts.quotas(connection, namespace)
            if namespace is not None and not quotas:
                raise accounts.no_namespace(connection, shell(), namespace)
    _emit(call, quotas)
    if not quotas:
        call.output.message("no namespaces yet")


@command(
    "set",
    examples=[f"{_ADD} && dlv hub quota set ada 500GB --data ./hub",
              "dlv hub quota set ada default --data ./hub"],
    exits={**EXITS, 4: "no such namespace"},
)  # fmt: skip
@argument("namespace")
@argument("size")
@hub_options
def set_(
    call: Invocation, namespace: str, size: str, data: str | None, database: str | None
) -> None:
    """Set the quota of a namespace.

    SIZE is a number of bytes with a unit, such as 500GB or 1.5TiB, or `default`. What is already
    stored stays, even if it is more.
    """
    count = None if size == "default" else parse_size(size)
    with opened(call, data, database) as hub:
        import dlv.hub.server.accounts as accounts

        with hub.writing() as connection:
            quota = accounts.set_quota(connection, shell(), namespace, count)
    _emit(call, [quota])


def _emit(call: Invocation, quotas: list[Quota]) -> None:
    table = Table(
        [Column("namespace", fixed=True), "used", "reserved", "quota"],
        [
            [
                Text(quota.namespace, "bold"),
                Bytes(quota.used),
                Bytes(quota.reserved),
                "default" if quota.quota is None else Bytes(quota.quota),
            ]
            for quota in quotas
        ],
    )
    documents = [
        {
            "namespace": quota.namespace,
            "used": quota.used,
            "reserved": quota.reserved,
            "quota": quota.quota,
        }
        for quota in quotas
    ]
    ids = [quota.namespace for quota in quotas]
    call.output.emit("hub-quota", {"quotas": documents}, table, ids=ids)
