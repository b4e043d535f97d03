"""`dlv hub serve`: the server of a hub, with its pages."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

import click

from dlv.commands.shared.hub_place import EXITS, check_installed, hub_options, named, parse_size
from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import command, option
from dlv.errors import UsageError

if TYPE_CHECKING:
    import socket

    from dlv.hub.server.hub import Hub
    from dlv.hub.server.settings import OpenId

SECRET, STORE = "DLV_HUB_OPENID_SECRET", "DLV_HUB_STORE"
PORT = 8787


@command(
    "serve",
    examples=[
        "dlv hub serve --data ./hub",
        "dlv hub serve --data ./hub --port 8787 --url http://models.example.org --quota 500GB",
    ],
    exits={**EXITS, 5: "the port is taken"},
)
@hub_options
@option("--store", metavar="URL", help=f"Keep objects in a folder or s3:// [default: {STORE}].")
@option("--host", metavar="H", help="Address to bind [default: 127.0.0.1].")
@option("--port", type=click.IntRange(0, 65535), metavar="N", help="Port [default: 8787].")
@option("--url", metavar="URL", help="Tell clients this address, such as that of a proxy.")
@option("--direct", is_flag=True, help="Let clients fetch packs from the store itself.")
@option("--quota", metavar="SIZE", help="Limit namespaces without a quota [default: unlimited].")
@option(
    "--requests",
    type=click.IntRange(min=1),
    metavar="N",
    help="Limit requests of a token to N a minute [default: 6000].",
)
@option(
    "--anonymous-requests",
    type=click.IntRange(min=1),
    metavar="N",
    help="Limit requests of an address without a token to N a minute [default: 1200].",
)
@option("--trusted-proxies", metavar="HOSTS", help="Trust proxies here [default: 127.0.0.1].")
@option("--openid-issuer", metavar="URL", help="Log in users at an OpenID Connect provider.")
@option("--openid-client", metavar="ID", help="Use this client id there.")
@option(
    "--openid-domain",
    "domains",
    multiple=True,
    metavar="DOMAIN",
    help="Add users with an e-mail address of this domain.",
)
def run(
    call: Invocation,
    data: str | None,
    database: str | None,
    store: str | None,
    host: str | None,
    port: int | None,
    url: str | None,
    direct: bool,
    quota: str | None,
    requests: int | None,
    anonymous_requests: int | None,
    trusted_proxies: str | None,
    openid_issuer: str | None,
    openid_client: str | None,
    domains: tuple[str, ...],
) -> None:
    """Run the server of a hub.

    By default the database and the objects are in the folder of --data. Any number of servers can
    share a PostgreSQL database and an object store. Secrets are read from the environment:
    PGPASSWORD, the AWS_ variables of the store, and DLV_HUB_OPENID_SECRET for the client secret
    of --openid-client.
    """
    check_installed()
    import dlv.hub.server.accounts as accounts
    import dlv.hub.server.hub as hubs
    import dlv.ui.serving as serving
    from dlv.hub.server.settings import Limits, Settings

    folder, address = named(call, data, database)
    if folder is None and address is not None and call.environ.get("DLV_HUB_DATA"):
        folder = call.directory / call.environ["DLV_HUB_DATA"]
    address, objects, folder = hubs.places(folder, address, store or call.environ.get(STORE))
    openid = _openid(call, openid_issuer, openid_client, domains)
    limits = Limits(
        quota=None if quota is None else parse_size(quota),
        requests=requests or Limits.requests,
        anonymous=anonymous_requests or Limits.anonymous,
    )
    host = host or "127.0.0.1"
    with serving.bound(host, PORT if port is None else port) as bound:
        public = url or _address(host, bound.getsockname()[1])
        if not public.startswith(("http://", "https://")):
            raise UsageError(f"--url must be an http:// or https:// address, not `{public}`")
        proxies = trusted_proxies or "127.0.0.1"
        settings = Settings(
            database=address, store=objects, data=folder, url=public.rstrip("/"), limits=limits,
            openid=openid, direct=direct, trusted_proxies=proxies,
        )  # fmt: skip
        hub = hubs.Hub(settings, call.environ)
        # A signal that comes before the server handles them ends it as properly.
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            if openid is not None:
                import dlv.hub.server.oidc as oidc

                oidc.provider_of(hub)  # which refuses addresses that are not safe
            with hub.database.reading() as connection:
                empty = accounts.is_empty(connection)
            call.output.emit("hub-serve", {"url": settings.url}, settings.url, ids=[settings.url])
            sys.stdout.flush()
            if empty:
                place = f" --data {data}" if data else f" --database {database}" if database else ""
                first = "dlv hub user add NAME --operator"
                call.output.message(f"no users yet; to add the first one: {first}{place}")
            call.output.message("Serving the hub; press Ctrl-C to stop")
            _serve(hub, bound)
        except KeyboardInterrupt:
            call.output.message("stopped")
        finally:
            signal.signal(signal.SIGTERM, before)
            hub.close()


def _serve(hub: Hub, bound: socket.socket) -> None:
    import dlv.hub.server.serving as serving
    import dlv.ui.hub.site as site

    serving.serve(hub, bound, site.pages(hub))


def _openid(
    call: Invocation, issuer: str | None, client: str | None, domains: tuple[str, ...]
) -> OpenId | None:
    from dlv.hub.server.settings import OpenId

    if issuer is None:
        if client is not None or domains:
            raise UsageError("--openid-client and --openid-domain require --openid-issuer")
        return None
    secret = call.environ.get(SECRET)
    if client is None or not secret:
        raise UsageError(f"--openid-issuer requires --openid-client, and the variable {SECRET}")
    return OpenId(issuer, client, secret, domains)


def _address(host: str, port: int) -> str:
    """Return the address under which this computer itself reaches the server."""
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
    return f"http://{everywhere.get(host, f'[{host}]' if ':' in host else host)}:{port}"
