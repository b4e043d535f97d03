"""Requests and answers as handlers see them, without the web framework."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeVar, cast

from dlv.canonical import dumps, read_json
from dlv.dataclass import dataclass
from dlv.errors import Damaged, NewerFormat
from dlv.hub.server.access import Caller, Place, Role
from dlv.hub.server.hub import Hub
from dlv.hub.server.refusal import Refused
from dlv.objects import record as records

T = TypeVar("T")
JSON = "application/json"


@dataclass(frozen=True)
class Answer:
    """A response. `body` are bytes, or pieces of them that are sent one by one."""

    status: int = 200
    body: bytes | Iterator[bytes] = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str = JSON

    @classmethod
    def of_json(
        cls, value: Any, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> Answer:
        return cls(status, dumps(value), headers or {})


@dataclass(frozen=True)
class Exchange:
    """One request. `place` is the repository, in which the caller has the role of the route."""

    hub: Hub
    caller: Caller
    method: str
    parts: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    place_: Place | None = None
    body_: Any = None
    stream: Callable[[], AsyncIterator[bytes]] | None = None

    @property
    def place(self) -> Place:
        assert self.place_ is not None, "the route names no repository"
        return self.place_

    @property
    def body(self) -> Any:
        return self.body_

    def header(self, name: str) -> str | None:
        return self.headers.get(name.lower())

    def number(self, name: str, default: int, most: int = 1 << 53) -> int:
        """Return a natural number from the query."""
        text = self.query.get(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit()) or len(text) > 16 or int(text) > most:
            raise Refused(400, f"`{name}` is not a number from 0 to {most}")
        return int(text)


Handler = Callable[[Exchange], Answer] | Callable[[Exchange], Awaitable[Answer]]


@dataclass(frozen=True)
class Route:
    """An address and who may use it; the description of the API is made from it.

    `role`: NONE: everybody. With `{repository}` in the path, the role counts there; with
    `{namespace}` alone, in the whole namespace. `known`: a valid token is required. `operator`:
    only accounts that run the hub. `body`: a dataclass; keys with defaults may be left out.
    `streams`: the handler is a coroutine and reads the body itself. `large`: the body may have as
    many bytes as `document` of the limits, else as many as a ref.
    """

    method: str
    path: str
    role: Role
    handler: Handler
    summary: str
    known: bool = False
    operator: bool = False
    body: type | None = None
    answer: Any = None  # JSON schema or dataclass of a success
    media: str = JSON  # of the answer
    statuses: Sequence[int] = (200,)
    query: Mapping[str, str] = field(default_factory=dict)  # name: description
    streams: bool = False
    large: bool = False


def declared_length(headers: Mapping[str, str]) -> int:
    """Return how many bytes a request says that it has, 0 if it does not say so."""
    text = headers.get("content-length") or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else 0


MOST_VALUES = 100_000  # arrays and objects in a body: each takes far more memory than its bytes


def read_body(kind: type[T], data: bytes) -> T:
    """Read a JSON body strictly; keys with defaults may be missing."""
    if data.count(b"[") + data.count(b"{") > MOST_VALUES:
        raise Refused(413, "the body has too many values")
    try:
        value = read_json(data, "the body")
        _check_strings(value)
        if isinstance(value, dict):
            names = dataclasses.fields(cast(Any, kind))
            optional = {f.name: f.default for f in names if f.default is not dataclasses.MISSING}
            value = {**optional, **value}
        return records.decode(kind, value, records.Place("the body"))
    except (Damaged, NewerFormat) as error:
        raise Refused(422, error.message, why=error.why) from None


def _check_strings(value: Any) -> None:
    """Refuse strings that databases cannot store: with NUL, or half a surrogate pair."""
    level = [value]
    while level:
        item = level.pop()
        if isinstance(item, dict):
            level += [*item, *item.values()]
        elif isinstance(item, list):
            level += item
        elif isinstance(item, str) and not (item.isascii() or _encodes(item)):
            raise Refused(422, "a string of the body is not valid Unicode")
        elif isinstance(item, str) and "\0" in item:
            raise Refused(422, "a string of the body has the character NUL")
        elif isinstance(item, int) and not -(1 << 63) <= item < 1 << 63:
            raise Refused(422, "a number of the body is too large")


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
