"""Words of any dtype as float64."""

from __future__ import annotations

import numpy as np

from dlv.kinds import Floats
from dlv.pas.floats import format_of
from dlv.pas.layouts.segments import Words

WHOLE = 1 << 53  # beyond, float64 does not hold every integer


def numbers_of(words: Words, dtype: str) -> tuple[Floats, Floats]:
    """The numbers, twice: where float64 does not hold them, one not above and one not below."""
    form = format_of(dtype)
    if dtype.startswith("float8"):
        small: Floats = _eighths(dtype)[words]
        return small, small
    if form.kind == "float":
        if dtype == "bfloat16":
            words = (words.astype("<u4") << np.uint32(16)).astype("<u4")
        with np.errstate(invalid="ignore"):  # signalling NaNs
            found = words.view(f"<f{words.dtype.itemsize}").astype(np.float64)
        return found, found
    whole = words.view(f"<i{form.width}") if form.kind == "signed" else words
    found = whole.astype(np.float64)
    if form.width < 8:
        return found, found
    large = np.abs(found) >= WHOLE
    low = np.where(large, np.nextafter(found, -np.inf), found)
    high = np.where(large, np.nextafter(found, np.inf), found)
    return low, high


def _eighths(dtype: str) -> Floats:
    """The numbers of all 256 words of an 8-bit float."""
    words = np.arange(256)
    if dtype == "float8_e8m0":
        found = np.ldexp(1.0, words - 127)
        found[255] = np.nan
        return found
    form = format_of(dtype)
    mantissa = words & ((1 << form.mantissa) - 1)
    field = (words & 0x7F) >> form.mantissa
    bias = (1 << (form.exponent - 1)) - (0 if dtype.endswith("fnuz") else 1)
    sig = mantissa + np.where(field > 0, 1 << form.mantissa, 0)
    found = np.ldexp(sig.astype(np.float64), np.maximum(field, 1) - bias - form.mantissa)
    found = np.where(words & 0x80, -found, found)
    if dtype.endswith("fnuz"):
        found[0x80] = np.nan
    elif dtype == "float8_e4m3":
        found[[0x7F, 0xFF]] = np.nan
    else:
        found[0x7C], found[0xFC] = np.inf, -np.inf
        found[[0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF]] = np.nan
    all_words: Floats = found
    return all_words
