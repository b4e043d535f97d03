"""Centres alone, of matrices in fixed point that are no deltas: the same numbers as of `level`.

Every step is exact in binary64, so that nothing hangs on the order of the steps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dlv.pas.fixed import EMPTY, Fixed
from dlv.pas.links import Lookup, chain, link_of
from dlv.pas.pieces import ChunkSource
from dlv.pas.planes import PlaneDecoder
from dlv.pas.segments import SEGMENT

Floats = NDArray[np.float64]


def centre(matrix: str, k: int, lookup: Lookup, source: ChunkSource) -> Floats | None:
    """What `level` has for a centre after `k` planes; None where only `level` can tell."""
    encodings = chain(matrix, lookup)
    encoding = encodings[0]
    if len(encodings) > 1 or not 0 < k < min(encoding.planes, 4):
        return None
    link = link_of(encoding, source, k)
    if not isinstance(link.layout, Fixed) or not link.count:
        return None
    decoder = PlaneDecoder(link, source)
    values = np.empty(link.count)
    for start in range(0, link.count, SEGMENT):
        planes = decoder.planes(start, min(SEGMENT, link.count - start))
        parts = [np.frombuffer(plane, np.uint8) for plane in planes[:k]]
        size = (parts[0] & np.uint8(0x7F)).astype(np.int32)
        for part in parts[1:]:
            size <<= 8
            size |= part
        # The middle of a cell, in halves of one.
        middle = 2 * size + 1
        if link.layout.zero_centre:
            middle[size == 0] = 0
        np.negative(middle, out=middle, where=parts[0] > 0x7F)
        values[start : start + len(middle)] = middle
    return _scaled(values, link.layout, decoder.layout_side, encoding.shape, 8 * k)


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
    found = values.reshape(len(units), -1) if by_row else values.reshape(-1, len(units))
    found *= units[:, None] if by_row else units
    # Zeros of both signs are one number to whoever multiplies with them.
    found += 0.0
    return found.reshape(shape)
