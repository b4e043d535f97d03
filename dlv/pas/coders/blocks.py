"""A zstd frame whose blocks end where the statistics of the bytes change."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import zstandard
from numpy.typing import NDArray

from dlv.pas.coders.zstd import EFFORTS

Bytes = NDArray[np.uint8]

# What a block costs beyond its bytes: three of header, some more for a Huffman table.
BLOCK = 24

_contexts = threading.local()


def blocks(data: Bytes, counts: Sequence[int] | NDArray[np.int64]) -> bytes:
    """`data` as one frame; neighbours among the runs of `counts` bytes share a block if alike."""
    compressor = getattr(_contexts, "literals", None)
    if compressor is None:
        compressor = zstandard.ZstdCompressor(compression_params=EFFORTS["literals"])
        _contexts.literals = compressor
    stream = compressor.compressobj(size=len(data))
    view = np.ascontiguousarray(data).data
    parts = []
    start = 0
    for stop in _ends(data, np.asarray(counts, np.int64))[:-1]:
        parts.append(stream.compress(view[start:stop]))
        parts.append(stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
        start = stop
    parts.append(stream.compress(view[start:]))
    parts.append(stream.flush())
    return b"".join(parts)


def _ends(data: Bytes, counts: NDArray[np.int64]) -> list[int]:
    """Where blocks end: at ends of runs, as few as pay for themselves."""
    ends = [int(end) for end in np.cumsum(counts)[counts > 0]]
    if not ends or ends[-1] < len(data):
        ends.append(len(data))  # the last byte of packed classes may belong to no run
    histograms = []
    start = 0
    for end in ends:
        histograms.append(np.bincount(data[start:end], minlength=256))
        start = end
    costs = [_cost(histogram) for histogram in histograms]
    # Greedily: the neighbours that are cheapest together, until none are cheaper than apart.
    joined = [_cost(histograms[i] + histograms[i + 1]) for i in range(len(ends) - 1)]
    while joined:
        gains = [joined[i] - costs[i] - costs[i + 1] for i in range(len(joined))]
        best = min(range(len(gains)), key=gains.__getitem__)
        if gains[best] >= 0:
            break
        histograms[best : best + 2] = [histograms[best] + histograms[best + 1]]
        costs[best : best + 2] = [joined.pop(best)]
        del ends[best]
        if best < len(joined):
            joined[best] = _cost(histograms[best] + histograms[best + 1])
        if best:
            joined[best - 1] = _cost(histograms[best - 1] + histograms[best])
    return ends


def _cost(histogram: NDArray[np.int64]) -> float:
    """Bytes that a Huffman code of one block would take, near enough."""
    used = histogram[histogram > 0].astype(np.float64)
    total = used.sum()
    if not total:
        return 0.0
    bits = total * np.log2(total) - (used * np.log2(used)).sum()
    return float(min(max(bits, total if len(used) > 1 else 0.0) / 8 + len(used) / 2, total)) + BLOCK
