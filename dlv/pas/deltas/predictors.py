"""Predictors: what a matrix probably is, given its base; the difference is then taken to that.

Each gives the same bits on any machine: factors are integers, scales powers of two, sums of
products stay below 2^53 and are therefore exact in float64 in any order, and where denormals
or infinities come into play the base's own bits are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dlv.canonical import HASH, hash_bytes
from dlv.dataclass import dataclass
from dlv.errors import Damaged, NewerFormat
from dlv.kinds import Floats, Raw
from dlv.pas.coders import compiled
from dlv.pas.coders.contexts import Span, spans, view
from dlv.pas.deltas.difference import Delta
from dlv.pas.floats import Format, Words, format_of, ordered, unordered, values_of_words
from dlv.pas.layouts.segments import Layout

# Multiplications up to which OpenBLAS, the library below most builds of numpy, starts no threads.
# On a busy machine several threads take a hundred times as long as one, and reading already uses
# a thread for each matrix.
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


Config = Mapping[str, Any]

MAX_RANK = 64
MAX_SHIFT = 40
MAX_EXPONENT = 300  # of a row or column of a low rank: far from denormals
MAX_WIDTH = 4  # bytes of a factor
EXACT = 1 << 53  # sums of products of factors stay below
DRIFT_BINS = 128
REAL = ("float16", "bfloat16", "float32", "float64")

_BLOCK = 1 << 16  # elements handled at a time


class Predictor(Protocol):
    """Turns words of the base into words that are nearer to the target."""

    def apply(self, words: Words, start: int) -> Words:
        """The predicted words of elements start .. start+len."""
        ...

    def bounds(self, low: Words, high: Words, start: int) -> tuple[Words, Words]:
        """Bounds of the prediction from bounds of its input; all in the ordered map."""
        ...


class Drift:
    """Weight decay as it acts on weights that nothing else moves: by their mantissa alone.

    Flagged rows have `steps[m]` added to the magnitude of each word, m being the seven highest
    bits of the mantissa.
    """

    def __init__(self, steps: NDArray[np.int32], flags: NDArray[np.bool_], columns: int) -> None:
        self._form = format_of("float32")
        self._steps = steps.astype(np.int64)
        self._flags = flags
        self._columns = columns
        self._most = int(np.abs(self._steps).max())
        self._by_half = self._halves() if self._most < 1 << 23 else None

    def apply(self, words: Words, start: int) -> Words:
        out = words.copy()
        for span in spans(start, len(words), self._columns):
            flags = self._flags[span.row : span.row + span.rows]
            some = out[span.offset : span.offset + span.count].reshape(span.rows, span.columns)
            if not flags.any():
                continue
            loops = compiled.loops(0)
            if (
                loops is None
                or self._by_half is None
                or not loops.drift(some, flags, self._by_half)
            ):
                some[flags] = self._moved(some[flags])
        return out

    def bounds(self, low: Words, high: Words, start: int) -> tuple[Words, Words]:
        flags = _by_row(self._flags, start, len(low), self._columns)
        bits_low, bits_high = unordered(low, self._form), unordered(high, self._form)
        # One bin for the whole interval: then all of it moves by the same step.
        same = (bits_low >> np.uint32(16)) == (bits_high >> np.uint32(16))
        least, most = low.astype(np.int64) - self._most, high.astype(np.int64) + self._most
        end = (1 << 32) - 1
        least, most = np.clip(least, 0, end), np.clip(most, 0, end)
        below = ordered(self._moved(bits_low), self._form)
        above = ordered(self._moved(bits_high), self._form)
        low_out = np.where(same, np.minimum(below, above), least.astype(low.dtype))
        high_out = np.where(same, np.maximum(below, above), most.astype(low.dtype))
        return np.where(flags, low_out, low), np.where(flags, high_out, high)

    def _halves(self) -> NDArray[np.uint32]:
        """What is added to a word, by its upper half, modulo 2^32; none passes through zero."""
        upper = np.arange(1 << 16)
        field = (upper >> 7) & 0xFF
        steps = self._steps[upper & (DRIFT_BINS - 1)]
        steps[(field == 0) | (field == 255)] = 0
        halves: NDArray[np.uint32] = steps.astype(np.int32).view(np.uint32)
        return halves

    def _moved(self, words: Words) -> Words:
        if self._by_half is not None:
            upper = words.view("<u2").reshape(*words.shape, 2)[..., 1]
            if upper.size and int((upper & np.uint16(0x7FFF)).max()) < 0x7F00:
                out: Words = self._by_half.take(upper)
                out += words
                return out
        sign = words & np.uint32(0x80000000)
        size = (words ^ sign).astype(np.int64)
        exponent = size >> 23
        step = self._steps[(size >> 16) & (DRIFT_BINS - 1)]
        # Neither through zero nor to infinity.
        moved = np.clip(size + step, 0, 0x7F7FFFFF).astype(words.dtype)
        kept = (exponent == 0) | (exponent == 255)
        return np.where(kept, words, moved | sign)


class Affine:
    """round(base * (1 + alpha) + U @ V), alpha one per row or matrix, U @ V of low rank."""

    def __init__(
        self, dtype: str, columns: int, alphas: Floats | None, factors: tuple[Floats, Floats] | None
    ) -> None:
        self._form = format_of(dtype)
        self._dtype = dtype
        self._columns = columns
        self._alphas = alphas
        self._factors = factors
        self._least, self._most = limits(self._form)

    def apply(self, words: Words, start: int) -> Words:
        out = words.copy()
        for span in self._blocks(start, len(words)):
            at = slice(span.offset, span.offset + span.count)
            values, plain = self._values(words[at], span)
            good = plain & (np.abs(values) >= self._least) & (np.abs(values) <= self._most)
            np.copyto(values, 0.0, where=~good)
            rounded = words_of_values(values, self._dtype)
            out[at] = np.where(good, rounded, words[at])
        return out

    def bounds(self, low: Words, high: Words, start: int) -> tuple[Words, Words]:
        low_out, high_out = low.copy(), high.copy()
        top = self._form.words.type(2 * self._form.top - 1)
        for span in self._blocks(start, len(low)):
            at = slice(span.offset, span.offset + span.count)
            ends = []
            for some in (low[at], high[at]):
                words = unordered(some, self._form)
                values, plain = self._values(words, span)
                inside = np.abs(values) <= self._most
                np.copyto(values, 0.0, where=~inside)
                rounded = ordered(words_of_values(values, self._dtype), self._form)
                ends.append((values, plain, inside, rounded))
            (a, plain_a, in_a, below), (b, plain_b, in_b, above) = ends
            # Rounding is monotone. But within an interval that touches what the base keeps its
            # own bits for, either may be meant.
            positive = (low[at] & self._form.top) == (high[at] & self._form.top)
            clear = plain_a & plain_b & in_a & in_b & positive
            clear &= ((a >= self._least) & (b >= self._least)) | (
                (a <= -self._least) & (b <= -self._least)
            )
            known = self._finite(low[at]) & self._finite(high[at]) & in_a & in_b
            least = np.where(clear, below, np.minimum(below, low[at]))
            most = np.where(clear, above, np.maximum(above, high[at]))
            low_out[at] = np.where(known, least, self._form.words.type(0))
            high_out[at] = np.where(known, most, top)
        return low_out, high_out

    def _finite(self, mapped: Words) -> NDArray[np.bool_]:
        words = unordered(mapped, self._form)
        full = self._form.words.type(((1 << self._form.exponent) - 1) << self._form.mantissa)
        found: NDArray[np.bool_] = (words & full) != full
        return found

    def _blocks(self, start: int, count: int) -> Iterator[Span]:
        for span in spans(start, count, self._columns):
            step = max(1, _BLOCK // max(1, span.columns))
            for first in range(0, span.rows, step):
                rows = min(step, span.rows - first)
                at = span.offset + first * span.columns
                yield Span(span.row + first, rows, span.column, span.columns, at)

    def _values(self, words: Words, span: Span) -> tuple[Floats, NDArray[np.bool_]]:
        """The sum before rounding, and where the base is no zero, denormal, infinity or NaN."""
        form = self._form
        full = form.words.type((1 << form.exponent) - 1)
        field = np.right_shift(words, form.words.type(form.mantissa)) & full
        least = 1 if form.width < 8 else 100  # a product with it is no denormal
        plain = (field >= least) & (field != full)
        values = values_of_words(np.where(plain, words, form.words.type(0)), self._dtype)
        grid = values.reshape(span.rows, span.columns)
        with np.errstate(over="ignore"):
            if self._alphas is not None:
                alphas = self._alphas
                if len(alphas) > 1:
                    alphas = alphas[span.row : span.row + span.rows]
                grid *= 1.0 + alphas[:, None]
            if self._factors is not None:
                left, right = self._factors
                rows = slice(span.row, span.row + span.rows)
                grid += product(left[rows], right[:, span.column : span.column + span.columns])
        return values, plain


def limits(form: Format) -> tuple[float, float]:
    """The least normal and the greatest finite magnitude that a prediction may take."""
    bias = (1 << (form.exponent - 1)) - 1
    least = 2.0 ** (100 - bias) if form.width == 8 else 2.0 ** (1 - bias)
    return least, float(np.ldexp(2.0 - 2.0**-form.mantissa, bias))


def words_of_values(values: Floats, dtype: str) -> Words:
    """Finite float64 values as words, rounded to nearest even (bfloat16: by way of float32)."""
    form = format_of(dtype)
    with np.errstate(over="ignore", under="ignore"):
        if dtype != "bfloat16":
            same: Words = values.astype(f"<f{form.width}").view(form.words)
            return same
        wide = values.astype("<f4").view("<u4")
    wide += np.uint32(0x7FFF) + ((wide >> np.uint32(16)) & np.uint32(1))
    np.right_shift(wide, np.uint32(16), out=wide)
    narrow: Words = wide.astype(form.words)
    return narrow


def _by_row(per_row: NDArray[Any], start: int, count: int, columns: int) -> NDArray[Any]:
    """A value per row as one per element of a run."""
    out = np.empty(count, per_row.dtype)
    for span in spans(start, count, columns):
        grid = out[span.offset : span.offset + span.count].reshape(span.rows, span.columns)
        grid[...] = per_row[span.row : span.row + span.rows, None]
    return out


@dataclass(frozen=True)
class Sort:
    """One kind of predictor: keys of its config, and the length of its side data."""

    keys: frozenset[str]
    nbytes: Callable[[Config, int, int], int]


def _factor_bytes(config: Config, rows: int, columns: int) -> int:
    per_line: int = config["rank"] * config["width"] + 2
    return per_line * (rows + columns)


PREDICTORS = {
    "drift": Sort(frozenset({"id", "data"}), lambda _, rows, __: 4 * DRIFT_BINS + (rows + 7) // 8),
    "shrink": Sort(
        frozenset({"id", "shift", "rows", "data"}),
        lambda config, rows, _: 2 * (rows if config["rows"] else 1),
    ),
    "lowrank": Sort(frozenset({"id", "rank", "width", "data"}), _factor_bytes),
}


def side_bytes(config: Config, dtype: str, shape: Sequence[int]) -> int:
    """Length of a predictor's side data; a config that cannot be is named."""
    sort = PREDICTORS.get(str(config.get("id")))
    if sort is None or set(config) != sort.keys:
        raise NewerFormat(
            f"unknown predictor {str(dict(config))[:200]}",
            hint="install the version of dlv that wrote it",
        )
    name = config["id"]
    data = config["data"]
    if not isinstance(data, str) or not HASH.match(data):
        raise Damaged(f"the predictor {name!r} names no data")
    if dtype not in REAL or (name == "drift" and dtype != "float32"):
        raise Damaged(f"the predictor {name!r} is not for {dtype}")
    if name == "shrink":
        if type(config["rows"]) is not bool:
            raise Damaged("the predictor 'shrink' has `rows` that are not true or false")
        _within(config, "shift", 0, MAX_SHIFT)
    if name == "lowrank":
        _within(config, "rank", 1, MAX_RANK)
        _within(config, "width", 1, MAX_WIDTH)
    return sort.nbytes(config, *view(shape))


