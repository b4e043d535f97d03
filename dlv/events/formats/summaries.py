"""Event and Summary.Value as they stand in a log."""

from __future__ import annotations

import struct

from dlv.dataclass import dataclass
from dlv.events.formats.wire import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    Malformed,
    double,
    fields,
    signed,
    signed32,
    single,
    text,
)
from dlv.events.logs.points import Metadata

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
