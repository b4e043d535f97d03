"""The small tier: integer differences to a prediction, coded in contexts.

Every plane of every segment takes the smallest of what the fast tier makes of it and what the
context codecs do. The whole is never larger than the fast tier by more than a few bytes: where
predictors or contexts do not pay, they are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.canonical import hash_bytes
from dlv.dataclass import dataclass
from dlv.kinds import Bytes, Raw
from dlv.pas.coders.codecs import choose, codec_of
from dlv.pas.coders.context import ContextCodec, ContextPacked, ContextZstd, Order, packable
from dlv.pas.coders.contexts import CONTEXTS, SEGMENT, Measure, Scales, default_lo, numbers
from dlv.pas.deltas.difference import Delta
from dlv.pas.deltas.lowrank import Pair, find_affine, signed
from dlv.pas.deltas.predictors import DRIFT_BINS, REAL, predictors_of
from dlv.pas.encode import Emit, Part, compare, seal
from dlv.pas.floats import Words, applied, differences, exponents, words_in
from dlv.pas.footer import Encoding
from dlv.pas.layouts.segments import OPAQUE, Ieee, raw_of, word_shape, words_of

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


# Matrices up to this share chunks with others, which no contexts reach.
SMALL = 64 << 10
# Up to this a matrix's parts are held until it is clear that they pay, where whoever takes them
# cannot start again; above, coded twice.
HOLD = 64 << 20
# What any encoding may take more than the fast tier.
SLACK = 16
# A plane that is this much smaller without contexts is not worth their time.
EMPTY = 1 << 11

NONE: Predicted = ([], b"")


def encode_small(
    target: Raw,
    base: Raw,
    dtype: str,
    shape: Sequence[int],
    name: str,
    base_name: str,
    emit: Emit,
    *,
    slow: bool = False,
    restart: Callable[[], None] | None = None,
) -> Encoding:
    """A matrix as the difference from a base of the same dtype and shape.

    `restart` makes the receiver of the parts forget those emitted so far.
    """
    words, based = words_in(target, dtype), words_in(base, dtype)
    if len(words) != len(based):
        raise ValueError(f"{len(based)} words of a base for {len(words)}")
    opaque = dtype.startswith(OPAQUE)
    dims = (len(words),) if opaque else word_shape(shape, words_of(dtype)[1])
    pair = Pair(words, based, dtype, dims)
    coder = _Coder(base_name)
    found = NONE
    if len(target):
        large = len(target) > SMALL
        found = find_predictors(pair, slow=slow) if large else NONE
        found = _cheapest(coder, pair, found, large, emit, restart)
    made = Delta("sub", base_name, None, tuple(found[0]))
    layout = Ieee()
    config = made.get_config()
    return Encoding(name, dtype, tuple(shape), layout.get_config(), config, layout.planes(dtype))


def _cheapest(
    coder: _Coder,
    pair: Pair,
    candidates: Predicted,
    large: bool,
    emit: Emit,
    restart: Callable[[], None] | None,
) -> Predicted:
    """Code with all that was found, or with less where the fast tier is smaller."""
    fast = sum(
        len(choose(plane)[1])
        for start in range(0, len(pair.target), SEGMENT)
        for plane in coder.planes(pair.digits(start, start + SEGMENT), pair)
    )
    attempts = [candidates, NONE] if candidates[0] else [NONE]
    hold = restart is None and len(pair.target) * pair.form.width <= HOLD
    for predicted in attempts:
        parts: list[Part] = []
        total = _Total(emit if restart else parts.append if hold else lambda _: None)
        coder.encode(pair, predicted, large, total.add)
        if total.bytes > fast + SLACK:
            if restart is not None:
                restart()
            continue
        if hold:
            for part in parts:
                emit(part)
        elif restart is None:
            coder.encode(pair, predicted, large, emit)
        return predicted
    coder.encode(pair, NONE, False, emit)
    return NONE


class _Total:
    """Counts the bytes of parts on their way."""

    def __init__(self, emit: Callable[[Part], None]) -> None:
        self.bytes = 0
        self._emit = emit

    def add(self, part: Part) -> None:
        self.bytes += len(part.encoded.data)
        self._emit(part)


@dataclass
class _Coder:
    """Codes matrices whose contexts come from the exponents of their base."""

    base: str

    def encode(self, pair: Pair, predicted: Predicted, contexts: bool, emit: Emit) -> None:
        """All parts of a matrix, decoded again and compared."""
        side = predicted[1]
        pair = pair.with_predictors(predictors_of(*predicted, pair.dtype, pair.shape))
        scales = None
        if contexts:
            scales = self._measured(pair)
            side += scales.tobytes()
        if side:
            sealed = seal(choose(side), side)
            compare(codec_of(sealed.codec).decode(sealed.data, sealed.raw), side)
            emit(Part("side", None, 0, len(side), sealed))
            if scales is not None:
                scales = Scales.parse(side[len(predicted[1]) :], pair.shape)
        for start in range(0, len(pair.target), SEGMENT):
            target = pair.target[start : start + SEGMENT]
            guess = pair.predicted(start, start + SEGMENT)
            digits = differences(target, guess, pair.form)
            q = None if scales is None else scales.q(self._exponents(pair, start), start)
            parts, decoded = self._segment(self.planes(digits, pair), q, pair, start)
            again = Ieee().cutter(b"", pair.dtype, pair.shape).paste(decoded, start, len(target))
            compare(raw_of(applied(again, guess, pair.form)), raw_of(target))
            for part in parts:
                emit(part)

    def planes(self, digits: Words, pair: Pair) -> list[Raw]:
        """The bytes of digits, the most significant first."""
        return Ieee().cutter(b"", pair.dtype, pair.shape).cut(digits, 0)

    def _exponents(self, pair: Pair, start: int) -> NDArray[np.uint8] | NDArray[np.uint16]:
        return exponents(pair.base[start : start + SEGMENT], pair.form)

    def _measured(self, pair: Pair) -> Scales:
        measure = Measure(pair.shape, pair.form)
        for start in range(0, len(pair.target), SEGMENT):
            digits = pair.digits(start, start + SEGMENT)
            measure.add(digits, self._exponents(pair, start).astype(np.uint16), start)
        return measure.finish()

    def _segment(
        self, planes: Sequence[Raw], q: Bytes | None, pair: Pair, start: int
    ) -> tuple[list[Part], list[Raw]]:
        parts: list[Part] = []
        decoded: list[Raw] = []
        above: Bytes | None = None
        for index, plane in enumerate(planes):
            config, data = choose(plane)
            read: Raw | None = None
            if q is not None and len(data) > len(plane) // EMPTY:
                lo = default_lo(index, pair.form)
                contexts = numbers(q, above, lo)
                better = self._in_contexts(plane, contexts, lo, len(data))
                if better is not None:
                    codec, data = better
                    config = codec.get_config()
                    read = codec.decode(data, contexts)
            if read is None:
                read = codec_of(config).decode(data, len(plane))
            compare(read, plane)
            parts.append(Part("plane", index, start, len(plane), seal((config, data), plane)))
            decoded.append(read)
            above = np.frombuffer(read, np.uint8)
        return parts, decoded

    def _in_contexts(
        self, plane: Raw, contexts: Bytes, lo: int, limit: int
    ) -> tuple[ContextCodec, bytes] | None:
        """The smallest context coding, if it is below `limit` bytes."""
        if _entropy(_joint(plane, contexts)) >= limit:
            return None
        order = Order(contexts)
        gathered = order.gather(plane)
        plain = ContextZstd(lo, self.base)
        best: tuple[ContextCodec, bytes] = plain, plain.encode_sorted(gathered, order.counts)
        marked = packable(gathered, order.counts)
        if marked.any():
            packed = ContextPacked(lo, self.base)
            data = packed.encode_sorted(gathered, order.counts, marked)
            if len(data) < len(best[1]):
                best = packed, data
        return best if len(best[1]) < limit else None


def _joint(plane: Raw, contexts: Bytes) -> NDArray[np.int64]:
    """How often each digit stands in each context."""
    joint = contexts.astype(np.int32)
    np.left_shift(joint, 8, out=joint)
    joint |= np.frombuffer(plane, np.uint8)
    counts: NDArray[np.int64] = np.bincount(joint, minlength=CONTEXTS << 8)
    return counts.reshape(CONTEXTS, 256)


def _entropy(counts: NDArray[np.int64]) -> float:
    """Bytes that no coder with these contexts can go much below."""
    used = counts[counts > 0].astype(np.float64)
    totals = counts.sum(1)
    totals = totals[totals > 0].astype(np.float64)
    bits = (totals * np.log2(totals)).sum() - (used * np.log2(used)).sum()
    return float(bits) / 8
