"""`dlv doctor`: check the environment."""

from __future__ import annotations

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import command
from dlv.terminal.table import Cell, Column, Table, Text

_WORDS = {True: ("ok", "green"), False: ("problem", "red"), None: ("-", "dim")}


@command("doctor", examples=["dlv doctor", "dlv doctor --json"], exits={1: "a check failed"})
def run(call: Invocation) -> int | None:
    """Check the environment and suggest fixes.

    Works inside and outside a repository, and changes nothing.
    """
    import dlv.upkeep.doctor as doctor

    found = doctor.examine(call.directory, call.environ.get("DLV_DIR"), call.environ)
    rows: list[list[Cell]] = [
        [check.name, Text(*_WORDS[check.ok]), check.detail, Text(check.hint or "", "dim")]
        for check in found
    ]
    call.output.emit(
        "doctor",
        {
            "checks": [
                {"name": c.name, "ok": c.ok, "detail": c.detail, "hint": c.hint} for c in found
            ]
        },
        Table([Column("check", fixed=True), "state", Column("found", least=20), "fix"], rows),
        ids=[],
    )
    return 1 if any(check.ok is False for check in found) else None
