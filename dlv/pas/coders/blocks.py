"""A zstd frame whose blocks end where the statistics of the bytes change."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache

import numpy as np
import zstandard
from numpy.typing import NDArray

from dlv.kinds import Bytes
from dlv.pas.coders.zstd import EFFORTS

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
    if len(ends) == 1:
        return ends
    table = _histograms(data, ends)
    lengths = np.diff(ends, prepend=0)
    logs = _logs(len(data).bit_length())
    single = _costs(table, lengths, logs)
    both = _costs(table[:-1] + table[1:], lengths[:-1] + lengths[1:], logs)
    histograms = list(table)
    sizes: list[int] = lengths.tolist()
    costs: list[float] = single.tolist()

    def gain(i: int) -> float:
        """What joining a block with the next adds; below 0 if they are cheaper together."""
        joined = _cost(histograms[i] + histograms[i + 1], sizes[i] + sizes[i + 1], logs)
        return joined - costs[i] - costs[i + 1]

    gains: list[float] = (both - single[:-1] - single[1:]).tolist()
    # Greedily: the neighbours that are cheapest together, until none are cheaper than apart.
    while gains and (least := min(gains)) < 0:
        best = gains.index(least)
        histograms[best : best + 2] = [histograms[best] + histograms[best + 1]]
        costs[best : best + 2] = [costs[best] + costs[best + 1] + least]
        sizes[best : best + 2] = [sizes[best] + sizes[best + 1]]
        del ends[best], gains[best]
        for i in range(max(0, best - 1), min(best + 1, len(gains))):
            gains[i] = gain(i)
    return ends


@cache
def _logs(bits: int) -> NDArray[np.float64]:
    """n * log2(n) of all n below 2 to the power of `bits`; to be looked up, logarithms are slow."""
    whole = np.arange(1 << bits, dtype=np.float64)
    logs: NDArray[np.float64] = whole * np.log2(np.maximum(whole, 1.0))
    return logs


def _histograms(data: Bytes, ends: Sequence[int]) -> NDArray[np.int64]:
    """How often each byte stands in each run."""
    runs = zip([0, *ends], ends, strict=False)
    return np.stack([np.bincount(data[start:end], minlength=256) for start, end in runs])


def _cost(histogram: NDArray[np.int64], total: int, logs: NDArray[np.float64]) -> float:
    """Bytes that a Huffman code of one block would take, near enough."""
    if not total:
        return 0.0
    used = int(np.count_nonzero(histogram))
    bits = float(logs[total]) - float(np.add.reduce(logs.take(histogram)))
    return min(max(bits, total if used > 1 else 0) / 8 + used / 2, total) + BLOCK


def _costs(
    histograms: NDArray[np.int64], totals: NDArray[np.int64], logs: NDArray[np.float64]
) -> NDArray[np.float64]:
    """`_cost` of many, to the last bit."""
    used = np.count_nonzero(histograms, axis=1)
    bits = logs[totals] - np.add.reduce(logs.take(histograms), axis=1)
    found = np.minimum(np.maximum(bits, np.where(used > 1, totals, 0)) / 8 + used / 2, totals)
    return np.where(totals > 0, found + BLOCK, 0.0)
