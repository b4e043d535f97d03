"""Words as ordered integers: against Python's own numbers, on any bits."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from dlv.pas.floats import (
    applied,
    balanced,
    differences,
    exponents,
    format_of,
    ordered,
    unordered,
    words_in,
)
from dlv.pas.layouts.segments import WORDS

DTYPES = sorted(WORDS)
PACKED = {"float16": "<e", "float32": "<f", "float64": "<d", "int32": "<i", "int64": "<q"}


def words(dtype: str, raw: bytes) -> NDArray[Any]:
    width = format_of(dtype).width
    return words_in(raw[: len(raw) // width * width], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@given(st.binary(max_size=160), st.binary(max_size=160))
def test_any_bits_come_back(dtype: str, one: bytes, other: bytes) -> None:
    form = format_of(dtype)
    size = min(len(one), len(other)) // form.width * form.width
    target, base = words(dtype, one[:size]), words(dtype, other[:size])
    assert unordered(ordered(target, form), form).tobytes() == target.tobytes()
    assert ordered(unordered(target, form), form).tobytes() == target.tobytes()
    digits = differences(target, base, form)
    assert digits.dtype == form.words
    assert applied(digits, base, form).tobytes() == target.tobytes()


@pytest.mark.parametrize("dtype", sorted(PACKED))
@given(st.binary(min_size=8, max_size=8), st.binary(min_size=8, max_size=8))
def test_the_order_is_that_of_the_numbers(dtype: str, one: bytes, other: bytes) -> None:
    width = format_of(dtype).width
    a = struct.unpack(PACKED[dtype], one[:width])[0]
    b = struct.unpack(PACKED[dtype], other[:width])[0]
    first, second = (
        int(ordered(words(dtype, raw[:width]), format_of(dtype))[0]) for raw in (one, other)
    )
    if a < b:
        assert first < second
    if a > b:
        assert first > second


def test_where_zero_infinity_and_nan_stand() -> None:
    form = format_of("float32")
    given_ = [-math.nan, -math.inf, -1.0, -0.0, 0.0, 1.0, math.inf, math.nan]
    places = ordered(np.array(given_, "<f4").view("<u4"), form).tolist()
    assert places == sorted(places)
    assert places[4] == places[3] + 1 == 1 << 31


@given(
    arrays.arrays(np.dtype("<u4"), 5, elements=st.integers(0, (1 << 32) - 1)),
    arrays.arrays(np.dtype("<u4"), 5, elements=st.integers(0, (1 << 32) - 1)),
)
def test_digits_are_balanced(target: NDArray[np.uint32], base: NDArray[np.uint32]) -> None:
    """Each byte is a signed digit of base 256, and they sum to the difference."""
    form = format_of("uint32")
    digits = differences(target, base, form)
    for word, one, other in zip(digits.tolist(), target.tolist(), base.tolist(), strict=True):
        parts = struct.unpack("<4b", struct.pack("<I", word))
        value = sum(part * 256**index for index, part in enumerate(parts))
        assert (value - (one - other)) % (1 << 32) == 0


def test_a_small_step_down_is_a_small_digit() -> None:
    form = format_of("uint32")
    digits = differences(np.array([999], "<u4"), np.array([1000], "<u4"), form)
    # -1: the lowest digit, and no other: no borrow runs through those above.
    assert digits.view(np.int8).tolist() == [-1, 0, 0, 0]
    assert int(balanced(form)) == 0x80808080


@pytest.mark.parametrize(
    ("dtype", "number", "exponent"),
    [
        ("float32", 1.0, 127),
        ("float32", -0.0, 0),
        ("float32", math.inf, 255),
        ("float64", 1.0, 1023),
        ("float16", 1.0, 15),
    ],
)
def test_exponents(dtype: str, number: float, exponent: int) -> None:
    found = exponents(words(dtype, struct.pack(PACKED[dtype], number)), format_of(dtype))
    assert found.tolist() == [exponent]


def test_exponents_of_other_kinds() -> None:
    assert exponents(np.array([0x3F80], "<u2"), format_of("bfloat16")).tolist() == [127]
    assert exponents(np.array([0x38], "u1"), format_of("float8_e4m3")).tolist() == [7]
    assert exponents(np.array([0x3C], "u1"), format_of("float8_e5m2")).tolist() == [15]
    assert exponents(np.array([7, 1 << 31], "<u4"), format_of("int32")).tolist() == [0, 0]


def test_opaque_bytes_are_bytes() -> None:
    form = format_of("raw:Q4_K")
    assert (form.width, form.kind) == (1, "unsigned")
    assert words_in(b"abc", "raw:Q4_K").tolist() == list(b"abc")
