"""`dlv ui` and `dlv serve`: the pages, with and without a browser."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, option

F = TypeVar("F", bound=Callable[..., Any])


def page_options(function: F) -> F:
    """Add the arguments and options of a command that serves pages."""
    port = option(
        "--port",
        type=click.IntRange(0, 65535),
        metavar="N",
        help="Port; 0 picks a free one [default: ui.port].",
    )
    host = option("--host", metavar="H", help="Address to bind [default: 127.0.0.1].")
    words = argument("words", nargs=-1, metavar="[REF..|DIR]", complete="reference")
    return words(port(host(function)))


def serve(
    call: Invocation,
    words: tuple[str, ...],
    port: int | None,
    host: str | None,
    *,
    opens: bool,
    name: str = "ui",
) -> None:
    """Serve pages until Ctrl-C; with `opens`, open the browser if stderr is a terminal."""
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
            call.output.emit(name, {"url": where}, where, ids=[where])
            sys.stdout.flush()
            call.output.message(f"Serving {repository.root}; press Ctrl-C to stop")
            if opens and call.output.interactive:
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
