"""Chunks out of packs: read one, checked, and join the pieces of an object.

Light on purpose: what prints a series or a network needs neither numpy nor the code of planes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from dlv.canonical import hash_bytes
from dlv.errors import Damaged, NewerFormat, StorageError
from dlv.kinds import Piece, Raw
from dlv.pas.coders.codecs import codec_of

MAGIC = b"DLVPACK1"
SUFFIX = ".pack"

# Kinds whose members are indices into `encodings`, and kinds whose members are hashes.
MATRIX_KINDS = ("plane", "side")
OBJECT_KINDS = ("table", "network", "series", "points", "blob", "file", "skeleton", "bounds")

Config = Mapping[str, Any]

# No codec makes bytes smaller than to this part: a frame of zstd repeats one byte 2^15 times
# per byte, and a coder of fractions of bits stays below it too.
MAX_RATIO = 1 << 16
_OVERHEAD = 64


class Stored(Protocol):
    """What is needed to read one chunk: a `Chunk`, or a row of the index."""

    @property
    def kind(self) -> str: ...
    @property
    def offset(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def raw(self) -> int: ...
    @property
    def blake3(self) -> str: ...
    @property
    def codec(self) -> Config: ...


class ChunkSource(Protocol):
    """Where chunks come from: local packs, or a remote's ranges."""

    def chunks(self, matrix: str) -> Sequence[Piece]:
        """All pieces of a matrix, in any order."""
        ...

    def read(self, piece: Piece) -> Raw:
        """The whole decoded chunk that the piece is part of, its checksum verified."""
        ...

    def stored(self, piece: Piece) -> Raw:
        """The bytes of that chunk as they are stored, their checksum verified."""
        ...

    def object(self, kind: str, name: str) -> Raw:
        """A named object, checked against its name."""
        ...


def open_pack(path: str | os.PathLike[str], pack: str) -> int:
    """A descriptor for reading; FileNotFoundError is left to the caller, who may look further."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StorageError(f"cannot open {pack}", why=error.strerror) from error


def read_stored(descriptor: int, size: int, row: Stored, pack: str) -> bytes:
    """The bytes of a chunk as they lie in the pack, checksum verified."""
    label = f"{pack}, {row.kind} at {row.offset}"
    if row.offset < len(MAGIC) or row.length < 0 or row.offset + row.length > size:
        raise Damaged(f"{label} is outside the file", why=f"it has {size} bytes")
    stored = read_exactly(descriptor, row.length, row.offset, label)
    if hash_bytes(stored) != row.blake3:
        raise Damaged(f"{label} is corrupt", why="checksum mismatch", hint="dlv fsck")
    return stored


def read_chunk(descriptor: int, size: int, row: Stored, pack: str) -> Raw:
    """The decoded bytes of a chunk; one of an unknown kind or codec is refused by name."""
    if row.kind not in MATRIX_KINDS + OBJECT_KINDS:
        raise NewerFormat(f"{pack} contains a chunk of the unknown kind {row.kind!r}")
    codec = codec_of(row.codec)
    stored = read_stored(descriptor, size, row, pack)
    try:
        return codec.decode(stored, row.raw)
    except Damaged as error:
        raise Damaged(
            f"{pack}, {row.kind} at {row.offset}: {error.message}", why=error.why
        ) from error


def read_exactly(descriptor: int, length: int, offset: int, label: str) -> bytes:
    """`length` bytes from `offset`; the end of the file before that is damage, never zeros."""
    parts: list[bytes] = []
    done = 0
    while done < length:
        try:
            part = os.pread(descriptor, length - done, offset + done)
        except OSError as error:
            raise StorageError(f"cannot read {label}", why=error.strerror) from error
        if not part:
            raise Damaged(f"{label} is truncated", why=f"{done} of {length} bytes")
        parts.append(part)
        done += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def in_order(pieces: Sequence[Piece], expected: int | None, label: str) -> list[Piece]:
    """Pieces that cover an object once, sorted; their lengths are possible ones."""
    end = covered([(piece.start, piece.count) for piece in pieces])
    if end is None or not pieces or (expected is not None and end != expected):
        raise Damaged(f"{label} is not stored whole", hint="dlv fsck")
    for piece in pieces:
        if piece.at < 0 or piece.count < 0 or piece.at + piece.count > piece.raw:
            raise Damaged(f"{label} is outside its chunk", hint="dlv fsck")
        if piece.raw > (piece.length + _OVERHEAD) * MAX_RATIO:
            raise Damaged(f"{label} is longer than its chunk can hold", hint="dlv fsck")
    return sorted(pieces, key=lambda piece: (piece.start, piece.count))


def piece_of(piece: Piece, decoded: Raw, label: str) -> Raw:
    """The bytes of a piece, cut out of its decoded chunk."""
    if piece.at < 0 or piece.at + piece.count > len(decoded):
        raise Damaged(f"{label} is outside its chunk", hint="dlv fsck")
    if piece.at == 0 and piece.count == len(decoded):
        return decoded
    return memoryview(decoded)[piece.at : piece.at + piece.count]


def join_pieces(
    pieces: Sequence[Piece], expected: int | None, source: ChunkSource, label: str
) -> Raw:
    """The pieces of one object end to end; each is known to be there before any is read."""
    parts = [
        piece_of(piece, source.read(piece), label) for piece in in_order(pieces, expected, label)
    ]
    return parts[0] if len(parts) == 1 else b"".join(parts)


def covered(pieces: Sequence[tuple[int, int]]) -> int | None:
    """Where pieces (start, length) end that lie end to end from 0; None if they do not."""
    end = 0
    for start, count in sorted(pieces):
        if start != end:
            return None
        end += count
    return end
