"""`dlv init`: make a repository."""

from __future__ import annotations

from pathlib import Path

import click

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option


@command(
    "init",
    examples=["dlv init", "dlv init models", "dlv init --shared group"],
    exits={5: "a file is in the way"},
)
@argument("directory", metavar="[DIR]", required=False)
@option(
    "--shared",
    type=click.Choice(["group", "all"]),
    help="Let the group of DIR write, and with all let everyone read.",
)
def run(call: Invocation, directory: str | None, shared: str | None) -> None:
    """Create a repository.

    The repository is the folder .dlv in DIR or in the current directory. It needs no git, and git
    ignores it. Running init again is safe: it adds what is missing and changes nothing else.
    """
    import dlv.repository.handle as repositories

    made, new = repositories.Repository.init(Path(call.directory, directory or "."), shared=shared)
    with made:
        word = "Initialized empty" if new else "Reinitialized"
        call.output.emit(
            "init",
            {"path": str(made.path), "format": repositories.FORMAT, "created": new},
            f"{word} dlv repository in {made.path}",
            ids=[str(made.path)],
        )
        if new:
            call.next_step("to stage files: dlv add .")
