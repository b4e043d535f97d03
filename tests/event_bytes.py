"""Event files byte by byte, from what TensorBoard says of them, without any code of dlv."""

from __future__ import annotations

import struct
from collections.abc import Iterable


def _row(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_TABLE = [_row(byte) for byte in range(256)]


def masked(data: bytes) -> int:
    """The masked CRC32C."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(body: bytes) -> bytes:
    length = struct.pack("<Q", len(body))
    return b"".join(
        (length, struct.pack("<I", masked(length)), body, struct.pack("<I", masked(body)))
    )


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def part(field: int, body: bytes) -> bytes:
    """A length-delimited field."""
    return varint(field << 3 | 2) + varint(len(body)) + body


def event(wall: float, step: int, rest: bytes = b"") -> bytes:
    body = b"\x09" + struct.pack("<d", wall)
    if step:
        body += b"\x10" + varint(step)
    return record(body + rest)


def version(wall: float = 100.0) -> bytes:
    return event(wall, 0, part(3, b"brain.Event:2"))


def start(wall: float, step: int) -> bytes:
    """A marked restart: SessionLog.START."""
    return event(wall, step, part(7, b"\x08\x01"))


def scalar(tag: str, step: int, value: float, wall: float | None = None) -> bytes:
    told = part(1, tag.encode()) + b"\x15" + struct.pack("<f", value)
    return event(100.0 + step if wall is None else wall, step, part(5, part(1, told)))


def image(tag: str, step: int, data: bytes) -> bytes:
    """An old image summary of 2 x 3 pixels."""
    told = part(1, tag.encode()) + part(4, b"\x08\x03\x10\x02\x18\x03" + part(4, data))
    return event(100.0 + step, step, part(5, part(1, told)))


def text(tag: str, step: int, value: str) -> bytes:
    """A tensor of the text plugin."""
    tensor = b"\x08\x07" + part(2, part(2, b"\x08\x01")) + part(8, value.encode())
    told = part(1, tag.encode()) + part(8, tensor) + part(9, part(1, part(1, b"text")))
    return event(100.0 + step, step, part(5, part(1, told)))


def scalars(tag: str, steps: Iterable[int]) -> bytes:
    """A point at each step, of which the value tells the step."""
    return b"".join(scalar(tag, step, step * 0.5) for step in steps)
