"""A store as it will be once some matrices are encoded anew; the new encodings lie in files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from dlv.archiving.tryouts import Attempt, Place
from dlv.dataclass import dataclass
from dlv.errors import Damaged, StorageError
from dlv.kinds import Array, Piece, Raw
from dlv.pas.coders.codecs import codec_of
from dlv.pas.footer import Encoding
from dlv.pas.level import Level, Unusable, level, needed
from dlv.pas.read import ALL, read_matrix
from dlv.weights.arrays import to_array
from dlv.weights.store import MatrixStore


@dataclass(frozen=True)
class _FreshPiece(Piece):
    """A piece of an attempt, which is in no pack yet."""

    attempt: Attempt
    place: Place


class View:
    """Reads matrices and their first planes, from packs or from what was made since."""

    def __init__(self, store: MatrixStore | View) -> None:
        self._store = store
        self.made: dict[str, Attempt] = {}
        self._encodings: dict[str, Encoding] = {}

    def put(self, attempt: Attempt, encoding: Encoding | None = None) -> None:
        """From now on a matrix counts as encoded so, or under another layout of equal planes."""
        encoding = encoding or attempt.encoding
        assert encoding is not None
        before = self.made.get(encoding.matrix)
        if before is not None and before is not attempt:
            before.close()
        self.made[encoding.matrix] = attempt
        self._encodings[encoding.matrix] = encoding

    def encoding(self, matrix: str) -> Encoding | None:
        return self._encodings.get(matrix) or self._store.encoding(matrix)

    def chunks(self, matrix: str) -> Sequence[Piece]:
        if matrix in self.made:
            attempt = self.made[matrix]
            return [
                _FreshPiece(matrix, pack="", at=0, **vars(place), attempt=attempt, place=place)
                for place in attempt.places
            ]
        return self._store.chunks(matrix)

    def stored(self, piece: Piece) -> Raw:
        if not isinstance(piece, _FreshPiece):
            return self._store.stored(piece)
        part = piece.attempt.read(piece.place)
        if part is None:
            raise StorageError(
                "encoded weights do not read back",
                why="the disk or the memory of this machine may be faulty",
            )
        return part.encoded.data

    def read(self, piece: Piece) -> Raw:
        if not isinstance(piece, _FreshPiece):
            return self._store.read(piece)
        return codec_of(piece.codec).decode(self.stored(piece), piece.raw)

    def object(self, kind: str, name: str) -> Raw:
        return self._store.object(kind, name)

    def raw(self, matrix: str) -> Raw:
        return read_matrix(matrix, self.encoding, self)

    def array(self, matrix: str) -> Array:
        """The exact numbers, floats in binary64."""
        encoding = self.encoding(matrix)
        if encoding is None:
            raise Damaged(f"tensor {matrix} is not stored", hint="dlv fsck")
        found = to_array(encoding.dtype, tuple(encoding.shape), self.raw(matrix))
        return found.astype(np.float64) if found.dtype.kind == "f" else found

    def level(self, matrix: str, planes: int) -> Level | Unusable:
        """Just what a reader will see."""
        return level(matrix, planes, self.encoding, self)

    def bytes(self, matrix: str, planes: int = ALL) -> float:
        """Encoded bytes that so many planes take, of the bases too."""
        pieces = needed(matrix, planes, self.encoding, self)
        return sum(piece.length * piece.count / max(piece.raw, 1) for piece in pieces)

    def close(self) -> None:
        for attempt in self.made.values():
            attempt.close()
        self.made.clear()
        self._encodings.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
