"""`dlv logout`: forget the token of a hub."""

from __future__ import annotations

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command
from dlv.errors import NotFound, UsageError
from dlv.terminal.output import Line


@command(
    "logout",
    examples=[
        "dlv login https://hub.example.com --token-stdin < token.txt && dlv logout",
        "dlv logout https://hub.example.com",
    ],
    exits={4: "not logged in there"},
)
@argument("url", metavar="URL", required=False)
def run(call: Invocation, url: str | None) -> None:
    """Forget the token of a hub.

    URL can be left out if you are logged in at one hub only. The token is removed from this
    computer, but stays valid until it expires; to end it, revoke it on the pages of the hub.
    """
    import dlv.hub.credentials as credentials

    known = credentials.known(call.environ)
    if url is None:
        if not known:
            raise NotFound("not logged in at any hub")
        if len(known) > 1:
            raise UsageError(
                "a hub must be named",
                why=f"logged in at {', '.join(known)}",
                hint=f"dlv logout {next(iter(known))}",
            )
        url = next(iter(known))
    credential = credentials.forget(url, call.environ)
    document = {"url": credential.hub, "name": credential.name, "expires": credential.expires}
    call.output.emit(
        "logout", document, Line("logged out at", credential.hub), ids=[credential.hub]
    )
