"""HDF5 files, read without their C library: every structure is checked before it is followed.

Refused is all that leads out of the file (soft and external links, external and virtual
storage, references), all that is no plain tensor, and whatever declares more than is there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from dlv.adapters.hdf5.bytes import MOST_DEPTH, UNDEFINED, Cursor, Limits, Region, check_sum
from dlv.adapters.hdf5.chunks import (
    MOST_CHUNKED_BYTES,
    Chunked,
    newer_chunks,
    read_chunks,
    read_filters,
    read_layout,
)
from dlv.adapters.hdf5.groups import is_group, links
from dlv.adapters.hdf5.headers import (
    DATASPACE,
    DATATYPE,
    EXTERNAL,
    FILTERS,
    LAYOUT,
    Message,
    attributes,
    only,
    read_header,
)
from dlv.adapters.hdf5.types import Datatype, Heap, datatype, shape, texts
from dlv.adapters.order import swap
from dlv.errors import Damaged, NewerFormat, UnsafeInput, UsageError
from dlv.kinds import Raw

SIGNATURE = b"\x89HDF\r\n\x1a\n"
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
    """What a file holds. Groups by path; the root is ``."""

    region: Region
    groups: dict[str, Mapping[str, list[str]]] = field(default_factory=dict)
    datasets: dict[str, Dataset] = field(default_factory=dict)


def read(region: Region) -> Contents:
    """Groups, attributes that are texts, and data sets; nothing of the tensors themselves."""
    limits = Limits(region)
    base, root = _superblock(limits)
    if base:
        raise UnsafeInput(
            f"{region.name} begins with {base} bytes that are no HDF5",
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
        raise Damaged(f"{region.name} is no HDF5 file", why="it does not begin as one")
    version = limits.cursor(base + 8, 1).number(1)
    if version > 3:
        raise NewerFormat(f"{region.name} is HDF5 of a version that dlv does not know")
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
            f"{region.name} has not the length that it says",
            why=f"{region.size} bytes instead of {end}",
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
                    raise Damaged(f"{self.limits.name} is damaged", why="its root is no group")
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
                        f"{self.limits.name} holds one object under two names",
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
                f"{path} in {name} is no tensor of numbers",
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
            raise NewerFormat(f"{path} in {limits.name} is kept in a way that dlv does not read")
        if form == 3:
            raise UnsafeInput(f"{path} in {limits.name} is virtual", why="its parts are elsewhere")
        if form == 2:
            if version > 3:
                raise newer_chunks(path, limits.name)
            return None, self._chunks(path, kind, sides, cursor, filters)
        if filters:
            raise Damaged(f"{path} in {limits.name} has filters and no chunks")
        if form == 0:
            size = cursor.number(2)
            address = self._compact(path, cursor.take(size))
        else:
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

    def _compact(self, path: str, data: bytes) -> int:
        """A small tensor within its header: where that lies in the file is not recorded."""
        raise UsageError(
            f"{path} in {self.limits.name} lies in its own header, which dlv does not read",
            why=f"{len(data)} bytes in compact storage",
            hint="save it anew, or: h5repack -l CONTI",
        )

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
                f"{path} does not lie inside {self.limits.name}",
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
