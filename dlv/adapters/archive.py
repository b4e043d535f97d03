"""Zip archives, read strictly: what two readers could understand differently is refused."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from dlv.adapters.source import Source
from dlv.dataclass import dataclass
from dlv.errors import Damaged, UnsafeInput

STORED = 0
DEFLATED = 8

MOST_ENTRIES = 200_000
MOST_DIRECTORY_BYTES = 32 << 20
_MOST_NAME_BYTES = 4096
_BLOCK = 1 << 20
_DEFLATE_RATIO = 1032  # the most that deflate can make of one byte

_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")

_ENCRYPTED = 0x2041  # plain, strong, masked headers
_DESCRIPTOR = 0x0008
_UTF8 = 0x0800
_KNOWN_FLAGS = 0x080E  # the above and two hints about the deflate level
_ZIP64 = 0x0001
_UNICODE_NAME = 0x7075
_FULL16 = 0xFFFF
_FULL32 = 0xFFFFFFFF


@dataclass(frozen=True)
class Entry:
    """A file in the archive; `offset` is where its (compressed) bytes begin.

    `header` and `row` are where its local header and its row of the directory do.
    """

    name: str
    offset: int
    size: int
    compressed: int
    method: int
    crc: int
    header: int = 0
    row: int = 0


@dataclass(frozen=True)
class _Record:
    """A row of the central directory, not yet compared with its local header."""

    name: bytes
    flags: int
    method: int
    crc: int
    size: int
    compressed: int
    header: int
    row: int


def read_directory(file: Source) -> list[Entry]:
    """All entries in the order of their bytes; the archive consists of them and nothing else."""
    start, size, count = _find_directory(file)
    records = _read_records(file, start, size, count)
    records.sort(key=lambda record: record.header)
    entries = []
    seen = set()
    position = 0
    for index, record in enumerate(records):
        name = _decode_name(file, record)
        if name in seen:
            raise UnsafeInput(f"{file.name} holds {name!r} twice")
        seen.add(name)
        if record.header != position:
            kind = "overlap" if record.header < position else "leave a gap"
            raise UnsafeInput(
                f"the entries of {file.name} {kind}",
                why=f"{name!r} begins at {record.header}, expected {position}",
            )
        limit = records[index + 1].header if index + 1 < len(records) else start
        offset, position = _check_local(file, record, name, limit)
        entries.append(
            Entry(
                name=name,
                offset=offset,
                size=record.size,
                compressed=record.compressed,
                method=record.method,
                crc=record.crc,
                header=record.header,
                row=record.row,
            )
        )
    if position != start:
        raise UnsafeInput(
            f"{file.name} contains bytes outside its entries", why=f"bytes {position} to {start}"
        )
    return entries


def stream(file: Source, entry: Entry, limit: int) -> Iterator[bytes | bytearray]:
    """The entry's bytes in pieces; a wrong length or checksum is an error at the end.

    Stop early (a header is enough) by leaving the iterator.
    """
    if entry.size > limit:
        raise UnsafeInput(
            f"{entry.name} in {file.name} is too large",
            why=f"it declares {entry.size} bytes, the limit is {limit}",
        )
    pieces = _inflate(file, entry) if entry.method == DEFLATED else _stored(file, entry)
    crc = 0
    for piece in pieces:
        crc = zlib.crc32(piece, crc)
        yield piece
    _check_crc(file, entry, crc)


def read(file: Source, entry: Entry, limit: int) -> bytearray:
    """The whole entry, its length and checksum verified."""
    if entry.method == STORED and entry.size > _BLOCK:
        return _read_stored(file, entry, limit)
    data = bytearray()
    for piece in stream(file, entry, limit):
        data += piece
    return data


def is_safe(name: str) -> bool:
    """Whether a name stays below the folder it is unpacked into, on every system."""
    parts = name.removesuffix("/").split("/")
    drive = len(parts[0]) > 1 and parts[0][1] == ":"
    control = any(ord(letter) < 32 or ord(letter) == 127 for letter in name)
    return not (drive or control or "\\" in name or any(p in ("", ".", "..") for p in parts))


def _read_stored(file: Source, entry: Entry, limit: int) -> bytearray:
    """One read instead of many pieces and their copies."""
    if entry.size > limit:
        next(stream(file, entry, limit), None)
    data = file.read(entry.offset, entry.size)
    _check_crc(file, entry, zlib.crc32(data))
    return data


def _check_crc(file: Source, entry: Entry, crc: int) -> None:
    if crc != entry.crc:
        raise Damaged(
            f"{entry.name} in {file.name} is corrupt",
            why=f"checksum {crc:08x} instead of {entry.crc:08x}",
        )


def _stored(file: Source, entry: Entry) -> Iterator[bytearray]:
    for start in range(0, entry.size, _BLOCK):
        yield file.read(entry.offset + start, min(_BLOCK, entry.size - start))


def _inflate(file: Source, entry: Entry) -> Iterator[bytes]:
    inflater = zlib.decompressobj(-15)
    taken = made = 0
    waiting: bytes | bytearray = b""
    while not inflater.eof:
        if not waiting and taken < entry.compressed:
            waiting = file.read(entry.offset + taken, min(_BLOCK, entry.compressed - taken))
            taken += len(waiting)
        try:
            # One byte more than declared is asked for, so that a longer stream shows itself.
            piece = inflater.decompress(waiting, min(_BLOCK, entry.size - made + 1))
        except zlib.error as error:
            raise Damaged(f"{entry.name} in {file.name} is corrupt", why=str(error)) from error
        waiting = inflater.unconsumed_tail
        made += len(piece)
        if made > entry.size:
            raise UnsafeInput(
                f"{entry.name} in {file.name} inflates beyond its declared size",
                why=f"more than {entry.size} bytes",
            )
        if piece:
            yield piece
        elif not waiting and taken == entry.compressed and not inflater.eof:
            break
    if not inflater.eof or made != entry.size:
        raise Damaged(
            f"{entry.name} in {file.name} is truncated", why=f"{made} of {entry.size} bytes"
        )
    if inflater.unused_data or taken != entry.compressed:
        raise UnsafeInput(f"{entry.name} in {file.name} has bytes after its compressed data")


def _find_directory(file: Source) -> tuple[int, int, int]:
    """Offset, length and number of rows of the central directory."""
    end = file.size - _END.size
    tail = _END.unpack(file.read(end, _END.size)) if end >= 0 else (b"",)
    if tail[0] != b"PK\x05\x06":
        raise Damaged(
            f"{file.name} is not a complete zip archive",
            why="it does not end with its directory: cut off, or something was appended",
        )
    disk, first_disk, here, count, size, start, comment = tail[1:]
    if comment:
        raise Damaged(f"{file.name} is truncated", why="its zip comment is missing")
    short = (disk, first_disk, here, count, size, start)
    full = (_FULL16, _FULL16, _FULL16, _FULL16, _FULL32, _FULL32)
    locator = end - _LOCATOR.size
    signature, where, offset64, disks = (
        _LOCATOR.unpack(file.read(locator, _LOCATOR.size)) if locator >= 0 else (b"", 0, 0, 0)
    )
    if signature == b"PK\x06\x07":
        if where or disks > 1 or offset64 + _END64.size > locator:
            raise UnsafeInput(f"{file.name} has a zip64 directory outside of itself")
        record = _END64.unpack(file.read(offset64, _END64.size))
        if record[0] != b"PK\x06\x06" or offset64 + 12 + record[1] != locator:
            raise Damaged(f"{file.name} has a corrupt zip64 directory")
        long = record[4:]
        for narrow, wide, limit in zip(short, long, full, strict=True):
            if narrow not in (wide, limit):
                raise UnsafeInput(f"the two directory ends of {file.name} disagree")
        disk, first_disk, here, count, size, start = long
        end = offset64
    elif any(value == limit for value, limit in zip(short, full, strict=True)):
        raise Damaged(f"{file.name} lacks its zip64 directory")
    if disk or first_disk or here != count:
        raise UnsafeInput(f"{file.name} is one part of several")
    if start + size != end:
        raise UnsafeInput(
            f"the directory of {file.name} is not where it says",
            why=f"it should end at {end}, it says {start} + {size}",
        )
    if size > MOST_DIRECTORY_BYTES or count > MOST_ENTRIES:
        raise UnsafeInput(
            f"{file.name} has too many entries", why=f"{count}, the limit is {MOST_ENTRIES}"
        )
    return start, size, count


def _read_records(file: Source, start: int, size: int, count: int) -> list[_Record]:
    data = file.read(start, size)
    records: list[_Record] = []
    at = 0
    for _ in range(count):
        if at + _CENTRAL.size > size:
            raise Damaged(f"the directory of {file.name} is truncated")
        fields = _CENTRAL.unpack_from(data, at)
        signature, _, _, flags, method, _, _, crc, compressed, plain = fields[:10]
        name_size, extra_size, comment_size, disk, _, _, header = fields[10:]
        if signature != b"PK\x01\x02":
            raise Damaged(f"the directory of {file.name} is corrupt", why=f"at row {len(records)}")
        row = start + at
        at += _CENTRAL.size
        name = bytes(data[at : at + name_size])
        extra = bytes(data[at + name_size : at + name_size + extra_size])
        at += name_size + extra_size + comment_size
        if at > size:
            raise Damaged(f"the directory of {file.name} is truncated")
        plain, compressed, header, disk = _widen(
            file, extra, (plain, compressed, header), (disk, _FULL16)
        )
        record = _Record(name, flags, method, crc, plain, compressed, header, row)
        _check_record(file, record, disk, start)
        records.append(record)
    if at != size:
        raise UnsafeInput(f"the directory of {file.name} is longer than its entries")
    return records


def _check_record(file: Source, record: _Record, disk: int, end: int) -> None:
    label = f"{record.name!r} in {file.name}"
    if record.flags & _ENCRYPTED:
        raise UnsafeInput(f"{label} is encrypted")
    if record.flags & ~_KNOWN_FLAGS:
        raise UnsafeInput(f"{label} has unknown flags", why=f"{record.flags:#06x}")
    if record.method not in (STORED, DEFLATED):
        raise UnsafeInput(
            f"{label} is compressed in an unusual way", why=f"zip method {record.method}"
        )
    if disk:
        raise UnsafeInput(f"{label} is in another part of the archive")
    if record.method == STORED and record.size != record.compressed:
        raise UnsafeInput(f"{label} is stored, but declares two different sizes")
    if record.header + _LOCAL.size + record.compressed > end:
        raise Damaged(f"{label} is not inside the file")
    if record.size > record.compressed * _DEFLATE_RATIO:
        raise UnsafeInput(
            f"{label} declares more than deflate can hold",
            why=f"{record.size} bytes from {record.compressed}",
        )


def _check_local(file: Source, record: _Record, name: str, limit: int) -> tuple[int, int]:
    """Compare the local header with the directory; where the data begin and the entry ends."""
    label = f"the two headers of {name!r} in {file.name} disagree"
    fields = _LOCAL.unpack(file.read(record.header, _LOCAL.size))
    signature, _, flags, method, _, _, crc, compressed, plain, name_size, extra_size = fields
    if signature != b"PK\x03\x04":
        raise Damaged(f"{name!r} in {file.name} has no header", why=f"at {record.header}")
    offset = record.header + _LOCAL.size + name_size + extra_size
    end = offset + record.compressed
    if end > limit:
        raise UnsafeInput(f"the entries of {file.name} overlap", why=f"after {name!r}")
    tail = bytes(file.read(record.header + _LOCAL.size, name_size + extra_size))
    if tail[:name_size] != record.name or (flags, method) != (record.flags, record.method):
        raise UnsafeInput(label)
    plain, compressed = _widen(file, tail[name_size:], (plain, compressed))
    local = (crc, compressed, plain)
    expected = (record.crc, record.compressed, record.size)
    if not flags & _DESCRIPTOR:
        if local != expected:
            raise UnsafeInput(label, why=f"crc and sizes {local}, in the directory {expected}")
        return offset, end
    if any(value not in (0, right) for value, right in zip(local, expected, strict=True)):
        raise UnsafeInput(label, why=f"crc and sizes {local}, in the directory {expected}")
    return offset, end + _descriptor_size(file, expected, end, limit, label)


def _descriptor_size(
    file: Source, expected: tuple[int, int, int], start: int, limit: int, label: str
) -> int:
    """Nothing marks which of the four forms of a data descriptor was used: all are compared."""
    crc, compressed, plain = expected
    size = limit - start
    forms = [struct.pack("<L2Q", crc, compressed, plain)]
    if max(compressed, plain) <= _FULL32:
        forms.append(struct.pack("<3L", crc, compressed, plain))
    forms += [_DESCRIPTOR_SIGNATURE + form for form in forms]
    if size > 24 or bytes(file.read(start, size)) not in forms:
        raise UnsafeInput(label, why="the data descriptor differs from the directory")
    return size


def _widen(
    file: Source, extra: bytes, values: tuple[int, ...], disk: tuple[int, int] | None = None
) -> list[int]:
    """Replace saturated 32-bit fields by those of the zip64 extra field."""
    result = list(values)
    wide: bytes | None = None
    at = 0
    while len(extra) - at >= 4:
        kind, size = struct.unpack_from("<2H", extra, at)
        at += 4
        if at + size > len(extra):
            raise Damaged(f"{file.name} has a corrupt extra field")
        if kind == _UNICODE_NAME or (kind == _ZIP64 and wide is not None):
            raise UnsafeInput(f"an entry of {file.name} is described twice")
        if kind == _ZIP64:
            wide = extra[at : at + size]
        at += size
    needed = [i for i, value in enumerate(values) if value == _FULL32]
    used = 8 * len(needed)
    wide = wide or b""
    if needed:
        if len(wide) < used:
            raise Damaged(f"{file.name} lacks a zip64 field")
        for index, value in zip(needed, struct.unpack_from(f"<{len(needed)}Q", wide), strict=True):
            result[index] = value
    if disk is not None:
        number, full = disk
        if number == full and len(wide) >= used + 4:
            number = int.from_bytes(wide[used : used + 4], "little")
            used += 4
        result.append(number)
    if len(wide) > used and needed:
        raise UnsafeInput(f"an entry of {file.name} is described twice", why="zip64 field")
    return result


def _decode_name(file: Source, record: _Record) -> str:
    raw = record.name
    if len(raw) > _MOST_NAME_BYTES:
        raise UnsafeInput(f"{file.name} contains a name of {len(raw)} bytes")
    try:
        name = raw.decode("utf-8" if record.flags & _UTF8 or raw.isascii() else "cp437")
    except UnicodeDecodeError as error:
        raise UnsafeInput(f"a name in {file.name} is not UTF-8", why=repr(raw)) from error
    if not is_safe(name):
        raise UnsafeInput(f"{file.name} contains an unsafe name", why=repr(name))
    if name.endswith("/") and record.size:
        raise UnsafeInput(f"{file.name} contains a folder with content", why=repr(name))
    return name


_CRC_IN_HEADER, _CRC_IN_ROW, _FLAGS_IN_HEADER = 14, 16, 6
_DESCRIPTOR_SIGNATURE = b"PK\x07\x08"


def renewed_checksums(file: Source) -> list[tuple[int, bytes]]:
    """Patches (offset, new bytes) that give every stored entry the checksum of its bytes."""
    patches: list[tuple[int, bytes]] = []
    for entry in read_directory(file):
        if entry.method == STORED:
            crc = 0
            for data in _stored(file, entry):
                crc = zlib.crc32(data, crc)
            if crc != entry.crc:
                new = struct.pack("<L", crc)
                patches += [(place, new) for place in _checksum_places(file, entry)]
    return patches


def _checksum_places(file: Source, entry: Entry) -> list[int]:
    """Offsets of an entry's checksum: in two headers, or behind the bytes as well."""
    old = struct.pack("<L", entry.crc)
    places = [entry.header + _CRC_IN_HEADER, entry.row + _CRC_IN_ROW]
    (flags,) = struct.unpack("<H", file.read(entry.header + _FLAGS_IN_HEADER, 2))
    if flags & _DESCRIPTOR:
        end = entry.offset + entry.compressed
        places.append(end + 4 if file.read(end, 4) == _DESCRIPTOR_SIGNATURE else end)
    # A header before a descriptor may hold 0 instead.
    return [place for place in places if file.read(place, 4) == old]
