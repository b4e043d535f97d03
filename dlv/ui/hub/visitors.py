"""Visitors of the pages: sessions, forms that only a page of this hub can send, the frame."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from dlv.dataclass import dataclass
from dlv.errors import require
from dlv.hub.server.access import Caller, caller_of
from dlv.hub.server.hub import Hub
from dlv.hub.server.refusal import Refused
from dlv.hub.server.tokens import SESSION, SESSION_DAYS

COOKIE = "dlv_session"
MOST_FORM = 64 << 10  # bytes
MOST_FIELDS = 100
_LONGEST = 200  # characters of a cookie


@dataclass(frozen=True)
class Visitor:
    """Who looks at a page. `secret` is what forms of this session contain."""

    caller: Caller
    session: str = ""

    @property
    def secret(self) -> str:
        """Return words that only pages of this session know, though not the session itself."""
        return hashlib.sha256(f"form:{self.session}".encode()).hexdigest()[:32]


def visitor_of(hub: Hub, request: Any) -> Visitor:
    """Return the visitor whose session the cookie names, else one without an account."""
    client = request.client
    origin = str(client.host)[:64] if client else "-"
    session = request.cookies.get(COOKIE, "")
    if session and len(session) < _LONGEST:
        with hub.database.reading() as connection:
            caller = caller_of(connection, session, origin, kind=SESSION)
        if caller is not None:
            return Visitor(caller, session)
    return Visitor(Caller(origin=origin))


def check_form(hub: Hub, request: Any, visitor: Visitor, form: Mapping[str, str]) -> None:
    """Refuse a form that a page of another site sent, or of an older session."""
    sent_by = request.headers.get("origin")
    if sent_by is not None and sent_by != origin_of(hub.settings.url):
        raise Refused(403, "the form was sent from another site")
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Refused(403, "the form was sent from another site")
    if visitor.caller.known and not hmac.compare_digest(form.get("secret", ""), visitor.secret):
        raise Refused(403, "the form is outdated", hint="load the page again")


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def root_of(url: str) -> str:
    """Return the path below which the hub is, without a slash at its end."""
    return urlsplit(url).path.rstrip("/")


async def read_form(request: Any) -> dict[str, str]:
    """Read the fields of a form; of several with one name the last one."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MOST_FORM:
            raise Refused(413, "the form is too large")
    try:
        fields = parse_qsl(data.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise Refused(400, "the form cannot be read") from None
    return dict(fields)


def redirect(address: str) -> Any:
    """Lead to another page of this hub."""
    responses = require("starlette.responses", "ui")
    return responses.RedirectResponse(address, 303)


def set_session(response: Any, hub: Hub, session: str) -> Any:
    """Let the browser keep the session; without one, forget it."""
    response.set_cookie(
        COOKIE,
        session,
        max_age=SESSION_DAYS * 86400 if session else 0,
        path="/",
        secure=hub.settings.url.startswith("https:"),
        httponly=True,
        samesite="lax",
    )
    return response
