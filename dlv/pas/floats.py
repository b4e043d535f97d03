"""Numbers as integers: words, the order-preserving map, balanced digits, exponents.

Differences of weights are taken between integers that stand in the order of the numbers:
float subtraction loses bits, integers do not.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dlv.dataclass import dataclass
from dlv.dtypes import DTYPES
from dlv.kinds import Floats, Raw
from dlv.pas.layouts.segments import BLOCK, OPAQUE, UNSIGNED, spare, words_of

Words = NDArray[Any]  # little-endian unsigned words of 1, 2, 4 or 8 bytes


@dataclass(frozen=True)
class Format:
    """What the bits of one word mean."""

    width: int  # bytes
    kind: Literal["float", "signed", "unsigned"]
    exponent: int = 0  # bits
    mantissa: int = 0  # bits

    @property
    def words(self) -> np.dtype[Any]:
        return UNSIGNED[self.width]

    @property
    def bits(self) -> int:
        return 8 * self.width

    @property
    def top(self) -> int:
        """The word with only its highest bit set."""
        return 1 << (self.bits - 1)


_FLOATS = {
    name: Format(d.word, "float", d.exponent, d.mantissa)
    for name, d in DTYPES.items()
    if d.exponent
}


def format_of(dtype: str) -> Format:
    """The format of a dtype's words; opaque bytes are unsigned ones."""
    known = _FLOATS.get(dtype)
    if known is not None:
        return known
    width, _ = words_of(dtype)
    signed = dtype.startswith("int") and not dtype.startswith(OPAQUE)
    return Format(width, "signed" if signed else "unsigned")


def float8_numbers(dtype: str) -> Floats:
    """The numbers of all 256 words of an 8-bit float type."""
    words = np.arange(256)
    if dtype == "float8_e8m0":
        found = np.ldexp(1.0, words - 127)
        found[255] = np.nan
        return found
    form = format_of(dtype)
    mantissa = words & ((1 << form.mantissa) - 1)
    field = (words & 0x7F) >> form.mantissa
    sig = mantissa + np.where(field > 0, 1 << form.mantissa, 0)
    found = np.ldexp(
        sig.astype(np.float64), np.maximum(field, 1) - DTYPES[dtype].bias - form.mantissa
    )
    found = np.where(words & 0x80, -found, found)
    if dtype.endswith("fnuz"):
        found[0x80] = np.nan
    elif dtype == "float8_e4m3":
        found[[0x7F, 0xFF]] = np.nan
    else:
        found[0x7C], found[0xFC] = np.inf, -np.inf
        found[[0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF]] = np.nan
    numbers: Floats = found
    return numbers


def words_in(raw: Raw, dtype: str) -> Words:
    """The words of a matrix, as a view."""
    return np.frombuffer(raw, format_of(dtype).words)


def values_of_words(words: Words, dtype: str) -> Floats:
    """Words of a float dtype, but no float8, as the float64 that they are exactly."""
    if dtype == "bfloat16":
        wide = words.astype("<u4")
        np.left_shift(wide, np.uint32(16), out=wide)
        words = wide.view("<f4")
    with np.errstate(invalid="ignore"):  # signalling NaNs
        values: Floats = words.view(f"<f{words.dtype.itemsize}").astype(np.float64)
    return values


def ordered(words: Words, form: Format) -> Words:
    """Words whose order as unsigned integers is that of the numbers (NaN beyond infinity)."""
    if form.kind == "unsigned":
        return words.copy()
    top = form.words.type(form.top)
    if form.kind == "signed":
        signed: Words = np.bitwise_xor(words, top)
        return signed
    # u ^ (all ones if negative, else the top bit)
    negative = (words.view(f"<i{form.width}") >> (form.bits - 1)).view(form.words)
    floats: Words = np.bitwise_xor(words, negative | top)
    return floats


def unordered(mapped: Words, form: Format) -> Words:
    """The inverse of `ordered`."""
    if form.kind == "unsigned":
        return mapped.copy()
    top = form.words.type(form.top)
    if form.kind == "signed":
        signed: Words = np.bitwise_xor(mapped, top)
        return signed
    positive = (mapped.view(f"<i{form.width}") >> (form.bits - 1)).view(form.words)
    floats: Words = np.bitwise_xor(mapped, ~positive | top)
    return floats


def balanced(form: Format) -> Any:
    """0x80 in every byte: what turns a difference into balanced base-256 digits and back."""
    return form.words.type(int.from_bytes(b"\x80" * form.width, "little"))


def differences(target: Words, base: Words, form: Format, out: Words | None = None) -> Words:
    """The balanced digits of m(target) - m(base), byte k of a word = digit of 256^k.

    Each digit is a signed byte, so that the sign of the difference rides in all of them and
    the digits not yet read can be off in both directions alike.
    """
    eights = balanced(form)
    digits = np.empty(len(target), form.words) if out is None else out
    for start in range(0, len(target), BLOCK):
        block = digits[start : start + BLOCK]
        under = spare("under", form.words, len(block))
        _folded(target[start : start + BLOCK], form, block)
        _folded(base[start : start + BLOCK], form, under)
        block -= under
        block += eights
        block ^= eights
    return digits


def signed_words(digits: Words, form: Format) -> Words:
    """Differences given as balanced digits, as signed integers no wider than the words."""
    eights = balanced(form)
    words: Words = ((digits ^ eights) - eights).view(f"<i{form.width}")
    return words


def applied(digits: Words, base: Words, form: Format) -> Words:
    """The inverse: target words from balanced digits and base words."""
    words = digits.copy()
    for start in range(0, len(digits), BLOCK):
        at = slice(start, start + BLOCK)
        apply_digits(words[at], base[at], form, words[at])
    return words


def apply_digits(digits: Words, base: Words, form: Format, out: Words) -> None:
    """A block of target words into `out`, which may be the base; `digits` is spent on it."""
    eights = balanced(form)
    digits ^= eights
    digits -= eights
    add_difference(digits, base, form, out)


def add_difference(digits: Words, base: Words, form: Format, out: Words) -> None:
    """The same of a difference modulo the power of two."""
    under = spare("under", form.words, len(digits))
    _folded(base, form, under)
    if form.kind != "float":
        np.add(digits, under, out=out)
        return
    digits += under
    signed = f"<i{form.width}"
    np.right_shift(digits.view(signed), form.bits - 1, out=under.view(signed))
    np.right_shift(under, 1, out=under)
    np.bitwise_xor(digits, under, out=out)


def _folded(words: Words, form: Format, out: Words) -> None:
    """Words as signed integers in the order of the numbers: `ordered` less the top bit.

    Its own inverse. In differences and sums of two the top bits cancel out.
    """
    if form.kind != "float":
        np.copyto(out, words)
        return
    signed = f"<i{form.width}"
    np.right_shift(words.view(signed), form.bits - 1, out=out.view(signed))
    np.right_shift(out, 1, out=out)  # all ones but the highest where it was negative
    np.bitwise_xor(out, words, out=out)


def exponents(words: Words, form: Format) -> NDArray[np.uint16]:
    """The biased exponent field of each word; 0 for integers."""
    if form.kind != "float":
        return np.zeros(len(words), np.uint16)
    mask = form.words.type((1 << form.exponent) - 1)
    field = np.right_shift(words, form.words.type(form.mantissa)) & mask
    found: NDArray[np.uint16] = field.astype(np.uint16)
    return found
