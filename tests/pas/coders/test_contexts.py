"""Contexts against what their definition says, element by element."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from dlv.errors import Damaged
from dlv.pas.coders.contexts import (
    Measure,
    Scales,
    classes,
    default_lo,
    magnitudes,
    numbers,
    spans,
    view,
)
from dlv.pas.floats import differences, exponents, format_of

SHAPES = st.sampled_from([(1, 1), (1, 40), (40, 1), (3, 5), (17, 9)])


def wrapped(value: int) -> int:
    return (value + (1 << 15)) % (1 << 16) - (1 << 15)


def test_views() -> None:
    assert view(()) == (1, 1)
    assert view((7,)) == (1, 7)
    assert view((20, 1, 5, 5)) == (20, 25)
    assert view((3, 0)) == (3, 0)


@given(st.integers(1, 12), st.integers(0, 60), st.integers(0, 60))
def test_spans_cover_a_run_once_and_in_order(columns: int, start: int, count: int) -> None:
    seen: list[tuple[int, int]] = []
    for span in spans(start, count, columns):
        assert span.offset == len(seen)
        assert span.rows == 1 or (span.column, span.columns) == (0, columns)
        for row in range(span.row, span.row + span.rows):
            seen += [(row, span.column + j) for j in range(span.columns)]
    assert seen == [divmod(index, columns) for index in range(start, start + count)]


@given(SHAPES, st.data())
def test_q_of_any_run(shape: tuple[int, int], data: st.DataObject) -> None:
    rows, columns = shape
    any_scale = st.integers(-(1 << 15), (1 << 15) - 1)
    r = data.draw(arrays.arrays(np.int16, rows, elements=any_scale))
    c = data.draw(arrays.arrays(np.int16, columns, elements=any_scale))
    start = data.draw(st.integers(0, rows * columns))
    count = data.draw(st.integers(0, rows * columns - start))
    e = data.draw(arrays.arrays(np.uint16, count, elements=st.integers(0, 2047)))
    found = Scales(r, c).q(e, start)
    for index in range(count):
        i, j = divmod(start + index, columns)
        sums = wrapped(wrapped(int(r[i]) + int(c[j])) - 4 * int(e[index]))
        assert found[index] == min(max(sums >> 1, 0), 127)


def test_scales_there_and_back() -> None:
    scales = Scales(np.array([1, -2], np.int16), np.array([3, 4, -500], np.int16))
    side = scales.tobytes()
    assert len(side) == Scales.nbytes((2, 3))
    again = Scales.parse(side, (2, 3))
    assert again.rows.tolist() == [1, -2]
    assert again.columns.tolist() == [3, 4, -500]
    for wrong in (side[:-1], side + b"\0", b""):
        with pytest.raises(Damaged, match="length"):
            Scales.parse(wrong, (2, 3))


def test_numbers() -> None:
    q = np.array([0, 40, 41, 71, 72, 127], np.uint8)
    assert numbers(q, None, 40).tolist() == [32, 32, 33, 63, 63, 63]
    above = np.array([0, 1, 255, 2, 254, 128], np.uint8)
    assert numbers(q, above, 0).tolist() == [32, 64 + 31, 31, 127, 127, 127]
    assert numbers(np.zeros(6, np.uint8), above, 8).tolist() == [32, 64, 0, 96, 96, 96]
    assert classes(np.arange(256).astype(np.uint8)).tolist() == [1, 2, *[3] * 253, 0]


def test_where_the_contexts_of_planes_begin() -> None:
    assert [default_lo(k, format_of("float32")) for k in range(4)] == [40, 24, 8, 0]
    assert default_lo(3, format_of("int32")) == 0
    assert default_lo(7, format_of("float64")) == 0
    assert all(0 <= default_lo(k, format_of("float64")) <= 127 for k in range(8))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int32", "uint8"])
def test_scales_follow_rows_and_columns(dtype: str) -> None:
    """Rows and columns that move 4 and 16 times as far are two and four octaves up."""
    form = format_of(dtype)
    random = np.random.default_rng(5)
    shape = (60, 80)
    spread = np.outer(np.repeat([1, 4], 30), np.repeat([1, 16], 40))
    moved = random.integers(-1000, 1000, shape) * spread
    if form.width <= 2:
        moved = np.sign(moved) * np.minimum(np.abs(moved) // 1000, 120)
    base = np.full(shape, 0x40, form.words).ravel()
    base = np.left_shift(base, form.words.type(form.bits - 8))
    target = (base.astype(np.int64) + moved.ravel()).astype(form.words)
    measure = Measure(shape, form)
    digits, e = differences(target, base, form), exponents(base, form)
    for start, stop in ((0, 33), (33, 2000), (2000, 4800)):
        measure.add(digits[start:stop], e[start:stop], start)
    scales = measure.finish()
    rows, columns = scales.rows.astype(float), scales.columns.astype(float)
    if form.width > 2:
        assert abs(np.mean(rows[30:]) - np.mean(rows[:30]) - 8) < 1.5
        assert abs(np.mean(columns[40:]) - np.mean(columns[:40]) - 16) < 1.5
    q = scales.q(e, 0).reshape(shape).astype(float)
    assert q[30:, 40:].mean() > q[:30, :40].mean() + 4


def test_a_vector_has_no_scales_of_its_own_per_element() -> None:
    form = format_of("float32")
    measure = Measure((500,), form)
    measure.add(np.arange(500, dtype="<u4"), np.zeros(500, np.uint16), 0)
    assert not measure.finish().columns.any()


@given(arrays.arrays(np.dtype("<u4"), 20), arrays.arrays(np.dtype("<u4"), 20))
def test_any_bits_can_be_measured(target: NDArray[np.uint32], base: NDArray[np.uint32]) -> None:
    form = format_of("float32")
    digits = differences(target, base, form)
    pairs = zip(ordered(target), ordered(base), strict=True)
    expected = [abs(wrapped32(t - b)) for t, b in pairs]
    assert np.allclose(magnitudes(digits, form), expected, rtol=1e-6)
    measure = Measure((4, 5), form)
    measure.add(digits, exponents(base, form), 0)
    scales = measure.finish()
    logs = np.log2(np.array(expected) + 0.3) + ((base >> 23) & 255)
    assert np.allclose(scales.rows, 4 * logs.reshape(4, 5).mean(1), atol=0.51)


def wrapped32(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def ordered(words: NDArray[np.uint32]) -> list[int]:
    return [~int(u) & 0xFFFFFFFF if u >> 31 else int(u) | 0x80000000 for u in words]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_nothing_has_scales_too(shape: tuple[int, ...]) -> None:
    scales = Measure(shape, format_of("float32")).finish()
    assert len(scales.tobytes()) == Scales.nbytes(shape)
    assert math.prod(shape) == len(scales.q(np.zeros(0, np.uint16), 0))
