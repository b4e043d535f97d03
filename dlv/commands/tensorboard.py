"""`dlv tensorboard`: the stock TensorBoard over versions, or over a folder of logs."""

from __future__ import annotations

import sys
from contextlib import ExitStack

import click

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.config import KEYS
from dlv.errors import UsageError

PORT = 6006
KINDS = ["scalars", "histograms", "images", "audio", "text", "pr_curves", "mesh", "custom_scalars"]
RESTARTS = KEYS["curves.restarts"].choices


@command(
    "tensorboard",
    examples=[
        "dlv tensorboard lenet@1 lenet@2 --port 0 --open",
        "dlv tensorboard runs/ --port 6016",
        "dlv tensorboard lenet --samples scalars=0 --port 0 --legacy-api 0",
    ],
    exits={
        2: "the extra tensorboard is missing; an option; an address that is not of this machine",
        5: "the port is taken",
    },
)
@argument("words", nargs=-1, metavar="[REF..|DIR]", complete="reference")
@option("--port", type=click.IntRange(0, 65535), metavar="N", help="6006; 0 takes a free one.")
@option("--host", metavar="H", help="Also for other machines, as 0.0.0.0; only 127.0.0.1 else.")
@option("--legacy-api", type=click.IntRange(0, 65535), metavar="PORT", help="The older HTTP API.")
@option("--samples", multiple=True, metavar="KIND=N", help="Points shown of a series; 0: all.")
@option("--restarts", type=click.Choice(RESTARTS), help="Points that a restarted run shows.")
@option("--open", "opened", is_flag=True, help="Open it in the browser.")
def run(
    call: Invocation,
    words: tuple[str, ...],
    port: int | None,
    host: str | None,
    legacy_api: int | None,
    samples: tuple[str, ...],
    restarts: str | None,
    opened: bool,
) -> None:
    """Show curves of versions, or of a folder of logs, in TensorBoard.

    Each version is a run with its scalars, images and other series, its hyperparameters, and
    its network as the graph. Without REF all versions are shown. DIR may be the folder of a
    training that goes on: what is new appears by itself. Ctrl-C ends it.

    The address that is printed holds a secret, without which nothing is answered.
    """
    import dlv.events.server.serving as serving

    sizes = dict(_size(text) for text in samples)
    host = host or serving.LOOPBACK
    with ExitStack() as ending:
        import signal

        import dlv.curves.board as boards
        import dlv.events.server.security as security
        import dlv.events.server.site as sites

        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        ending.callback(signal.signal, signal.SIGTERM, before)
        board = boards.board_of(
            words,
            call.directory,
            lambda: call.repository,
            cap=call.config.get("curves.cap"),
            restarts=call.config.given("curves.restarts", restarts),
            tell=call.output.warn,
        )
        ending.callback(board.close)
        log = call.output.detail
        token = security.new_token()
        site = sites.Site(
            *(board.ask, board.experiment, board.location, board.directory),
            *(log, sizes, board.release),
        )
        server = serving.Server(host, PORT if port is None else port, log, board.release)
        ending.callback(server.stop)
        document = {"url": serving.address(host, server.port, token), "legacy_url": None}
        older = None
        if legacy_api is not None:
            older = serving.Server(host, legacy_api, log, board.release)
            ending.callback(older.stop)
            where = serving.address(host, older.port, token, "/data/runs")
            document["legacy_url"] = where
        pages = site.pages(host, server.port, token)
        if not board.start():
            call.output.message("still reading; what is read appears by itself")
        if older is not None:
            older.in_background(site.legacy(host, older.port, token))
        found = [url for url in document.values() if url is not None]
        try:
            call.output.emit("tensorboard", document, *found, ids=found)
            sys.stdout.flush()
            call.output.message(f"shows {board.location}; Ctrl-C ends it")
            if opened:
                import webbrowser

                webbrowser.open(found[0])
            server.serve(pages)
        except KeyboardInterrupt:
            call.output.message("")


def _size(text: str) -> tuple[str, int]:
    kind, _, number = text.partition("=")
    if kind not in KINDS or not (number.isascii() and number.isdigit() and len(number) < 10):
        raise UsageError(
            f"`{text}` says of no kind how many points are shown",
            why=f"the kinds are {', '.join(KINDS)}",
            hint="--samples scalars=5000",
        )
    return kind, int(number)
