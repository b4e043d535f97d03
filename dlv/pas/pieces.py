"""The pieces of a matrix: where its planes lie, checked before anything is read or allocated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dlv.errors import Damaged
from dlv.kinds import Raw
from dlv.pas.footer import covered
from dlv.pas.packs import Stored

# No codec makes bytes smaller than to this part: a frame of zstd repeats one byte 2^15 times
# per byte, and a coder of fractions of bits stays below it too.
MAX_RATIO = 1 << 16
_OVERHEAD = 64


class Piece(Stored, Protocol):
    """One object's share of one chunk: `count` bytes at `at` of the decoded chunk."""

    @property
    def pack(self) -> str: ...
    @property
    def plane(self) -> int | None: ...
    @property
    def at(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def count(self) -> int: ...


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
