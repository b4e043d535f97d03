"""The layouts `fixed` and `halved`: sign and magnitude in fixed point, one exponent per row.

Three planes of codes say much more of a number than the bytes of its float do; a fourth holds
what is missing to the exact bits. Everything is done in integers.

`halved` has its second plane in two halves, so that a level may end there: many weights must be
known to more than 8 bits and to less than 16. It is for matrices on their own: their row
exponents are the smallest that there can be, so that nothing has to name them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.canonical import HASH, hash_bytes
from dlv.dataclass import dataclass
from dlv.errors import Damaged
from dlv.kinds import Bytes, Raw
from dlv.pas.floats import Format, format_of
from dlv.pas.layouts.segments import SEGMENT, Cutter, Words


def pack_tail(
    n: NDArray[np.int32],
    tail: Words,
    escaped: NDArray[np.bool_],
    flagged: NDArray[np.bool_],
    words: Words,
) -> bytes:
    """The last plane of a segment: tails bit by bit from the top, flags, escaped words."""
    kind = tail.dtype
    parts: list[bytes] = []
    keep = n > 0
    some, left = tail[keep], n[keep]
    top = kind.type(8 * kind.itemsize - 1)
    some = some << (kind.type(8 * kind.itemsize) - left.astype(kind))
    while len(some):
        parts.append(np.packbits((some >> top).astype(np.bool_)).tobytes())
        left = left - 1
        keep = left > 0
        some, left = some[keep] << kind.type(1), left[keep]
    parts.append(np.packbits(escaped[flagged]).tobytes())
    parts.append(words[escaped].tobytes())
    return b"".join(parts)


def unpack_tail(
    data: Raw, n: NDArray[np.int32], flagged: NDArray[np.bool_], form: Format
) -> tuple[Words, NDArray[np.bool_], Words]:
    """Tails, which elements are escaped, and their words; Damaged on any other length."""
    reader = _Bits(data)
    kind = np.dtype("<u8") if form.width == 8 else np.dtype("<u4")
    lengths = n.astype(np.uint8)
    tail = np.zeros(len(n), kind)
    i = 0
    active = lengths > 0
    count = int(np.count_nonzero(active))
    # While most elements take part, all of them are shifted; then the few by their places.
    while 3 * count > len(n):
        more = np.zeros(len(n), np.uint8)
        more[active] = reader.bits(count)
        tail <<= active.astype(kind)
        tail |= more
        i += 1
        active = lengths > i
        count = int(np.count_nonzero(active))
    places = np.flatnonzero(active)
    while len(places):
        tail[places] = (tail[places] << kind.type(1)) | reader.bits(len(places))
        i += 1
        places = places[lengths[places] > i]
    escaped = np.zeros(len(n), np.bool_)
    escaped[flagged] = reader.bits(int(np.count_nonzero(flagged))).astype(np.bool_)
    words = reader.words(int(np.count_nonzero(escaped)), form)
    return tail, escaped, words


class _Bits:
    """Takes runs of bits, each filled up to whole bytes, off a plane."""

    def __init__(self, data: Raw) -> None:
        self._data = memoryview(data)

    def bits(self, count: int) -> NDArray[np.uint8]:
        found = np.unpackbits(np.frombuffer(self._take(-(-count // 8)), np.uint8))
        if found[count:].any():
            raise Damaged("a tail is not filled up with zeros")
        return found[:count]

    def words(self, count: int, form: Format) -> Words:
        taken = self._take(count * form.width)
        if len(self._data):
            raise Damaged("a tail is longer than its codes say")
        return np.frombuffer(taken, form.words)

    def _take(self, count: int) -> memoryview:
        if count > len(self._data):
            raise Damaged("a tail is shorter than its codes say")
        taken, self._data = self._data[:count], self._data[count:]
        return taken


DTYPES = ("float64", "float32", "float16", "bfloat16")
EMPTY = -32768  # exponent of a row of zeros
CODE_BITS = 23
MAG = np.uint32((1 << CODE_BITS) - 1)

Leading = NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.uint32]


@dataclass(frozen=True)
class Unit:
    """What the formulas need of a float format: numbers are multiples of 2^q of p bits."""

    form: Format

    @property
    def p(self) -> int:
        return self.form.mantissa + 1

    @property
    def q(self) -> int:
        return 2 - (1 << (self.form.exponent - 1)) - self.form.mantissa

    @property
    def top(self) -> int:
        """All finite numbers are below 2 to this."""
        return 1 << (self.form.exponent - 1)


class Fixed:
    """One exponent per row; `rows` says whether the first or the last axis counts them."""

    layout_id = "fixed"
    elementwise = False
    depths: tuple[int, ...] = (8, 16, 24)  # bits of a code that so many planes tell

    def __init__(
        self, rows: str, zero_centre: bool, exponents: str, side: bytes | None = None
    ) -> None:
        self.rows = rows
        self.zero_centre = zero_centre
        self.exponents = exponents
        self._side = side

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> Fixed:
        rows, centre, exponents = config["rows"], config["zero_centre"], config["exponents"]
        if (
            rows not in ("first", "last")
            or type(centre) is not bool
            or not isinstance(exponents, str)
            or not HASH.match(exponents)
        ):
            raise Damaged("a fixed layout has impossible values", why=str(dict(config))[:200])
        return cls(rows, centre, exponents)

    @classmethod
    def of(
        cls,
        raws: Sequence[Raw],
        dtype: str,
        shape: Sequence[int],
        *,
        rows: str = "first",
        zero_centre: bool = False,
        at_least: bytes | None = None,
    ) -> Fixed:
        """The layout that holds all these matrices of one dtype and shape.

        `at_least` are exponents that others have: bounds along a chain need them to be shared.
        ValueError: dtype or values that `fixed` does not take.
        """
        if dtype not in DTYPES:
            raise ValueError(f"`fixed` is not for {dtype}")
        found = np.full(row_count(rows, shape), EMPTY, np.int16)
        if at_least is not None:
            found = np.maximum(found, np.frombuffer(at_least, "<i2"))
        for raw in raws:
            words = np.frombuffer(raw, format_of(dtype).words)
            found = np.maximum(found, row_exponents(words, rows, dtype, shape))
        side = found.astype("<i2").tobytes()
        return cls(rows, zero_centre, hash_bytes(side), side)

    def get_config(self) -> dict[str, Any]:
        return {
            "id": self.layout_id,
            "rows": self.rows,
            "zero_centre": self.zero_centre,
            "exponents": self.exponents,
        }

    def planes(self, dtype: str) -> int:  # noqa: ARG002
        return len(self.depths) + 1

    def plane_bytes(self, plane: int, dtype: str, shape: Sequence[int]) -> int | None:
        _check(dtype)
        return math.prod(shape) if plane < 3 else None

    def side_bytes(self, dtype: str, shape: Sequence[int]) -> int:
        _check(dtype)
        return 2 * row_count(self.rows, shape)

    def side_of(self, raw: Raw, dtype: str, shape: Sequence[int]) -> bytes:
        if self._side is not None:
            return self._side
        made = Fixed.of([raw], dtype, shape, rows=self.rows)
        if made.exponents != self.exponents or made._side is None:
            raise ValueError("a tensor has other row exponents than its layout")
        return made._side

    def cutter(self, side: Raw, dtype: str, shape: Sequence[int]) -> Cutter:
        return self.fixed_cutter(side, dtype, shape)

    def fixed_cutter(self, side: Raw, dtype: str, shape: Sequence[int]) -> FixedCutter:
        return FixedCutter(self.row_exponents(side, dtype, shape), self.rows, dtype, shape)

    def row_exponents(self, side: Raw, dtype: str, shape: Sequence[int]) -> NDArray[np.int32]:
        """The exponents out of the side data; Damaged if they cannot be right."""
        if len(side) != self.side_bytes(dtype, shape) or not self._named(side):
            raise Damaged("the row exponents of a tensor are not those that its layout names")
        unit = Unit(format_of(dtype))
        found = np.frombuffer(side, "<i2").astype(np.int32)
        if ((found != EMPTY) & ((found <= unit.q) | (found > unit.top))).any():
            raise Damaged(f"a row exponent is none that {dtype} can have")
        return found

    def code(self, planes: Sequence[Raw], count: int) -> NDArray[np.uint32]:
        """The codes of a segment as far as the first planes tell them, zeros behind."""
        leading = self.leading(planes, count)
        return leading.astype(np.uint32) << np.uint32(CODE_BITS + 1 - leading_bits(leading))

    def leading(self, planes: Sequence[Raw], count: int) -> Leading:
        """The same, with nothing behind: in 8 or 16 bits, or 24 in numbers of 32."""
        assert all(len(plane) == count for plane in planes)
        if len(planes) != 2:
            return np.frombuffer(planes[0], np.uint8) if len(planes) == 1 else code_of(planes)
        pairs = np.empty((count, 2), np.uint8)
        pairs[:, 1], pairs[:, 0] = (np.frombuffer(plane, np.uint8) for plane in planes)
        return pairs.view("<u2").reshape(count).astype(np.uint16, copy=False)

    def planes_for(self, bits: int, dtype: str) -> int:
        """How many planes tell so many bits of the codes."""
        found = [number for number, depth in enumerate(self.depths, 1) if depth >= bits]
        return found[0] if found else self.planes(dtype)

    def _named(self, side: Raw) -> bool:
        return hash_bytes(side) == self.exponents


@dataclass
class Codes:
    """Words taken apart: codes of 24 bits, and the tail of n bits below."""

    code: NDArray[np.uint32]
    n: NDArray[np.int32]  # 0 where the magnitude of the code is 0
    tail: Words
    escaped: NDArray[np.bool_]  # not zero, but too small for the code


class FixedCutter:
    """`fixed` at work on one matrix."""

    def __init__(
        self, exponents: NDArray[np.int32], rows: str, dtype: str, shape: Sequence[int]
    ) -> None:
        self.unit = Unit(format_of(dtype))
        self._exponents = exponents
        self._first = rows == "first"
        self._columns = math.prod(shape[1:]) if self._first else 1
        if len(shape) < 2:
            self._first, self._columns = True, math.prod(shape)
        # Room for a significand shifted left by up to 22 bits.
        self._int = np.dtype("<u8") if self.unit.form.width == 8 else np.dtype("<u4")

    def exponents_at(self, start: int, count: int) -> NDArray[np.int32]:
        """The exponent of each element's row."""
        if self._first:
            if len(self._exponents) == 1:
                return np.full(count, self._exponents[0], np.int32)
            index = np.arange(start, start + count) // max(1, self._columns)
        else:
            index = np.arange(start, start + count) % max(1, len(self._exponents))
        return self._exponents[index]

    def cut(self, words: Words, start: int) -> list[Raw]:
        e = self.exponents_at(start, len(words))
        codes = self.codes(words, e)
        if codes is None:
            raise ValueError("a number is not finite, or beyond the exponent of its row")
        tail = pack_tail(codes.n, codes.tail, codes.escaped, self.flagged(codes.code, e), words)
        return [*code_planes(codes.code), tail]

    def paste(
        self,
        planes: Sequence[Raw],
        start: int,
        count: int,
        out: Words | None = None,  # noqa: ARG002
    ) -> Words:
        if len(planes) != 4 or any(len(plane) != count for plane in planes[:3]):
            raise Damaged(f"{count} words of a fixed layout have other planes")
        e = self.exponents_at(start, count)
        code = code_of(planes[:3])
        n = self.tail_lengths(code, e)
        tail, escaped, words = unpack_tail(planes[3], n, self.flagged(code, e), self.unit.form)
        return self.joined(code, n, tail, e, escaped, words)

    def codes(self, words: Words, e: NDArray[np.int32]) -> Codes | None:
        """Words as codes under these exponents; None if they cannot be."""
        unit, form = self.unit, self.unit.form
        field = np.right_shift(words, form.words.type(form.mantissa))
        field = (field & form.words.type((1 << form.exponent) - 1)).astype(np.int32)
        if (field == (1 << form.exponent) - 1).any():
            return None
        sig = (words & form.words.type((1 << form.mantissa) - 1)).astype(self._int)
        sig |= (field > 0).astype(self._int) << self._int.type(form.mantissa)
        np.maximum(field, 1, out=field)
        shift = field - 1 + unit.q + CODE_BITS - e  # left
        zero = sig == 0
        shift[zero] = 0
        # A number with a higher bit than the code has lies beyond its row's exponent.
        length = bit_length(sig)
        if (length + shift > CODE_BITS).any():
            return None
        n = np.maximum(-shift, 0)
        most = self._int.itemsize * 8 - 1
        down = np.minimum(n, most).astype(self._int)
        up = np.maximum(shift, 0).astype(self._int)
        mag = ((sig >> down) << up).astype(np.uint32)
        empty = mag == 0
        escaped = empty & ~zero
        n[empty] = 0
        down[empty] = 0
        tail = sig & ((self._int.type(1) << down) - self._int.type(1))
        sign = np.right_shift(words, form.words.type(form.bits - 1)).astype(np.uint32)
        mag |= sign << np.uint32(CODE_BITS)
        return Codes(mag, n, tail, escaped)

    def flagged(self, code: NDArray[np.uint32], e: NDArray[np.int32]) -> NDArray[np.bool_]:
        """The elements whose code cannot tell whether they are zero."""
        found: NDArray[np.bool_] = ((code & MAG) == 0) & (e != EMPTY)
        return found

    def tail_lengths(self, code: NDArray[np.uint32], e: NDArray[np.int32]) -> NDArray[np.int32]:
        mag = code & MAG
        if (mag[e == EMPTY] != 0).any():
            raise Damaged("a row of zeros has other values")
        length = bit_length(mag)
        n = np.minimum(self.unit.p - length, e - CODE_BITS - self.unit.q)
        np.maximum(n, 0, out=n)
        n[mag == 0] = 0
        return n

    def joined(
        self,
        code: NDArray[np.uint32],
        n: NDArray[np.int32],
        tail: Words,
        e: NDArray[np.int32],
        escaped: NDArray[np.bool_],
        raw: Words,
    ) -> Words:
        """The words of codes, tails, and of escaped elements their raw words."""
        unit, form, kind = self.unit, self.unit.form, self._int
        mag = code & MAG
        length = bit_length(mag)
        whole = (mag.astype(kind) << n.astype(kind)) | tail
        exponent = length + e - CODE_BITS  # 2^(exponent-1) <= number < 2^exponent
        normal = exponent >= unit.q + unit.p
        # Where the code is longer than the significand its lowest bits are zero.
        down = np.where(normal, length + n - unit.p, unit.q + CODE_BITS + n - e)
        zero = mag == 0
        down[zero] = 0
        whole >>= np.maximum(down, 0).astype(kind)
        field = np.where(normal & ~zero, exponent - unit.p - unit.q + 1, 0)
        words: Words = (whole & kind.type((1 << form.mantissa) - 1)).astype(form.words)
        words |= field.astype(form.words) << form.words.type(form.mantissa)
        words |= (code >> np.uint32(CODE_BITS)).astype(form.words) << form.words.type(form.bits - 1)
        words[escaped] = raw
        return words


