"""`dlv ui`: pages over the repository, live and read-only."""

from __future__ import annotations

import sys

import click

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option


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
@argument("words", nargs=-1, metavar="[REF..|DIR]", complete="reference")
@option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Port; 0 picks a free one [default: ui.port].",
)
@option("--host", metavar="H", help="Address to bind [default: 127.0.0.1].")
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
    import signal

    import dlv.events.server.security as security
    import dlv.events.server.serving as addresses
    import dlv.repository.revisions as revisions
    import dlv.ui.serving as serving

    serving.check_installed()
    repository, config = call.repository, call.config
    references, folders = serving.split(
        words, call.directory, lambda word: revisions.whole(repository.database, word)
    )
    host = host or addresses.LOOPBACK
    chosen = int(config.get("ui.port")) if port is None else port
    token = security.new_token()
    with serving.bound(host, chosen) as listening:
        page = serving.first_page(references)
        where = addresses.address(host, listening.getsockname()[1], token, page)

        def ready() -> None:
            call.output.emit("ui", {"url": where}, where, ids=[where])
            sys.stdout.flush()
            call.output.message(f"Serving {repository.root}; press Ctrl-C to stop")
            if not no_open and call.output.interactive:
                import webbrowser

                webbrowser.open(where)

        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            serving.serve(
                *(repository, config, listening),
                host=host,
                token=token,
                folders=folders,
                jobs=call.jobs,
                log=call.output.detail,
                ready=ready,
            )
        except KeyboardInterrupt:
            call.output.message("")
        finally:
            signal.signal(signal.SIGTERM, before)
