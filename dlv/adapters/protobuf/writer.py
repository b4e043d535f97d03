"""Protobuf messages written field by field: lengths are known before a byte leaves, so that

large tensors stream through from where they lie. Fields come out in the order in which they
are put in; in ascending order of their numbers, these are the bytes of Google's own writer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, Protocol

VARINT, BYTES, FIXED32 = 0, 2, 5
MOST_BYTES = (1 << 31) - 1  # of a whole message: readers take no more

_MASK64 = (1 << 64) - 1


class Stream(Protocol):
    """Bytes that are written when their turn comes; a `checkpoint.Tensor` is one."""

    @property
    def nbytes(self) -> int: ...
    def copy_to(self, out: BinaryIO) -> None: ...


class Message:
    """A message that grows; one put into another must be finished."""

    def __init__(self) -> None:
        self.size = 0
        self._parts: list[bytearray | Message | Stream] = []

    def varint(self, field: int, value: int) -> None:
        """int32, int64, bool or an enumeration; negative numbers take ten bytes."""
        self._append(varint(field << 3 | VARINT) + varint(value & _MASK64))

    def single(self, field: int, value: float) -> None:
        """32 bits; what is too large for them is infinite."""
        try:
            data = struct.pack("<f", value)
        except OverflowError:
            data = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
        self._append(varint(field << 3 | FIXED32) + data)

    def raw(self, field: int, data: bytes) -> None:
        self._append(self._head(field, len(data)) + data)

    def text(self, field: int, text: str) -> None:
        self.raw(field, text.encode("utf-8"))

    def message(self, field: int, inner: Message) -> None:
        self._append(self._head(field, inner.size))
        self._parts.append(inner)
        self.size += inner.size

    def stream(self, field: int, data: Stream) -> None:
        """Bytes, copied when the message is written."""
        self._append(self._head(field, data.nbytes))
        self._parts.append(data)
        self.size += data.nbytes

    def write(self, out: BinaryIO) -> None:
        """Write the message; small fields and one part of a tensor are in memory at a time."""
        stack: list[Iterator[bytearray | Message | Stream]] = [iter(self._parts)]
        while stack:
            part = next(stack[-1], None)
            if part is None:
                stack.pop()
            elif isinstance(part, Message):
                stack.append(iter(part._parts))
            elif isinstance(part, bytearray):
                out.write(part)
            else:
                part.copy_to(out)

    @staticmethod
    def _head(field: int, size: int) -> bytes:
        return varint(field << 3 | BYTES) + varint(size)

    def _append(self, data: bytes) -> None:
        if not self._parts or not isinstance(self._parts[-1], bytearray):
            self._parts.append(bytearray())
        last = self._parts[-1]
        assert isinstance(last, bytearray)
        last += data
        self.size += len(data)


def varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
