"""Logging in and out, and the tokens of a user."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, unquote, urlsplit

from dlv.errors import DlvError, NotFound
from dlv.hub.server import oidc, tokens
from dlv.hub.server.access import PREFIX, ROLES, caller_of, role_of
from dlv.hub.server.refusal import Refused
from dlv.report.markup import Html, text
from dlv.terminal.table import Cell, Column, Moment, Table, Time
from dlv.ui.frame import Frame, now
from dlv.ui.hub.context import Context, words_of
from dlv.ui.hub.visitors import Visitor, redirect, set_session

Form = dict[str, str]
LOGIN_COOKIE = "dlv_login"
MOST_NEXT = 1000  # characters of the address to come back to


def login(context: Context, visitor: Visitor, request: Any, fault: str = "") -> Any:
    """The page to log in."""
    after = request.query_params.get("next", "")
    if visitor.caller.known and not fault:
        return redirect(_inside(context, after))
    return login_page(context, visitor, after, fault)


def login_page(
    context: Context, visitor: Visitor, after: str, fault: str = "", status: int = 200
) -> Any:
    openid = context.hub.settings.openid
    return context.shell.render(
        "hub_login.html", "Log in", context.around(visitor), status, here="Log in", fault=fault,
        openid="" if openid is None else urlsplit(openid.issuer).netloc,
        openid_address=context.to("/login/openid", {"next": after}), next=after,
    )  # fmt: skip


def log_in(context: Context, visitor: Visitor, form: Form) -> Any:
    """Begin a session with a token."""
    secret, after = form.get("token", "").strip(), form.get("next", "")
    with context.hub.database.writing() as connection:
        caller = None
        if secret.startswith(PREFIX) and len(secret) < 200:
            caller = caller_of(connection, secret, visitor.caller.origin)
        if caller is not None and caller.user_id is not None:
            session, _ = tokens.start_session(connection, caller, caller.user_id, with_token=True)
            return set_session(redirect(_inside(context, after)), context.hub, session)
    return None  # a wrong token, which the site counts


def begin_openid(context: Context, _: Visitor, request: Any) -> Any:
    """Lead to the login provider; the browser keeps a secret until it comes back."""
    address, secret = oidc.start(context.hub)
    after = quote(request.query_params.get("next", "")[:MOST_NEXT], safe="")
    response = redirect(address)
    return _set_login(context, response, f"{secret}~{after}", oidc.COOKIE_SECONDS)


def end_openid(context: Context, visitor: Visitor, request: Any) -> Any:
    """Begin a session for the account that the provider names."""
    secret, _, after = request.cookies.get(LOGIN_COOKIE, "").partition("~")
    query = dict(request.query_params)
    session = oidc.come_back(context.hub, query, secret, visitor.caller.origin)
    response = redirect(_inside(context, unquote(after)))
    return _set_login(context, set_session(response, context.hub, session), "", 0)


def _set_login(context: Context, response: Any, value: str, seconds: int) -> Any:
    response.set_cookie(
        LOGIN_COOKIE, value, max_age=seconds, path=context.to("/login"), httponly=True,
        secure=context.hub.settings.url.startswith("https:"), samesite="lax",
    )  # fmt: skip
    return response


def log_out(context: Context, visitor: Visitor) -> Any:
    with context.hub.database.writing() as connection:
        tokens.end_session(connection, visitor.session, visitor.caller.origin)
    return set_session(redirect(context.to("/")), context.hub, "")


def _inside(context: Context, address: str) -> str:
    """Return an address of this hub, whatever a link said."""
    parts = urlsplit(address)
    own = address.startswith("/") and not address.startswith(("//", "/\\"))
    if not own or parts.scheme or parts.netloc or any(ord(letter) < 33 for letter in address):
        return context.to("/")
    return address


# The login of a program


def device(context: Context, visitor: Visitor, request: Any) -> Any:
    """Show the code of a program that waits; a visitor without an account logs in first."""
    asked = request.query_params.get("code", "")[:40]
    if not visitor.caller.known:
        back = context.to("/login/device", {"code": asked})
        return redirect(context.to("/login", {"next": back}))
    with context.hub.database.reading() as connection:
        code = tokens.waiting_code(connection, asked) if asked else None
    fault = f"No program waits with the code {asked}." if asked and code is None else ""
    return _device(context, visitor, code=code or "", asked=asked, fault=fault)


def confirm_device(context: Context, visitor: Visitor, form: Form) -> Any:
    with context.hub.database.writing() as connection:
        done = tokens.confirm_device_login(connection, visitor.caller, form.get("code", "")[:40])
    fault = "" if done else "No program waits with this code."
    return _device(context, visitor, done=done, fault=fault)


def _device(context: Context, visitor: Visitor, **values: Any) -> Any:
    values = {"code": "", "asked": "", "fault": "", "done": False, **values}
    return context.shell.render(
        "hub_device.html", "Log a program in", context.around(visitor), name=visitor.caller.name,
        **values,
    )  # fmt: skip


# Tokens


def list_tokens(
    context: Context, visitor: Visitor, fault: str = "", created: dict[str, str] | None = None
) -> Any:
    """The tokens of the visitor, and a form for a new one."""
    scope = tokens.scope_of(visitor.caller)
    with context.hub.database.reading() as connection:
        found = tokens.tokens(connection, visitor.caller.user_id, within=scope)
    rows: list[list[Cell]] = []
    for token in found:
        place = "/".join(part for part in (token.namespace, token.repository) if part)
        rows.append(
            [
                token.name, f"{token.hint}…", token.role, place or "everywhere",
                None if token.used is None else Time(token.used), Moment(token.expires),
                _revoke(context, visitor, token),
            ]
        )  # fmt: skip
    columns = [
        Column("name"), Column("begins with"), Column("role"), Column("in"), Column("last used"),
        Column("expires"), Column(""),
    ]  # fmt: skip
    place = "/".join(part for part in (scope.namespace, scope.repository) if part)
    return context.shell.render(
        "hub_tokens.html", "Tokens", context.around(visitor), here="Tokens", fault=fault,
        about="For dlv publish, dlv pull and programs of your own.", created=created,
        table=Frame(now()).table(Table(columns, rows), caption="tokens", fold=200),
        count=len(rows), roles=[word for word in ROLES if role_of(word) <= scope.role],
        scope=place, most_days=tokens.MOST_DAYS, url=context.public(""),
    )  # fmt: skip


def _revoke(context: Context, visitor: Visitor, token: tokens.Token) -> Html:
    """A button of its own form."""
    return Html(
        f'<form class="inline" action="{text(context.to("/tokens"))}" method="post">'
        f'<input type="hidden" name="secret" value="{visitor.secret}">'
        f'<input type="hidden" name="revoke" value="{token.id}">'
        f'<button aria-label="Revoke {text(token.name)}">Revoke</button></form>'
    )


def change_tokens(context: Context, visitor: Visitor, form: Form) -> Any:
    """Revoke a token, or create one, which is shown once."""
    caller = visitor.caller
    assert caller.user_id is not None
    try:
        with context.hub.database.writing() as connection:
            if "revoke" in form:
                number = _number(form["revoke"])
                scope = tokens.scope_of(caller)
                tokens.revoke_token(
                    connection, caller, number, user_id=caller.user_id, within=scope
                )
                return redirect(context.to("/tokens"))
            scope = tokens.scope_from(form.get("place", "").strip() or None, form.get("role"))
            token, secret = tokens.create_token(
                connection,
                caller,
                caller.user_id,
                name=form.get("name", "").strip(),
                scope=scope,
                days=_number(form.get("days", "")),
            )
    except Refused as refused:
        return list_tokens(context, visitor, words_of(refused.error))
    except DlvError as error:
        return list_tokens(context, visitor, words_of(error))
    return list_tokens(context, visitor, created={"name": token.name, "secret": secret})


def _number(word: str) -> int:
    if not (word.isascii() and word.isdigit() and len(word) < 16):
        raise NotFound(f"`{word[:20]}` is not a number")
    return int(word)
