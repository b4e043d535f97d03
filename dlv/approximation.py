"""A matrix as far as its first planes tell it: centre, bounds, and what was read for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.errors import UsageError
from dlv.pas.level import Unusable
from dlv.pas.pieces import Piece
from dlv.weights import MatrixStore

Raw = bytes | bytearray | memoryview
Floats = NDArray[np.float64]


Chunks = Mapping[tuple[str, int], int]  # (pack, offset) -> bytes


@dataclass(frozen=True)
class Reading:
    """What was read for approximations, of one matrix or of several: each chunk counts once.

    `planes` were asked for. `exact`: the matrices have no more, or had to be read whole.
    `all_chunks` are those that exact numbers take.
    """

    planes: int
    exact: bool
    chunks: Chunks
    all_chunks: Chunks
    why: str | None = None  # why the first planes did not do

    @property
    def bytes_read(self) -> int:
        return sum(self.chunks.values())

    @property
    def bytes_whole(self) -> int:
        return sum(self.all_chunks.values())

    @property
    def share(self) -> float:
        """Of the bytes that exact numbers take, the part that was read."""
        return self.bytes_read / self.bytes_whole if self.bytes_whole else 1.0

    def and_(self, other: Reading) -> Reading:
        """Two readings as one."""
        return Reading(
            max(self.planes, other.planes),
            self.exact and other.exact,
            {**self.chunks, **other.chunks},
            {**self.all_chunks, **other.all_chunks},
            self.why or other.why,
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "planes": self.planes,
            "exact": self.exact,
            "bytes_read": self.bytes_read,
            "bytes_whole": self.bytes_whole,
            "why": self.why,
        }


def whole(store: MatrixStore, matrix: str, planes: int) -> Reading:
    """That of a matrix of which all is read."""
    chunks = {(p.pack, p.offset): p.length for p in store.pieces_behind(matrix)}
    return Reading(planes, True, chunks, chunks)


@dataclass(frozen=True)
class Approximation:
    """`low <= number <= high` for each number; `centre` lies between them.

    float64, in the matrix's shape (of complex numbers with one more axis: real, imaginary).
    Where the reading was exact, the three are the numbers.
    """

    centre: Floats
    low: Floats
    high: Floats
    reading: Reading

    @property
    def exact(self) -> bool:
        return self.reading.exact

    @property
    def bytes_read(self) -> int:
        return self.reading.bytes_read

    @property
    def share(self) -> float:
        """Of the bytes that exact numbers take, the part that was read."""
        return self.reading.share


def approximate(
    store: MatrixStore, matrix: str, dtype: str, shape: Sequence[int], planes: int
) -> Approximation:
    """The first planes of a matrix, or all of it where they bound nothing."""
    if planes < 1:
        raise UsageError(f"{planes} planes tell nothing", hint="give 1 or more")
    source, why = _Noting(store), None
    found = store.level(matrix, planes, source)
    if isinstance(found, Unusable):
        why = found.why
        found = store.level(matrix, _ALL, source)
    if isinstance(found, Unusable):
        raise UsageError(
            f"a matrix of {dtype} {list(shape)} has no numbers that dlv understands",
            why=found.why,
            hint="read its bytes instead",
        )
    all_chunks = whole(store, matrix, planes).all_chunks
    reading = Reading(planes, found.exact, source.chunks_read, all_chunks, why)
    return Approximation(found.centre, found.low, found.high, reading)


class _Noting:
    """A store that notes which chunks are read."""

    def __init__(self, store: MatrixStore) -> None:
        self._store = store
        self.chunks_read: dict[tuple[str, int], int] = {}

    def chunks(self, matrix: str) -> Sequence[Piece]:
        return self._store.chunks(matrix)

    def read(self, piece: Piece) -> Raw:
        self.chunks_read[piece.pack, piece.offset] = piece.length
        return self._store.read(piece)

    def stored(self, piece: Piece) -> Raw:
        self.chunks_read[piece.pack, piece.offset] = piece.length
        return self._store.stored(piece)

    def object(self, kind: str, name: str) -> Raw:
        return self._store.object(kind, name)


_ALL = 1 << 20
