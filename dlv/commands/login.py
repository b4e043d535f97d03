"""`dlv login`: keep a token of a hub, so that other commands can use it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.errors import UsageError
from dlv.terminal.output import Line
from dlv.terminal.table import Text

if TYPE_CHECKING:
    from dlv.hub.credentials import Credential
    from dlv.hub.login import Login

MOST_TOKEN = 1000


@command(
    "login",
    examples=[
        "dlv login https://hub.example.com",
        "dlv login https://hub.example.com --token-stdin < token.txt",
        "dlv login https://hub.example.com --keyring",
    ],
    exits={
        4: "the login was not confirmed in time",
        7: "the hub cannot be reached, or does not accept the token",
    },
)
@argument("url", metavar="URL")
@option("--token-stdin", is_flag=True, help="Read a token from stdin.")
@option("--keyring", is_flag=True, help="Keep the token in the keyring of the system.")
@option("--no-browser", is_flag=True, help="Print the address without opening it.")
def run(call: Invocation, url: str, token_stdin: bool, keyring: bool, no_browser: bool) -> None:
    """Log in at a hub and keep its token.

    URL is the address of a hub, or of a repository on it. Without --token-stdin, open the printed
    address in a browser and confirm the code there. The token is kept in a file that only you can
    read. In CI, set DLV_TOKEN, and DLV_TOKEN_URL to the hub that
    it is for.
    """
    import dlv.hub.credentials as credentials
    from dlv.hub.stores.opening import check_web

    check_web()
    from dlv.hub.login import Login

    if keyring:
        credentials.check_keyring()
    token = _token() if token_stdin else None
    login = Login(url)
    try:
        if login.hub.startswith("http:") and not _is_local(login.hub):
            call.output.warn(f"{login.hub} is not encrypted: others on the network see the token")
        credential = _confirmed(call, login, no_browser) if token is None else login.check(token)
    finally:
        login.close()
    credentials.store(credential, call.environ, in_keyring=keyring)
    call.output.emit(
        "login",
        {
            "url": credential.hub,
            "name": credential.name,
            "expires": credential.expires,
            "kept_in": "keyring" if keyring else str(credentials.path_of(call.environ)),
        },
        Line("logged in as", Text(credential.name, "bold"), "at", credential.hub),
        ids=[credential.hub],
    )
    if credential.expires is not None:
        call.output.message(f"the token is valid until {credential.expires[:10]}")


def _token() -> str:
    """Read a token from stdin; it is never taken from the command line, which others can see."""
    if sys.stdin.isatty():
        import getpass

        token = getpass.getpass("token: ").strip()  # which does not show it
    else:
        token = sys.stdin.readline(MOST_TOKEN).strip()
    if not token:
        raise UsageError("no token on stdin", hint="dlv login URL --token-stdin < token.txt")
    return token


def _confirmed(call: Invocation, login: Login, no_browser: bool) -> Credential:
    """Begin a login in the browser, and wait until it is confirmed."""
    begun = login.begin()
    call.output.message(f"open {begun.url}\nand confirm the code {begun.code}")
    if call.output.terminal and not no_browser and login.may_open(begun):
        import webbrowser

        webbrowser.open(begun.url)
    return login.wait(begun)


def _is_local(hub: str) -> bool:
    return hub.startswith(("http://127.", "http://localhost", "http://[::1]"))
