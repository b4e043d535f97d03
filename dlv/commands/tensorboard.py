"""`dlv tensorboard`: the stock TensorBoard for versions or a folder of logs."""

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
        2: "TensorBoard is not installed, or an address of another machine",
        5: "the port is taken",
    },
)
@argument("words", nargs=-1, metavar="[REF..|DIR]", complete="reference")
@option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Port; 0 picks a free one [default: 6006].",
)
@option("--host", metavar="H", help="Address to bind [default: 127.0.0.1].")
@option(
    "--legacy-api",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve the older HTTP API on PORT.",
)
@option("--samples", multiple=True, metavar="KIND=N", help="Points per metric; 0 shows all.")
@option("--restarts", type=click.Choice(RESTARTS), help="Which points of restarted runs to show.")
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
    """Show curves in TensorBoard.

    Each version is a run with its metrics, images, hyperparameters and network. Without REF, all
    versions are shown. DIR may be the log folder of a training run in progress. The printed
    address contains a secret token, which is required.
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
            call.output.message("Still reading; curves appear as they are read")
        if older is not None:
            older.in_background(site.legacy(host, older.port, token))
        found = [url for url in document.values() if url is not None]
        try:
            call.output.emit("tensorboard", document, *found, ids=found)
            sys.stdout.flush()
            call.output.message(f"Serving {board.location}; press Ctrl-C to stop")
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
            f"`{text}` is not KIND=N; kinds are {', '.join(KINDS)}",
            hint="dlv tensorboard --samples scalars=5000",
        )
    return kind, int(number)
