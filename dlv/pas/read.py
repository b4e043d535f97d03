"""Reading matrices: their pieces out of chunks, planes joined, chains of deltas followed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from dlv.canonical import matrix_hash
from dlv.errors import Damaged, StorageError
from dlv.pas.deltas import base_of, delta_of
from dlv.pas.footer import Encoding, covered
from dlv.pas.layouts import layout_of
from dlv.pas.packs import Stored

Raw = bytes | bytearray | memoryview

MAX_CHAIN = 64

Lookup = Callable[[str], Encoding | None]


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


def chain(matrix: str, lookup: Lookup) -> list[Encoding]:
    """The encodings of a matrix and of the bases it is a delta against, the last materialised."""
    found: list[Encoding] = []
    seen: set[str] = set()
    name: str | None = matrix
    while name is not None:
        if name in seen:
            raise Damaged(f"matrix {matrix} is a delta against itself", why=f"through {name}")
        if len(found) > MAX_CHAIN:
            raise Damaged(f"matrix {matrix} has a chain of more than {MAX_CHAIN} deltas")
        encoding = lookup(name)
        if encoding is None:
            raise Damaged(
                f"matrix {name} is not stored",
                why=None if name == matrix else f"matrix {matrix} is a delta against it",
                hint="dlv fsck",
            )
        delta_of(encoding.delta)  # an unknown one is named before anything is read
        seen.add(name)
        found.append(encoding)
        name = base_of(encoding.delta)
    return found


def read_matrix(matrix: str, lookup: Lookup, source: ChunkSource) -> Raw:
    """The little-endian bytes of a matrix, checked against its name."""
    links = chain(matrix, lookup)
    encoding = links[0]
    try:
        planes, side = _read(links, encoding.planes, source)
        layout = layout_of(encoding.layout)
        raw = layout.join(planes, side, encoding.dtype, encoding.shape)
    except MemoryError as error:
        raise StorageError(
            f"matrix {matrix} does not fit into memory", why=f"it has {encoding.nbytes} bytes"
        ) from error
    if matrix_hash(encoding.dtype, encoding.shape, raw) != matrix:
        raise Damaged(
            f"matrix {matrix} is damaged",
            why="its chunks are whole but do not join to what its name promises",
            hint="dlv fsck",
        )
    return raw


def read_planes(matrix: str, count: int, lookup: Lookup, source: ChunkSource) -> list[Raw]:
    """The first `count` planes of a matrix (all, if it has fewer), deltas undone."""
    return _read(chain(matrix, lookup), count, source)[0]


def _read(links: Sequence[Encoding], count: int, source: ChunkSource) -> tuple[list[Raw], Raw]:
    """Planes and side data of the first of a chain, built up from the last."""
    planes: list[Raw] = []
    side: Raw = b""
    for encoding in reversed(links):
        stored, side = _stored(encoding, count, source)
        delta = delta_of(encoding.delta)
        planes = stored if delta is None else delta.undo(stored, planes)
    return planes, side


def _stored(encoding: Encoding, count: int, source: ChunkSource) -> tuple[list[Raw], Raw]:
    """Planes and side data of one encoding as its chunks have them."""
    layout = layout_of(encoding.layout)
    pieces = [] if encoding.empty else source.chunks(encoding.matrix)
    side: Raw = b""
    if expected := layout.side_bytes(encoding.dtype, encoding.shape):
        own = [piece for piece in pieces if piece.kind == "side"]
        side = join_pieces(own, expected, source, f"side data of matrix {encoding.matrix}")
    planes: list[Raw] = []
    for plane in range(min(count, encoding.planes)):
        size = layout.plane_bytes(plane, encoding.dtype, encoding.shape)
        own = [piece for piece in pieces if piece.kind == "plane" and piece.plane == plane]
        what = f"plane {plane} of matrix {encoding.matrix}"
        planes.append(b"" if size == 0 else join_pieces(own, size, source, what))
    return planes, side


def join_pieces(
    pieces: Sequence[Piece], expected: int | None, source: ChunkSource, what: str
) -> Raw:
    """The pieces of one object end to end; each is known to be there before any is read."""
    end = covered([(piece.start, piece.count) for piece in pieces])
    if end is None or not pieces or (expected is not None and end != expected):
        raise Damaged(f"{what} is not stored whole", hint="dlv fsck")
    parts = []
    for piece in sorted(pieces, key=lambda piece: piece.start):
        decoded = source.read(piece)
        if piece.at < 0 or piece.at + piece.count > len(decoded):
            raise Damaged(f"{what} lies outside its chunk", hint="dlv fsck")
        whole = piece.at == 0 and piece.count == len(decoded)
        parts.append(decoded if whole else memoryview(decoded)[piece.at : piece.at + piece.count])
    return parts[0] if len(parts) == 1 else b"".join(parts)
