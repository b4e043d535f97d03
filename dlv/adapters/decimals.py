"""Numbers that were stored with 32 bits, as the decimals that people wrote."""

from __future__ import annotations

import math
import struct

_SINGLE = struct.Struct("<f")


def shortest(value: float) -> float:
    """The float with the fewest digits that has this float32: 1e-05 for 9.999999747378752e-06."""
    if not math.isfinite(value):
        return value
    try:
        wanted = _SINGLE.pack(value)
    except OverflowError:  # beyond float32: it is as it is
        return value
    value = _SINGLE.unpack(wanted)[0]
    for digits in range(6, 9):
        near = float(f"{value:.{digits}g}")
        try:
            if _SINGLE.pack(near) == wanted:
                return near
        except OverflowError:
            continue
    return float(f"{value:.9g}")
