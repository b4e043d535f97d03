"""HDF5 data sets in chunks, perhaps deflated: checked as a whole, then put together."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlv.adapters.hdf5.bytes import Cursor, Limits, Region
from dlv.errors import Damaged, NewerFormat, UnsafeInput, UsageError

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

DEFLATE, SHUFFLE, FLETCHER = 1, 2, 3
MOST_CHUNKED_BYTES = 128 << 20
_MOST_FILTERS = 8
_MOST_LEVELS = 16


@dataclass(frozen=True)
class Chunk:
    """Where in the data set it lies, and where its bytes are."""

    place: tuple[int, ...]
    address: int
    size: int
    mask: int


@dataclass(frozen=True)
class Chunked:
    """A data set in chunks, all of them there."""

    name: str
    shape: tuple[int, ...]
    item: int
    sides: tuple[int, ...]
    filters: tuple[tuple[int, int], ...]  # (filter, its first parameter)
    chunks: tuple[Chunk, ...]

    def read(self, region: Region) -> bytearray:
        out = bytearray(math.prod(self.shape) * self.item)
        target = np.frombuffer(out, np.uint8).reshape(*self.shape, self.item)
        whole = math.prod(self.sides) * self.item
        for chunk in self.chunks:
            data = self._decode(bytes(region.read(chunk.address, chunk.size)), chunk.mask, whole)
            self._place(target, data, chunk.place)
        return out

    def _decode(self, data: bytes, mask: int, whole: int) -> bytes:
        for position in range(len(self.filters) - 1, -1, -1):
            kind, parameter = self.filters[position]
            if mask >> position & 1:
                continue
            if kind == DEFLATE:
                data = self._inflate(data, whole + 4)
            elif kind == SHUFFLE:
                data = unshuffle(data, parameter or self.item)
            else:
                data = self._checked(data)
        if len(data) != whole:
            raise Damaged(
                f"a part of {self.name} has a wrong length", why=f"{len(data)} instead of {whole}"
            )
        return data

    def _inflate(self, data: bytes, most: int) -> bytes:
        inflater = zlib.decompressobj()
        try:
            result = inflater.decompress(data, most + 1)
        except zlib.error as error:
            raise Damaged(f"a part of {self.name} is damaged", why=str(error)) from error
        if len(result) > most:
            raise UnsafeInput(f"a part of {self.name} inflates beyond its size")
        if not inflater.eof:
            raise Damaged(f"a part of {self.name} is damaged", why="it ends too early")
        return result

    def _checked(self, data: bytes) -> bytes:
        if len(data) < 4 or fletcher32(data[:-4]) != int.from_bytes(data[-4:], "little"):
            raise Damaged(f"a part of {self.name} is damaged", why="its checksum")
        return data[:-4]

    def _place(self, target: Bytes, data: bytes, place: tuple[int, ...]) -> None:
        """A chunk may reach over the edge."""
        spans = tuple(
            slice(start, min(start + side, length))
            for side, length, start in zip(self.sides, self.shape, place, strict=True)
        )
        inside = tuple(slice(0, span.stop - span.start) for span in spans)
        chunk = np.frombuffer(data, np.uint8).reshape(*self.sides, self.item)
        target[spans] = chunk[inside]


def read_filters(limits: Limits, data: bytes | None, name: str) -> tuple[tuple[int, int], ...]:
    """The filters of a data set; only those that are plain to undo."""
    if data is None:
        return ()
    cursor = Cursor(data, limits.name)
    version, count = cursor.number(1), cursor.number(1)
    if version not in (1, 2) or count > _MOST_FILTERS:
        raise UnsafeInput(f"{name} in {limits.name} has odd filters", why=f"{count} of them")
    if version == 1:
        cursor.take(6)
    found = []
    for _ in range(count):
        kind = cursor.number(2)
        length = cursor.number(2) if version == 1 or kind >= 256 else 0
        cursor.take(2)
        values = cursor.number(2)
        cursor.take(length + (-length % 8 if version == 1 else 0))
        numbers = [cursor.number(4) for _ in range(values)]
        if version == 1 and values % 2:
            cursor.take(4)
        if kind not in (DEFLATE, SHUFFLE, FLETCHER):
            raise UnsafeInput(
                f"{name} in {limits.name} is packed in an unusual way",
                why=f"HDF5 filter {kind}",
                hint="unpack it with: h5repack -f NONE",
            )
        found.append((kind, numbers[0] if numbers else 0))
    return tuple(found)


def read_layout(
    limits: Limits, cursor: Cursor, name: str, shape: tuple[int, ...], item: int
) -> tuple[int, tuple[int, ...]]:
    """Where the tree of chunks is, and the sides of a chunk."""
    rank = cursor.number(1)
    address = cursor.number(8)
    sides = tuple(cursor.number(4) for _ in range(rank))
    if len(sides) != len(shape) + 1 or sides[-1] != item or 0 in sides:
        raise Damaged(f"{name} in {limits.name} has chunks of another shape", why=f"{sides}")
    if math.prod(sides) > MOST_CHUNKED_BYTES:
        raise UnsafeInput(f"the chunks of {name} in {limits.name} are too large", why=f"{sides}")
    return address, sides[:-1]


def read_chunks(
    limits: Limits, tree: int, name: str, shape: tuple[int, ...], sides: tuple[int, ...]
) -> tuple[Chunk, ...]:
    """Every chunk of the data set, once; one that was never written is an error."""
    wanted = math.prod(-(-length // side) for length, side in zip(shape, sides, strict=True))
    if wanted * 8 > limits.region.size:
        raise UnsafeInput(f"{name} in {limits.name} declares more chunks than the file can hold")
    found: dict[tuple[int, ...], Chunk] = {}
    waiting = [(tree, -1)] if wanted else []
    seen: set[int] = set()
    row = 16 + 8 * (len(sides) + 1)
    while waiting:
        address, expected = waiting.pop()
        if address in seen:
            raise UnsafeInput(f"the chunks of {name} in {limits.name} contain themselves")
        seen.add(address)
        cursor = limits.cursor(address, 24)
        cursor.expect(b"TREE", "the tree of chunks")
        kind, level, used = cursor.number(1), cursor.number(1), cursor.number(2)
        if kind != 1 or level >= _MOST_LEVELS or expected not in (-1, level):
            raise Damaged(f"the structure of {limits.name} is damaged", why="a tree of chunks")
        cursor = limits.cursor(address + 24, row * used)
        for _ in range(used):
            limits.message()
            size, mask = cursor.number(4), cursor.number(4)
            place = tuple(cursor.number(8) for _ in sides)
            cursor.take(8)
            child = cursor.number(8)
            if level:
                waiting.append((child, level - 1))
                continue
            if place in found or any(
                at % side or at >= length
                for at, side, length in zip(place, sides, shape, strict=True)
            ):
                raise UnsafeInput(f"the chunks of {name} in {limits.name} overlap", why=f"{place}")
            found[place] = Chunk(place, child, size, mask)
    if len(found) != wanted:
        raise UsageError(
            f"{name} in {limits.name} was never written in full",
            why=f"{len(found)} of {wanted} chunks are there",
        )
    return tuple(found.values())


def unshuffle(data: bytes, item: int) -> bytes:
    """Bytes that were sorted by their place in the element, in order again."""
    count = len(data) // item
    if item == 1 or not count:
        return data
    columns = np.frombuffer(data[: count * item], np.uint8).reshape(item, count)
    return columns.T.tobytes() + data[count * item :]


def fletcher32(data: bytes) -> int:
    """The checksum of the filter; its halves are never zero, 65535 stands for that."""
    words = np.frombuffer(data + bytes(len(data) % 2), ">u2").astype(np.uint64)
    first = second = 0
    for at in range(0, len(words), 1 << 16):
        part = words[at : at + (1 << 16)]
        weights = np.arange(len(part), 0, -1, dtype=np.uint64)
        second = (second + first * len(part) + int((part * weights).sum())) % 65535
        first = (first + int(part.sum())) % 65535
    return (second or 65535) << 16 | (first or 65535)


def newer_chunks(name: str, what: str) -> NewerFormat:
    return NewerFormat(
        f"the chunks of {name} in {what} are kept in a way that dlv does not read",
        hint="save the file with libver='earliest', or unpack it with: h5repack -l CONTI",
    )
