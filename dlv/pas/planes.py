"""Planes of one link, segment by segment: chunks that need contexts get them here."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dlv.canonical import dumps
from dlv.errors import Damaged
from dlv.kinds import Raw
from dlv.pas.coders.above import AboveCodec
from dlv.pas.coders.codecs import context_codec_of
from dlv.pas.coders.context import ContextCodec
from dlv.pas.coders.contexts import Scales, numbers
from dlv.pas.coders.rans import ContextRans
from dlv.pas.deltas.links import Link, PlaneReader, is_above, is_context
from dlv.pas.deltas.predictors import predictors_of
from dlv.pas.layouts.segments import SEGMENT, Words
from dlv.pas.pieces import ChunkSource, Piece


class PlaneDecoder:
    """Gives the planes of any segment of a link, and predictions of its words."""

    def __init__(self, link: Link, source: ChunkSource) -> None:
        self._link = link
        self._source = source
        self._codecs: dict[bytes, ContextCodec] = {}
        self._source = source
        side = memoryview(link.side(source))
        own = link.layout.side_bytes(link.dtype, link.encoding.shape) if link.count else 0
        last = len(side) - (Scales.nbytes(link.shape) if link.scale is not None else 0)
        if last < own:
            raise Damaged(f"side data of matrix {link.matrix} is too short")
        self.layout_side: Raw = side[:own]
        self._scales = None if link.scale is None else Scales.parse(side[last:], link.shape)
        configs = () if link.delta is None else link.delta.predictor
        self._predictors = predictors_of(configs, side[own:last], link.dtype, link.shape)
        self._readers = [PlaneReader(link, plane, source) for plane in range(len(link.planes))]

    def predicted(self, base: Words, start: int) -> Words:
        """What the words from `start` are expected to be, given those of the base."""
        for predictor in self._predictors:
            base = predictor.apply(base, start)
        return base

    def bounded(self, low: Words, high: Words, start: int) -> tuple[Words, Words]:
        """Bounds of what is predicted from bounds of the base, both in the ordered map."""
        for predictor in self._predictors:
            low, high = predictor.bounds(low, high, start)
        return low, high

    def planes(
        self, start: int, count: int, exponents: NDArray[np.uint16] | None = None
    ) -> list[Raw]:
        """All planes of the words from `start`, which begin a segment."""
        found: list[Raw] = []
        q: NDArray[np.uint8] | None = None
        for plane, reader in enumerate(self._readers):
            if self._link.uneven(plane):
                found.append(reader.segment(start // SEGMENT))
                continue
            piece = reader.at(start)
            above = found[-1] if found else None
            if is_context(piece):
                if q is None:
                    q = self._q(exponents, start)
                found.append(self._in_context(reader, start, q, above))
            elif is_above(piece):
                assert above is not None
                found.append(AboveCodec().decode(reader.stored(start)[1], above))
            else:
                found.append(reader.read(start, count))
        return found

    def _q(self, exponents: NDArray[np.uint16] | None, start: int) -> NDArray[np.uint8]:
        if self._scales is None or exponents is None:
            raise Damaged(f"matrix {self._link.matrix} has contexts and no scales")
        return self._scales.q(exponents, start)

    def _codec(self, piece: Piece) -> ContextCodec:
        """The codec of a chunk, with the table it names; a plane's segments mostly share one."""
        key = dumps(piece.codec)
        if key not in self._codecs:
            codec = context_codec_of(piece.codec)
            assert codec is not None
            if isinstance(codec, ContextRans):
                codec = codec.with_table(self._source.object("table", codec.table))
            self._codecs[key] = codec
        return self._codecs[key]

    def _in_context(
        self, reader: PlaneReader, start: int, q: NDArray[np.uint8], above: Raw | None
    ) -> Raw:
        piece, stored = reader.stored(start)
        codec = self._codec(piece)
        if isinstance(codec, ContextRans):
            codec = codec.with_table(self._source.object("table", codec.table))
        upper = None if above is None else np.frombuffer(above, np.uint8)
        return codec.decode(stored, numbers(q, upper, codec.lo))
