"""JSON objects from dataclasses and back: one strict codec over the types of their fields.

A field is read by its type: str, int, float, bool, dict[str, T], list[T], tuple[T, ...], T | None,
a dataclass or a TypedDict. `Annotated[T, check]` also says which values are allowed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from dlv.canonical import NON_FINITE, float_of, is_hash, is_time, loads, number
from dlv.dataclass import dataclass
from dlv.errors import Damaged, NewerFormat

T = TypeVar("T")


def whole(value: Any) -> bool:
    """An integer as the catalogue can hold it."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def natural(value: Any) -> bool:
    return whole(value) and value >= 0


Hash = Annotated[str, is_hash]
Time = Annotated[str, is_time]
Whole = Annotated[int, whole]
Natural = Annotated[int, natural]


@dataclass(frozen=True)
class Word:
    """A check for words of a list that may grow: an unknown word is newer, not damage."""

    known: Callable[[str], bool]


@dataclass(frozen=True)
class Place:
    """Where a value stands and which dlv wrote it, for errors about it."""

    what: str
    writer: str | None = None

    def inner(self, key: str) -> Place:
        return Place(f"{self.what}: {key}", self.writer)

    def damaged(self, why: str) -> Damaged:
        return Damaged(f"{self.what} is malformed", why=why, hint="dlv fsck")

    def newer(self, thing: str) -> NewerFormat:
        """The error about something whose meaning is not known here."""
        return NewerFormat(
            f"{self.what} has {thing}, which this dlv version does not support",
            why=f"it was written by {self.writer or 'a newer dlv'}",
            hint="pip install --upgrade dlv",
        )


def as_json(value: Any) -> Any:
    """Return a dataclass as a JSON object with a key for each field; tuples become arrays."""
    names = getattr(value, "__dataclass_fields__", None)
    if names is not None:
        return {name: as_json(getattr(value, name)) for name in names}
    if isinstance(value, tuple):
        # Of hashes there may be hundreds of thousands: they are not looked at one by one.
        plain = not value or isinstance(value[0], (str, int, NoneType))
        return list(value) if plain else [as_json(item) for item in value]
    return number(value) if isinstance(value, float) else value


def parse(data: bytes, format_: str, noun: str) -> tuple[dict[str, Any], Place]:
    """Return the keys of an object of this format, without `format`, and the place for errors."""
    value = loads(data, noun)
    check_format(value, format_, noun)
    writer = value.get("writer")
    del value["format"]
    return value, Place(noun, writer)


def check_format(value: Any, wanted: str, noun: str) -> None:
    if not isinstance(value, dict) or not isinstance(value.get("format"), str):
        raise Damaged(f"{noun} is malformed", why="it names no format", hint="dlv fsck")
    if value["format"] != wanted:
        raise NewerFormat(
            f"{noun} has the format `{value['format']}`",
            why=f"expected `{wanted}`; it was written by {value.get('writer', 'another')}",
            hint="pip install --upgrade dlv",
        )


def decode(kind: type[T], value: Any, place: Place, **fields: Any) -> T:
    """Read a JSON object as a dataclass or TypedDict; every key must be there, and no other.

    `fields`: those that have no key of their own.
    """
    if not isinstance(value, dict):
        raise place.damaged("it is not an object")
    decoders = _decoders(cast(Hashable, kind))
    wanted = decoders.keys() - fields.keys()
    if missing := sorted(wanted - value.keys()):
        raise place.damaged(f"keys are missing: {', '.join(missing)}")
    if unknown := sorted(value.keys() - wanted):
        raise place.newer(f"the key `{unknown[0]}`")
    return kind(**{key: decoders[key](value[key], key, place) for key in wanted}, **fields)


_Decoder = Callable[[Any, str, Place], Any]  # value, key, place


@cache
def _decoders(kind: Hashable) -> Mapping[str, _Decoder]:
    return {key: _decoder(hint) for key, hint in get_type_hints(kind, include_extras=True).items()}


def _is_object(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind) or is_typeddict(kind)


def _decoder(kind: Any) -> _Decoder:
    """The function that reads a value of this type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _checked(_decoder(arguments[0]), arguments[1])
    if origin in (Union, UnionType):
        (inner,) = (_decoder(each) for each in arguments if each is not NoneType)
        return lambda value, key, place: None if value is None else inner(value, key, place)
    if _is_object(kind):
        return lambda value, key, place: decode(kind, value, place.inner(key))
    if origin in (list, tuple):
        return _sequence(origin, arguments[0])
    if origin in (dict, Mapping):
        return _mapping(arguments[1])
    return _floating if kind is float else _plain(kind)


def _checked(inner: _Decoder, check: Any) -> _Decoder:
    def read_word(value: Any, key: str, place: Place) -> Any:
        word = inner(value, key, place)
        if not check.known(word):
            raise place.newer(f"the {key} `{word}`")
        return word

    def read(value: Any, key: str, place: Place) -> Any:
        decoded = inner(value, key, place)
        if not check(decoded):
            raise place.damaged(f"`{key}` has a value that is not allowed")
        return decoded

    return read_word if isinstance(check, Word) else read


def _plain(kind: type) -> _Decoder:
    def read(value: Any, key: str, place: Place) -> Any:
        # bool is an int to isinstance, and `true` no number here.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise place.damaged(f"`{key}` is not {kind.__name__}")
        return value

    return read


def _floating(value: Any, key: str, place: Place) -> float:
    if not isinstance(value, float) and (not isinstance(value, str) or value not in NON_FINITE):
        raise place.damaged(f"`{key}` is not float")
    return float_of(value)


def _sequence(kind: type[list[Any]] | type[tuple[Any, ...]], item_kind: Any) -> _Decoder:
    array, item = _plain(list), _decoder(item_kind)
    numbered = _is_object(item_kind)

    def read(value: Any, key: str, place: Place) -> Any:
        items = enumerate(array(value, key, place))
        return kind(item(each, f"{key}[{i}]" if numbered else key, place) for i, each in items)

    return read


def _mapping(value_kind: Any) -> _Decoder:
    whole_object = _plain(dict)
    if value_kind is Any:
        return whole_object
    item = _decoder(value_kind)

    def read(value: Any, key: str, place: Place) -> Any:
        entries = whole_object(value, key, place).items()
        return {name: item(each, f"{key}: {name}", place) for name, each in entries}

    return read
