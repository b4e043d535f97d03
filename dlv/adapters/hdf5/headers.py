"""HDF5 object headers: the messages that say what a group or a data set is.

Refused are messages that are kept elsewhere (shared), and those that nobody here knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dlv.adapters.hdf5.bytes import UNDEFINED, Cursor, Limits, check_sum
from dlv.errors import Damaged, NewerFormat, UnsafeInput

DATASPACE, LINK_INFO, DATATYPE, LINK, EXTERNAL = 1, 2, 3, 6, 7
LAYOUT, FILTERS, ATTRIBUTE, CONTINUATION, TABLE = 8, 11, 12, 16, 17
ATTRIBUTE_INFO = 21
_LAST_KNOWN = 24
_SHARED = 2
MOST_PER_OBJECT = 20_000
MOST_HEADER_BYTES = 2 << 20


class Message(NamedTuple):
    kind: int
    data: bytes


@dataclass(frozen=True)
class Attribute:
    """An attribute before its value is decoded."""

    name: str
    datatype: bytes
    dataspace: bytes
    data: bytes


def read_header(limits: Limits, address: int) -> list[Message]:
    """All messages of the object at `address`, its continuations included."""
    limits.object()
    start = limits.read(address, 16) if address + 16 <= limits.region.size else b""
    if start[:4] == b"OHDR":
        return _second(limits, address, start)
    return _first(limits, address)


def only(messages: list[Message], kind: int) -> bytes | None:
    """The one message of a kind, or None; the first counts, as for the library."""
    return next((message.data for message in messages if message.kind == kind), None)


def attributes(limits: Limits, messages: list[Message]) -> list[Attribute]:
    """Attributes that stand in the header itself."""
    info = only(messages, ATTRIBUTE_INFO)
    if info is not None:
        cursor = Cursor(info, limits.name)
        cursor.take(1)
        flags = cursor.number(1)
        cursor.take(2 if flags & 1 else 0)
        if cursor.number(8) != UNDEFINED:
            raise NewerFormat(
                f"attributes of {limits.name} are kept in a way that dlv does not read",
                why="dense storage",
                hint="save the file with libver='earliest'",
            )
    return [_attribute(limits, m.data) for m in messages if m.kind == ATTRIBUTE]


def _first(limits: Limits, address: int) -> list[Message]:
    """Version 1: no checksums, everything a multiple of eight bytes."""
    cursor = limits.cursor(address, 16)
    version = cursor.number(1)
    cursor.take(1)
    count = cursor.number(2)
    cursor.take(4)
    size = cursor.number(4)
    if version != 1:
        raise Damaged(f"the structure of {limits.name} is damaged", why=f"no object at {address}")
    messages: list[Message] = []
    blocks = [(address + 16, size)]
    total, done = 0, 0
    while done < len(blocks):
        start, size = blocks[done]
        done += 1
        total = _count_block(limits, blocks, total + size)
        cursor = limits.cursor(start, size)
        while cursor.left >= 8 and len(messages) < count:
            kind, length, flags = cursor.number(2), cursor.number(2), cursor.number(1)
            cursor.take(3)
            _add(limits, messages, blocks, kind, flags, cursor.take(length), 0)
    return messages


def _second(limits: Limits, address: int, start: bytes) -> list[Message]:
    """Version 2: every block ends with a checksum."""
    cursor = Cursor(start[4:], limits.name)
    version, flags = cursor.number(1), cursor.number(1)
    if version != 2:
        raise NewerFormat(f"{limits.name} holds an object of version {version}")
    before = 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
    width = 1 << (flags & 3)
    size = int.from_bytes(limits.read(address + before, width), "little")
    messages: list[Message] = []
    blocks = [(address, before + width + size + 4)]
    total, done = 0, 0
    while done < len(blocks):
        place, length = blocks[done]
        total = _count_block(limits, blocks, total + length)
        cursor = Cursor(check_sum(limits, limits.read(place, length), "an object"), limits.name)
        if done:
            cursor.expect(b"OCHK", "a continued object")
        else:
            cursor.take(before + width)
        done += 1
        wide = 6 if flags & 4 else 4
        while cursor.left >= wide:  # what is shorter is a gap
            kind, length, own = cursor.number(1), cursor.number(2), cursor.number(1)
            cursor.take(wide - 4)
            _add(limits, messages, blocks, kind, own, cursor.take(length), 1)
    return messages


def _count_block(limits: Limits, blocks: list[tuple[int, int]], total: int) -> int:
    if total > MOST_HEADER_BYTES or len(blocks) > MOST_PER_OBJECT:
        raise UnsafeInput(f"an object of {limits.name} is too large", why=f"{total} bytes")
    return total


def _add(
    limits: Limits,
    messages: list[Message],
    blocks: list[tuple[int, int]],
    kind: int,
    flags: int,
    data: bytes,
    least: int,
) -> None:
    limits.message()
    if kind == CONTINUATION:
        cursor = Cursor(data, limits.name)
        block = (cursor.number(8), cursor.number(8))
        if block in blocks or block[1] < 8 * least:
            raise UnsafeInput(f"an object of {limits.name} goes on within itself")
        blocks.append(block)
        messages.append(Message(kind, b""))
        return
    if flags & _SHARED:
        raise UnsafeInput(f"an object of {limits.name} shares its description with others")
    if kind > _LAST_KNOWN:
        raise NewerFormat(f"{limits.name} holds messages that dlv does not know", why=f"{kind}")
    if len(messages) == MOST_PER_OBJECT:
        raise UnsafeInput(
            f"an object of {limits.name} has too many attributes", why=f"over {MOST_PER_OBJECT}"
        )
    messages.append(Message(kind, data))


def _attribute(limits: Limits, data: bytes) -> Attribute:
    cursor = Cursor(data, limits.name)
    version, flags = cursor.number(1), cursor.number(1)
    sizes = [cursor.number(2) for _ in range(3)]
    if version not in (1, 2, 3):
        raise NewerFormat(f"{limits.name} holds an attribute of version {version}")
    if version > 1 and flags & 3:
        raise UnsafeInput(f"an attribute of {limits.name} shares its type with others")
    if version == 3:
        cursor.take(1)
    parts = []
    for size in sizes:
        start = cursor.at
        parts.append(cursor.take(size))
        if version == 1:
            cursor.align(start)
    return Attribute(name_of(limits, parts[0]), parts[1], parts[2], cursor.take(cursor.left))


def name_of(limits: Limits, raw: bytes) -> str:
    """The name of a link or attribute."""
    try:
        return raw.split(b"\0")[0].decode("utf-8")
    except UnicodeDecodeError as error:
        raise Damaged(f"a name in {limits.name} is not UTF-8", why=repr(raw[:80])) from error
