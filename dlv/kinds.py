"""Types that many rooms share: names for annotations, and the records of packs and of the index.

numpy is not loaded for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from dlv.dataclass import dataclass

Raw: TypeAlias = bytes | bytearray | memoryview

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]
    Floats: TypeAlias = NDArray[np.float64]
    Bytes: TypeAlias = NDArray[np.uint8]
    Longs: TypeAlias = NDArray[np.int64]
    Places: TypeAlias = NDArray[np.intp]
else:
    Array = Floats = Bytes = Longs = Places = Any


@dataclass(frozen=True)
class EncodingRow:
    """How one matrix is stored: layout x delta, and how many planes there are."""

    matrix: str
    dtype: str
    shape: tuple[int, ...]
    layout: Mapping[str, Any]
    delta: Mapping[str, Any] | None
    planes: int


@dataclass(frozen=True)
class Piece:
    """One object's share of one chunk: `count` bytes at `at` of the decoded chunk."""

    object: str  # hash of the matrix or named object
    pack: str  # hash of the pack
    kind: str
    plane: int | None
    offset: int
    length: int
    raw: int
    blake3: str
    codec: Mapping[str, Any]
    at: int  # where in the decoded chunk the member begins
    start: int  # where in the plane or object it belongs
    count: int


class Index(Protocol):
    """Tells how a matrix is stored, and where its chunks and those of named objects are."""

    def encoding(self, matrix: str) -> EncodingRow | None: ...

    def chunks(self, matrix: str) -> Sequence[Piece]: ...

    def object_chunks(self, kind: str, name: str) -> Sequence[Piece]: ...


class Promised(Index, Protocol):
    """What versions need and only a remote has. It is fetched into a cache when it is read."""

    def has(self, pack: str) -> bool:
        """Return whether this leads to the file of a pack."""
        ...

    def fetch(self, pieces: Iterable[Piece]) -> None:
        """Fetch chunks that are not in the cache; those of other packs are ignored."""
        ...

    def path(self, pack: str) -> Path:
        """Return the file that has the fetched chunks of a pack at their places."""
        ...
