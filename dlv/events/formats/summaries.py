"""Event, Summary.Value and logged hyperparameters as they stand in a log, field by field."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from dlv.dataclass import dataclass
from dlv.events.formats.series import HPARAMS
from dlv.events.logs.points import Metadata

VARINT, FIXED64, BYTES, GROUP, END_GROUP, FIXED32 = range(6)

DEPTH = 100  # of groups within groups, as protobuf's own parsers have it
_MASK64 = (1 << 64) - 1
_FIXED64 = struct.Struct("<Q")
_FIXED32 = struct.Struct("<I")

# Number, wire type, then start and end for BYTES, else the value and where it stands.
Field = tuple[int, int, int, int]


class Malformed(ValueError):
    """Bytes that are no message."""


def varint(data: bytes, start: int, end: int) -> tuple[int, int]:
    """The number that begins at byte `start`, and the byte where it ends."""
    value = shift = 0
    while start < end and shift < 70:
        byte = data[start]
        start += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _MASK64, start
        shift += 7
    raise Malformed("a number is cut off" if shift < 70 else "a number has more than 10 bytes")


def signed(value: int) -> int:
    """A varint as an int64."""
    return value - (1 << 64) if value >> 63 else value


def signed32(value: int) -> int:
    """A varint as an int32 or an enum: the upper half is dropped."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def double(value: int) -> float:
    """The bits of a FIXED64 as a float64."""
    result: float = struct.unpack("<d", _FIXED64.pack(value))[0]
    return result


def single(value: int) -> float:
    """The bits of a FIXED32 as a float32, widened."""
    result: float = struct.unpack("<f", _FIXED32.pack(value))[0]
    return result


