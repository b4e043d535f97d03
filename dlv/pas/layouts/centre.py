"""Centres alone, of matrices in fixed point that are no deltas: the same numbers as of `level`.

Every step is exact in binary64, so that nothing hangs on the order of the steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.kinds import Floats
from dlv.pas.deltas.links import Lookup, chain, link_of
from dlv.pas.layouts.fixed import EMPTY, Fixed, Leading, leading_bits
from dlv.pas.layouts.halved import Halved
from dlv.pas.layouts.segments import SEGMENT
from dlv.pas.pieces import ChunkSource
from dlv.pas.planes import PlaneDecoder

Ints = NDArray[np.signedinteger[Any]]

_BLOCK = 1 << 14  # numbers


def centre(matrix: str, k: int, lookup: Lookup, source: ChunkSource) -> Floats | None:
    """What `level` has for a centre after `k` planes; None where only `level` can tell."""
    encodings = chain(matrix, lookup)
    encoding = encodings[0]
    if len(encodings) > 1 or not 0 < k < encoding.planes:
        return None
    link = link_of(encoding, source, k)
    if not isinstance(link.layout, Fixed) or not link.count:
        return None
    bits = link.layout.depths[k - 1]
    decoder = PlaneDecoder(link, source)
    values = np.empty(link.count)
    for start in range(0, link.count, SEGMENT):
        count = min(SEGMENT, link.count - start)
        leading = link.layout.leading(decoder.planes(start, count)[:k], count)
        # What a step makes stays in the processor's cache, and in memory that was used before.
        for at in range(0, count, _BLOCK):
            some = leading[at : at + _BLOCK]
            middles = _middles(some, bits, link.layout.zero_centre)
            values[start + at : start + at + len(some)] = middles
    return _scaled(values, link.layout, decoder.layout_side, encoding.shape, bits)


def _middles(leading: Leading, bits: int, zero_centre: bool) -> Ints:
    """Of each cell the middle, in halves of one, in numbers no wider than these need."""
    behind = leading_bits(leading)
    sign = 1 << (behind - 1)
    size = (leading & (sign - 1)) >> (behind - bits)
    found: Ints = size.astype(np.int16 if leading.itemsize == 1 else np.int32)
    found <<= 1
    found |= 1
    if zero_centre:
        found[found == 1] = 0
    np.negative(found, out=found, where=leading >= sign)
    return found


def _scaled(
    values: Floats,
    layout: Fixed,
    side: bytes | bytearray | memoryview,
    shape: tuple[int, ...],
    bits: int,
) -> Floats:
    """Each row in its own unit; a row of zeros is zero."""
    exponents = np.frombuffer(side, "<i2").astype(np.int32)
    units = np.ldexp(1.0, np.where(exponents == EMPTY, 0, exponents) - bits)
    units[exponents == EMPTY] = 0.0
    by_row = len(shape) < 2 or layout.rows == "first"
    if isinstance(layout, Halved):
        layout.check_smallest(np.abs(values) > 1 << (bits - 1), exponents, shape)
    found = values.reshape(len(units), -1) if by_row else values.reshape(-1, len(units))
    found *= units[:, None] if by_row else units
    # Zeros of both signs are one number to whoever multiplies with them.
    if not units.all():
        found += 0.0
    return found.reshape(shape)
