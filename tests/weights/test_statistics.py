from __future__ import annotations

import math
import struct
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dlv.weights.statistics as weight_statistics
from dlv.weights.statistics import difference, statistics

FLOATS = ["float16", "float32", "float64"]
TINY = Fraction(2) ** -1074  # what a float64 cannot tell from 0
WHOLE = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that short matrices have several."""
    monkeypatch.setattr(weight_statistics, "BLOCK", 5)


def _array(dtype: str, words: list[int]) -> npt.NDArray[Any]:
    """Arbitrary bits as numbers: NaN, infinities, subnormals among them."""
    kind = np.dtype(dtype)
    mask = (1 << 8 * kind.itemsize) - 1
    return np.array([w & mask for w in words], f"<u{kind.itemsize}").view(kind)


bits = st.lists(st.integers(0, 2**64 - 1), max_size=23)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([*FLOATS, *WHOLE]), bits)
def test_figures_against_exact_sums(dtype: str, words: list[int]) -> None:
    array = _array(dtype, words)
    found = statistics(dtype, array.tobytes())
    assert found is not None
    numbers: list[Fraction] = [Fraction(value.item()) for value in array if np.isfinite(value)]
    assert found.elements == len(array)
    assert found.nan == sum(bool(np.isnan(value)) for value in array)
    assert found.infinite == len(array) - len(numbers) - found.nan
    assert found.zeros == sum(number == 0 for number in numbers)
    if not numbers:
        assert (found.min, found.mean, found.l2, found.histogram) == (None,) * 4
        return
    assert found.min is not None
    assert found.max is not None
    assert (Fraction(found.min), Fraction(found.max)) == (min(numbers), max(numbers))
    mean = sum(numbers, Fraction(0)) / len(numbers)
    largest = max(abs(number) for number in numbers)
    _near(found.mean, mean, largest)
    _near_square(found.l2, sum((number**2 for number in numbers), Fraction(0)))
    variance = sum(((number - mean) ** 2 for number in numbers), Fraction(0)) / len(numbers)
    assert found.std is not None
    if math.isfinite(found.std):
        assert (
            abs(Fraction(found.std) ** 2 - variance)
            <= largest**2 / 10**12 + variance / 10**9 + TINY
        )
    assert found.histogram is not None
    assert sum(found.histogram.counts) == len(numbers)


def _near(seen: float | None, wanted: Fraction, scale: Fraction) -> None:
    assert seen is not None
    assert abs(Fraction(seen) - wanted) <= scale / 10**12 + TINY


def _near_square(seen: float | None, wanted: Fraction) -> None:
    assert seen is not None
    if seen == math.inf:
        assert wanted > Fraction(2) ** 2047
    elif wanted < Fraction(2) ** -2040:  # the root is a subnormal number
        assert Fraction(seen) ** 2 <= 2 * wanted + Fraction(2) ** -2140
    else:
        assert abs(Fraction(seen) ** 2 - wanted) <= wanted / 10**9


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([*FLOATS, *WHOLE]), st.data())
def test_difference_against_exact_sums(dtype: str, data: st.DataObject) -> None:
    words = data.draw(bits)
    flips = data.draw(
        st.lists(
            st.sampled_from([0, 0, 1, 2**15, 2**63, 7]), min_size=len(words), max_size=len(words)
        )
    )
    old = _array(dtype, words)
    new = _array(dtype, [w ^ f for w, f in zip(words, flips, strict=True)])
    found = difference(dtype, old.tobytes(), dtype, new.tobytes())
    item = old.itemsize
    a, b = old.tobytes(), new.tobytes()
    other = [a[i : i + item] != b[i : i + item] for i in range(0, len(a), item)]
    finite = [bool(np.isfinite(x) and np.isfinite(y)) for x, y in zip(old, new, strict=True)]
    assert found.elements == len(old)
    assert found.changed == sum(other)
    assert found.nonfinite == sum(o and not f for o, f in zip(other, finite, strict=True))
    apart = [
        abs(Fraction(y.item()) - Fraction(x.item()))
        for x, y, o, f in zip(old, new, other, finite, strict=True)
        if o and f
    ]
    assert found.max_abs is not None
    most = max(apart, default=Fraction(0))
    if math.isfinite(found.max_abs):
        assert abs(Fraction(found.max_abs) - most) <= most / 2**50
    else:
        assert most > Fraction(2) ** 1023
    if found.l2 is not None and math.isfinite(found.l2):
        _near_square(found.l2, sum((x**2 for x in apart), Fraction(0)))


@pytest.mark.parametrize("dtype", [*FLOATS, *WHOLE, "bfloat16", "float8_e5m2", "complex64", "bool"])
def test_equal_matrices_do_not_differ(dtype: str) -> None:
    raw = bytes(range(256)) * 4 if dtype != "bool" else bytes([0, 1] * 8)
    found = difference(dtype, raw, dtype, raw)
    assert (found.changed, found.nonfinite, found.l2, found.max_abs) == (0, 0, 0.0, 0.0)


def test_against_numpy() -> None:
    rng = np.random.default_rng(3)
    old = rng.normal(0, 0.1, 999).astype(np.float32)
    new = old + rng.normal(0, 0.001, 999).astype(np.float32)
    new[::3] = old[::3]
    found = difference("float32", old.tobytes(), "float32", new.tobytes())
    a, b = old.astype(np.float64), new.astype(np.float64)
    assert found.changed == np.count_nonzero(old != new)
    assert found.l2 == pytest.approx(np.linalg.norm(b - a), rel=1e-12)
    assert found.relative_l2 == pytest.approx(np.linalg.norm(b - a) / np.linalg.norm(a), rel=1e-12)
    assert found.max_abs == np.abs(b - a).max()
    figures = statistics("float32", old.tobytes(), bins=9)
    assert figures is not None
    assert figures.histogram is not None
    assert figures.mean == pytest.approx(a.mean(), rel=1e-12)
    assert figures.std == pytest.approx(a.std(), rel=1e-12)
    assert list(figures.histogram.counts) == np.histogram(a, 9)[0].tolist()
    assert figures.histogram.edges() == pytest.approx(np.histogram(a, 9)[1].tolist(), abs=1e-12)


def _bfloat(value: float) -> bytes:
    """The upper half of a float32 that needs no rounding."""
    return struct.pack("<f", value)[2:]


def test_bfloat16_is_read_as_numbers() -> None:
    raw = b"".join(map(_bfloat, (1.0, -2.5, 0.0, math.nan, math.inf)))
    found = statistics("bfloat16", raw)
    assert found is not None
    assert (found.min, found.max, found.nan, found.infinite, found.zeros) == (-2.5, 1.0, 1, 1, 1)
    moved = difference("bfloat16", raw, "bfloat16", _bfloat(1.5) + raw[2:])
    assert (moved.changed, moved.l2) == (1, 0.5)


def test_float8() -> None:
    # e4m3: 0x38 = 1.0, 0xb8 = -1.0, 0x7e = 448, 0x7f = NaN; e5m2: 0x3c = 1.0, 0x7c = inf
    found = statistics("float8_e4m3", bytes([0x38, 0xB8, 0x7E, 0x7F]))
    assert found is not None
    assert (found.min, found.max, found.nan) == (-1.0, 448.0, 1)
    found = statistics("float8_e5m2", bytes([0x3C, 0x7C]))
    assert found is not None
    assert (found.max, found.infinite) == (1.0, 1)


def test_complex_counts_parts_but_changes_of_elements() -> None:
    old = np.array([1 + 2j, 3 - 4j], np.complex64)
    new = np.array([1 + 2j, 3 + 4j], np.complex64)
    found = difference("complex64", old.tobytes(), "complex64", new.tobytes())
    assert (found.elements, found.changed, found.l2, found.max_abs) == (2, 1, 8.0, 8.0)
    figures = statistics("complex64", old.tobytes())
    assert figures is not None
    assert (figures.elements, figures.min) == (2, -4.0)
    assert figures.l2 == pytest.approx(math.sqrt(30))


def test_other_dtypes_are_compared_by_value() -> None:
    old = np.array([1.0, 0.1, np.nan, -0.0], np.float32)
    new = old.astype(np.float16)
    found = difference("float32", old.tobytes(), "float16", new.tobytes())
    assert (found.changed, found.nonfinite) == (1, 0)
    assert found.max_abs == abs(float(new[1]) - float(old[1]))
    whole = np.array([1, 2], np.int32)
    mixed = np.array([1, 2 + 1j], np.complex64)
    found = difference("int32", whole.tobytes(), "complex64", mixed.tobytes())
    assert (found.changed, found.l2) == (1, 1.0)


def test_negative_zero_is_a_change_of_no_length() -> None:
    old, new = np.zeros(3, np.float32), np.array([0.0, -0.0, 0.0], np.float32)
    found = difference("float32", old.tobytes(), "float32", new.tobytes())
    assert (found.changed, found.l2, found.relative_l2) == (1, 0.0, None)


def test_unknown_dtype() -> None:
    assert statistics("raw:weird", b"abcd") is None
    found = difference("raw:weird", b"abcd", "raw:weird", b"abXd")
    assert (found.elements, found.changed, found.l2) == (4, 1, None)
    with pytest.raises(ValueError, match="sizes"):
        difference("raw:weird", b"abcd", "raw:weird", b"abc")
