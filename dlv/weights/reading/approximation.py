"""A matrix as far as its first planes tell it: centre, bounds, and what was read for them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dlv.dataclass import dataclass
from dlv.errors import UsageError
from dlv.kinds import Floats, Piece, Raw
from dlv.weights.store import MatrixStore

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


def whole(store: MatrixStore, matrix: str, planes: int, why: str | None = None) -> Reading:
    """That of a matrix of which all is read."""
    chunks = {(p.pack, p.offset): p.length for p in store.pieces_behind(matrix)}
    return Reading(planes, True, chunks, chunks, why)


@dataclass(frozen=True)
class Approximation:
    """`low <= number <= high` for each number; `center` lies between them.

    float64, in the matrix's shape (of complex numbers with one more axis: real, imaginary).
    Where the reading was exact, the three are the numbers.
    """

    center: Floats
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
    from dlv.pas.level import Unusable
    from dlv.pas.read import ALL

    if planes < 1:
        raise UsageError(f"{planes} byte planes decide nothing", hint="give 1 or more")
    source, why = _Noting(store), None
    found = store.level(matrix, planes, source)
    if isinstance(found, Unusable):
        why = found.why
        found = store.level(matrix, ALL, source)
    if isinstance(found, Unusable):
        raise UsageError(
            f"a tensor of {dtype} {list(shape)} has no numbers that dlv understands",
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


class NoBounds(Exception):
    """The planes that were asked for do not bound every number of a matrix."""

    def __init__(self, bounds: Bounds, why: str) -> None:
        super().__init__(why)
        self.bounds = bounds
        self.why = why


class Bounds:
    """(centre, low, high) of a matrix's numbers, flat and a segment at a time, in float64.

    It may be gone through again. NoBounds may come at any time of the first going through.
    """

    def __init__(
        self, store: MatrixStore, matrix: str, planes: int, why: str | None = None
    ) -> None:
        from dlv.pas.deltas.links import chain
        from dlv.pas.layouts.segments import words_of

        self._store = store
        self._source = _Noting(store)
        self._why = why
        self.matrix = matrix
        self.planes = planes
        encodings = chain(matrix, store.encoding)
        self.exact = why is not None or planes >= encodings[0].planes
        self._count = math.prod(encodings[0].shape) * words_of(encodings[0].dtype)[1]
        # Below a base of another shape each span would need all of it.
        self._whole = any((one.delta or {}).get("overlap") is not None for one in encodings)

    def exactly(self, why: str) -> Bounds:
        """The numbers themselves, in the same form."""
        return Bounds(self._store, self.matrix, self.planes, why)

    @property
    def reading(self) -> Reading:
        """What was read; of all that there is once it has been gone through."""
        if self.exact:
            return whole(self._store, self.matrix, self.planes, self._why)
        all_chunks = whole(self._store, self.matrix, self.planes).all_chunks
        return Reading(self.planes, False, self._source.chunks_read, all_chunks)

    def __iter__(self) -> Iterator[tuple[Floats, Floats, Floats]]:
        from dlv.pas.layouts.segments import SEGMENT
        from dlv.pas.level import Unusable
        from dlv.pas.read import ALL

        step = self._count if self._whole else SEGMENT
        for start in range(0, self._count, max(step, 1)):
            span = start, min(start + step, self._count)
            planes = ALL if self.exact else self.planes
            found = self._store.level(self.matrix, planes, self._source, span)
            if isinstance(found, Unusable):
                raise NoBounds(self, found.why)
            yield found.centre, found.low, found.high
