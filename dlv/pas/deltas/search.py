"""The search for predictors of one matrix: which pay, by what differences to them cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.canonical import hash_bytes
from dlv.pas.coders.codecs import choose
from dlv.pas.deltas.lowrank import Pair, find_affine, signed
from dlv.pas.deltas.predictors import DRIFT_BINS, REAL, predictors_of
from dlv.pas.floats import Words, differences, exponents

ROUNDS = 3
SAMPLE_ROWS = 4096
# How far elements of a row may differ in their rate of shrinking, in parts of it, to be a start.
ALIKE = 0.5
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
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How far magnitudes grew, and the mantissa's bin, in those chosen of a block of rows."""
    start, stop = rows.start * pair.columns, rows.stop * pair.columns

    def some(words: Words) -> Words:
        picked: Words = words.reshape(-1, pair.columns)[chosen].ravel()
        return picked

    words, target = some(pair.base[start:stop]), some(pair.target[start:stop])
    predicted = some(pair.predicted(start, stop)) if pair.predictors else words
    grown = signed(differences(target, predicted, pair.form), pair.form)
    np.negative(grown, out=grown, where=(words >> np.uint32(31)).astype(np.bool_))
    usual = exponents(words, pair.form)
    bins = ((words >> np.uint32(16)) & np.uint32(DRIFT_BINS - 1)).astype(np.int64)
    bins[(usual == 0) | (usual == 255)] = DRIFT_BINS  # these never drift
    return grown.reshape(-1, pair.columns), bins.reshape(-1, pair.columns)


def _first_steps(pair: Pair) -> NDArray[np.int64] | None:
    """From the rows whose elements shrank most alike, in proportion to their mantissas."""
    spread = np.full(pair.rows, np.inf)
    every = _every(pair)
    for block in pair.blocks():
        some = slice((-block.start) % every, None, every)
        grown, bins = _outward(pair, block, some)
        rates = grown / (1 + (bins + 0.5) / DRIFT_BINS)
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
    left = 1 << 21
    for block in pair.blocks():
        chosen = rows[block]
        if not chosen.any() or left <= 0:
            continue
        grown, bins = _outward(pair, block, chosen)
        # Bin and growth as one number: a sort of these is many times faster than of pairs.
        keys = np.left_shift(bins, 34, out=bins)
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
    table = np.append(steps, 0)
    flags = np.zeros(pair.rows, np.bool_)
    for block in pair.blocks():
        some = slice((-block.start) % every, None, every)
        grown, bins = _outward(pair, block, some)
        before = np.log2(np.abs(grown).astype(np.float32) + np.float32(0.3)).sum(1)
        after = np.log2(np.abs(grown - table[bins]).astype(np.float32) + np.float32(0.3)).sum(1)
        flags[block][some] = before - after > LEAST_GAIN
    if every > 1 or flags.any():
        return flags, _medians(pair, flags) if flags.any() else steps
    return flags, steps


Predicted = tuple[list[dict[str, Any]], bytes]

# A predictor costs rows in footers, and time whenever the matrix is read.
WORTH_BYTES = 256
WORTH_SHARE = 0.001
# Below this many bits per element there is nothing left to predict.
NOTHING = 0.02


def find_predictors(pair: Pair, *, slow: bool = False) -> Predicted:
    """Configs and side data of the predictors that pay; both empty if none do."""
    none: Predicted = ([], b"")
    if pair.dtype not in REAL:
        return none
    before = pair.cost()
    if before < NOTHING:
        return none
    count = len(pair.target)
    worth = WORTH_BYTES + WORTH_SHARE * before * count / 8
    best, best_bytes = none, before * count / 8

    def consider(predicted: Predicted) -> None:
        nonlocal best, best_bytes
        cost = _with(pair, predicted).cost() * count / 8 + len(choose(predicted[1])[1])
        if cost < best_bytes - (worth if best is none else 0):
            best, best_bytes = predicted, cost

    drift = find_drift(pair)
    if drift is not None:
        consider(([drift[0]], drift[1]))
    drifted = best is not none
    for found in find_affine(pair, slow=slow):
        consider(found)
    if drifted and drift is not None:
        first: Predicted = ([drift[0]], drift[1])
        for found in find_affine(_with(pair, first), slow=slow, shrink=False):
            consider(_joined(first, found))
    return best


def _with(pair: Pair, predicted: Predicted) -> Pair:
    return pair.with_predictors(predictors_of(predicted[0], predicted[1], pair.dtype, pair.shape))


def _joined(*parts: Predicted) -> Predicted:
    configs: Sequence[dict[str, Any]] = [config for part in parts for config in part[0]]
    return list(configs), b"".join(part[1] for part in parts)