def row_count(rows: str, shape: Sequence[int]) -> int:
    """Rows of a matrix: 1-D and 0-d are one, one without elements has none."""
    if 0 in shape:
        return 0
    if len(shape) < 2:
        return 1
    return shape[0] if rows == "first" else shape[-1]


def row_exponents(words: Words, rows: str, dtype: str, shape: Sequence[int]) -> NDArray[np.int16]:
    """The smallest E of each row with all magnitudes < 2^E; ValueError for NaN and infinity."""
    form = format_of(dtype)
    count = row_count(rows, shape)
    most = np.zeros(count, form.words)
    mask = form.words.type(form.top - 1)
    columns = math.prod(shape[1:]) if len(shape) > 1 else len(words)
    if len(words):
        last = rows == "last" and len(shape) > 1
        width = count if last else columns
        step = max(1, SEGMENT // width) * width
        for start in range(0, len(words), step):
            part = (words[start : start + step] & mask).reshape(-1, width)
            if last:
                np.maximum(most, part.max(0), out=most)
            else:
                first = start // width
                most[first : first + len(part)] = part.max(1)
    unit = Unit(form)
    full = form.words.type(((1 << form.exponent) - 1) << form.mantissa)
    if (most >= full).any():
        raise ValueError("`fixed` takes finite numbers only")
    field = np.right_shift(most, form.words.type(form.mantissa)).astype(np.int32)
    mantissa = (most & form.words.type((1 << form.mantissa) - 1)).astype(np.uint64)
    small = bit_length(mantissa) + unit.q
    found = np.where(field > 0, field - 1 + unit.q + unit.p, small)
    return np.where(most == 0, EMPTY, found).astype(np.int16)


def bit_length(values: Words) -> NDArray[np.int32]:
    """Bits of unsigned integers below 2^53; 0 of 0."""
    # The exponent of the number as a float, which holds it exactly.
    found = (values.astype(np.float64).view(np.uint64) >> np.uint64(52)).astype(np.int32)
    found -= np.int32(1022)
    np.maximum(found, 0, out=found)
    return found


def code_planes(code: NDArray[np.uint32]) -> list[Raw]:
    return [(code >> np.uint32(down)).astype(np.uint8).data for down in (16, 8, 0)]


def leading_bits(leading: Leading) -> int:
    """How many bits of each code there are."""
    return min(8 * leading.itemsize, CODE_BITS + 1)


def code_of(planes: Sequence[Raw]) -> NDArray[np.uint32]:
    code = np.frombuffer(planes[0], np.uint8).astype(np.uint32)
    for plane in planes[1:]:
        code <<= np.uint32(8)
        code |= np.frombuffer(plane, np.uint8)
    return code


def _check(dtype: str) -> None:
    if dtype not in DTYPES:
        raise Damaged(f"a tensor of {dtype} is said to have the layout 'fixed'")


HALVES = (1, 2)  # the planes of 4 bits


class Halved(Fixed):
    """Planes of 8, 4, 4 and 8 bits of the codes, and the tails."""

    layout_id = "halved"
    depths = (8, 12, 16, 24)

    def __init__(self, rows: str, zero_centre: bool) -> None:
        super().__init__(rows, zero_centre, "")

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> Halved:
        rows, centre = config["rows"], config["zero_centre"]
        if rows not in ("first", "last") or type(centre) is not bool:
            raise Damaged("a halved layout has impossible values", why=str(dict(config))[:200])
        return cls(rows, centre)

    def get_config(self) -> dict[str, Any]:
        return {"id": self.layout_id, "rows": self.rows, "zero_centre": self.zero_centre}

    def plane_bytes(self, plane: int, dtype: str, shape: Sequence[int]) -> int | None:
        """Halves are cut where segments begin, as tails are."""
        return None if plane in HALVES else super().plane_bytes(max(plane - 1, 0), dtype, shape)

    def side_of(self, raw: Raw, dtype: str, shape: Sequence[int]) -> bytes:
        return Fixed.of([raw], dtype, shape, rows=self.rows).side_of(raw, dtype, shape)

    def cutter(self, side: Raw, dtype: str, shape: Sequence[int]) -> Cutter:
        return HalvedCutter(self.fixed_cutter(side, dtype, shape))

    def leading(self, planes: Sequence[Raw], count: int) -> Leading:
        return super().leading(_whole(planes, count), count)

    def check_smallest(
        self, large: NDArray[np.bool_], exponents: NDArray[np.int32], shape: Sequence[int]
    ) -> None:
        """Damaged where a smaller exponent would do; `large`: numbers of at least half of 2^E.

        Bounds are told of a matrix and its layout, so these must leave no choice.
        """
        first = len(shape) < 2 or self.rows == "first"
        count = len(exponents)
        found = large.reshape(count, -1).any(1) if first else large.reshape(-1, count).any(0)
        if (found != (exponents != EMPTY)).any():
            raise Damaged("a row exponent of a halved layout is not the smallest")

    def _named(self, side: Raw) -> bool:  # noqa: ARG002
        return True


class HalvedCutter:
    """`halved` at work on one matrix: the planes of `fixed`, the second in halves."""

    def __init__(self, fixed: FixedCutter) -> None:
        self._fixed = fixed

    def cut(self, words: Words, start: int) -> list[Raw]:
        first, second, *others = self._fixed.cut(words, start)
        return [first, *halves(np.frombuffer(second, np.uint8)), *others]

    def paste(
        self,
        planes: Sequence[Raw],
        start: int,
        count: int,
        out: Words | None = None,  # noqa: ARG002
    ) -> Words:
        if len(planes) != 5:
            raise Damaged(f"{count} words of a halved layout have other planes")
        return self._fixed.paste(_whole(planes, count), start, count)


def _whole(planes: Sequence[Raw], count: int) -> list[Raw]:
    """The first planes as `fixed` has them; a half that is not there counts as zeros."""
    first, *rest = planes
    if not rest:
        return [first]
    second = doubled(rest[0], count) << np.uint8(4)
    if len(rest) > 1:
        second |= doubled(rest[1], count)
    return [first, second.data, *rest[2:]]


def halves(numbers: Bytes) -> tuple[bytes, bytes]:
    """The upper and the lower 4 bits of each number, two numbers to a byte."""
    even = np.append(numbers, np.zeros(len(numbers) % 2, np.uint8))
    one, other = even[0::2], even[1::2]
    upper = one & np.uint8(0xF0) | other >> np.uint8(4)
    return upper.tobytes(), (one << np.uint8(4) | other & np.uint8(15)).tobytes()


def doubled(plane: Raw, count: int) -> Bytes:
    """The numbers of 4 bits that lie two to a byte."""
    if len(plane) != (count + 1) // 2:
        raise Damaged(f"{count} halves of a plane do not are in {len(plane)} bytes")
    held = np.frombuffer(plane, np.uint8)
    found = np.empty(2 * len(held), np.uint8)
    found[0::2] = held >> np.uint8(4)
    found[1::2] = held & np.uint8(15)
    if count % 2 and found[-1]:
        raise Damaged("a plane of halves is not filled up with zeros")
    return found[:count]
