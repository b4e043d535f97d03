"""The hub as an ASGI application: who calls, what they may do, and what is logged."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import Any

import sqlalchemy as sa
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute
from starlette.routing import Route as WebRoute

from dlv.canonical import timestamp
from dlv.errors import (
    Conflict,
    Damaged,
    DlvError,
    NewerFormat,
    NotFound,
    RemoteError,
    StorageError,
    UnsafeInput,
    UsageError,
)
from dlv.hub.records import REMOTE_FILE
from dlv.hub.server.access import PREFIX, Caller, Place, Role, caller_of, namespace_role, place_of
from dlv.hub.server.exchange import JSON, Answer, Exchange, Route, declared_length, read_body
from dlv.hub.server.hub import Hub
from dlv.hub.server.limiting import Limiter
from dlv.hub.server.metrics import Metrics
from dlv.hub.server.refusal import Refused, not_found
from dlv.hub.stores.interface import MissingObject

_STATUS: Sequence[tuple[type[DlvError], int]] = (
    (UsageError, 422), (NotFound, 404), (Conflict, 409), (Damaged, 422), (UnsafeInput, 422),
    (NewerFormat, 422), (StorageError, 507), (RemoteError, 502),
)  # fmt: skip
_SAFE_HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
LOGGED_PATH = 200  # characters
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
BODY_SECONDS = 60.0  # in which a body begins to arrive
BODY_RATE = 4096.0  # bytes that then come each second, on average
WAIT = 10  # seconds after which a client tries a busy hub again

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Application:
    """An ASGI application; `pages` are routes for people, made elsewhere."""

    def __init__(
        self,
        hub: Hub,
        routes: Iterable[Route],
        pages: Sequence[BaseRoute] = (),
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.hub, self._log = hub, log
        self.metrics = Metrics(hub)
        self.limiter = Limiter(hub.limits)
        hub.log = self._log_error
        web_routes: list[BaseRoute] = [_web_route(self, routes) for routes in _by_path(routes)]
        web_routes.append(WebRoute("/{namespace}/{repository}/" + REMOTE_FILE, self._remote_file))
        self._inner = Starlette(
            routes=[*web_routes, *pages], exception_handlers={HTTPException: _web_error}
        )
        # A redirection would lead to the host that the request names.
        self._inner.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and write one line about each request when it has ended."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        begun = time.perf_counter()
        record: dict[str, Any] = {"caller": "-", "route": "-"}
        scope["dlv"] = record
        request_id = os.urandom(8).hex()
        record["id"] = request_id
        status, sent = 500, 0

        async def counted(message: MutableMapping[str, Any]) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
            else:
                sent += len(message.get("body", b""))
            await send(message)

        self.metrics.active.inc()
        try:
            await self._inner(scope, _in_time(receive, record), counted)
        finally:
            self.metrics.active.dec()
            seconds = time.perf_counter() - begun
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self.metrics.answered(method, record["route"], status, seconds, sent)
            self._log_request(scope, record, status, seconds, sent)

    def _log_request(
        self, scope: Scope, record: dict[str, Any], status: int, seconds: float, sent: int
    ) -> None:
        # Queries and headers are left out: they can contain secrets, and searches are private.
        line = {
            "time": timestamp(),
            "level": "error" if status >= 500 else "info",
            "id": record["id"],
            "method": scope["method"],
            "path": scope["path"][:LOGGED_PATH],
            "route": record["route"],
            "status": status,
            "ms": round(seconds * 1000, 1),
            "sent": sent,
            "caller": record["caller"],
            "client": _origin(scope),
        }
        self._log(json.dumps(line))

    def _log_error(self, what: str, label: str, error: Exception) -> None:
        line = {
            "time": timestamp(),
            "level": "error",
            "event": what,
            "about": label,
            "error": f"{type(error).__name__}: {error}"[:500],
            "traceback": traceback.format_exception(error)[-6:],
        }
        self._log(json.dumps(line))

    async def respond(self, route: Route, request: Request) -> Response:
        """Answer one request of a route."""
        record = request.scope["dlv"]
        record["route"] = route.path
        try:
            _check_address(request)
            if route.streams:
                call = await run_in_threadpool(self._exchange, route, request)
                answer = await self._streamed(route, call)
            elif route.body is None:
                answer = await run_in_threadpool(self._answer, route, request)
            else:
                # Bodies are read of callers who may send one.
                call = await run_in_threadpool(self._exchange, route, request)
                data = await self._body(route, request)
                answer = await run_in_threadpool(self._answer_to, route, call, data)
        except ClientDisconnect:
            if record.get("slow"):
                slow = RemoteError("the body did not arrive in time", hint="try again")
                return _error(408, slow, {"Connection": "close"})
            return Response(status_code=499)
        except Exception as error:
            return self.refusal(error, record["id"])
        return _response(answer)

    def refusal(self, error: Exception, request_id: str) -> Response:
        """Return the response to an error; what is not expected is logged with its traceback."""
        if isinstance(error, Refused):
            return _error(error.status, error.error, error.headers)
        if isinstance(error, DlvError):
            status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
            if status >= 500:
                self._log_error("error", request_id, error)
            return _error(status, error)
        self._log_error("error", request_id, error)
        if isinstance(error, (sa.exc.OperationalError, sa.exc.TimeoutError)):
            busy = DlvError("the database of the hub is busy or restarting", hint="try again")
            return _error(503, busy, {"Retry-After": str(WAIT)})
        if isinstance(error, MissingObject):
            lost = DlvError("the store of the hub lacks an object", why=error.key)
            return _error(500, lost)
        return _error(500, DlvError("internal error of the hub", why=f"request {request_id}"))

    async def _streamed(self, route: Route, call: Exchange) -> Answer:
        answer = route.handler(call)
        return answer if isinstance(answer, Answer) else await answer

    def _answer(self, route: Route, request: Request) -> Answer:
        return self._answer_to(route, self._exchange(route, request), b"")

    def _answer_to(self, route: Route, call: Exchange, data: bytes) -> Answer:
        if route.body is bytes:
            call = dataclasses.replace(call, body_=data)
        elif route.body is not None:
            call = dataclasses.replace(call, body_=read_body(route.body, data or b"{}"))
        answer = route.handler(call)
        assert isinstance(answer, Answer), "a handler that is a coroutine needs `streams`"
        return answer

    def _exchange(self, route: Route, request: Request) -> Exchange:
        """Return the request with its caller, who has the role that the route requires."""
        parts = request.path_params
        with self.hub.database.reading() as connection:
            caller = self._caller(connection, request)
            request.scope["dlv"]["caller"] = caller.name
            place = self._place(connection, route, caller, parts)
        return Exchange(
            hub=self.hub,
            caller=caller,
            method=request.method,
            parts=parts,
            query=request.query_params,
            headers=request.headers,
            place_=place,
            stream=request.stream if route.streams else None,
        )

    def _caller(self, connection: sa.Connection, request: Request) -> Caller:
        origin = _origin(request.scope)
        headers = request.headers.getlist("authorization")
        if not headers:
            self.limiter.check_anonymous(origin)
            return Caller(origin=origin)
        scheme, _, secret = headers[0].partition(" ")
        secret = secret.strip()
        if self.limiter.many_guesses(origin):
            # Others with this address can go on, at the pace of those without a token.
            self.limiter.check_anonymous(origin)
        caller = None
        # With two of these headers, a proxy and this program could each believe another one.
        well_formed = secret.startswith(PREFIX) and secret.isascii() and len(secret) < 200
        if len(headers) == 1 and scheme.lower() == "bearer" and well_formed:
            caller = caller_of(connection, secret, origin)
        if caller is None:
            self.limiter.check_guess(origin)
            raise Refused(
                401,
                "the token is not valid",
                why="it is wrong, has expired or was revoked",
                hint="dlv login URL",
                headers={"WWW-Authenticate": 'Bearer realm="dlv"'},
            )
        self.limiter.check_token(caller)
        self.hub.note_use(caller)
        return caller

    def _place(
        self, connection: sa.Connection, route: Route, caller: Caller, parts: dict[str, Any]
    ) -> Place | None:
        if route.operator and not caller.runs_the_hub:
            raise not_found() if not caller.known else Refused(403, "only operators may do this")
        if route.known and not caller.known:
            raise Refused(401, "this requires a token", hint="dlv login URL")
        if "{namespace}" not in route.path or route.role is Role.NONE:
            return None
        if "{repository}" in route.path:
            place = place_of(connection, caller, parts["namespace"], parts["repository"])
            if place is None:
                raise not_found()
            role = place.role
        else:
            place = None
            namespace_id, role = namespace_role(connection, caller, parts["namespace"])
            if namespace_id is None and caller.runs_the_hub:
                role = Role.ADMIN  # who makes it by its first member, or the handler refuses
            elif namespace_id is None or role is Role.NONE:
                raise not_found()
        if role < route.role:
            raise Refused(403, f"this requires the role {route.role.word}")
        return place

    async def _body(self, route: Route, request: Request) -> bytes:
        """Read a body, but no more than the route accepts."""
        limits = self.hub.limits
        most = limits.document if route.large else limits.ref
        too_large = Refused(413, f"the body has more than {most} bytes")
        if declared_length(request.headers) > most:
            raise too_large
        data = bytearray()
        async for chunk in request.stream():
            data += chunk
            if len(data) > most:
                raise too_large
        return bytes(data)

    async def _remote_file(self, request: Request) -> Response:
        """Answer clients who open the address of a repository, and find out that it is a hub."""
        route = Route("GET", "/{namespace}/{repository}/" + REMOTE_FILE, Role.READER, _record, "")
        response = await self.respond(route, request)
        response.headers["Dlv-Hub"] = "1"
        return response


def _record(call: Exchange) -> Answer:
    return Answer(200, call.place.record.encode(), {"Cache-Control": "no-store"})


def _in_time(receive: Receive, record: dict[str, Any]) -> Receive:
    """Return `receive`, which ends a body that does not arrive in time as if it was cut off."""
    begun, count, complete = 0.0, 0, False

    async def received() -> MutableMapping[str, Any]:
        nonlocal begun, count, complete
        if complete:
            return await receive()
        begun = begun or time.monotonic()  # when reading begins
        end = begun + BODY_SECONDS + count / BODY_RATE
        try:
            message = await asyncio.wait_for(receive(), end - time.monotonic())
        except TimeoutError:
            record["slow"] = complete = True
            return {"type": "http.disconnect"}
        count += len(message.get("body", b""))
        complete = not message.get("more_body", False)
        return message

    return received


def _check_address(request: Request) -> None:
    """Refuse names that no database can compare: nothing can have them."""
    for part in request.path_params.values():
        if not str(part).isprintable():
            raise not_found()


def _origin(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0])[:64] if client else "-"


def _by_path(routes: Iterable[Route]) -> Iterable[list[Route]]:
    grouped: dict[str, list[Route]] = {}
    for route in routes:
        grouped.setdefault(route.path, []).append(route)
    # Fixed words come before parameters, so that /v1/search is not read as a namespace.
    return sorted(grouped.values(), key=lambda same: _order(same[0].path))


def _order(path: str) -> list[tuple[bool, str]]:
    return [(part.startswith("{"), part) for part in path.split("/")]


def _web_route(application: Application, routes: Sequence[Route]) -> WebRoute:
    by_method = {route.method: route for route in routes}
    if "GET" in by_method:
        by_method.setdefault("HEAD", by_method["GET"])

    async def endpoint(request: Request) -> Response:
        return await application.respond(by_method[request.method], request)

    return WebRoute(routes[0].path, endpoint, methods=[*by_method])


def _response(answer: Answer) -> Response:
    headers = {**_SAFE_HEADERS, "Cache-Control": "no-store", **answer.headers}
    if isinstance(answer.body, bytes):
        response = Response(answer.body, answer.status, headers)
        if answer.body or "Content-Length" in headers:
            response.headers["Content-Type"] = answer.media_type
        return response
    return StreamingResponse(answer.body, answer.status, headers, media_type=answer.media_type)


def _error(status: int, error: DlvError, headers: dict[str, str] | None = None) -> Response:
    content = json.dumps(error.as_json()).encode()
    return Response(
        content,
        status,
        {**_SAFE_HEADERS, "Cache-Control": "no-store", **(headers or {})},
        media_type=JSON,
    )


async def _web_error(_: Request, error: Exception) -> Response:
    """Answer for addresses and methods that no route has."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        refused = not_found()
        return _error(404, refused.error)
    return _error(error.status_code, DlvError(error.detail), dict(error.headers or {}))
