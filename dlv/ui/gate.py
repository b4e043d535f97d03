"""Who may talk to the pages: the same guard that stands before TensorBoard, for ASGI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from dlv.events.server.security import Answer, Guard

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

# Nothing from elsewhere, nothing inline. A blob of a version is data, never run.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


class Gate:
    """An ASGI application in front of another one; only requests with the token pass."""

    def __init__(self, app: Application, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                held = [
                    (name.decode("latin-1"), value.decode("latin-1"))
                    for name, value in message["headers"]
                ]
                message["headers"] = _encoded(self._guard.with_headers(held))
            await send(message)

        answer = self._guard.refusal(_environ(scope))
        if answer is None:
            await self._app(scope, receive, guarded)
        else:
            await _answer(answer, scope, guarded)


def _environ(scope: Scope) -> dict[str, Any]:
    """What the guard looks at, as WSGI names it."""
    found: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "QUERY_STRING": scope.get("query_string", b"").decode("latin-1"),
    }
    for name, value in scope["headers"]:
        found[f"HTTP_{name.decode('latin-1').upper().replace('-', '_')}"] = value.decode("latin-1")
    return found


async def _answer(answer: Answer, scope: Scope, send: Send) -> None:
    body = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
    headers = {"Content-Type": answer.content_type, "Content-Length": str(len(body))}
    headers |= {"Cache-Control": "no-store", **answer.headers}
    await send(
        {
            "type": "http.response.start",
            "status": answer.status,
            "headers": _encoded(list(headers.items())),
        }
    )
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


def _encoded(headers: list[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
