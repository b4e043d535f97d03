"""HTTP/1.1 as the hub speaks it: requests that do not arrive in time end, and errors are JSON."""

from __future__ import annotations

import asyncio
import json
from typing import cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from dlv.errors import UsageError

LINGER = 2.0  # seconds in which a client can read why its body was refused
HEADERS = 30.0  # seconds in which the head of a request must arrive


class Protocol(H11Protocol):
    """One connection."""

    _timer: asyncio.TimerHandle | None = None

    @property
    def _is_waiting(self) -> bool:
        """Whether no request is in progress."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_waiting:
            self._start_timer()
        else:
            self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            # The rest of a body that was refused; closing at once could destroy the answer.
            self._stop_timer()
            self._start_timer(LINGER)

    def _start_timer(self, seconds: float | None = None) -> None:
        if self._timer is None and not self.transport.is_closing():
            self._timer = self.loop.call_later(seconds or HEADERS, self._give_up)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self._is_waiting:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP; if an answer has begun, it is cut off."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        body = json.dumps(UsageError(msg.rstrip(".")).as_json()).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        events: list[h11.Event] = [
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ]
        for event in events:
            self.transport.write(cast(bytes, self.conn.send(event)))
        self.transport.close()
