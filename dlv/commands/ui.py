"""`dlv ui`: pages over the repository, live and read-only."""

from __future__ import annotations

from dlv.commands.shared import pages
from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import command, option


@command(
    "ui",
    examples=[
        "dlv ui",
        "dlv ui lenet@2 --port 0",
        "dlv ui lenet@1 lenet@2 --port 0",
        "dlv ui runs/ --port 0 --no-open",
    ],
    exits={2: "the extra `ui` is not installed", 4: "no such version", 5: "the port is taken"},
)
@pages.page_options
@option("--no-open", is_flag=True, help="Do not open the browser.")
def run(
    call: Invocation, words: tuple[str, ...], port: int | None, host: str | None, no_open: bool
) -> None:
    """Show the repository in the browser.

    Tables of all versions, single versions, comparisons, queries, sweeps, evaluations, storage and
    networks; nothing can be changed there. REF opens the page of a version, several REFs compare
    them. DIR is the log folder of a training run in progress, whose curves move as it goes on.
    The printed address contains a secret token, which is required.
    """
    pages.serve(call, words, port, host, opens=not no_open)
