"""A protobuf message with named fields, from text or from bytes, and typed access to them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

from dlv.adapters.decimals import shortest
from dlv.errors import Damaged

_UINT32, _INT64 = 1 << 32, 1 << 63
_TRUE, _FALSE = ("true", "True", "t"), ("false", "False", "f")
_FLOATS = {"inf": math.inf, "infinity": math.inf, "nan": math.nan}

T = TypeVar("T")


class Word(str):
    """A bare word: the name of an enum's value, or true and false."""

    __slots__ = ()


Value = Any  # int, float, bool, str, Word or Message


class Message:
    """Fields by name, each with all its values in their order, and the line of each."""

    __slots__ = ("asked", "fields", "file", "line", "lines")

    def __init__(self, file: str, line: int = 0) -> None:
        self.file = file
        self.line = line  # where it begins; 0: not from a text
        self.fields: dict[str, list[Value]] = {}
        self.lines: dict[str, list[int]] = {}
        self.asked: set[str] = set()  # names of fields that someone wanted to know

    def add(self, name: str, value: Value, line: int = 0) -> None:
        self.fields.setdefault(name, []).append(value)
        self.lines.setdefault(name, []).append(line)

    def __contains__(self, name: str) -> bool:
        self.asked.add(name)
        return name in self.fields

    def _values(self, name: str) -> list[Value]:
        self.asked.add(name)
        return self.fields.get(name, [])

    @property
    def left(self) -> list[str]:
        """Return the fields of the message that no reader has requested."""
        return [name for name in self.fields if name not in self.asked]

    def at(self, name: str | None = None, index: int = 0) -> str:
        """The place of a field, or of the message, as messages to the user begin."""
        line = self.lines[name][index] if name in self.lines else self.line
        return f"{self.file}, line {line}" if line else self.file

    def wrong(self, name: str, wanted: str, index: int = 0) -> Damaged:
        value = self.fields[name][index]
        shown = "a message" if isinstance(value, Message) else repr(value)[:60]
        return Damaged(f"{self.at(name, index)}: {name} is {shown}", why=f"it takes {wanted}")

    def _single(self, name: str, values: Sequence[T], default: T) -> T:
        if len(values) > 1:
            raise Damaged(f"{self.at(name, 1)}: {name} is there twice", why="it takes one value")
        return values[0] if values else default

    def messages(self, name: str) -> list[Message]:
        found = self._values(name)
        for index, value in enumerate(found):
            if not isinstance(value, Message):
                raise self.wrong(name, "a message in braces", index)
        return list(found)

    def message(self, name: str) -> Message:
        """The message of that name, an empty one if there is none."""
        return self._single(name, self.messages(name), Message(self.file, self.line))

    def texts(self, name: str) -> list[str]:
        found = self._values(name)
        for index, value in enumerate(found):
            if not isinstance(value, str) or isinstance(value, Word):
                raise self.wrong(name, "a text in quotes", index)
        return list(found)

    def text(self, name: str, default: str = "") -> str:
        return self._single(name, self.texts(name), default)

    def integers(self, name: str, least: int = -_INT64, most: int = _INT64 - 1) -> list[int]:
        found = self._values(name)
        for index, value in enumerate(found):
            if type(value) is not int or not least <= value <= most:
                kind = "a count" if least == 0 else "a whole number"
                raise self.wrong(name, kind, index)
        return list(found)

    def integer(self, name: str, default: int) -> int:
        return self._single(name, self.integers(name, -(1 << 31), (1 << 31) - 1), default)

    def counts(self, name: str) -> list[int]:
        """Whole numbers of 32 bits without a sign."""
        return self.integers(name, 0, _UINT32 - 1)

    def count(self, name: str, default: int) -> int:
        return self._single(name, self.counts(name), default)

    def numbers(self, name: str) -> list[float]:
        """Floats of 32 bits, as the decimals that people write."""
        found = []
        for index, value in enumerate(self._values(name)):
            if isinstance(value, Word) and value.lower() in _FLOATS:
                found.append(_FLOATS[value.lower()])
            elif type(value) in (int, float):
                found.append(shortest(float(value)))
            else:
                raise self.wrong(name, "a number", index)
        return found

    def number(self, name: str, default: float) -> float:
        return self._single(name, self.numbers(name), default)

    def flag(self, name: str, default: bool) -> bool:
        values = []
        for index, value in enumerate(self._values(name)):
            if value in _TRUE or value in (True, 1):
                values.append(True)
            elif value in _FALSE or value in (False, 0):
                values.append(False)
            else:
                raise self.wrong(name, "true or false", index)
        return self._single(name, values, default)

    def word(self, name: str, choices: Sequence[str], default: str) -> str:
        """One of an enum's values, which may be given by its number."""
        values = []
        for index, value in enumerate(self._values(name)):
            if isinstance(value, str) and value in choices:
                values.append(str(value))
            elif type(value) is int and 0 <= value < len(choices):
                values.append(choices[value])
            else:
                raise self.wrong(name, "one of " + ", ".join(choices), index)
        return self._single(name, values, default)
