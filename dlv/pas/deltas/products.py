"""Products of low rank, for many threads at a time and on busy machines."""

from __future__ import annotations

import numpy as np

from dlv.kinds import Floats

# Multiplications up to which OpenBLAS, the library below most builds of numpy, starts no threads.
# On a machine that is busy already they take a hundred times as long as one; and whoever reads
# matrices has a thread for each.
SERIAL = 1 << 18
_WIDTH = 1 << 10  # columns at a time, so that at least some rows go together


def product(left: Floats, right: Floats) -> Floats:
    """left @ right in small parts. Meant for sums that are exact: others may round differently."""
    rows, rank = left.shape
    columns = right.shape[1]
    out = np.empty((rows, columns))
    width = min(columns, _WIDTH)
    together = max(1, SERIAL // max(1, rank * width))
    stacked = rows // together
    whole = stacked * together
    for first in range(0, columns, max(1, width)):
        at = slice(first, first + width)
        # A stack of products: one call, and no loop over it in Python.
        stack = left[:whole].reshape(stacked, together, rank)
        into = out[:whole].reshape(stacked, together, columns)[:, :, at]
        np.matmul(stack, right[:, at], out=into)
        np.matmul(left[whole:], right[:, at], out=out[whole:, at])
    return out
