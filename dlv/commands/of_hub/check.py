"""`dlv hub check`: whether the database and the objects of a hub belong together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlv.commands.shared.hub_place import EXITS, completed, hub_options, opened_hub, store_option
from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import command, option
from dlv.terminal.output import Line
from dlv.terminal.table import Bytes, Cell, Column, Table, Text

if TYPE_CHECKING:
    from dlv.hub.server.upkeep.checking import Report

GRACE = "1d"


@command(
    "check",
    examples=[
        "dlv hub user add ada --data ./hub && dlv hub check --data ./hub",
        "dlv hub check --full --data ./hub",
    ],
    exits={**EXITS, 6: "errors were found; each is listed"},
)
@option("--full", is_flag=True, help="Read all objects and verify their hashes.")
@option("--repair", is_flag=True, help="Correct counters and needs; delete leftovers.")
@option("--grace", metavar="TIME", help="Ignore bytes younger than this [default: 1d].")
@store_option
@hub_options
def run(
    call: Invocation,
    full: bool,
    repair: bool,
    grace: str | None,
    store: str | None,
    data: str | None,
    database: str | None,
) -> int | None:
    """Check the database and the objects of a hub.

    The hub may be in use. Verifies histories, manifests, locators, sizes, counters and the audit
    log. Leftovers are bytes without a row, and uploads and leases that have expired; they are not
    errors.
    """
    with opened_hub(call, data, database, store, create=False) as hub:
        import dlv.hub.server.upkeep.checking as checking
        import dlv.upkeep.mark as mark

        wait = mark.duration(grace or GRACE)
        total = checking.total_bytes(hub) if full else None
        with call.progress("Checking", total) as bar:
            report = checking.check(hub, full=full, repair=repair, grace=wait, progress=bar.advance)
    _emit(call, report)
    left = [each for each in report.leftovers if not each.deleted]
    if left and not repair:
        size = sum(each.size for each in left)
        call.output.message(f"{len(left)} leftovers ({size:,} bytes)")
        call.output.hint(completed("to delete them: dlv hub check --repair", data, database, store))
    return None if report.ok else 6


def _emit(call: Invocation, report: Report) -> None:
    faults: list[list[Cell]] = [
        [each.place, each.kind, Text(each.object, "bold"), each.why,
         "repaired" if each.repaired else "error"]
        for each in report.faults
    ]  # fmt: skip
    leftovers: list[list[Cell]] = [
        [each.place, each.kind, each.object, Bytes(each.size), "deleted" if each.deleted else ""]
        for each in report.leftovers
    ]
    tables = []
    if faults:
        named = (Column("object", least=20), Column("why", least=20))
        tables.append(Table(["place", "kind", *named, "state"], faults))
    if leftovers and (call.output.verbose or call.format != "table"):
        column = Column("object", least=20)
        tables.append(Table(["place", "leftover", column, "size", "state"], leftovers))
    wrong = sum(not each.repaired for each in report.faults)
    counted = ", ".join(_counted(many, kind) for kind, many in report.checked.items() if many)
    found = "ok" if not wrong else f"{wrong} error{'s' if wrong > 1 else ''}"
    call.output.emit(
        "hub-check",
        {
            "checked": dict(report.checked),
            "bytes": report.bytes,
            "faults": [
                {"place": each.place, "kind": each.kind, "object": each.object, "why": each.why,
                 "repaired": each.repaired}
                for each in report.faults
            ],
            "leftovers": [
                {"place": each.place, "kind": each.kind, "object": each.object, "size": each.size,
                 "deleted": each.deleted}
                for each in report.leftovers
            ],
        },
        *tables,
        Line(Text(found, "bold"), f"checked {counted}" if counted else "the hub is empty"),
        ids=[each.object for each in report.faults],
    )  # fmt: skip


def _counted(many: int, kind: str) -> str:
    """Say a number of things; the report has their plural."""
    singular = {"aliases": "alias", "repositories": "repository"}.get(kind, kind.removesuffix("s"))
    return f"{many} {singular if many == 1 else kind}"
