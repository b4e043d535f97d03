"""`dlv demo`: create a small repository to try commands on."""

from __future__ import annotations

import shlex
from pathlib import Path

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command
from dlv.terminal.output import Heading, Verbatim
from dlv.terminal.table import Column, Id, Items, Table, Text


@command(
    "demo",
    examples=["dlv demo tour", "dlv demo other --json"],
    exits={5: "DIR exists and is not empty"},
)
@argument("directory", metavar="[DIR]", default="dlv-demo")
def run(call: Invocation, directory: str) -> None:
    """Create a small repository to try commands on.

    Trains a small network with numpy for a second or two and commits four versions of it to a
    repository in DIR [default: dlv-demo]. Delete the folder when you are done.
    """
    import dlv.demo.run as demos

    made = demos.demo(call.directory / directory, call.author)
    table = Table(
        [Column("version", fixed=True), "id", "message", "tags"],
        [[Text(v.label, "bold"), Id(v.id), v.message, Items(v.tags)] for v in made.versions],
    )
    tries = [
        "dlv log --graph",
        "dlv desc lenet@3",
        "dlv diff lenet@2 lenet@3",
        "dlv metrics lenet@1 lenet-wide@1",
        f"dlv add {made.waiting} && dlv commit -m 'Trained on'",
    ]
    enter = f"cd {shlex.quote(str(Path(call.directory, directory)))}"
    call.output.emit(
        "demo",
        {"path": str(made.path.resolve()), "versions": table.records(), "try": tries},
        table,
        "",
        Heading("Try"),
        Verbatim([f"  {line}" for line in (enter, *tries)]),
    )
