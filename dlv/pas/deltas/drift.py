"""The search for drift: rows that nothing but weight decay moved, by their mantissa alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dlv.canonical import hash_bytes
from dlv.pas.deltas.pair import Pair
from dlv.pas.deltas.predictors import DRIFT_BINS
from dlv.pas.floats import Words, differences, signed_words

ROUNDS = 3
SAMPLE_ROWS = 2048  # that steps are fitted by, and
FIRST_ROWS = 64  # that tell whether there are any of this kind
# How far elements of a row may differ in their rate of shrinking, in parts of it, to be a start.
ALIKE = 0.5
ENOUGH = 1 << 19  # elements that medians are taken of
MIDDLE = 1 << 33  # makes any growth a positive number
LEAST_GAIN = 16.0  # bits of gain that a row must show to be flagged


def find_drift(pair: Pair) -> tuple[dict[str, object], bytes] | None:
    """Config and side data of the drift that fits best; None if there is none."""
    if pair.dtype != "float32" or pair.rows < 2 or pair.columns < 8:
        return None
    steps = _first_steps(pair)
    if steps is None:
        return None
    for _ in range(ROUNDS):
        flags, again = _flags_and_steps(pair, steps, every=_every(pair))
        if not flags.any() or np.array_equal(again, steps):
            break
        steps = again
    flags, _ = _flags_and_steps(pair, steps, every=1)
    if not flags.any() or not steps.any():
        return None
    side = steps.astype("<i4").tobytes() + np.packbits(flags, bitorder="little").tobytes()
    return {"id": "drift", "data": hash_bytes(side)}, side


def _every(pair: Pair) -> int:
    return max(1, pair.rows // SAMPLE_ROWS)


def _outward(
    pair: Pair, rows: slice, chosen: slice | NDArray[np.bool_]
) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """How far magnitudes grew, and the mantissa's bin, in those chosen of a block of rows."""
    start, stop = rows.start * pair.columns, rows.stop * pair.columns

    def some(words: Words) -> Words:
        picked: Words = words.reshape(-1, pair.columns)[chosen].ravel()
        return picked

    words, target = some(pair.base[start:stop]), some(pair.target[start:stop])
    predicted = some(pair.predicted(start, stop)) if pair.predictors else words
    grown = signed_words(differences(target, predicted, pair.form), pair.form)
    # The negative of a two's complement number, where the sign of the word is set.
    sign = words.view("<i4") >> 31
    grown ^= sign
    grown -= sign
    upper = (words >> np.uint32(16)).astype(np.uint16)
    bins = (upper & np.uint16(DRIFT_BINS - 1)).astype(np.uint8)
    usual = upper & np.uint16(0x7F80)
    bins[(usual == 0) | (usual == 0x7F80)] = DRIFT_BINS  # these never drift
    return grown.reshape(-1, pair.columns), bins.reshape(-1, pair.columns)


def _first_steps(pair: Pair) -> NDArray[np.int64] | None:
    """From the rows whose elements shrank most alike, in proportion to their mantissas."""
    spread = np.full(pair.rows, np.inf)
    every = max(1, pair.rows // FIRST_ROWS)
    for block in pair.blocks():
        some = slice((-block.start) % every, None, every)
        grown, bins = _outward(pair, block, some)
        rates = grown / (1 + (bins + np.float32(0.5)) / DRIFT_BINS)
        middle = np.median(rates, 1)
        apart = np.median(np.abs(rates - middle[:, None]), 1)
        moved = np.abs(middle) >= 0.5
        spread[block][some][moved] = apart[moved] / np.abs(middle[moved])
    alike = spread < ALIKE
    if not alike.any():
        return None
    return _medians(pair, alike & (spread <= np.quantile(spread[alike], 0.5)))


def _medians(pair: Pair, rows: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The median growth in each bin over some rows."""
    parts = []
    left = ENOUGH
    for block in pair.blocks():
        chosen = rows[block]
        if not chosen.any() or left <= 0:
            continue
        grown, bins = _outward(pair, block, chosen)
        # Bin and growth as one number: a sort of these is many times faster than of pairs.
        keys = np.left_shift(bins.astype(np.int64), 34)
        keys += grown
        keys += MIDDLE
        parts.append(keys.ravel())
        left -= len(parts[-1])
    steps = np.zeros(DRIFT_BINS, np.int64)
    ordered = np.concatenate(parts)
    ordered.sort()
    ends = np.searchsorted(ordered, np.arange(DRIFT_BINS + 1) << 34)
    for index in range(DRIFT_BINS):
        if ends[index + 1] > ends[index]:
            middle = int(ordered[(ends[index] + ends[index + 1]) // 2])
            steps[index] = middle - (index << 34) - MIDDLE
    return np.clip(steps, -(1 << 30), 1 << 30)


def _flags_and_steps(
    pair: Pair, steps: NDArray[np.int64], every: int
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Rows that gain by these steps, of every so many; and the steps that suit them."""
    table = np.append(steps, 0).astype(np.float32)
    flags = np.zeros(pair.rows, np.bool_)
    for block in pair.blocks():
        some = slice((-block.start) % every, None, every)
        grown, bins = _outward(pair, block, some)
        was = grown.astype(np.float32)
        left = was - table.take(bins)
        for size in (was, left):
            np.abs(size, out=size)
            size += np.float32(0.3)
            np.log2(size, out=size)
        flags[block][some] = was.sum(1) - left.sum(1) > LEAST_GAIN
    if every > 1 or flags.any():
        return flags, _medians(pair, flags) if flags.any() else steps
    return flags, steps
