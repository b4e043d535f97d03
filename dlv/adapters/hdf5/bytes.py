"""Bytes of an HDF5 file: a part of a file as if it were one, a cursor, the checksum, the limits.

HDF5 is read here without its C library: that one was seen to crash and to loop forever on
files with a few flipped bits, and a model file may come from anyone.
"""

from __future__ import annotations

import struct
from typing import Protocol

from dlv.adapters.source import Source
from dlv.errors import Damaged, UnsafeInput
from dlv.kinds import Raw

UNDEFINED = (1 << 64) - 1

MOST_METADATA_BYTES = 128 << 20
MOST_SUMMED_BYTES = 4 << 20  # a second or two; whatever comes later is held by its structure alone
MOST_OBJECTS = 60_000
MOST_MESSAGES = 500_000
MOST_DEPTH = 64


class Region(Protocol):
    """Something with bytes at positions: a file, a part of one, or memory."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...

    def read(self, offset: int, size: int) -> Raw:
        """Exactly `size` bytes, or Damaged."""
        ...


class Window:
    """A part of a file, read as a file of its own."""

    def __init__(self, file: Source, offset: int, size: int, name: str) -> None:
        self.file = file
        self.offset = offset
        self.size = size
        self.name = name

    def read(self, offset: int, size: int) -> bytearray:
        if offset < 0 or size < 0 or offset + size > self.size:
            raise Damaged(
                f"{self.name} ends too early",
                why=f"bytes {offset} to {offset + size} are needed, it has {self.size}",
            )
        return self.file.read(self.offset + offset, size)


class Memory:
    """Bytes that were unpacked."""

    def __init__(self, data: Raw, name: str) -> None:
        self.data = memoryview(data)
        self.size = len(self.data)
        self.name = name

    def read(self, offset: int, size: int) -> memoryview:
        if offset < 0 or size < 0 or offset + size > self.size:
            raise Damaged(
                f"{self.name} ends too early",
                why=f"bytes {offset} to {offset + size} are needed, it has {self.size}",
            )
        return self.data[offset : offset + size]


class Limits:
    """What has been read of a file's structure, so that no structure is too much."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.name = region.name
        self.bytes = 0
        self.summed = 0
        self.objects = 0
        self.messages = 0

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the structure; the range is checked before anything is allocated."""
        self.bytes += size
        if self.bytes > MOST_METADATA_BYTES:
            raise UnsafeInput(
                f"the structure of {self.name} is too large",
                why=f"more than {MOST_METADATA_BYTES >> 20} MiB",
            )
        return bytes(self.region.read(offset, size))

    def cursor(self, offset: int, size: int) -> Cursor:
        return Cursor(self.read(offset, size), self.name)

    def object(self) -> None:
        self.objects += 1
        if self.objects > MOST_OBJECTS:
            raise UnsafeInput(
                f"{self.name} holds too many objects", why=f"more than {MOST_OBJECTS}"
            )

    def message(self) -> None:
        self.messages += 1
        if self.messages > MOST_MESSAGES:
            raise UnsafeInput(
                f"{self.name} holds too many attributes and links", why=f"more than {MOST_MESSAGES}"
            )


class Cursor:
    """A walk over bytes; running off the end is damage."""

    def __init__(self, data: bytes, what: str) -> None:
        self.data = data
        self.what = what
        self.at = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, size: int) -> bytes:
        if not 0 <= size <= self.left:
            raise Damaged(f"the structure of {self.what} is damaged", why="a part ends too early")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def expect(self, signature: bytes, what: str) -> None:
        seen = self.take(len(signature))
        if seen != signature:
            raise Damaged(
                f"the structure of {self.what} is damaged",
                why=f"{what} should begin with {signature!r}, not {seen!r}",
            )

    def align(self, start: int = 0) -> None:
        """Go on at the next multiple of eight."""
        self.take(-(self.at - start) % 8)

    def text(self) -> bytes:
        """Up to a NUL, which is passed over."""
        end = self.data.find(b"\0", self.at)
        if end < 0:
            raise Damaged(f"the structure of {self.what} is damaged", why="a name has no end")
        result = self.take(end - self.at)
        self.at += 1
        return result


def _rotate(value: int, by: int) -> int:
    return ((value << by) | (value >> (32 - by))) & 0xFFFFFFFF


def checksum(data: bytes) -> int:
    """Jenkins' lookup3 with the initial value zero, which the newer structures end with."""
    mask = 0xFFFFFFFF
    a = b = c = (0xDEADBEEF + len(data)) & mask
    if not data:
        return c
    padded = data + bytes(-len(data) % 12)
    words: tuple[int, ...] = struct.unpack(f"<{len(padded) // 4}I", padded)
    for at in range(0, len(words) - 3, 3):
        a, b, c = (a + words[at]) & mask, (b + words[at + 1]) & mask, (c + words[at + 2]) & mask
        a = ((a - c) & mask) ^ _rotate(c, 4)
        c = (c + b) & mask
        b = ((b - a) & mask) ^ _rotate(a, 6)
        a = (a + c) & mask
        c = ((c - b) & mask) ^ _rotate(b, 8)
        b = (b + a) & mask
        a = ((a - c) & mask) ^ _rotate(c, 16)
        c = (c + b) & mask
        b = ((b - a) & mask) ^ _rotate(a, 19)
        a = (a + c) & mask
        c = ((c - b) & mask) ^ _rotate(b, 4)
        b = (b + a) & mask
    a, b, c = (a + words[-3]) & mask, (b + words[-2]) & mask, (c + words[-1]) & mask
    c = ((c ^ b) - _rotate(b, 14)) & mask
    a = ((a ^ c) - _rotate(c, 11)) & mask
    b = ((b ^ a) - _rotate(a, 25)) & mask
    c = ((c ^ b) - _rotate(b, 16)) & mask
    a = ((a ^ c) - _rotate(c, 4)) & mask
    b = ((b ^ a) - _rotate(a, 14)) & mask
    return ((c ^ b) - _rotate(b, 24)) & mask


def check_sum(limits: Limits, data: bytes, what: str) -> bytes:
    """`data` without the checksum that it ends with."""
    limits.summed += len(data)
    if len(data) >= 4 and limits.summed > MOST_SUMMED_BYTES:
        return data[:-4]
    if len(data) < 4 or checksum(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise Damaged(f"the structure of {limits.name} is damaged", why=f"checksum of {what}")
    return data[:-4]
