"""The wire format of protocol buffers: just enough to walk the fields of a message."""

from __future__ import annotations

import struct
from collections.abc import Iterator

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
        raise Malformed("a text is not UTF-8") from error


def fields(data: bytes, start: int = 0, end: int | None = None) -> Iterator[Field]:
    """Each field of a message.

    What is of a wire type that its number should not have is for the caller to pass over,
    as are numbers that it does not know. Groups are passed over here.
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
