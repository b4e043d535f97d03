"""Checksums of a zip archive some of whose stored bytes were put in place of others."""

from __future__ import annotations

import struct
import zlib

from dlv.adapters.archive import STORED, Entry, read_directory
from dlv.adapters.source import Source

_IN_HEADER = 14
_IN_ROW = 16
_FLAGS = 6
_DESCRIPTOR = 0x0008
_SIGNATURE = b"PK\x07\x08"
_BLOCK = 1 << 20

Patch = tuple[int, bytes]  # (offset, bytes that belong there)


def renewed(file: Source) -> list[Patch]:
    """What to write where, so that every stored entry has the checksum of its bytes."""
    patches: list[Patch] = []
    for entry in read_directory(file):
        if entry.method == STORED:
            crc = 0
            for start in range(0, entry.size, _BLOCK):
                size = min(_BLOCK, entry.size - start)
                crc = zlib.crc32(file.read(entry.offset + start, size), crc)
            if crc != entry.crc:
                patches += [(place, struct.pack("<L", crc)) for place in _places(file, entry)]
    return patches


def _places(file: Source, entry: Entry) -> list[int]:
    """Where the entry's checksum stands: in two headers, or behind the bytes as well."""
    old = struct.pack("<L", entry.crc)
    places = [entry.header + _IN_HEADER, entry.row + _IN_ROW]
    (flags,) = struct.unpack("<H", file.read(entry.header + _FLAGS, 2))
    if flags & _DESCRIPTOR:
        end = entry.offset + entry.compressed
        places.append(end + 4 if file.read(end, 4) == _SIGNATURE else end)
    # A header before a descriptor may hold 0 instead.
    return [place for place in places if file.read(place, 4) == old]
