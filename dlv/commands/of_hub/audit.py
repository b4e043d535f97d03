"""`dlv hub audit`: who changed what on a hub, and whether that log is whole."""

from __future__ import annotations

import re

import click

from dlv.commands.shared.hub_place import EXITS, hub_options, opened
from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, group, option
from dlv.errors import UsageError
from dlv.terminal.output import Line
from dlv.terminal.table import Column, Table, Text, Time
from dlv.views.values import plural

_ADD = "dlv hub user add ada --data ./hub"
_EXPECTED = re.compile(r"([1-9]\d{0,15}):([0-9a-f]{8,64})\Z")

run = group(
    "audit",
    """Show or verify the audit log.

    Each change of users, tokens, members, quotas, repositories and versions is a line. Each line
    contains the hash of the one before it.
    """,
    table={
        "list": ("of_hub.audit:list_", "List lines of the audit log"),
        "verify": ("of_hub.audit:verify", "Check that no line was changed"),
    },
    examples=["dlv hub audit list acme --data ./hub", "dlv hub audit verify --data ./hub"],
)


@command(
    "list",
    examples=[f"{_ADD} && dlv hub audit list --data ./hub",
              "dlv hub audit list ada -n 20 --data ./hub"],
    exits=EXITS,
)  # fmt: skip
@argument("place", metavar="[NAMESPACE[/REPOSITORY]]", required=False)
@option("--after", type=click.IntRange(0), metavar="N", help="Begin after line N [default: 0].")
@option("-n", "most", type=click.IntRange(1), metavar="N", help="List N lines [default: 100].")
@hub_options
def list_(
    call: Invocation,
    place: str | None,
    after: int | None,
    most: int | None,
    data: str | None,
    database: str | None,
) -> None:
    """List lines of the audit log.

    Without NAMESPACE, list those of the whole hub. Without --after, list the newest ones.
    """
    with opened(call, data, database) as hub:
        import dlv.hub.server.audit as audit

        with hub.reading() as connection:
            newest = audit.newest(connection)
            count = most or 100
            if after is None:
                lines = audit.last_lines(connection, place, most=count)
            else:
                lines = audit.lines(connection, place, after=after, most=count)
    table = Table(
        [Column("line", key="seq", fixed=True), "time", "user", "origin", "action",
         Column("target", least=20), "before", "after"],
        [
            [line["seq"], Time(line["time"]), line["actor"], line["origin"], line["action"],
             Text(line["target"], "bold"), line["before"], line["after"]]
            for line in lines
        ],
    )  # fmt: skip
    document = {"lines": lines, "faults": [], "newest": {"seq": newest[0], "hash": newest[1]}}
    call.output.emit("hub-audit", document, table, ids=[str(line["seq"]) for line in lines])
    if not lines:
        call.output.message("no lines" if place is None else f"no lines about {place}")


@command(
    "verify",
    examples=[f"{_ADD} && dlv hub audit verify --data ./hub"],
    exits={**EXITS, 6: "lines were changed, removed or put in another order"},
)
@option("--expect", metavar="SEQ:HASH", help="Require the line that was the newest once.")
@hub_options
def verify(
    call: Invocation, expect: str | None, data: str | None, database: str | None
) -> int | None:
    """Check that no line was changed.

    Note the printed SEQ:HASH elsewhere. With --expect, the next check also finds a log whose end
    was cut off, or that was written again as a whole.
    """
    expected = None if expect is None else _EXPECTED.match(expect)
    if expect is not None and expected is None:
        raise UsageError(f"--expect must be SEQ:HASH, not `{expect}`")
    with opened(call, data, database) as hub:
        import dlv.hub.server.audit as audit

        with hub.reading() as connection:
            faults = list(audit.faults(connection))
            if expected is not None:
                seq = int(expected[1])
                line = audit.lines(connection, after=seq - 1, most=1)
                if not line or line[0]["seq"] != seq:
                    faults.append(audit.Fault(seq, f"line {seq} is missing"))
                elif not line[0]["hash"].startswith(expected[2]):
                    faults.append(audit.Fault(seq, f"line {seq} has another hash than expected"))
            seq, hash_ = audit.newest(connection)
    document = {
        "lines": [],
        "faults": [{"seq": fault.seq, "why": fault.why} for fault in faults],
        "newest": {"seq": seq, "hash": hash_},
    }
    blocks = [Line(Text(fault.why, "red")) for fault in faults]
    intact = [] if faults else [Line(f"{seq}:{hash_}")]
    ids = [str(fault.seq) for fault in faults] or [f"{seq}:{hash_}"]
    call.output.emit("hub-audit", document, *blocks, *intact, ids=ids)
    if faults:
        call.output.warn("the audit log was changed from outside of the hub")
        return 6
    call.output.message(f"the audit log is intact: {plural(seq, 'line')}")
    return None
