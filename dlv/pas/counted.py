"""How many stored bytes are asked for."""

from __future__ import annotations

from collections.abc import Sequence

from dlv.kinds import Raw
from dlv.pas.pieces import ChunkSource, Piece


class Counted:
    """A source that counts the stored bytes that are asked for, each chunk once."""

    def __init__(self, source: ChunkSource) -> None:
        self._source = source
        self._seen: set[tuple[str, int]] = set()
        self.bytes = 0

    def chunks(self, matrix: str) -> Sequence[Piece]:
        return self._source.chunks(matrix)

    def read(self, piece: Piece) -> Raw:
        self._count(piece)
        return self._source.read(piece)

    def stored(self, piece: Piece) -> Raw:
        self._count(piece)
        return self._source.stored(piece)

    def object(self, kind: str, name: str) -> Raw:
        return self._source.object(kind, name)

    def _count(self, piece: Piece) -> None:
        key = piece.pack, piece.offset
        if key not in self._seen:
            self._seen.add(key)
            self.bytes += piece.length
