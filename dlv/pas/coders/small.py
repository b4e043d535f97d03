"""The archive's deltas: integer differences to a base, as plain numbers or to a prediction of it.

`encode_plain` codes the difference as it is: what takes least time. `encode_small` looks for
predictors and puts the numbers in the order of how large they are likely to be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.kinds import Bytes, Raw
from dlv.pas.coders.codecs import choose, codec_of
from dlv.pas.coders.context import Order
from dlv.pas.coders.contexts import Measure, Scales
from dlv.pas.coders.numbers import ContextNumbers, NumbersCodec, runs_of
from dlv.pas.coders.zstd import MAX_RATIO
from dlv.pas.deltas.difference import Delta
from dlv.pas.deltas.lowrank import Predicted
from dlv.pas.deltas.pair import Pair
from dlv.pas.deltas.search import NONE, find_predictors, with_predicted
from dlv.pas.encode import SMALL, Emit, Encoded, Part, compare, seal
from dlv.pas.floats import Words, add_difference, exponents, signed_words, words_in
from dlv.pas.footer import Encoding
from dlv.pas.layouts.segments import OPAQUE, SEGMENT, raw_of, word_shape, words_of
from dlv.pas.layouts.units import UnitCutter, Units

# Bytes of the numbers: two, so that the first half of a longer word can be read alone.
UNIT = 2
# A plane that would take this part of its bytes is kept as it is: reading it is then a copy.
INCOMPRESSIBLE = 1 - 1 / 256
# A plane that would take less than one byte in so many may be all but constant: then zstd takes
# less, and no more than a reader may believe.
CONSTANT = 1 << 8
# The part of its bytes that a matrix may spend on scales of rows and columns.
MOST_SCALES = 1 / 24
# Differences of a matrix up to this many bytes are kept from measuring to coding.
HELD = 32 << 20


def encode_plain(
    target: Raw,
    base: Raw,
    dtype: str,
    shape: Sequence[int],
    name: str,
    base_name: str,
    emit: Emit,
    *,
    check: bool = True,
) -> Encoding:
    """A matrix as the difference from a base of the same dtype and shape: whole words.

    `check`: decode and compare each part. Omit it only if the matrix is read back later anyway.
    """
    pair = _paired(target, base, dtype, shape)
    layout = Units(pair.form.width)
    cutter = UnitCutter(pair.form.width, layout.unit)
    for start in range(0, len(pair.target), SEGMENT):
        guess = pair.base[start : start + SEGMENT]
        digits = signed_words(pair.digits(start, start + SEGMENT), pair.form)
        (plane,) = cutter.cut(digits.view(pair.form.words), start)
        encoded = _plain(plane, layout.unit)
        if check:
            decoded = codec_of(encoded.codec).decode(encoded.data, encoded.raw)
            _check(pair, cutter, [decoded], guess, start)
        emit(Part("plane", 0, start * layout.unit, len(plane), encoded))
    return _encoding(layout, name, base_name, dtype, shape, NONE)


def encode_small(
    target: Raw,
    base: Raw,
    dtype: str,
    shape: Sequence[int],
    name: str,
    base_name: str,
    emit: Emit,
    *,
    thorough: bool = False,
    check: bool = True,
) -> Encoding:
    """A matrix as the difference from a prediction by its base; `thorough`: search for longer.

    A matrix so small or narrow that scales take more than they save is coded as it is.
    """
    pair = _paired(target, base, dtype, shape)
    arguments = (target, base, dtype, shape, name, base_name)
    if len(target) <= SMALL or Scales.nbytes(pair.shape) > len(target) * MOST_SCALES:
        return encode_plain(*arguments, emit, check=check)
    if not pair.form.exponent and len(target) <= HELD:
        # Contexts of integers know only rows and columns, which may not be worth their bytes.
        plain: list[Part] = []
        in_context: list[Part] = []
        encoding = encode_plain(*arguments, plain.append, check=check)
        better = _in_contexts(pair, NONE, name, base_name, shape, in_context.append, check=check)
        if _bytes(in_context) < _bytes(plain):
            encoding, plain = better, in_context
        for part in plain:
            emit(part)
        return encoding
    predicted = find_predictors(pair, thorough=thorough)
    return _in_contexts(
        with_predicted(pair, predicted), predicted, name, base_name, shape, emit, check=check
    )


def _bytes(parts: Sequence[Part]) -> int:
    return sum(len(part.encoded.data) for part in parts)


def _in_contexts(
    pair: Pair,
    predicted: Predicted,
    name: str,
    base_name: str,
    shape: Sequence[int],
    emit: Emit,
    *,
    check: bool,
) -> Encoding:
    """The numbers of each segment sorted by how large they are likely to be."""
    dtype = pair.dtype
    layout = Units(min(UNIT, pair.form.width))
    cutter = UnitCutter(pair.form.width, layout.unit)
    coder = _Coder(pair, ContextNumbers(layout.unit, base_name))
    scaled = False
    for start in range(0, len(pair.target), SEGMENT):
        q = coder.contexts(start)
        order = Order(q)
        ends = runs_of(order.counts)
        decoded: list[Raw] = []
        parts: list[Part] = []
        for index, plane in enumerate(cutter.cut(coder.signed(start), start)):
            encoded = coder.coded(plane, order, ends)
            in_context = encoded.codec["id"] == ContextNumbers.codec_id
            scaled |= in_context
            parts.append(Part("plane", index, start * layout.unit, len(plane), encoded))
            if check and in_context:
                decoded.append(coder.codec.decode(encoded.data, q))
            elif check:
                codec = codec_of(encoded.codec)
                decoded.append(codec.decode(encoded.data, encoded.raw))
        if check:
            _check(pair, cutter, decoded, pair.predicted(start, start + SEGMENT), start)
        for part in parts:
            emit(part)
    # Only what has contexts has scales.
    side = predicted[1] + (coder.scales.tobytes() if scaled else b"")
    if side:
        sealed = seal(choose(side), side)
        if check:
            compare(codec_of(sealed.codec).decode(sealed.data, sealed.raw), side)
        emit(Part("side", None, 0, len(side), sealed))
    return _encoding(layout, name, base_name, dtype, shape, predicted)


class _Coder:
    """Differences of a pair and the contexts in which they are coded."""

    def __init__(self, pair: Pair, codec: ContextNumbers) -> None:
        self._pair = pair
        self.codec = codec
        self._keep = len(pair.target) * pair.form.width <= HELD
        self._held: list[Words] = []
        measure = Measure(pair.shape, pair.form)
        for start in range(0, len(pair.target), SEGMENT):
            digits = pair.digits(start, start + SEGMENT)
            measure.add(digits, self._exponents(start), start)
            if self._keep:
                self._held.append(digits)
        self.scales = Scales.parse(measure.finish().tobytes(), pair.shape)

    def contexts(self, start: int) -> Bytes:
        return self.scales.q(self._exponents(start), start)

    def signed(self, start: int) -> Words:
        """Differences modulo the power of two."""
        pair = self._pair
        if self._keep:
            digits = self._held[start // SEGMENT]
            self._held[start // SEGMENT] = digits[:0]  # each segment is coded once
        else:
            digits = pair.digits(start, start + SEGMENT)
        words: Words = signed_words(digits, pair.form).view(pair.form.words)
        return words

    def coded(self, plane: Raw, order: Order, ends: list[int]) -> Encoded:
        """A plane in the order of its contexts, or as it is where that says nothing."""
        unit = self.codec.unit
        data = self.codec.encode_sorted(order.gather(plane, unit), ends)
        if len(data) <= len(plane) // CONSTANT:  # not worth the scales that contexts need
            return _plain(plane, unit)
        return _smaller(self.codec.get_config(), data, plane)

    def _exponents(self, start: int) -> NDArray[np.uint16]:
        return exponents(self._pair.base[start : start + SEGMENT], self._pair.form)


def _plain(plane: Raw, unit: int) -> Encoded:
    codec = NumbersCodec(unit)
    return _smaller(codec.get_config(), codec.encode(plane), plane)


def _smaller(config: dict[str, Any], data: bytes, plane: Raw) -> Encoded:
    """A plane as coded numbers, or by the fast codecs where these are smaller or as good."""
    if len(plane) // CONSTANT < len(data) < len(plane) * INCOMPRESSIBLE:
        return seal((config, data), plane)
    other = choose(plane)
    believed = len(data) * (MAX_RATIO // 2) > len(plane)
    return seal((config, data) if believed and len(data) < len(other[1]) else other, plane)


def _check(
    pair: Pair, cutter: UnitCutter, decoded: Sequence[Raw], guess: Words, start: int
) -> None:
    """Raise Damaged unless the planes of a segment decode to the target."""
    target = pair.target[start : start + SEGMENT]
    digits = cutter.paste(decoded, start, len(target)).copy()
    again = np.empty_like(digits)
    add_difference(digits, guess, pair.form, again)
    compare(raw_of(again), raw_of(target))


def _paired(target: Raw, base: Raw, dtype: str, shape: Sequence[int]) -> Pair:
    words, based = words_in(target, dtype), words_in(base, dtype)
    if len(words) != len(based):
        raise ValueError(f"{len(based)} words of a base for {len(words)}")
    opaque = dtype.startswith(OPAQUE)
    dims = (len(words),) if opaque else word_shape(shape, words_of(dtype)[1])
    return Pair(words, based, dtype, dims)


def _encoding(
    layout: Units, name: str, base_name: str, dtype: str, shape: Sequence[int], predicted: Predicted
) -> Encoding:
    delta = Delta("sub", base_name, None, tuple(predicted[0])).get_config()
    planes = layout.planes(dtype)
    return Encoding(name, dtype, tuple(shape), layout.get_config(), delta, planes)
