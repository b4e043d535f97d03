"""Serving a hub: uvicorn on a socket that is bound first; a stop waits for requests to end."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any

import uvicorn
from starlette.routing import BaseRoute

from dlv.hub.server import routes as repository_routes
from dlv.hub.server import routes_accounts, routes_hub, routes_search
from dlv.hub.server.application import Application
from dlv.hub.server.card_index import prepare
from dlv.hub.server.cards import catch_up, make_later
from dlv.hub.server.exchange import Route
from dlv.hub.server.hub import Hub
from dlv.hub.server.protocol import Protocol

STOP = 60  # seconds that requests have to end after SIGTERM


def all_routes(metrics: Callable[[], bytes] = lambda: b"") -> list[Route]:
    """Return the routes of the API."""
    routes = [*repository_routes.ROUTES, *routes_accounts.ROUTES, *routes_search.ROUTES]
    routes += routes_hub.routes(lambda: routes, metrics)
    return routes


def application(
    hub: Hub, pages: Sequence[BaseRoute] = (), log: Callable[[str], None] = lambda _: None
) -> Application:
    """Return the ASGI application of a hub."""
    hub.on_published = lambda place, model: make_later(hub, place, model)
    built: list[Application] = []
    built.append(Application(hub, all_routes(lambda: built[0].metrics.text()), pages, log))
    return built[0]


def to_stderr(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def server(app: Any, hub: Hub) -> uvicorn.Server:
    """Return the server; `run(sockets=[..])` answers until SIGTERM or Ctrl-C."""
    options = uvicorn.Config(
        app,
        http=Protocol,  # the faster parser of uvicorn accepts headers of any size
        ws="none",
        log_config=None,
        log_level="error",  # without a line for every malformed request
        access_log=False,
        lifespan="off",
        server_header=False,
        date_header=True,
        proxy_headers=True,
        forwarded_allow_ips=hub.settings.trusted_proxies,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=STOP,
        backlog=2048,
        h11_max_incomplete_event_size=64 << 10,
    )
    return uvicorn.Server(options)


def serve(hub: Hub, listening: socket.socket, pages: Sequence[BaseRoute] = ()) -> None:
    """Answer requests until the process is stopped; those in progress are answered."""
    hub.after(lambda: prepare(hub.database))
    hub.after(lambda: catch_up(hub))
    try:
        server(application(hub, pages, to_stderr), hub).run(sockets=[listening])
    finally:
        hub.close()
