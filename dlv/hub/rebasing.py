"""Encode tensors for a remote as deltas against tensors that the remote already has.

How a tensor is stored locally does not help: `commit` stores no deltas, and `archive` can store the
parent as a delta of its child.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import BinaryIO, cast

from dlv.dataclass import dataclass
from dlv.dtypes import DTYPES
from dlv.hub.locator import LocatorIndex
from dlv.pas.coders.small import encode_plain, encode_small
from dlv.pas.encode import SMALL, Encoded, Part
from dlv.pas.footer import Encoding
from dlv.weights.store import MatrixStore

LONGEST_CHAIN = 8  # deltas that a reader has to decode for one tensor
WORTHWHILE = 0.98  # largest delta that is sent, as a part of the bytes stored locally


@dataclass(frozen=True)
class SpooledPart:
    """An encoded part whose bytes are in the temporary file."""

    part: Part
    offset: int
    length: int


@dataclass(frozen=True)
class Rebased:
    """A tensor encoded as a delta for the remote."""

    encoding: Encoding
    parts: tuple[SpooledPart, ...]

    @property
    def bytes(self) -> int:
        return sum(spooled.length for spooled in self.parts)


class Rebaser:
    """Encodes each tensor once, against a base that the remote has or receives before it."""

    def __init__(self, store: MatrixStore, known: LocatorIndex, tmp: Path) -> None:
        self._store, self._known = store, known
        self._file = cast(BinaryIO, tempfile.TemporaryFile(dir=tmp))  # noqa: SIM115
        self._tried: dict[str, Rebased | None] = {}
        self._chain_lengths: dict[str, int] = {}  # of tensors that this publish sends

    def close(self) -> None:
        self._file.close()

    def rebased(self, encoding: Encoding, base: str | None) -> Rebased | None:
        """Return the tensor as a delta, or None if that is not smaller or not possible."""
        name = encoding.matrix
        if name not in self._tried:
            self._tried[name] = None
            length = None if base is None else self._chain_length(base)
            if base is not None and length is not None and length < LONGEST_CHAIN:
                self._tried[name] = self._encode(encoding, base)
            rebased = self._tried[name] is not None
            self._chain_lengths[name] = length + 1 if rebased and length is not None else 0
        return self._tried[name]

    def read(self, spooled: SpooledPart) -> Encoded:
        """Return a part with its bytes."""
        self._file.seek(spooled.offset)
        data = self._file.read(spooled.length)
        encoded = spooled.part.encoded
        return Encoded(encoded.codec, data, encoded.raw, encoded.blake3)

    def _chain_length(self, base: str) -> int | None:
        """Return the number of deltas below a base on the remote; None if it will not be there."""
        if base in self._chain_lengths:
            return self._chain_lengths[base]
        length, name = 0, base
        while (encoding := self._known.encoding(name)) is not None:
            if encoding.delta is None or not encoding.delta.get("base"):
                return length
            length, name = length + 1, encoding.delta["base"]
            if length > LONGEST_CHAIN:
                return length
        return None

    def _encode(self, encoding: Encoding, base: str) -> Rebased | None:
        base_encoding = self._store.encoding(base)
        if base_encoding is None or (base_encoding.dtype, base_encoding.shape) != (
            encoding.dtype,
            encoding.shape,
        ):
            return None
        if encoding.dtype not in DTYPES or (encoding.nbytes or 0) <= SMALL:
            return None
        parts: list[SpooledPart] = []
        start = self._file.seek(0, os.SEEK_END)

        def spool(part: Part) -> None:
            data = part.encoded.data
            at = self._file.seek(0, os.SEEK_END)
            self._file.write(data)
            bare = Encoded(part.encoded.codec, b"", part.encoded.raw, part.encoded.blake3)
            without_bytes = Part(part.kind, part.plane, part.start, part.count, bare)
            parts.append(SpooledPart(without_bytes, at, len(data)))

        matrices = (self._store.matrix(encoding.matrix), self._store.matrix(base))
        dtype, shape = encoding.dtype, encoding.shape
        try:
            if base_encoding.delta is None and encoding.delta is None:
                delta_encoding = encode_plain(
                    *(*matrices, dtype, shape, encoding.matrix, base, spool)
                )
            else:
                # `archive` searched for predictors of these tensors: so it is worth it here.
                delta_encoding = encode_small(
                    *(*matrices, dtype, shape, encoding.matrix, base, spool)
                )
        except ValueError:
            return None
        rebased = Rebased(delta_encoding, tuple(parts))
        stored = sum(piece.length for piece in self._store.chunks(encoding.matrix))
        if rebased.bytes >= stored * WORTHWHILE:
            self._file.truncate(start)
            return None
        return rebased
