"""Figures of one matrix, and of the difference of two; block by block, so memory stays small.

NaN and infinities are counted and left out of all other figures. A complex number counts as
its two parts. Sums are taken of values scaled by a power of two, so that squares neither
overflow nor vanish.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from dlv.dataclass import dataclass
from dlv.dtypes import ITEM_BYTES
from dlv.kinds import Array, Raw
from dlv.weights.arrays import to_array

BLOCK = 1 << 18  # elements
BINS = 12


@dataclass(frozen=True)
class Histogram:
    """Finite values in bins of one width from `low` to `high`."""

    low: float
    high: float
    counts: tuple[int, ...]

    def edges(self) -> list[float]:
        width = self.high / len(self.counts) - self.low / len(self.counts)
        inner = [self.low + width * i for i in range(len(self.counts))]
        return [*inner, self.high]


@dataclass(frozen=True)
class Statistics:
    """Of all finite values; `std` is that of a population. None where there is no value."""

    elements: int
    nan: int = 0
    infinite: int = 0
    zeros: int = 0
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    std: float | None = None
    l2: float | None = None
    histogram: Histogram | None = None


@dataclass(frozen=True)
class Difference:
    """How far the second matrix lies from the first one.

    `changed` counts elements with other bits, or with other values where the dtypes differ.
    `nonfinite` counts those of them that have no distance: one side is NaN or infinite.
    """

    elements: int
    changed: int
    nonfinite: int = 0
    l2: float | None = None
    relative_l2: float | None = None  # by the norm of the first one; None if that is 0
    max_abs: float | None = None


def understood(dtype: str) -> bool:
    """Whether dlv knows the numbers that this dtype stands for."""
    return dtype in ITEM_BYTES


def statistics(dtype: str, raw: Raw, bins: int = BINS) -> Statistics | None:
    """Figures of a matrix; None of a dtype whose numbers are not known."""
    if not understood(dtype):
        return None
    elements = len(raw) // ITEM_BYTES[dtype]
    nan = infinite = zeros = count = 0
    low: Any = None
    high: Any = None
    for block in _blocks(dtype, raw):
        finite = np.isfinite(block)
        lost = int(np.isnan(block).sum())
        nan += lost
        infinite += block.size - int(finite.sum()) - lost
        values = block[finite]
        if values.size:
            zeros += values.size - int(np.count_nonzero(values))
            count += values.size
            least, most = values.min().item(), values.max().item()
            low = least if low is None else min(low, least)
            high = most if high is None else max(high, most)
    if not count:
        return Statistics(elements, nan, infinite)
    scale = math.frexp(max(abs(low), abs(high)))[1]
    mean, spread, norm, counts = _second_pass(dtype, raw, scale, (low, high), bins)
    return Statistics(
        *(elements, nan, infinite, zeros, low, high),
        mean=_scaled(mean, scale),
        std=_scaled(math.sqrt(spread / count), scale),
        l2=_scaled(math.sqrt(norm), scale),
        histogram=Histogram(float(low), float(high), counts),
    )


def _second_pass(
    dtype: str, raw: Raw, scale: int, limits: tuple[float, float], bins: int
) -> tuple[float, float, float, tuple[int, ...]]:
    """(mean, sum of squared deviations, sum of squares, histogram) of values / 2**scale."""
    low, high = (_shrunk(np.array([limit]), scale)[0] for limit in limits)
    seen, mean, spread, norm = 0, 0.0, 0.0, 0.0
    counts = np.zeros(bins if high > low else 1, np.int64)
    for block in _blocks(dtype, raw):
        values = _shrunk(block[np.isfinite(block)], scale)
        if not values.size:
            continue
        norm += float(np.square(values).sum())
        own = float(values.mean())
        shift, both = own - mean, seen + values.size
        # Chan's rule joins the moments of two parts without cancellation.
        spread += float(np.square(values - own).sum()) + shift * shift * seen * values.size / both
        mean += shift * values.size / both
        seen = both
        if high > low:
            places = ((values - low) * (bins / (high - low))).astype(np.int64)
            counts += np.bincount(np.minimum(places, bins - 1), minlength=bins)
        else:
            counts[0] += values.size
    return mean, spread, norm, tuple(counts.tolist())


def _shrunk(values: Array, scale: int) -> Array:
    shrunk: Array = np.ldexp(values.astype(np.float64), -scale)
    return shrunk


def _scaled(value: float, scale: int) -> float:
    try:
        return math.ldexp(value, scale)
    except OverflowError:
        return math.copysign(math.inf, value)


def difference(old_dtype: str, old: Raw, new_dtype: str, new: Raw) -> Difference:
    """The distance between two matrices with the same number of elements."""
    return difference_of_parts(old_dtype, new_dtype, [(old, new)])


def difference_of_parts(
    old_dtype: str, new_dtype: str, parts: Iterable[tuple[Raw, Raw]]
) -> Difference:
    """The same of matrices that come in parts of equally many elements."""
    if not (understood(old_dtype) and understood(new_dtype)):
        ((old, new),) = parts
        return _bytes_apart(old, new)
    found = _Apart(old_dtype, new_dtype)
    for old, new in parts:
        found.add(old, new)
    return found.result()


_SHORT = ("float32", "float16", "bfloat16")  # whose squares are finite in float64
_SOME = 1 << 14  # values that stay in the cache of a core


class _Apart:
    """The distance, collected block by block."""

    def __init__(self, old_dtype: str, new_dtype: str) -> None:
        self._dtypes = old_dtype, new_dtype
        self._same = old_dtype == new_dtype
        self._parts = 2 if any(name.startswith("complex") for name in self._dtypes) else 1
        self._apart, self._norm, self._most = _Norm(), _Norm(), 0.0
        self._elements = self._changed = self._nonfinite = 0

    def add(self, old: Raw, new: Raw) -> None:
        old_dtype, new_dtype = self._dtypes
        elements = len(old) // ITEM_BYTES[old_dtype]
        if elements != len(new) // ITEM_BYTES[new_dtype]:
            raise ValueError("tensors of different sizes have no distance")
        self._elements += elements
        for start in range(0, elements, BLOCK):
            before, after = _block(old_dtype, old, start), _block(new_dtype, new, start)
            differs = _bits_differ(old_dtype, old, new, start) if self._same else None
            if differs is None or not self._short(before, after, differs):
                self._add(before, after, differs)

    def _short(self, before: Array, after: Array, differs: Array) -> bool:
        """For most blocks of dtypes whose squares float64 holds, in a quarter of the time;
        False where a value is not finite."""
        if self._dtypes[0] not in _SHORT:
            return False
        most = squares = norm = 0.0
        with np.errstate(invalid="ignore"):
            for at in range(0, len(before), _SOME):
                base = before[at : at + _SOME].astype(np.float64)
                apart = after[at : at + _SOME].astype(np.float64)
                np.subtract(apart, base, out=apart)
                norm += float(np.square(base, out=base).sum())
                squares += float(np.square(apart, out=apart).sum())
                most = max(most, float(apart.max(initial=0.0)))
        if not math.isfinite(norm + squares):
            return False
        self._changed += int(differs.sum())
        self._norm.value = math.hypot(self._norm.value, math.sqrt(norm))
        self._apart.value = math.hypot(self._apart.value, math.sqrt(squares))
        # The root of a square is the number itself where nothing overflows or underflows.
        self._most = max(self._most, math.sqrt(most))
        return True

    def _add(self, before: Array, after: Array, differs: Array | None) -> None:
        parts = self._parts
        self._norm.add(before[np.isfinite(before)])
        if differs is None:
            before = _in_parts(before, self._dtypes[0], parts)
            after = _in_parts(after, self._dtypes[1], parts)
            alike = (before == after) | (np.isnan(before) & np.isnan(after))
            differs = ~alike.reshape(-1, parts).all(axis=1)
        self._changed += int(differs.sum())
        where = np.repeat(differs, parts)
        before, after = before[where], after[where]
        finite = (np.isfinite(before) & np.isfinite(after)).reshape(-1, parts).all(axis=1)
        self._nonfinite += finite.size - int(finite.sum())
        distance = _distance(before, after, np.repeat(finite, parts))
        if distance.size:
            self._most = max(self._most, float(distance.max()))
        self._apart.add(distance)

    def result(self) -> Difference:
        relative = None if self._norm.value == 0 else self._apart.value / self._norm.value
        if relative is not None and not math.isfinite(relative):
            relative = None
        return Difference(
            *(self._elements, self._changed, self._nonfinite),
            *(self._apart.value, relative, self._most),
        )


def _bytes_apart(old: Raw, new: Raw) -> Difference:
    """Of numbers that nobody here can read, only which bytes differ."""
    a, b = np.frombuffer(old, np.uint8), np.frombuffer(new, np.uint8)
    if a.size != b.size:
        raise ValueError("tensors of different sizes have no distance")
    return Difference(a.size, int(np.count_nonzero(a != b)))


class _Norm:
    """A Euclidean norm, collected block by block."""

    def __init__(self) -> None:
        self.value = 0.0

    def add(self, values: Array) -> None:
        magnitudes = np.abs(values.astype(np.float64))
        largest = float(magnitudes.max(initial=0.0))
        if largest == math.inf:
            self.value = math.inf
        elif largest:
            exponent = math.frexp(largest)[1]
            length = math.sqrt(float(np.square(np.ldexp(magnitudes, -exponent)).sum()))
            self.value = math.hypot(self.value, _scaled(length, exponent))


def _distance(before: Array, after: Array, finite: Array) -> Array:
    before, after = before[finite], after[finite]
    if before.dtype == after.dtype and before.dtype.kind in "iu":
        # Modulo 2**64 the larger less the smaller is exact even where int64 overflows.
        a, b = (x.astype(np.int64 if x.dtype.kind == "i" else np.uint64) for x in (before, after))
        low, high = np.minimum(a, b).view(np.uint64), np.maximum(a, b).view(np.uint64)
        exact: Array = (high - low).astype(np.float64)
        return exact
    with np.errstate(over="ignore"):
        distance: Array = np.abs(after.astype(np.float64) - before.astype(np.float64))
    return distance


def _blocks(dtype: str, raw: Raw) -> Iterator[Array]:
    for start in range(0, len(raw) // ITEM_BYTES[dtype], BLOCK):
        yield _block(dtype, raw, start)


def _bytes_of(dtype: str, raw: Raw, start: int) -> memoryview:
    item = ITEM_BYTES[dtype]
    return memoryview(raw).cast("B")[start * item : (start + BLOCK) * item]


def _block(dtype: str, raw: Raw, start: int) -> Array:
    """A part of the values, flat; of complex ones real and imaginary parts in turn."""
    piece = _bytes_of(dtype, raw, start)
    if dtype == "bool":
        return np.frombuffer(piece, np.uint8)
    values = to_array(dtype, (len(piece) // ITEM_BYTES[dtype],), piece)
    if values.dtype.kind == "c":
        return np.ascontiguousarray(values).view(np.dtype(f"f{values.itemsize // 2}"))
    return values


def _in_parts(values: Array, dtype: str, parts: int) -> Array:
    """Real numbers beside complex ones: their imaginary part is 0."""
    if parts == 1 or dtype.startswith("complex"):
        return values
    return np.stack([values.astype(np.float64), np.zeros(values.size)], axis=1).reshape(-1)


def _bits_differ(dtype: str, old: Raw, new: Raw, start: int) -> Array:
    words = np.dtype(f"<u{min(ITEM_BYTES[dtype], 8)}")
    a = np.frombuffer(_bytes_of(dtype, old, start), words)
    b = np.frombuffer(_bytes_of(dtype, new, start), words)
    differs: Array = (a != b).reshape(-1, ITEM_BYTES[dtype] // words.itemsize).any(axis=1)
    return differs
