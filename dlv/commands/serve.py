"""`dlv serve`: the pages of `dlv ui`, without a browser."""

from __future__ import annotations

from dlv.commands.shared import pages
from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import command


@command(
    "serve",
    examples=["dlv serve", "dlv serve runs/ --port 0"],
    exits={2: "the extra `ui` is not installed", 4: "no such version", 5: "the port is taken"},
)
@pages.page_options
def run(call: Invocation, words: tuple[str, ...], port: int | None, host: str | None) -> None:
    """Serve the pages of dlv ui without opening a browser.

    The printed address contains a secret token, which is required. See dlv ui --help.
    """
    pages.serve(call, words, port, host, opens=False, name="serve")
