"""The JSON objects that dlv writes: from dataclasses, and strictly read: every key and range."""

from __future__ import annotations

from collections.abc import Callable, Container
from types import NoneType
from typing import Any, TypeVar

from dlv.errors import Damaged, NewerFormat

T = TypeVar("T")


def as_json(value: Any) -> Any:
    """A dataclass as a JSON object with a key for each field; tuples are arrays."""
    names = getattr(value, "__dataclass_fields__", None)
    if names is not None:
        return {name: as_json(getattr(value, name)) for name in names}
    if isinstance(value, tuple):
        # Of hashes there may be hundreds of thousands: they are not looked at one by one.
        plain = not value or isinstance(value[0], (str, int, NoneType))
        return list(value) if plain else [as_json(item) for item in value]
    return value


class Reader:
    """Takes one JSON object apart; whatever does not fit its schema is damage, with its place."""

    def __init__(self, value: Any, what: str, keys: str, writer: str | None = None) -> None:
        self.what = what
        if not isinstance(value, dict):
            raise self.damaged("it is not an object")
        self.writer = writer or value.get("writer")
        wanted = set(keys.split())
        if missing := sorted(wanted - set(value)):
            raise self.damaged(f"keys are missing: {', '.join(missing)}")
        if unknown := sorted(set(value) - wanted):
            raise self.newer(f"the key `{unknown[0]}`")
        self.value = value

    def damaged(self, why: str) -> Damaged:
        return Damaged(f"{self.what} is malformed", why=why, hint="dlv fsck")

    def newer(self, thing: str) -> NewerFormat:
        """The error about something whose meaning is not known here."""
        return NewerFormat(
            f"{self.what} has {thing}, which this dlv does not know",
            why=f"it was written by {self.writer or 'a newer dlv'}",
            hint="pip install --upgrade dlv",
        )

    def take(self, key: str, kind: type[T], check: Callable[[T], Any] = lambda _: True) -> T:
        value = self.value[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.damaged(f"`{key}` is not {kind.__name__}")
        if not check(value):
            raise self.damaged(f"`{key}` has a value that is not allowed")
        return value

    def optional(
        self, key: str, kind: type[T], check: Callable[[T], Any] = lambda _: True
    ) -> T | None:
        return None if self.value[key] is None else self.take(key, kind, check)

    def one_of(self, key: str, known: Container[str]) -> str:
        """A word from a list that may grow: an unknown one is not damage."""
        word = self.take(key, str)
        if word not in known:
            raise self.newer(f"the {key} `{word}`")
        return word

    def inner(self, key: str, keys: str) -> Reader:
        return Reader(self.value[key], f"{self.what}: {key}", keys, self.writer)

    def each(self, key: str, keys: str) -> list[Reader]:
        return [
            Reader(item, f"{self.what}: {key}[{i}]", keys, self.writer)
            for i, item in enumerate(self.take(key, list))
        ]


def whole(value: Any) -> bool:
    """An integer as the catalogue can hold it."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def natural(value: Any) -> bool:
    return whole(value) and value >= 0


def check_format(value: Any, wanted: str, what: str) -> None:
    if not isinstance(value, dict) or not isinstance(value.get("format"), str):
        raise Damaged(f"{what} is malformed", why="it names no format", hint="dlv fsck")
    if value["format"] != wanted:
        raise NewerFormat(
            f"{what} has the format `{value['format']}`",
            why=f"this dlv reads `{wanted}`; it was written by {value.get('writer', 'another')}",
            hint="pip install --upgrade dlv",
        )
