"""Deltas for what a remote lacks: a tensor as its difference from one that the remote has.

A commit stores tensors by themselves, and an archive may have turned a delta round, so what is
stored here says little about what has to be sent.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import BinaryIO, cast

from dlv.dataclass import dataclass
from dlv.dtypes import DTYPES
from dlv.hub.locator import LocatorIndex
from dlv.pas.coders.small import encode_small
from dlv.pas.encode import SMALL, Encoded, Part, encode_delta
from dlv.pas.footer import Encoding
from dlv.pas.layouts.segments import default_layout
from dlv.weights.store import MatrixStore

DEEPEST = 8  # deltas that a reader has to go through
GAIN = 0.98  # of the bytes as they are stored: a delta that saves less costs more than it brings


@dataclass(frozen=True)
class Kept:
    """A part whose bytes wait in a file."""

    part: Part
    offset: int
    length: int


@dataclass(frozen=True)
class Rebased:
    encoding: Encoding
    parts: tuple[Kept, ...]

    @property
    def bytes(self) -> int:
        return sum(kept.length for kept in self.parts)


class Rebaser:
    """Encodes tensors against bases that the remote has, or will have before them."""

    def __init__(self, store: MatrixStore, known: LocatorIndex, tmp: Path) -> None:
        self._store, self._known = store, known
        self._file = cast(BinaryIO, tempfile.TemporaryFile(dir=tmp))  # noqa: SIM115
        self._tried: dict[str, Rebased | None] = {}
        self._depth: dict[str, int] = {}  # of tensors that are sent now

    def close(self) -> None:
        self._file.close()

    def rebased(self, encoding: Encoding, base: str | None) -> Rebased | None:
        """The tensor against that base, if that is smaller; the same answer each time."""
        name = encoding.matrix
        if name not in self._tried:
            self._tried[name] = None
            depth = 0 if base is None else self._depth_of(base)
            if base is not None and depth is not None and depth < DEEPEST:
                self._tried[name] = self._encoded(encoding, base)
            made = self._tried[name]
            self._depth[name] = 0 if made is None or depth is None else depth + 1
        return self._tried[name]

    def read(self, kept: Kept) -> Encoded:
        self._file.seek(kept.offset)
        data = self._file.read(kept.length)
        encoded = kept.part.encoded
        return Encoded(encoded.codec, data, encoded.raw, encoded.blake3)

    def _depth_of(self, base: str) -> int | None:
        """Deltas below it there; None if it will not be there."""
        if base in self._depth:
            return self._depth[base]
        depth, name = 0, base
        while (encoding := self._known.encoding(name)) is not None:
            if encoding.delta is None or not encoding.delta.get("base"):
                return depth
            depth, name = depth + 1, encoding.delta["base"]
            if depth > DEEPEST:
                return depth
        return None

    def _encoded(self, encoding: Encoding, base: str) -> Rebased | None:
        under = self._store.encoding(base)
        if under is None or (under.dtype, under.shape) != (encoding.dtype, encoding.shape):
            return None
        if encoding.dtype not in DTYPES or (encoding.nbytes or 0) <= SMALL:
            return None
        kept: list[Kept] = []
        start = self._file.seek(0, os.SEEK_END)

        def keep(part: Part) -> None:
            data = part.encoded.data
            at = self._file.seek(0, os.SEEK_END)
            self._file.write(data)
            bare = Encoded(part.encoded.codec, b"", part.encoded.raw, part.encoded.blake3)
            kept.append(
                Kept(Part(part.kind, part.plane, part.start, part.count, bare), at, len(data))
            )

        def restart() -> None:
            kept.clear()
            self._file.truncate(start)

        given = (self._store.matrix(encoding.matrix), self._store.matrix(base))
        dtype, shape = encoding.dtype, encoding.shape
        try:
            if under.delta is None and encoding.delta is None:
                made = encode_delta(
                    *("sub", *given, dtype, shape, encoding.matrix, base, keep),
                    layout=default_layout(),
                )
            else:
                # An archive has taken its time for these, so the same search is worth it here.
                made = encode_small(
                    *(*given, dtype, shape, encoding.matrix, base, keep),
                    slow=False,
                    restart=restart,
                )
        except ValueError:
            return None
        found = Rebased(made, tuple(kept))
        stored = sum(piece.length for piece in self._store.chunks(encoding.matrix))
        if found.bytes >= stored * GAIN:
            self._file.truncate(start)
            return None
        return found


def counterparts(tensors: dict[str, str], below: dict[str, str]) -> dict[str, str]:
    """Matrix -> the matrix of the same tensor in the version below, where it is another one."""
    return {
        digest: below[name]
        for name, digest in tensors.items()
        if name in below and below[name] != digest
    }