def _within(config: Config, key: str, least: int, most: int) -> None:
    value = config[key]
    if type(value) is not int or not least <= value <= most:
        raise Damaged(f"the predictor {config['id']!r} has the {key} {value!r}")


def predictors_of(
    configs: Sequence[Config], side: Raw, dtype: str, shape: Sequence[int]
) -> list[Predictor]:
    """What is to be applied in turn; a shrink and the low rank behind it are one."""
    sizes = [side_bytes(config, dtype, shape) for config in configs]
    if sum(sizes) != len(side):
        raise Damaged("the side data of predictors has the wrong length", why=f"{len(side)} bytes")
    rows, columns = view(shape)
    side = memoryview(side)
    made: list[Predictor] = []
    alphas: Floats | None = None
    for config, size in zip(configs, sizes, strict=True):
        data, side = side[:size], side[size:]
        if hash_bytes(data) != config["data"]:
            raise Damaged(f"the side data of the predictor {config['id']!r} is corrupt")
        if alphas is not None and config["id"] != "lowrank":
            made.append(Affine(dtype, columns, alphas, None))
            alphas = None
        if config["id"] == "drift":
            steps = np.frombuffer(data[: 4 * DRIFT_BINS], "<i4")
            bits = np.frombuffer(data[4 * DRIFT_BINS :], np.uint8)
            flags = np.unpackbits(bits, bitorder="little").astype(np.bool_)
            if flags[rows:].any():
                raise Damaged("the row flags of the predictor 'drift' are not filled up with 0")
            made.append(Drift(steps, flags[:rows], columns))
        elif config["id"] == "shrink":
            alphas = np.ldexp(np.frombuffer(data, "<i2").astype(np.float64), -config["shift"])
            if (np.abs(alphas) >= 0.5).any():
                raise Damaged("the predictor 'shrink' has an alpha of one half or more")
        else:
            factors = _factors(config, data, rows, columns)
            made.append(Affine(dtype, columns, alphas, factors))
            alphas = None
    if alphas is not None:
        made.append(Affine(dtype, columns, alphas, None))
    return made


