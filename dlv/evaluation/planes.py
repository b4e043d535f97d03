"""Centres of matrices from their first planes; every stored chunk is fetched once.

What is counted is what the pack reader is asked for: chunks with side data, bases and tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from dlv.errors import Damaged
from dlv.kinds import Array, Piece, Raw
from dlv.pas.deltas.links import chain
from dlv.pas.footer import Encoding
from dlv.pas.layouts.registry import bits_after
from dlv.pas.layouts.segments import element_bytes
from dlv.pas.level import Level, Unusable, centre, level, needed
from dlv.pas.read import ALL, read_matrix
from dlv.weights.arrays import to_array
from dlv.weights.store import TURNS, MatrixStore, gone

Key = tuple[str, int]  # pack, offset
T = TypeVar("T")


class Moved(Exception):
    """A matrix is stored in another way than when the evaluation began, so bounds may not hold."""


class Chunks:
    """A source of chunks that keeps what it has read, and counts it."""

    def __init__(self, store: MatrixStore) -> None:
        self._store = store
        self._places: dict[str, Sequence[Piece]] = {}
        self._objects: dict[tuple[str, str], Raw] = {}
        self._decoded: dict[Key, Raw] = {}
        self._stored: dict[Key, bytes] = {}
        self._seen: dict[Key, None] = {}
        self.bytes_read = 0
        self.raw_read = 0

    def chunks(self, matrix: str) -> Sequence[Piece]:
        if matrix not in self._places:
            self._places[matrix] = self._store.chunks(matrix)
        return self._places[matrix]

    def read(self, piece: Piece) -> Raw:
        key = piece.pack, piece.offset
        if key not in self._decoded:
            self._decoded[key] = self._store.read(piece)
            self.count([piece])
        return self._decoded[key]

    def stored(self, piece: Piece) -> bytes:
        key = piece.pack, piece.offset
        if key not in self._stored:
            self._stored[key] = self._store.stored(piece)
            self.count([piece])
        return self._stored[key]

    def object(self, kind: str, name: str) -> Raw:
        if (kind, name) not in self._objects:
            self._objects[kind, name] = self._store.object(kind, name)
            self.count(self._store.object_chunks(kind, name))
        return self._objects[kind, name]

    def count(self, pieces: Iterable[Piece]) -> None:
        """These chunks were fetched; each counts once."""
        for piece in pieces:
            key = piece.pack, piece.offset
            if key not in self._seen:
                self._seen[key] = None
                self.bytes_read += piece.length
                self.raw_read += piece.raw

    def has(self, key: Key) -> bool:
        return key in self._seen

    def drop(self, keys: Iterable[Key]) -> None:
        """Let go of chunks that nothing will ask for again."""
        for key in keys:
            self._decoded.pop(key, None)
            self._stored.pop(key, None)

    def forget_places(self) -> None:
        """Ask the index again where chunks are."""
        self._places.clear()


class Planes:
    """The matrices that an evaluation needs, as far as they have been read.

    `hashes`: names -> matrices; `aliases`: further names of the same. Depths count planes.
    With `intervals` the bounds of the numbers are kept, three times the memory of centres.
    """

    def __init__(
        self,
        store: MatrixStore,
        hashes: Mapping[str, str],
        aliases: Mapping[str, str] | None = None,
        *,
        intervals: bool = False,
    ) -> None:
        self._store = store
        self._intervals = intervals
        self._hashes = dict(hashes)
        self._aliases = aliases or {}
        self.chunks = Chunks(store)
        self._chains = {
            name: chain(matrix, store.encoding) for name, matrix in self._hashes.items()
        }
        self._encodings = {
            each.matrix: each for encodings in self._chains.values() for each in encodings
        }
        self.depths = dict.fromkeys(self._hashes, 0)
        self._centres: dict[str, Array] = {}
        self._between: dict[str, tuple[Array, Array]] = {}
        self._needed: dict[tuple[str, int], dict[Key, int]] = {}
        self._pieces: dict[Key, Piece] = {}
        self._users: dict[Key, set[str]] = {}
        for name in self._hashes:
            for key in self._needs(name, ALL):
                self._users.setdefault(key, set()).add(name)

    @property
    def bytes_read(self) -> int:
        return self.chunks.bytes_read

    @property
    def raw_read(self) -> int:
        return self.chunks.raw_read

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._hashes)

    def dtype(self, name: str) -> str:
        return self._chains[name][0].dtype

    def planes(self, name: str) -> int:
        """How many planes a matrix has."""
        return self._chains[name][0].planes

    def chain(self, name: str) -> Sequence[Encoding]:
        return self._chains[name]

    def bits(self, name: str) -> int:
        """Bits that have been read of each number of a matrix."""
        encoding = self._chains[name][0]
        width = 8 * element_bytes(encoding.dtype)
        whole = self.depths[name] >= self.planes(name)
        return width if whole else min(bits_after(encoding.layout, self.depths[name]), width)

    @property
    def share(self) -> float:
        """Of the bits of all numbers, those that have been read."""
        sizes = {name: math.prod(self._chains[name][0].shape) for name in self._hashes}
        widths = {name: 8 * element_bytes(self.dtype(name)) for name in self._hashes}
        whole = sum(sizes[name] * widths[name] for name in sizes)
        known = sum(size * self.bits(name) for name, size in sizes.items())
        return known / whole if whole else 1.0

    def whole(self, name: str) -> bool:
        return self.depths[name] >= self.planes(name)

    def cost(self, depths: Mapping[str, int]) -> int:
        """Bytes that would have to be fetched to have these depths."""
        new: dict[Key, int] = {}
        for name, depth in depths.items():
            if depth > self.depths[name]:
                new.update(self._needs(name, depth))
        return sum(length for key, length in new.items() if not self.chunks.has(key))

    def _free(self, name: str, depth: int) -> bool:
        return all(map(self.chunks.has, self._needs(name, depth)))

    def read(
        self, depths: Mapping[str, int], free: Callable[[str, int], bool] = lambda *_: True
    ) -> None:
        """Read on to these depths, or deeper where the planes bound nothing yet.

        What the chunks read so hold of others comes free, where `free` says that it is of use.
        """
        keys = {
            key
            for name, depth in depths.items()
            if depth > self.depths[name]
            for key in self._needs(name, depth)
        }
        self._store.prefetch(self._pieces[key] for key in keys if not self.chunks.has(key))
        for name, depth in depths.items():
            self._deepen(name, depth)
        for name in self._hashes:
            for depth in range(self.planes(name), self.depths[name], -1):
                if free(name, depth) and self._free(name, depth):
                    self._deepen(name, depth)
                    break

    def tensor(self, name: str) -> Array:
        """The numbers of a tensor as far as they are known: in float64 unless they are whole."""
        return self._centres[self._aliases.get(name, name)]

    def zeros(self, name: str) -> Array:
        """Zeros in the place of a tensor, to try a network before anything is read."""
        encoding = self._chains[self._aliases.get(name, name)][0]
        return np.zeros(encoding.shape, np.float64 if "float" in encoding.dtype else np.int64)

    def between(self, name: str) -> tuple[Array, Array] | None:
        """Least and most of each number of a tensor; None where the numbers are known."""
        return self._between.get(self._aliases.get(name, name))

    def _deepen(self, name: str, depth: int) -> None:
        if self.whole(name) or depth <= self.depths[name]:
            return
        if depth >= self.planes(name):
            self._centres[name] = self._again(lambda: self._numbers(name))
            self._between.pop(name, None)
            self.depths[name] = self.planes(name)
            self._release(name)
            return
        found = self._again(lambda: self._level(name, depth))
        if isinstance(found, Unusable):
            self._deepen(name, depth + 1)
            return
        if isinstance(found, Level):
            if self._intervals:
                self._between[name] = (found.low, found.high)
            found = found.centre
        self._centres[name] = found
        self.depths[name] = depth

    def _level(self, name: str, depth: int) -> Level | Array | Unusable:
        given = self._hashes[name], depth, self._store.encoding, self.chunks
        found: Level | Array | Unusable | None = None if self._intervals else centre(*given)
        if found is None:
            found = level(*given)
        # Only the whole is held against the matrix's name, so the encoding must be the same.
        if chain(self._hashes[name], self._store.encoding) != self._chains[name]:
            raise Moved(f"`{name}` was archived by another dlv process")
        return found

    def _numbers(self, name: str) -> Array:
        matrix, encoding = self._hashes[name], self._chains[name][0]
        raw = read_matrix(matrix, self._store.encoding, self.chunks)
        found = to_array(encoding.dtype, tuple(encoding.shape), raw)
        return found.astype(np.float64) if found.dtype.kind == "f" else found

    def _needs(self, name: str, depth: int) -> dict[Key, int]:
        """The chunks that a depth takes, with their lengths."""
        depth = min(depth, self.planes(name))
        found = self._needed.get((name, depth))
        if found is None:
            pieces = needed(self._hashes[name], depth, self._encodings.get, self.chunks)
            tables = dict.fromkeys(str(p.codec["table"]) for p in pieces if "table" in p.codec)
            pieces += [p for table in tables for p in self._store.object_chunks("table", table)]
            found = {(piece.pack, piece.offset): piece.length for piece in pieces}
            self._pieces |= {(piece.pack, piece.offset): piece for piece in pieces}
            self._needed[name, depth] = found
        return found

    def _release(self, name: str) -> None:
        """A matrix is whole: chunks that were kept for it alone are not needed any more."""
        done = []
        for key, users in self._users.items():
            users.discard(name)
            if not users:
                done.append(key)
        self.chunks.drop(done)
        for key in done:
            del self._users[key]

    def _again(self, read: Callable[[], T]) -> T:
        """Read; if that fails, ask the index once more where things are now."""
        for left in range(TURNS - 1, -1, -1):
            try:
                return read()
            except (FileNotFoundError, Damaged) as error:
                self.chunks.forget_places()
                self._needed.clear()
                if left:
                    continue
                if isinstance(error, FileNotFoundError):
                    raise gone(Path(str(error.filename)).stem) from None
                raise
        raise AssertionError
