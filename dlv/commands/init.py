"""`dlv init`: make a repository."""

from __future__ import annotations

from pathlib import Path

import click

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option


@command(
    "init",
    examples=["dlv init", "dlv init models", "dlv init --shared group"],
    exits={5: "a file stands where the repository would go"},
)
@argument("directory", metavar="[DIR]", required=False)
@option(
    "--shared",
    type=click.Choice(["group", "all"]),
    help="Let the group of DIR write; all: and everybody read.",
)
def run(call: Invocation, directory: str | None, shared: str | None) -> None:
    """Make a repository here or in DIR.

    It is one folder, .dlv; git is not needed, and where there is git it does not see that
    folder. Doing it again is harmless: what is missing is added, nothing is lost. Whatever is
    written there later has the rights that .dlv gives, whatever the umask of who writes.
    """
    import dlv.repository.handle as repositories

    made, new = repositories.Repository.init(Path(call.directory, directory or "."), shared=shared)
    with made:
        word = "empty repository in" if new else "the repository is there already:"
        call.output.emit(
            "init",
            {"path": str(made.path), "format": repositories.FORMAT, "created": new},
            f"{word} {made.path}",
            ids=[str(made.path)],
        )
