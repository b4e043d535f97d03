"""Strict reading of the JSON objects that dlv writes: every key, every type, every range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from dlv.errors import Damaged, NewerFormat

T = TypeVar("T")


class Reader:
    """Takes one JSON object apart; whatever does not fit its schema is damage, with its place."""

    def __init__(self, value: Any, what: str, keys: str) -> None:
        self.what = what
        if not isinstance(value, dict):
            raise self.damaged("it is not an object")
        wanted = set(keys.split())
        if set(value) != wanted:
            odd = sorted(set(value) ^ wanted)
            raise self.damaged(f"keys missing or unknown: {', '.join(odd)}")
        self.value = value

    def damaged(self, why: str) -> Damaged:
        return Damaged(f"{self.what} is malformed", why=why, hint="dlv fsck")

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

    def each(self, key: str, keys: str) -> list[Reader]:
        items = self.take(key, list)
        return [Reader(item, f"{self.what}: {key}[{i}]", keys) for i, item in enumerate(items)]


def natural(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def check_format(value: Any, wanted: str, what: str) -> None:
    if not isinstance(value, dict) or not isinstance(value.get("format"), str):
        raise Damaged(f"{what} is malformed", why="it names no format", hint="dlv fsck")
    if value["format"] != wanted:
        raise NewerFormat(
            f"{what} has the format `{value['format']}`",
            why=f"this dlv reads `{wanted}`; it was written by {value.get('writer', 'another')}",
            hint="pip install --upgrade dlv",
        )
