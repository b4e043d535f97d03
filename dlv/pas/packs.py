"""Packs: immutable files of checksummed chunks with a footer that describes them.

The pieces of a matrix say where in which packs its planes lie; they are checked before anything
is read or allocated.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from dlv.canonical import WRITER, hash_bytes
from dlv.errors import Damaged, NewerFormat, StorageError
from dlv.kinds import Piece, Raw
from dlv.pas.coders.codecs import codec_of
from dlv.pas.coders.zstd import ZstdCodec, decompress
from dlv.pas.footer import (
    MATRIX_KINDS,
    MAX_FOOTER,
    OBJECT_KINDS,
    Chunk,
    Config,
    Encoding,
    Footer,
    Member,
    covered,
    parse,
)

MAGIC = b"DLVPACK1"
END = b"DLVPEND1"
SUFFIX = ".pack"
TRAILER = struct.Struct("<QQ32s8s")

# Larger named objects are cut into chunks of this many decoded bytes.
MAX_OBJECT_CHUNK = 64 << 20


class Sink(Protocol):
    """Where a pack is written."""

    def write(self, data: Raw, /) -> int: ...

    def tell(self) -> int: ...


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


class PackWriter:
    """Writes chunks one after the other, then the footer."""

    def __init__(self, file: Sink, *, writer: str = WRITER) -> None:
        self._file = file
        self._writer = writer
        self._encodings: dict[str, int] = {}
        self._rows: list[Encoding] = []
        self._chunks: list[Chunk] = []
        self.footer_estimate = 100  # bytes of JSON so far, roughly
        file.write(MAGIC)

    def add_encoding(self, encoding: Encoding) -> int:
        """The index by which chunks name this matrix; a matrix already listed keeps its own."""
        index = self._encodings.get(encoding.matrix)
        if index is None:
            index = self._encodings[encoding.matrix] = len(self._rows)
            self._rows.append(encoding)
            self.footer_estimate += 200
        return index

    def add_chunk(
        self,
        kind: str,
        plane: int | None,
        members: Sequence[Member],
        raw_length: int,
        codec: Config,
        encoded: Raw,
        *,
        blake3: str | None = None,
    ) -> Chunk:
        """Append one encoded chunk; `blake3` where the caller has its hash already."""
        chunk = Chunk(
            kind,
            plane,
            self._file.tell(),
            len(encoded),
            raw_length,
            blake3 or hash_bytes(encoded),
            codec,
            tuple(members),
        )
        self._file.write(encoded)
        self._chunks.append(chunk)
        self.footer_estimate += 220 + 20 * len(members)
        return chunk

    def finish(self) -> Footer:
        """Write footer and trailer; the file is complete then."""
        footer = Footer(self._writer, tuple(self._rows), tuple(self._chunks))
        text = footer.dumps()
        if len(text) > MAX_FOOTER:
            raise ValueError(f"a footer of {len(text)} bytes: this needs several packs")
        frame = ZstdCodec("text").encode(text)
        offset = self._file.tell()
        self._file.write(frame)
        digest = bytes.fromhex(hash_bytes(frame))
        self._file.write(TRAILER.pack(offset, len(frame), digest, END))
        return footer


class Pack:
    """An open pack; its footer is checked, its chunks when they are read."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.name = Path(path).name
        self._what = f"pack {self.name}"
        self.descriptor = open_pack(path, self._what)
        try:
            self.size = os.fstat(self.descriptor).st_size
            self.footer = self._read_footer()
        except BaseException:
            self.close()
            raise

    @property
    def encodings(self) -> tuple[Encoding, ...]:
        return self.footer.encodings

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        return self.footer.chunks

    def _read_footer(self) -> Footer:
        if self.size < len(MAGIC) + TRAILER.size:
            raise Damaged(f"{self._what} is too short", why=f"{self.size} bytes")
        magic = read_exactly(self.descriptor, len(MAGIC), 0, self._what)
        trailer = read_exactly(self.descriptor, TRAILER.size, self.size - TRAILER.size, self._what)
        offset, length, digest, end = TRAILER.unpack(trailer)
        _check_magic(magic, MAGIC, self._what)
        _check_magic(end, END, self._what)
        if offset < len(MAGIC) or offset + length + TRAILER.size != self.size:
            raise Damaged(f"{self._what} has a wrong trailer", why="its lengths do not add up")
        frame = read_exactly(self.descriptor, length, offset, self._what)
        what = f"footer of {self._what}"
        if bytes.fromhex(hash_bytes(frame)) != digest:
            raise Damaged(f"{what} is damaged", why="its checksum does not match")
        return parse(decompress(frame, MAX_FOOTER, what), offset, what)

    def read_chunk(self, row: Stored) -> Raw:
        """The decoded bytes of one chunk, its checksum verified."""
        return read_chunk(self.descriptor, self.size, row, self._what)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_pack(path: str | os.PathLike[str], what: str) -> int:
    """A descriptor for reading; FileNotFoundError is left to the caller, who may look further."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StorageError(f"cannot open {what}", why=error.strerror) from error


def read_stored(descriptor: int, size: int, row: Stored, what: str) -> bytes:
    """The bytes of a chunk as they lie in the pack, checksum verified."""
    label = f"{what}, {row.kind} at {row.offset}"
    if row.offset < len(MAGIC) or row.length < 0 or row.offset + row.length > size:
        raise Damaged(f"{label} lies outside the file", why=f"it has {size} bytes")
    stored = read_exactly(descriptor, row.length, row.offset, label)
    if hash_bytes(stored) != row.blake3:
        raise Damaged(
            f"{label} is damaged",
            why="the checksum of its bytes does not match",
            hint="dlv fsck",
        )
    return stored


def read_chunk(descriptor: int, size: int, row: Stored, what: str) -> Raw:
    """The decoded bytes of a chunk; one of an unknown kind or codec is refused by name."""
    if row.kind not in MATRIX_KINDS + OBJECT_KINDS:
        raise NewerFormat(f"{what} holds a chunk of the unknown kind {row.kind!r}")
    codec = codec_of(row.codec)
    stored = read_stored(descriptor, size, row, what)
    try:
        return codec.decode(stored, row.raw)
    except Damaged as error:
        raise Damaged(
            f"{what}, {row.kind} at {row.offset}: {error.message}", why=error.why
        ) from error


def read_exactly(descriptor: int, length: int, offset: int, what: str) -> bytes:
    """`length` bytes from `offset`; the end of the file before that is damage, never zeros."""
    parts: list[bytes] = []
    done = 0
    while done < length:
        try:
            part = os.pread(descriptor, length - done, offset + done)
        except OSError as error:
            raise StorageError(f"cannot read {what}", why=error.strerror) from error
        if not part:
            raise Damaged(f"{what} ends too early", why=f"{done} of {length} bytes")
        parts.append(part)
        done += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _check_magic(found: bytes, expected: bytes, what: str) -> None:
    if found == expected:
        return
    if re.fullmatch(re.escape(expected[:-1]) + rb"[2-9]", found):
        raise NewerFormat(f"{what} has the format {found.decode()!r}")
    raise Damaged(f"{what} is not a pack", why=f"{found!r} where {expected!r} should be")


# No codec makes bytes smaller than to this part: a frame of zstd repeats one byte 2^15 times
# per byte, and a coder of fractions of bits stays below it too.
MAX_RATIO = 1 << 16
_OVERHEAD = 64


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


def in_order(pieces: Sequence[Piece], expected: int | None, what: str) -> list[Piece]:
    """Pieces that cover an object once, sorted; their lengths are possible ones."""
    end = covered([(piece.start, piece.count) for piece in pieces])
    if end is None or not pieces or (expected is not None and end != expected):
        raise Damaged(f"{what} is not stored whole", hint="dlv fsck")
    for piece in pieces:
        if piece.at < 0 or piece.count < 0 or piece.at + piece.count > piece.raw:
            raise Damaged(f"{what} lies outside its chunk", hint="dlv fsck")
        if piece.raw > (piece.length + _OVERHEAD) * MAX_RATIO:
            raise Damaged(f"{what} is longer than its chunk can hold", hint="dlv fsck")
    return sorted(pieces, key=lambda piece: (piece.start, piece.count))


def share(piece: Piece, decoded: Raw, what: str) -> Raw:
    """What a piece is of its decoded chunk."""
    if piece.at < 0 or piece.at + piece.count > len(decoded):
        raise Damaged(f"{what} lies outside its chunk", hint="dlv fsck")
    if piece.at == 0 and piece.count == len(decoded):
        return decoded
    return memoryview(decoded)[piece.at : piece.at + piece.count]


def join_pieces(
    pieces: Sequence[Piece], expected: int | None, source: ChunkSource, what: str
) -> Raw:
    """The pieces of one object end to end; each is known to be there before any is read."""
    parts = [share(piece, source.read(piece), what) for piece in in_order(pieces, expected, what)]
    return parts[0] if len(parts) == 1 else b"".join(parts)
