"""HDF5 files, read without their C library: every structure is checked before it is followed.

Refused is all that leads out of the file (soft and external links, external and virtual
storage, references), all that is no plain tensor, and whatever declares more than is there.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np

from dlv.adapters.hdf5.groups import is_group, links
from dlv.adapters.hdf5.objects import (
    DATASPACE,
    DATATYPE,
    EXTERNAL,
    FILTERS,
    LAYOUT,
    MOST_DEPTH,
    SIGNATURE,
    UNDEFINED,
    Cursor,
    Datatype,
    Heap,
    Limits,
    Message,
    Region,
    attributes,
    check_sum,
    datatype,
    only,
    read_header,
    shape,
    texts,
)
from dlv.adapters.splice import swap
from dlv.dataclass import dataclass
from dlv.errors import Damaged, NewerFormat, UnsafeInput, UsageError
from dlv.kinds import Raw

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
            raise Damaged(f"a part of {self.name} is corrupt", why=str(error)) from error
        if len(result) > most:
            raise UnsafeInput(f"a part of {self.name} inflates beyond its size")
        if not inflater.eof:
            raise Damaged(f"a part of {self.name} is corrupt", why="it is truncated")
        return result

    def _checked(self, data: bytes) -> bytes:
        if len(data) < 4 or fletcher32(data[:-4]) != int.from_bytes(data[-4:], "little"):
            raise Damaged(f"a part of {self.name} is corrupt", why="its checksum")
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
            raise Damaged(f"the structure of {limits.name} is corrupt", why="a tree of chunks")
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


def newer_chunks(name: str, label: str) -> NewerFormat:
    return NewerFormat(
        f"the chunks of {name} in {label} are kept in an unsupported way",
        hint="save the file with libver='earliest', or unpack it with: h5repack -l CONTI",
    )


MOST_PATH = 4096
MOST_RATIO = 64  # unpacked bytes for each byte of the file; optimizer states begin as zeros
MOST_SMALL_BYTES = 256 << 20
_BEGINNINGS = (0, 512, 1024, 2048)


@dataclass(frozen=True)
class Dataset:
    """A tensor in the file. `offset`: where its bytes lie in one piece; None: in chunks."""

    path: str
    kind: Datatype
    shape: tuple[int, ...]
    offset: int | None
    chunked: Chunked | None
    attributes: Mapping[str, list[str]]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.kind.size

    @property
    def dtype(self) -> str:
        return self.kind.dtype or ""

    def read(self, region: Region) -> Raw:
        """Little-endian elements in C order."""
        if self.chunked is not None:
            return swap(self.chunked.read(region), self.kind.unit)
        assert self.offset is not None
        return swap(region.read(self.offset, self.nbytes), self.kind.unit)


@dataclass
class Contents:
    """The groups and data sets of a file by path; the root is ``."""

    region: Region
    groups: dict[str, Mapping[str, list[str]]] = field(default_factory=dict)
    datasets: dict[str, Dataset] = field(default_factory=dict)


def read(region: Region) -> Contents:
    """Groups, attributes that are texts, and data sets; nothing of the tensors themselves."""
    limits = Limits(region)
    base, root = _superblock(limits)
    if base:
        raise UnsafeInput(
            f"{region.name} begins with {base} bytes that are not HDF5",
            hint="take them away: h5unjam",
        )
    return _Walk(limits).run(root)


def _superblock(limits: Limits) -> tuple[int, int]:
    """Where the file begins, and the address of the root group."""
    region = limits.region
    for base in _BEGINNINGS:
        if base + 8 <= region.size and limits.read(base, 8) == SIGNATURE:
            break
    else:
        raise Damaged(f"{region.name} is not a HDF5 file", why="it does not begin as one")
    version = limits.cursor(base + 8, 1).number(1)
    if version > 3:
        raise NewerFormat(f"{region.name} is HDF5 of a version that dlv does not support")
    if version < 2:
        cursor = limits.cursor(base + 13, 2)
        _check_widths(limits, cursor)
        cursor = limits.cursor(base + (24 if version == 0 else 28), 72)
        start = cursor.number(8)
        cursor.take(8)
        end, driver = cursor.number(8), cursor.number(8)
        cursor.take(8)
        root = cursor.number(8)
        if driver != UNDEFINED:
            raise UnsafeInput(f"{region.name} is one part of several", why="it names a driver")
    else:
        cursor = Cursor(check_sum(limits, limits.read(base, 48), "the beginning"), region.name)
        cursor.take(9)
        _check_widths(limits, cursor)
        cursor.take(1)
        start = cursor.number(8)
        extension, end, root = cursor.number(8), cursor.number(8), cursor.number(8)
        if extension != UNDEFINED:
            raise NewerFormat(
                f"{region.name} uses a newer kind of HDF5", why="its beginning is extended"
            )
    if start != base:
        raise UnsafeInput(f"{region.name} says that it begins elsewhere", why=f"at {start}")
    if end != region.size:
        raise Damaged(
            f"{region.name} has the wrong length", why=f"{region.size} bytes instead of {end}"
        )
    return base, root


def _check_widths(limits: Limits, cursor: Cursor) -> None:
    offsets, lengths = cursor.number(1), cursor.number(1)
    if (offsets, lengths) != (8, 8):
        raise UnsafeInput(
            f"{limits.name} has addresses of an unusual width", why=f"{offsets} and {lengths} bytes"
        )


class _Walk:
    """The groups of a file from its root on; each object is entered once."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.heap = Heap(limits)
        self.contents = Contents(limits.region)
        self.storage: list[tuple[int, int, str]] = []
        self.unpacked = 0

    def run(self, root: int) -> Contents:
        seen = {root: ""}
        waiting = [("", root)]
        while waiting:
            path, address = waiting.pop()
            messages = read_header(self.limits, address)
            if not is_group(messages):
                if not path:
                    raise Damaged(f"{self.limits.name} is corrupt", why="its root is not a group")
                self._dataset(path, messages)
                continue
            self.contents.groups[path] = self._texts(messages)
            found = links(self.limits, messages)
            for link in reversed(found):
                below = f"{path}/{link.name}" if path else link.name
                if len(below) > MOST_PATH or below.count("/") >= MOST_DEPTH:
                    raise UnsafeInput(f"the groups of {self.limits.name} are nested too deeply")
                if link.address in seen:
                    raise UnsafeInput(
                        f"{self.limits.name} contains one object under two names",
                        why=f"{below!r} and {seen[link.address] or '/'!r}",
                    )
                seen[link.address] = below
                waiting.append((below, link.address))
        self._check_storage()
        return self.contents

    def _texts(self, messages: list[Message]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for attribute in attributes(self.limits, messages):
            value = texts(self.limits, attribute, self.heap)
            if attribute.name in found:
                raise UnsafeInput(f"{self.limits.name} holds {attribute.name!r} twice")
            if value is not None:
                found[attribute.name] = value
        return found

    def _dataset(self, path: str, messages: list[Message]) -> None:
        name = self.limits.name
        space, type_, layout = (only(messages, kind) for kind in (DATASPACE, DATATYPE, LAYOUT))
        if space is None or type_ is None or layout is None:
            raise UnsafeInput(f"{path} in {name} is neither a group nor a tensor")
        if only(messages, EXTERNAL) is not None:
            raise UnsafeInput(f"{path} in {name} keeps its elements in another file")
        kind, found = datatype(self.limits, type_), self._texts(messages)
        if (kind.kind, kind.size, found.get("dtype")) == ("opaque", 2, ["bfloat16"]):
            kind = Datatype("float", 2, "bfloat16")  # Keras' way of writing them
        if kind.dtype is None:
            raise UnsafeInput(
                f"{path} in {name} is not a tensor of numbers",
                why=f"its elements are of the type {kind.kind}, {kind.size} bytes",
            )
        sides = shape(self.limits, space)
        if sides is None:
            raise UsageError(f"{path} in {name} has no shape")
        filters = read_filters(self.limits, only(messages, FILTERS), path)
        offset, chunked = self._place(path, kind, sides, layout, filters)
        self.contents.datasets[path] = Dataset(path, kind, sides, offset, chunked, found)

    def _place(
        self,
        path: str,
        kind: Datatype,
        sides: tuple[int, ...],
        layout: bytes,
        filters: tuple[tuple[int, int], ...],
    ) -> tuple[int | None, Chunked | None]:
        limits, nbytes = self.limits, math.prod(sides) * kind.size
        cursor = Cursor(layout, limits.name)
        version, form = cursor.number(1), cursor.number(1)
        if version not in (3, 4, 5) or form > 3:
            raise NewerFormat(f"{path} in {limits.name} is kept in an unsupported way")
        if form == 3:
            raise UnsafeInput(f"{path} in {limits.name} is virtual", why="its parts are elsewhere")
        if form == 2:
            if version > 3:
                raise newer_chunks(path, limits.name)
            return None, self._chunks(path, kind, sides, cursor, filters)
        if filters:
            raise Damaged(f"{path} in {limits.name} has filters and no chunks")
        if form == 0:  # where that lies in the file is not recorded
            raise UsageError(
                f"{path} in {limits.name} is in its own header, which dlv does not read",
                why=f"{len(cursor.take(cursor.number(2)))} bytes in compact storage",
                hint="save it again, or: h5repack -l CONTI",
            )
        address, size = cursor.number(8), cursor.number(8)
        if nbytes == 0:
            return 0, None
        if address == UNDEFINED:
            raise UsageError(
                f"{path} in {limits.name} was never written", why=f"{nbytes} bytes are missing"
            )
        if size != nbytes:
            raise UnsafeInput(
                f"{path} in {limits.name} has not the length that its shape needs",
                why=f"{size} bytes instead of {nbytes}",
            )
        self._store(path, address, size)
        return address, None

    def _chunks(
        self,
        path: str,
        kind: Datatype,
        sides: tuple[int, ...],
        cursor: Cursor,
        filters: tuple[tuple[int, int], ...],
    ) -> Chunked:
        limits, nbytes = self.limits, math.prod(sides) * kind.size
        self.unpacked += nbytes
        most = max(MOST_RATIO * limits.region.size, MOST_SMALL_BYTES)
        if nbytes > MOST_CHUNKED_BYTES or self.unpacked > most:
            raise UnsafeInput(
                f"{path} in {limits.name} unpacks to too much",
                why=f"{nbytes} bytes from a file of {limits.region.size}",
                hint="unpack it with: h5repack -l CONTI",
            )
        tree, chunk = read_layout(limits, cursor, path, sides, kind.size)
        chunks = read_chunks(limits, tree, path, sides, chunk)
        for each in chunks:
            self._store(path, each.address, each.size)
        return Chunked(path, sides, kind.size, chunk, filters, chunks)

    def _store(self, path: str, address: int, size: int) -> None:
        if address + size > self.limits.region.size:
            raise Damaged(
                f"{path} is not inside {self.limits.name}",
                why=f"bytes {address} to {address + size} of {self.limits.region.size}",
            )
        self.storage.append((address, address + size, path))

    def _check_storage(self) -> None:
        self.storage.sort()
        end, before = 0, ""
        for start, stop, path in self.storage:
            if start < end:
                raise UnsafeInput(f"tensors overlap in {self.limits.name}", why=f"{before}, {path}")
            end, before = stop, path