def text(data: bytes) -> str:
    """A string field: UTF-8, or the message is none."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Malformed("a string is not UTF-8") from error


def fields(data: bytes, start: int = 0, end: int | None = None) -> Iterator[Field]:
    """Each field of a message.

    What is of a wire type that its number should not have is for the caller to pass over,
    as are numbers that it does not know. Groups are skipped.
    """
    end = len(data) if end is None else end
    while start < end:
        key, start = varint(data, start, end)
        number, kind = key >> 3, key & 7
        if not 0 < number < 1 << 29:
            raise Malformed(f"a field has the number {number}")
        if kind == BYTES:
            size, start = varint(data, start, end)
            if size > end - start:
                raise Malformed("a field is longer than its message")
            yield number, kind, start, start + size
            start += size
        elif kind == VARINT:
            place = start
            value, start = varint(data, start, end)
            yield number, kind, value, place
        elif kind in (FIXED64, FIXED32):
            layout = _FIXED64 if kind == FIXED64 else _FIXED32
            if layout.size > end - start:
                raise Malformed("a number is cut off")
            yield number, kind, layout.unpack_from(data, start)[0], start
            start += layout.size
        elif kind == GROUP:
            start = _pass_group(data, start, end, number)
        else:
            raise Malformed("a group ends that did not begin" if kind == END_GROUP else "no field")


def _pass_group(data: bytes, start: int, end: int, number: int) -> int:
    """Where the group that has just begun ends."""
    within = [number]
    while within:
        key, start = varint(data, start, end)
        number, kind = key >> 3, key & 7
        if number >= 1 << 29:  # number 0 is let pass here, as protobuf does
            raise Malformed(f"a field has the number {number}")
        if kind == GROUP:
            within.append(number)
            if len(within) > DEPTH:
                raise Malformed("groups are nested too deeply")
        elif kind == END_GROUP:
            if within.pop() != number:
                raise Malformed("a group ends that did not begin")
        elif kind == VARINT:
            _, start = varint(data, start, end)
        else:
            size = {FIXED64: 8, FIXED32: 4}.get(kind)
            if kind == BYTES:
                size, start = varint(data, start, end)
            if size is None:
                raise Malformed("no field")
            if size > end - start:
                raise Malformed("a field is longer than its message")
            start += size
    return start


# What an event may be about: one of these fields, the last one that stands there.
FILE_VERSION, GRAPH, SUMMARY, LOG_MESSAGE, SESSION_LOG, RUN_METADATA, META_GRAPH = range(3, 10)
# And a value.
NOTHING, SIMPLE, OBSOLETE, IMAGE, HISTOGRAM, AUDIO, TENSOR = 0, 2, 3, 4, 5, 6, 8

WITH_VALUES = {SUMMARY, GRAPH, RUN_METADATA}  # events that bring points
SESSION_START = 1
_VALUE = 0x0A  # the key before a value
_SINGLE = struct.Struct("<f")
_MOST_KNOWN, _MOST = 1 << 10, 1 << 16  # bytes of what is remembered, and how many
_MESSAGES = {SUMMARY, LOG_MESSAGE, SESSION_LOG, RUN_METADATA}


@dataclass(slots=True)
class Event:
    wall: float = 0.0
    step: int = 0
    kind: int = 0
    content: bytes = b""


@dataclass(slots=True)
class Value:
    tag: str = ""
    node: str = ""
    kind: int = NOTHING
    number: float = 0.0  # of SIMPLE
    content: bytes = b""
    metadata: bytes | None = None
    ends_in_number: bool = False  # it is nothing but a tag and, at its end, a SIMPLE


def event(data: bytes) -> Event:
    """The event of a record."""
    found = Event()
    for number, kind, a, b in fields(data):
        if number == 1 and kind == FIXED64:
            found.wall = double(a)
        elif number == 2 and kind == VARINT:
            found.step = signed(a)
        elif FILE_VERSION <= number <= META_GRAPH and kind == BYTES:
            # A message that stands there twice is merged, which joins its bytes.
            joined = number == found.kind and number in _MESSAGES
            found.content = found.content + data[a:b] if joined else data[a:b]
            found.kind = number
    return found


class Values:
    """Reads values; of scalars it remembers what stands before the number, which repeats."""

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}  # a value but for its number -> tag

    def of(self, summary: bytes) -> list[Value]:
        """The values of a summary; all of it is walked before the first is used."""
        found: list[Value] = []
        at, end, known = 0, len(summary), self._known
        # Values of less than 128 bytes that were seen before, then whatever follows the last one.
        while at + 1 < end and summary[at] == _VALUE and summary[at + 1] < 0x80:
            stop = at + 2 + summary[at + 1]
            tag = known.get(summary[at + 2 : stop - 4])
            if tag is None or stop > end:
                break
            found.append(Value(tag, "", SIMPLE, _SINGLE.unpack_from(summary, stop - 4)[0]))
            at = stop
        for number, kind, a, b in fields(summary, at):
            if number == 1 and kind == BYTES:
                found.append(self._value(summary, a, b))
        return found

    def _value(self, summary: bytes, start: int, end: int) -> Value:
        known = self._known
        short = end - start < _MOST_KNOWN
        tag = known.get(summary[start : end - 4]) if short else None
        if tag is not None:
            return Value(tag, "", SIMPLE, _SINGLE.unpack_from(summary, end - 4)[0])
        value = _value(summary, start, end)
        if value.ends_in_number and short and len(known) < _MOST:
            known[summary[start : end - 4]] = value.tag
        return value


def _value(data: bytes, start: int, end: int) -> Value:
    found = Value()
    numbers: list[int] = []
    for number, kind, a, b in fields(data, start, end):
        numbers.append(number)
        if kind == BYTES:
            if number == 1:
                found.tag = text(data[a:b])
            elif number == 7:
                found.node = text(data[a:b])
            elif number == 9:
                found.metadata = (found.metadata or b"") + data[a:b]
            elif number in (OBSOLETE, IMAGE, HISTOGRAM, AUDIO, TENSOR):
                joined = number == found.kind and number != OBSOLETE
                found.content = found.content + data[a:b] if joined else data[a:b]
                found.kind = number
        elif number == SIMPLE and kind == FIXED32:
            found.kind, found.number = SIMPLE, single(a)
    found.ends_in_number = numbers == [1, SIMPLE] and found.kind == SIMPLE
    return found


def metadata(tag: str, data: bytes) -> Metadata:
    """SummaryMetadata, its data class as it stands there."""
    plugin, content, display, description, data_class = "", b"", "", "", 0
    for number, kind, a, b in fields(data):
        if number == 1 and kind == BYTES:
            for inner, inner_kind, c, d in fields(data, a, b):
                if inner == 1 and inner_kind == BYTES:
                    plugin = text(data[c:d])
                elif inner == 2 and inner_kind == BYTES:
                    content = data[c:d]
        elif number == 2 and kind == BYTES:
            display = text(data[a:b])
        elif number == 3 and kind == BYTES:
            description = text(data[a:b])
        elif number == 4 and kind == VARINT:
            data_class = signed32(a)
    return Metadata(tag, plugin, data_class, content, display, description)


def session_status(data: bytes) -> int:
    """What a SessionLog says happened."""
    status = 0
    for number, kind, a, _ in fields(data):
        if number == 1 and kind == VARINT:
            status = signed32(a)
    return status


def tagged_metadata(data: bytes) -> tuple[str, bytes]:
    """The tag and the bytes of a TaggedRunMetadata."""
    tag, content = "", b""
    for number, kind, a, b in fields(data):
        if number == 1 and kind == BYTES:
            tag = text(data[a:b])
        elif number == 2 and kind == BYTES:
            content = data[a:b]
    return tag, content


def version(data: bytes) -> float:
    """The number in `brain.Event:2`; -1 if there is none."""
    try:
        return float(text(data).split("brain.Event:")[-1])
    except Malformed:
        raise
    except ValueError:
        return -1.0


PLUGIN = HPARAMS
SESSION = "_hparams_/session_start_info"  # the tag of a run that has some

_SESSION_START, _VALUES = 3, 1
_NUMBER, _TEXT, _TRUTH = 2, 3, 4


def logged_hyperparameters(content: bytes) -> dict[str, str | float | bool]:
    """Name -> value of the plugin content of `SESSION`; what is none of these, or null, is not
    listed."""
    found: dict[str, str | float | bool] = {}
    try:
        for session in _messages(content, _SESSION_START):
            for entry in _messages(session, _VALUES):
                name, value = _entry(entry)
                if value is not None:
                    found[name] = value
    except (Malformed, UnicodeDecodeError):
        return {}
    return found


def _messages(data: bytes, wanted: int) -> list[bytes]:
    return [data[a:b] for number, kind, a, b in fields(data) if (number, kind) == (wanted, BYTES)]


def _entry(data: bytes) -> tuple[str, str | float | bool | None]:
    name, value = "", None
    for number, kind, a, b in fields(data):
        if (number, kind) == (1, BYTES):
            name = data[a:b].decode()
        elif (number, kind) == (2, BYTES):
            value = _nan_or_value(data[a:b])
    return name, value


def _nan_or_value(data: bytes) -> Any:
    found: str | float | bool | None = None
    for number, kind, a, b in fields(data):
        if (number, kind) == (_NUMBER, FIXED64):
            found = double(a)
        elif (number, kind) == (_TEXT, BYTES):
            found = data[a:b].decode()
        elif (number, kind) == (_TRUTH, VARINT):
            found = bool(a)
    return found
