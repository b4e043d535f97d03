"""The parts of HDF5 files: bounded reads, objects with their messages, types, shapes, texts."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from dlv.adapters.source import Source
from dlv.dataclass import dataclass
from dlv.dtypes import DTYPES
from dlv.errors import Damaged, NewerFormat, UnsafeInput
from dlv.kinds import Raw

SIGNATURE = b"\x89HDF\r\n\x1a\n"
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


@dataclass
class Window:
    """A part of a file, read as a file of its own."""

    file: Source
    offset: int
    size: int
    name: str

    def read(self, offset: int, size: int) -> bytearray:
        _check_range(self, offset, size)
        return self.file.read(self.offset + offset, size)


class Memory:
    """Bytes that were unpacked."""

    def __init__(self, data: Raw, name: str) -> None:
        self.data = memoryview(data)
        self.size = len(self.data)
        self.name = name

    def read(self, offset: int, size: int) -> memoryview:
        _check_range(self, offset, size)
        return self.data[offset : offset + size]


def _check_range(region: Region, offset: int, size: int) -> None:
    if offset < 0 or size < 0 or offset + size > region.size:
        raise Damaged(
            f"{region.name} is truncated",
            why=f"bytes {offset} to {offset + size} are needed, it has {region.size}",
        )


class Limits:
    """Counts of what was read of a file's structure; each has a limit."""

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
            raise UnsafeInput(f"{self.name} has too many objects", why=f"more than {MOST_OBJECTS}")

    def message(self) -> None:
        self.messages += 1
        if self.messages > MOST_MESSAGES:
            raise UnsafeInput(
                f"{self.name} has too many attributes and links", why=f"more than {MOST_MESSAGES}"
            )


class Cursor:
    """A walk over bytes; running off the end is damage."""

    def __init__(self, data: bytes, label: str) -> None:
        self.data = data
        self.label = label
        self.at = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, size: int) -> bytes:
        if not 0 <= size <= self.left:
            raise Damaged(f"the structure of {self.label} is corrupt", why="a part is truncated")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def expect(self, signature: bytes, label: str) -> None:
        seen = self.take(len(signature))
        if seen != signature:
            raise Damaged(
                f"the structure of {self.label} is corrupt",
                why=f"{label} should begin with {signature!r}, not {seen!r}",
            )

    def align(self, start: int = 0) -> None:
        """Go on at the next multiple of eight."""
        self.take(-(self.at - start) % 8)

    def text(self) -> bytes:
        """Read a text that ends with a NUL byte, and skip the NUL."""
        end = self.data.find(b"\0", self.at)
        if end < 0:
            raise Damaged(f"the structure of {self.label} is corrupt", why="a name has no end")
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


