"""Centres alone, of matrices in fixed point that are no deltas: the same numbers as of `level`.

Every step is exact in binary64, so that nothing hangs on the order of the steps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dlv.pas.fixed import CODE_BITS, EMPTY, MAG, Fixed
from dlv.pas.halved import Halved
from dlv.pas.links import Lookup, chain, link_of
from dlv.pas.pieces import ChunkSource
from dlv.pas.planes import PlaneDecoder
from dlv.pas.segments import SEGMENT

Floats = NDArray[np.float64]


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
        planes = decoder.planes(start, count)[:k]
        code = link.layout.code(planes, count)
        size = ((code & MAG) >> np.uint32(CODE_BITS + 1 - bits)).astype(np.int32)
        # The middle of a cell, in halves of one.
        middle = 2 * size + 1
        if link.layout.zero_centre:
            middle[size == 0] = 0
        np.negative(middle, out=middle, where=code > MAG)
        values[start : start + len(middle)] = middle
    return _scaled(values, link.layout, decoder.layout_side, encoding.shape, bits)


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
    found += 0.0
    return found.reshape(shape)