def _factors(config: Config, data: memoryview, rows: int, columns: int) -> tuple[Floats, Floats]:
    rank, width = config["rank"], config["width"]
    lines = []
    product = float(rank)
    for count in (rows, columns):
        size = rank * width * count
        exponents = np.frombuffer(data[size : size + 2 * count], "<i2").astype(np.int32)
        if count and np.abs(exponents).max() > MAX_EXPONENT:
            raise Damaged("the predictor 'lowrank' has an exponent that is too large")
        whole = _integers(np.frombuffer(data[:size], np.uint8), width).reshape(rank, count)
        product *= float(np.abs(whole).max()) if count else 0.0
        lines.append(np.ldexp(whole, exponents[None, :]))
        data = data[size + 2 * count :]
    if product >= EXACT:
        raise Damaged("the predictor 'lowrank' has factors whose products are not exact")
    return np.ascontiguousarray(lines[0].T), lines[1]


def _integers(planes: NDArray[np.uint8], width: int) -> Floats:
    """Signed integers from `width` planes of bytes, the most significant first."""
    parts = planes.reshape(width, -1)
    whole: Floats = parts[0].view(np.int8).astype(np.float64)
    for part in parts[1:]:
        whole *= 256.0
        whole += part
    return whole


def integer_planes(whole: Floats, width: int) -> bytes:
    """The inverse of `_integers`."""
    bits = whole.astype(np.int64)
    return b"".join(
        ((bits >> (8 * part)) & 0xFF).astype(np.uint8).tobytes() for part in reversed(range(width))
    )


def side_length(layout: Layout, delta: Delta | None, dtype: str, shape: Sequence[int]) -> int:
    """Length of side data without scales; an unknown or impossible predictor is named."""
    length = layout.side_bytes(dtype, shape)
    if delta is not None:
        length += sum(side_bytes(config, dtype, shape) for config in delta.predictor)
    return length