def check_sum(limits: Limits, data: bytes, label: str) -> bytes:
    """`data` without the checksum that it ends with."""
    limits.summed += len(data)
    if len(data) >= 4 and limits.summed > MOST_SUMMED_BYTES:
        return data[:-4]
    if len(data) < 4 or checksum(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise Damaged(f"the structure of {limits.name} is corrupt", why=f"checksum of {label}")
    return data[:-4]


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
                f"attributes of {limits.name} are kept in an unsupported way",
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
        raise Damaged(f"the structure of {limits.name} is corrupt", why=f"no object at {address}")
    parts = _Parts(limits, address + 16, size)
    for start, length in parts.read():
        cursor = limits.cursor(start, length)
        while cursor.left >= 8 and len(parts.messages) < count:
            kind, size, flags = cursor.number(2), cursor.number(2), cursor.number(1)
            cursor.take(3)
            parts.add(kind, flags, cursor.take(size), 0)
    return parts.messages


def _second(limits: Limits, address: int, start: bytes) -> list[Message]:
    """Version 2: every block ends with a checksum."""
    cursor = Cursor(start[4:], limits.name)
    version, flags = cursor.number(1), cursor.number(1)
    if version != 2:
        raise NewerFormat(f"{limits.name} contains an object of version {version}")
    before = 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
    width = 1 << (flags & 3)
    size = int.from_bytes(limits.read(address + before, width), "little")
    parts = _Parts(limits, address, before + width + size + 4)
    for number, (place, length) in enumerate(parts.read()):
        cursor = Cursor(check_sum(limits, limits.read(place, length), "an object"), limits.name)
        if number:
            cursor.expect(b"OCHK", "a continued object")
        else:
            cursor.take(before + width)
        wide = 6 if flags & 4 else 4
        while cursor.left >= wide:  # what is shorter is a gap
            kind, size, own = cursor.number(1), cursor.number(2), cursor.number(1)
            cursor.take(wide - 4)
            parts.add(kind, own, cursor.take(size), 8)
    return parts.messages


class _Parts:
    """The blocks of an object's header, and the messages in those that were read."""

    def __init__(self, limits: Limits, address: int, size: int) -> None:
        self.limits = limits
        self.messages: list[Message] = []
        self.blocks = [(address, size)]
        self.bytes = 0

    def read(self) -> Iterator[tuple[int, int]]:
        """Yield (address, size) of every block, including those that messages add on the way."""
        for address, size in self.blocks:
            self.bytes += size
            if self.bytes > MOST_HEADER_BYTES or len(self.blocks) > MOST_PER_OBJECT:
                name = self.limits.name
                raise UnsafeInput(f"an object of {name} is too large", why=f"{self.bytes} bytes")
            yield address, size

    def add(self, kind: int, flags: int, data: bytes, least: int) -> None:
        """Keep a message; a continuation adds a block, which must have `least` bytes."""
        name = self.limits.name
        self.limits.message()
        if kind == CONTINUATION:
            cursor = Cursor(data, name)
            block = (cursor.number(8), cursor.number(8))
            if block in self.blocks or block[1] < least:
                raise UnsafeInput(f"an object of {name} continues within itself")
            self.blocks.append(block)
            self.messages.append(Message(kind, b""))
            return
        if flags & _SHARED:
            raise UnsafeInput(f"an object of {name} shares its description with others")
        if kind > _LAST_KNOWN:
            raise NewerFormat(f"{name} contains messages that dlv does not support", why=f"{kind}")
        if len(self.messages) == MOST_PER_OBJECT:
            raise UnsafeInput(
                f"an object of {name} has too many attributes", why=f"over {MOST_PER_OBJECT}"
            )
        self.messages.append(Message(kind, data))


def _attribute(limits: Limits, data: bytes) -> Attribute:
    cursor = Cursor(data, limits.name)
    version, flags = cursor.number(1), cursor.number(1)
    sizes = [cursor.number(2) for _ in range(3)]
    if version not in (1, 2, 3):
        raise NewerFormat(f"{limits.name} contains an attribute of version {version}")
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


MOST_RANK = 32
MOST_TEXT_BYTES = 16 << 20
MOST_TEXTS = 200_000

_CLASSES = (
    "fixed point", "float", "time", "text", "bit field", "opaque", "compound", "reference",
    "enumeration", "variable length", "array", "complex",
)  # fmt: skip
# (size, exponent at, its bits, mantissa bits, bias) -> dtype
_FLOATS = {
    (d.bytes, d.mantissa, d.exponent, d.mantissa, d.bias): name
    for name, d in DTYPES.items()
    if d.exponent and d.word == d.bytes and not name.endswith("fnuz")
}


@dataclass(frozen=True)
class Datatype:
    """`dtype` is None where dlv has no tensors of that type; `unit` bytes are swapped."""

    kind: str
    size: int
    dtype: str | None = None
    unit: int = 1
    variable_text: bool = False


def datatype(limits: Limits, data: bytes) -> Datatype:
    cursor = Cursor(data, limits.name)
    return _datatype(cursor, 0)


def _datatype(cursor: Cursor, depth: int) -> Datatype:
    first = cursor.number(1)
    bits, size = cursor.number(3), cursor.number(4)
    number, version = first & 15, first >> 4
    if number >= len(_CLASSES) or not 1 <= version <= 5:
        raise NewerFormat(
            f"{cursor.label} contains a type that dlv does not support", why=f"{first}"
        )
    kind = _CLASSES[number]
    if kind == "fixed point":
        offset, precision = cursor.number(2), cursor.number(2)
        whole = offset == 0 and precision == 8 * size and size in (1, 2, 4, 8)
        name = f"{'' if bits & 8 else 'u'}int{8 * size}" if whole else None
        return Datatype(kind, size, name, size if bits & 1 else 1)
    if kind == "float":
        return _float(cursor, bits, size)
    if kind == "enumeration" and depth == 0:
        return _enumeration(cursor, bits & 0xFFFF, size, version)
    if kind == "compound" and depth == 0:
        return _compound(cursor, bits & 0xFFFF, size, version)
    if kind == "complex" and depth == 0:
        base = _datatype(cursor, 1)
        return _complex(base, size) if size == 2 * base.size else Datatype(kind, size)
    if kind == "variable length" and bits & 15 == 1:
        return Datatype(kind, size, variable_text=size == 16)
    return Datatype(kind, size)


def _float(cursor: Cursor, bits: int, size: int) -> Datatype:
    offset, precision = cursor.number(2), cursor.number(2)
    exponent, exponent_bits = cursor.number(1), cursor.number(1)
    mantissa, mantissa_bits = cursor.number(1), cursor.number(1)
    bias = cursor.number(4)
    key = (size, exponent, exponent_bits, mantissa_bits, bias)
    sign, implied, odd = bits >> 8 & 255, bits >> 4 & 3, bits & 0x4E
    whole = offset == 0 and precision == 8 * size and mantissa == 0 and sign == precision - 1
    name = _FLOATS.get(key) if whole and implied == 2 and not odd else None
    return Datatype("float", size, name, size if bits & 1 else 1)


def _enumeration(cursor: Cursor, members: int, size: int, version: int) -> Datatype:
    """h5py's booleans are one byte, FALSE and TRUE."""
    base = _datatype(cursor, 1)
    if base.dtype in ("int8", "uint8") and members == 2 and size == 1:
        names = []
        for _ in range(2):
            start = cursor.at
            names.append(cursor.text())
            if version < 3:
                cursor.align(start)
        if names == [b"FALSE", b"TRUE"] and cursor.take(2) == b"\0\1":
            return Datatype("bool", 1, "bool")
    return Datatype("enumeration", size)


def _compound(cursor: Cursor, members: int, size: int, version: int) -> Datatype:
    """h5py's complex numbers are a pair of floats r, i."""
    found: list[tuple[bytes, int, Datatype]] = []
    if members != 2 or size not in (8, 16):
        return Datatype("compound", size)
    for _ in range(2):
        start = cursor.at
        name = cursor.text()
        if version < 3:
            cursor.align(start)
        offset = cursor.number(4 if version < 3 else 1)
        if version == 1:
            cursor.take(28)
        found.append((name, offset, _datatype(cursor, 1)))
    (real, first, base), (imaginary, second, other) = found
    if (real, imaginary, first, second) == (b"r", b"i", 0, base.size) and base == other:
        return _complex(base, size)
    return Datatype("compound", size)


def _complex(base: Datatype, size: int) -> Datatype:
    names = {("float32", 8): "complex64", ("float64", 16): "complex128"}
    return Datatype("complex", size, names.get((base.dtype or "", size)), base.unit)


def shape(limits: Limits, data: bytes) -> tuple[int, ...] | None:
    """The lengths of a data set or attribute; None: it is empty by declaration."""
    cursor = Cursor(data, limits.name)
    version, rank = cursor.number(1), cursor.number(1)
    cursor.take(1)
    if version not in (1, 2):
        raise NewerFormat(f"{limits.name} contains a shape of version {version}")
    kind = cursor.number(1)
    if version == 1:
        cursor.take(4)
        kind = 1
    if rank > MOST_RANK or kind > 2:
        raise UnsafeInput(f"{limits.name} contains an odd shape", why=f"{rank} axes, kind {kind}")
    if kind == 2:
        return None
    sides = tuple(cursor.number(8) for _ in range(rank))
    total = 1
    for side in sides:
        total *= max(side, 1)  # a zero elsewhere does not make an absurd side sensible
        if total >= 1 << 60:
            raise UnsafeInput(f"a shape in {limits.name} overflows", why=f"{sides}")
    return sides


def texts(limits: Limits, attribute: Attribute, heap: Heap) -> list[str] | None:
    """The value of an attribute that holds texts, else None."""
    kind = datatype(limits, attribute.datatype)
    sides = shape(limits, attribute.dataspace)
    if sides is None or not (kind.variable_text or kind.kind == "text"):
        return None
    count = 1
    for side in sides:
        count *= side
    if count > MOST_TEXTS:
        raise UnsafeInput(
            f"the attribute {attribute.name} of {limits.name} is too large", why=f"{count} strings"
        )
    cursor = Cursor(attribute.data, limits.name)
    found = [
        heap.value(cursor) if kind.variable_text else cursor.take(kind.size) for _ in range(count)
    ]
    try:
        return [raw.split(b"\0")[0].decode("utf-8") for raw in found]
    except UnicodeDecodeError as error:
        raise Damaged(
            f"the attribute {attribute.name} of {limits.name} is not UTF-8", why=str(error)
        ) from error


class Heap:
    """Values of variable length, which lie in collections anywhere in the file."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.bytes = 0
        self.collections: dict[int, dict[int, bytes]] = {}

    def value(self, cursor: Cursor) -> bytes:
        length, address, index = cursor.number(4), cursor.number(8), cursor.number(4)
        if length == 0 or address in (0, UNDEFINED):
            return b""
        found = self._collection(address).get(index)
        if found is None or length > len(found):
            raise Damaged(f"the structure of {self.limits.name} is corrupt", why="a string is lost")
        self.bytes += length
        if self.bytes > MOST_TEXT_BYTES:
            raise UnsafeInput(
                f"the attributes of {self.limits.name} are too large",
                why=f"more than {MOST_TEXT_BYTES >> 20} MiB of text",
            )
        return found[:length]

    def _collection(self, address: int) -> dict[int, bytes]:
        known = self.collections.get(address)
        if known is not None:
            return known
        cursor = self.limits.cursor(address, 16)
        cursor.expect(b"GCOL", "a collection of strings")
        if cursor.number(1) != 1:
            raise NewerFormat(f"{self.limits.name} contains a newer collection of strings")
        cursor.take(3)
        size = cursor.number(8)
        if size > MOST_TEXT_BYTES * 2:
            raise UnsafeInput(f"the attributes of {self.limits.name} are too large", why=f"{size}")
        cursor = self.limits.cursor(address + 16, size - 16)
        found: dict[int, bytes] = {}
        while cursor.left >= 16:
            index = cursor.number(2)
            cursor.take(6)
            length = cursor.number(8)
            if index == 0:  # the free space, which is the rest
                break
            self.limits.message()
            found[index] = cursor.take(length)
            cursor.take(min(-length % 8, cursor.left))
        self.collections[address] = found
        return found
