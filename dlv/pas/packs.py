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
from dlv.errors import Damaged, NewerFormat
from dlv.kinds import Raw
from dlv.pas.chunks import MAGIC, Config, Stored, open_pack, read_chunk, read_exactly
from dlv.pas.coders.zstd import ZstdCodec, decompress
from dlv.pas.footer import MAX_FOOTER, Chunk, Encoding, Footer, Member, parse

END = b"DLVPEND1"
TRAILER = struct.Struct("<QQ32s8s")

# Larger named objects are cut into chunks of this many decoded bytes.
MAX_OBJECT_CHUNK = 64 << 20


class Sink(Protocol):
    """Where a pack is written."""

    def write(self, data: Raw, /) -> int: ...

    def tell(self) -> int: ...


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
            raise Damaged(f"{what} is corrupt", why="its checksum does not match")
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


def _check_magic(magic: bytes, expected: bytes, label: str) -> None:
    if magic == expected:
        return
    if re.fullmatch(re.escape(expected[:-1]) + rb"[2-9]", magic):
        raise NewerFormat(f"{label} has the format {magic.decode()!r}")
    raise Damaged(f"{label} is not a pack", why=f"{magic!r} where {expected!r} should be")
