"""Lossy schemes: fewer bits per weight, on request only, in the dtype that the weights have.

What a scheme makes of a matrix is again a matrix of the same dtype and shape. NaN and
infinities keep their bits, and zeros stay zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dlv.canonical import matrix_hasher
from dlv.dataclass import dataclass
from dlv.dtypes import DTYPES
from dlv.errors import UsageError, nearest
from dlv.kinds import Raw
from dlv.pas.floats import Words, values_of_words, words_in
from dlv.pas.layouts.segments import element_bytes
from dlv.pas.layouts.table import MOST_WORDS, Distinct

Values = NDArray[np.float64]

_FINENESS = 4  # stretches of the sample, for each level, from which Lloyd's iteration starts
_ROUNDS = 300
_SETTLED = 2.0**-24  # of the range: levels that move less have settled


@dataclass(frozen=True)
class Spread:
    """What is known of a matrix's finite elements when its levels are chosen.

    `sample`: some of them in ascending order, the least and the most among them.
    """

    least: float
    most: float
    zero: bool  # whether some are exactly 0
    sample: Values
    seed: str  # hash of the matrix


def uniform(spread: Spread, count: int) -> Values:
    """Levels at equal distances from the least to the most, moved so that zeros stay zero.

    No element is further than half a step from a level: moving them costs at most half a step
    at either end.
    """
    # By a power of two, which costs no bits, so that no difference overflows or vanishes.
    scale = math.frexp(max(abs(spread.least), abs(spread.most)))[1]
    least, most = math.ldexp(spread.least, -scale), math.ldexp(spread.most, -scale)
    step = (most - least) / (count - 1)
    if spread.zero:
        levels = (np.arange(count) - round(-least / step)) * step
    else:
        levels = least + np.arange(count) * step
        levels[-1] = most
    found: Values = np.ldexp(levels, scale)
    return found


def random(spread: Spread, count: int) -> Values:
    """The least, the most and elements drawn at random: dense where the elements are."""
    # Philox, whose raw words numpy promises to keep.
    words = np.random.Philox(key=int(spread.seed[:32], 16)).random_raw(32 * count)
    drawn = spread.sample[(words % np.uint64(len(spread.sample))).astype(np.intp)]
    fixed = {spread.least, spread.most} | ({0.0} if spread.zero else set())
    chosen = list(dict.fromkeys([*sorted(fixed), *(float(value) for value in drawn)]))
    return np.sort(np.array(chosen[:count]))


def lloyd(spread: Spread, count: int) -> Values:
    """Levels with a small mean squared error: each the mean of the elements nearest to it.

    The iteration runs over a sorted sample with running sums, so a round costs the same for
    any number of elements.
    """
    scale = math.frexp(max(abs(spread.least), abs(spread.most)))[1]
    sample = np.ldexp(spread.sample, -scale)
    # Sequential sums: pairwise ones may differ in the last bit from machine to machine.
    sums = np.concatenate([[0.0], np.cumsum(sample)])
    levels = _start(sample, count)
    for _ in range(_ROUNDS):
        ends = np.searchsorted(sample, (levels[1:] + levels[:-1]) / 2, side="right")
        bounds = np.concatenate([[0], ends, [len(sample)]])
        held = np.diff(bounds)
        means = np.diff(sums[bounds]) / np.maximum(held, 1)
        moved = np.where(held > 0, means, levels)
        done = np.max(np.abs(moved - levels)) <= _SETTLED * (sample[-1] - sample[0])
        levels = np.sort(moved)
        if done:
            break
    levels = np.ldexp(levels, scale)
    if spread.zero:
        levels[np.argmin(np.abs(levels))] = 0.0
    return levels


def _start(sample: Values, count: int) -> Values:
    """Levels as dense as the cube root of the elements' density: the best for many levels.

    Between two of `_FINENESS * count` quantiles that is about the 2/3rd power of the distance.
    By square roots, which are the same on every machine.
    """
    places = np.arange(_FINENESS * count + 1) * (len(sample) - 1) // (_FINENESS * count)
    edges = sample[places]
    half = np.sqrt(np.diff(edges))
    eighth = np.sqrt(np.sqrt(half))
    mass = np.concatenate([[0.0], np.cumsum(half * eighth * np.sqrt(np.sqrt(eighth)))])
    wanted = (np.arange(count) + 0.5) / count * mass[-1]
    found: Values = np.interp(wanted, mass, edges)
    return found


CODEBOOKS = {"uniform": uniform, "random": random, "lloyd": lloyd}


SAMPLE = 1 << 20  # elements from which levels are chosen; of fewer all are taken
_BLOCK = 1 << 18  # elements rounded at a time


@dataclass(frozen=True)
class Number:
    """A binary floating-point format: significant bits, least exponent of its last place."""

    significant: int
    least: int
    most: float  # the largest finite number


def _number(dtype: str) -> Number:
    d = DTYPES[dtype]
    most = math.ldexp((2 << d.mantissa) - 1, d.bias - d.mantissa)
    return Number(d.mantissa + 1, 1 - d.bias - d.mantissa, most)


_NUMBERS = {dtype: _number(dtype) for dtype in ("float16", "bfloat16", "float32", "float64")}
FP16, BF16 = _NUMBERS["float16"], _NUMBERS["bfloat16"]

# id -> the bits it may be given; None: it takes no number.
_BITS: dict[str, range | None] = {
    "fp16": None,
    "bf16": None,
    "fixed": range(2, 17),
    "uniform": range(1, 9),
    "random": range(1, 9),
    "lloyd": range(1, 9),
}
_HALVES = {"fp16": FP16, "bf16": BF16}


@dataclass(frozen=True)
class Scheme:
    """A scheme as a manifest names it, or as the user writes it: `uniform:8`."""

    id: str
    bits: int | None = None

    def get_config(self) -> dict[str, Any]:
        return {"id": self.id} if self.bits is None else {"id": self.id, "bits": self.bits}

    def __str__(self) -> str:
        return self.id if self.bits is None else f"{self.id}:{self.bits}"


def parse(text: str) -> Scheme:
    """The scheme that the user means by `fp16` or `uniform:8`."""
    name, colon, number = text.strip().partition(":")
    if name in _BITS:
        allowed = _BITS[name]
        if allowed is None and not colon:
            return Scheme(name)
        if allowed is not None and number in map(str, allowed):
            return Scheme(name, int(number))
        if allowed is None:
            raise UsageError(
                f"unknown quantization `{text}`", why=f"{name} takes no bits", hint=f"write {name}"
            )
        raise UsageError(
            f"unknown quantization `{text}`",
            why=f"{name} takes {allowed[0]} to {allowed[-1]} bits",
            hint=f"for example {name}:8",
        )
    forms = [name if bits is None else f"{name}:K" for name, bits in _BITS.items()]
    raise UsageError(
        f"unknown quantization `{text}`",
        why=f"known: {', '.join(forms)}",
        did_you_mean=nearest(text, map(str, _all())),
        hint="to store 8 bits a weight: dlv quantize REF --to uniform:8",
    )


def _all() -> Iterable[Scheme]:
    for name, allowed in _BITS.items():
        yield from [Scheme(name)] if allowed is None else (Scheme(name, k) for k in allowed)


def suits(scheme: Scheme, dtype: str, shape: Sequence[int]) -> bool:
    """Whether a scheme is for such a matrix at all.

    Vectors stay exact: biases, norms, running statistics are few numbers on which much
    depends. So does what already has as few bits, and what is no number.
    """
    if dtype not in _NUMBERS or sum(size > 1 for size in shape) < 2:
        return False
    return scheme.id not in _HALVES or element_bytes(dtype) > 2


class Rounding(Protocol):
    """What a scheme does to each element of one matrix."""

    def apply(self, raw: Raw) -> bytearray:
        """The bytes of a run of elements, rounded."""
        ...


@dataclass(frozen=True)
class Fit:
    """A scheme made to measure. `rounding` None: the matrix stays as it is."""

    source: str  # hash of the matrix
    rounding: Rounding | None
    why: str = ""  # it stays as it is, where that is not what one would expect


def fit(scheme: Scheme, dtype: str, shape: Sequence[int], parts: Iterable[Raw]) -> Fit:
    """Look once at a matrix, given in parts of whole elements, and see how to round it."""
    survey = _Survey(dtype, shape, sample=scheme.id in ("random", "lloyd"))
    for part in parts:
        survey.add(part)
    source = survey.hasher.hexdigest()
    if survey.least > survey.most:  # no finite element
        return Fit(source, None)
    if scheme.id in _HALVES:
        half = _HALVES[scheme.id]
        return _checked(_Rounded(dtype, lambda values: rounded(values, half)), half, survey, source)
    assert scheme.bits is not None
    if scheme.id == "fixed":
        fixed = _Fixed.of(scheme.bits, max(-survey.least, survey.most))
        return _checked(_Rounded(dtype, fixed), _NUMBERS[dtype], survey, source)
    count = 1 << scheme.bits
    words = survey.distinct.words
    if words is not None and len(words) - len(survey.special) <= count:
        return Fit(source, None)  # as few words as it may have already
    # NaN and infinities are words of the table, too.
    count = max(2, min(count, MOST_WORDS - len(survey.special)))
    with np.errstate(over="ignore"):  # a level beyond what the dtype can hold is moved to its most
        levels = CODEBOOKS[scheme.id](survey.spread(source), count)
        return Fit(source, _Coded.of(levels, dtype))


class _Survey:
    """What one pass over a matrix tells of it."""

    def __init__(self, dtype: str, shape: Sequence[int], *, sample: bool) -> None:
        self.dtype = dtype
        self.hasher = matrix_hasher(dtype, shape)
        self.least, self.most, self.zero = math.inf, -math.inf, False
        self.special: set[int] = set()  # words of NaN and infinities, as far as they matter
        self.distinct = Distinct()
        self._at = 0
        self._positions = _positions(math.prod(shape)) if sample else np.empty(0, np.int64)
        self._sample: list[Values] = []

    def add(self, raw: Raw) -> None:
        self.hasher.update(raw)
        every = words_in(raw, self.dtype)
        for start in range(0, len(every), _BLOCK):
            words = every[start : start + _BLOCK]
            values = values_of_words(words, self.dtype)
            finite = np.isfinite(values)
            self.distinct.add(words)
            self._take(values, finite)
            if not finite.all():
                if len(self.special) < MOST_WORDS:
                    self.special.update(np.unique(words[~finite]).tolist())
                values = values[finite]
            if len(values):
                self.least = min(self.least, float(values.min()))
                self.most = max(self.most, float(values.max()))
                self.zero = self.zero or not values.all()

    def _take(self, values: Values, finite: NDArray[np.bool_]) -> None:
        first, last = np.searchsorted(self._positions, [self._at, self._at + len(values)])
        places = self._positions[first:last] - self._at
        self._sample.append(values[places[finite[places]]])
        self._at += len(values)

    def spread(self, seed: str) -> Spread:
        ends = np.array([self.least, self.most])
        sample = np.sort(np.concatenate([*self._sample, ends]))
        return Spread(self.least, self.most, self.zero, sample, seed)


def _positions(count: int) -> NDArray[np.int64]:
    """One element out of each of `SAMPLE` stretches of equal length; all of a small matrix."""
    if count <= SAMPLE:
        return np.arange(count)
    edges = np.arange(SAMPLE + 1) * (count / SAMPLE)
    starts = edges[:-1].astype(np.int64)
    lengths = np.maximum(edges[1:].astype(np.int64) - starts, 1)
    words = np.random.Philox(key=count).random_raw(SAMPLE)
    found: NDArray[np.int64] = starts + (words % lengths.astype(np.uint64)).astype(np.int64)
    return found


def _checked(rounding: Rounding, number: Number, survey: _Survey, source: str) -> Fit:
    """A finite number must not become infinite: then the matrix stays exact."""
    dtype = survey.dtype
    ends = _words(np.array([survey.least, survey.most]), dtype)
    after = values_of_words(words_in(rounding.apply(ends.tobytes()), dtype), dtype)
    if np.abs(after).max() > number.most:
        widest = max(-survey.least, survey.most)
        return Fit(source, None, f"{widest:g} is too large for it")
    return Fit(source, rounding)


@dataclass(frozen=True)
class _Rounded:
    """Each element by a formula."""

    dtype: str
    formula: Callable[[Values], Values]

    def apply(self, raw: Raw) -> bytearray:
        return _blockwise(raw, self.dtype, lambda v: _words(self.formula(v), self.dtype))


@dataclass(frozen=True)
class _Fixed:
    """Whole multiples of a power of two, as many as a signed integer of so many bits counts."""

    exponent: int
    most: int

    @classmethod
    def of(cls, bits: int, widest: float) -> _Fixed:
        most = (1 << (bits - 1)) - 1
        exponent = math.frexp(widest)[1] - (bits - 1)
        if round(math.ldexp(widest, -exponent)) > most:
            exponent += 1  # it would be rounded up to one more than there are
        return cls(exponent, most)

    def __call__(self, values: Values) -> Values:
        # 0.0 alone: with both zeros there would be one word more than codes.
        return np.ldexp(np.rint(np.ldexp(values, -self.exponent)), self.exponent) + 0.0


@dataclass(frozen=True)
class _Coded:
    """Each element becomes the nearest of some levels."""

    dtype: str
    middles: Values  # between neighbouring levels
    words: Words  # of the levels, ascending as numbers

    @classmethod
    def of(cls, levels: Values, dtype: str) -> _Coded:
        number = _NUMBERS[dtype]
        # As the dtype can hold them; 0.0 once, and without a sign.
        held = np.unique(np.clip(rounded(levels, number), -number.most, number.most) + 0.0)
        below, above = held[:-1], held[1:]
        gaps = above - below
        # A gap of the largest numbers is none itself; halves of the smallest would lose a bit.
        middles = np.where(np.isfinite(gaps), below + gaps / 2, below / 2 + above / 2)
        return cls(dtype, middles, _words(held, dtype))

    def apply(self, raw: Raw) -> bytearray:
        return _blockwise(raw, self.dtype, lambda v: self.words[np.searchsorted(self.middles, v)])


def _blockwise(raw: Raw, dtype: str, change: Callable[[Values], Words]) -> bytearray:
    words = words_in(raw, dtype)
    out = bytearray(len(words) * words.itemsize)
    target = np.frombuffer(out, words.dtype)
    for start in range(0, len(words), _BLOCK):
        block = words[start : start + _BLOCK]
        values = values_of_words(block, dtype)
        finite = np.isfinite(values)
        with np.errstate(over="ignore"):  # to infinity: `_checked` looks for it
            made = change(values if finite.all() else np.where(finite, values, 0.0))
        target[start : start + _BLOCK] = made if finite.all() else np.where(finite, made, block)
    return out


def rounded(values: Values, number: Number) -> Values:
    """The nearest numbers of a format, ties to even; too large ones become larger than its most."""
    last = np.maximum(np.frexp(values)[1] - number.significant, number.least)
    found: Values = np.ldexp(np.rint(np.ldexp(values, -last)), last)
    return found


def _words(values: Values, dtype: str) -> Words:
    """The words of numbers, rounded to the nearest that the dtype has."""
    width = element_bytes(dtype)
    if dtype == "bfloat16":
        exact = rounded(values, BF16).astype("<f4").view("<u4")
        return (exact >> np.uint32(16)).astype("<u2")
    return values.astype(f"<f{width}").view(f"<u{width}")
