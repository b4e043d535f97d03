"""The layout `fixed`, against its rules written down once more in exact fractions."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.canonical import hash_bytes
from dlv.errors import Damaged, NewerFormat
from dlv.pas import read
from dlv.pas.floats import format_of
from dlv.pas.layouts.fixed import DTYPES, Fixed
from dlv.pas.layouts.registry import layout_of
from dlv.pas.layouts.segments import element_bytes, join_matrix, split_matrix
from tests.conformance.delta import MemoryStore
from tests.conformance.layout import finite

# dtype -> p, q, exponent bits
FORMATS = {
    "float32": (24, -149, 8),
    "float64": (53, -1074, 11),
    "float16": (11, -24, 5),
    "bfloat16": (8, -133, 8),
}


def value_of(word: int, dtype: str) -> Fraction:
    p, q, bits = FORMATS[dtype]
    mantissa = word & ((1 << (p - 1)) - 1)
    field = (word >> (p - 1)) & ((1 << bits) - 1)
    if field:
        mantissa |= 1 << (p - 1)
    return Fraction(mantissa) * Fraction(2) ** (max(field, 1) - 1 + q)


def exponent_of(value: Fraction) -> int:
    """Smallest E with value < 2^E."""
    e = -2000
    low, high = -2000, 2000
    while low < high:
        e = (low + high) // 2
        low, high = (low, e) if value < Fraction(2) ** e else (e + 1, high)
    return low


def packed(bits: Sequence[int]) -> bytes:
    filled = [*bits, *[0] * (-len(bits) % 8)]
    return bytes(
        sum(bit << (7 - at) for at, bit in enumerate(filled[start : start + 8]))
        for start in range(0, len(filled), 8)
    )


def reference(words: Sequence[int], rows: Sequence[int], dtype: str) -> tuple[list[bytes], bytes]:
    """Planes and side data by the rules; `rows` is the row of each element."""
    p, q, _ = FORMATS[dtype]
    width = element_bytes(dtype)
    values = [value_of(word, dtype) for word in words]
    exponents = {
        row: exponent_of(top)
        if (top := max(v for v, r in zip(values, rows, strict=True) if r == row))
        else -32768
        for row in sorted(set(rows))
    }
    codes, tails, flags, escaped = [], [], [], []
    for word, value, row in zip(words, values, rows, strict=True):
        big = exponents[row]
        sign = word >> (8 * width - 1)
        if big == -32768:
            codes.append(sign << 23)
            tails.append((0, 0))
            continue
        mag = math.floor(value * Fraction(2) ** (23 - big))
        assert mag < 1 << 23
        codes.append(sign << 23 | mag)
        if mag:
            e = mag.bit_length() + big - 23
            n = max(0, min(p - 23 + big - e, big - 23 - q))
            tail = value * Fraction(2) ** (23 - big + n) - mag * 2**n
            assert tail.denominator == 1
            assert 0 <= tail < 2**n
            tails.append((n, int(tail)))
        else:
            tails.append((0, 0))
            flags.append(int(value != 0))
            if value:
                escaped.append(word.to_bytes(width, "little"))
    plane = b""
    for i in range(max((n for n, _ in tails), default=0)):
        plane += packed([(tail >> (n - 1 - i)) & 1 for n, tail in tails if n > i])
    plane += packed(flags) + b"".join(escaped)
    planes = [bytes((code >> down) & 255 for code in codes) for down in (16, 8, 0)]
    side = b"".join(struct.pack("<h", exponents[row]) for row in sorted(exponents))
    return [*planes, plane], side


@st.composite
def matrices(draw: st.DrawFn) -> tuple[str, tuple[int, ...], bytes]:
    """Wide rows, narrow ones, denormals, rows of zeros, zeros of both signs."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=0, max_size=3)))
    count = math.prod(shape)
    source = random.Random(draw(st.integers(0, 1 << 32)))
    p, _, bits = FORMATS[dtype]
    middle = draw(st.integers(0, (1 << bits) - 2))
    spread = draw(st.sampled_from([0, 2, 12, 30, 3000]))
    words = []
    for _ in range(count):
        field = min(max(middle + source.randint(-spread, spread), 0), (1 << bits) - 2)
        word = (
            source.getrandbits(1) << (p - 1 + bits) | field << (p - 1) | source.getrandbits(p - 1)
        )
        if source.random() < draw(st.sampled_from([0.0, 0.0, 0.3])):
            word &= 1 << (p - 1 + bits)
        words.append(word)
    zeros = draw(st.booleans())
    if shape and zeros:
        row = count // shape[0]
        words[:row] = [word & 1 << (p - 1 + bits) for word in words[:row]]
    width = element_bytes(dtype)
    return dtype, shape, b"".join(word.to_bytes(width, "little") for word in words)


def owners_of(count: int, shape: tuple[int, ...], rows: str) -> list[int]:
    """The row of each word."""
    if len(shape) < 2:
        return [0] * count
    if rows == "first":
        return [at // (count // shape[0]) for at in range(count)]
    return [at % shape[-1] for at in range(count)]


@settings(max_examples=250, deadline=None)
@given(matrices(), st.sampled_from(["first", "last"]))
def test_by_the_rules(matrix: tuple[str, tuple[int, ...], bytes], rows: str) -> None:
    dtype, shape, raw = matrix
    layout = Fixed.of([raw], dtype, shape, rows=rows)
    planes, side = split_matrix(layout, raw, dtype, shape)
    words = np.frombuffer(raw, format_of(dtype).words).tolist()
    owners = owners_of(len(words), shape, rows)
    expected, bounds = reference(words, owners, dtype)
    assert [bytes(plane) for plane in planes] == expected
    assert side == bounds
    again = layout_of(layout.get_config())
    assert bytes(join_matrix(again, [bytes(plane) for plane in planes], side, dtype, shape)) == raw
    assert again.side_of(raw, dtype, shape) == side


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_all_words_of_a_dtype(dtype: str) -> None:
    every = finite(np.arange(1 << 16).astype("<u2").tobytes(), dtype)
    shuffled = np.random.default_rng(3).permutation(np.frombuffer(every, "<u2")).tobytes()
    store = MemoryStore()
    for raw in (every, shuffled):
        for shape in ((1 << 16,), (256, 256), (1 << 15, 2)):
            for rows in ("first", "last"):
                store.encodings.clear()
                store.rows.clear()
                layout = Fixed.of([raw], dtype, shape, rows=rows)
                assert store.matrix(store.add(raw, dtype, shape, layout=layout)) == raw


@pytest.mark.parametrize("word", [0x7F800000, 0xFF800000, 0x7FC00000, 0xFFFFFFFF])
def test_numbers_that_are_none_are_refused(word: int) -> None:
    raw = struct.pack("<3I", 0x3F800000, word, 0)
    with pytest.raises(ValueError, match="finite"):
        Fixed.of([raw], "float32", (3,))
    shared = Fixed.of([bytes(12)], "float32", (3,), at_least=struct.pack("<h", 128))
    with pytest.raises(ValueError, match="finite"):
        split_matrix(shared, raw, "float32", (3,))


@pytest.mark.parametrize("dtype", ["int32", "bool", "complex64", "float8_e4m3", "raw:x"])
def test_other_dtypes_are_refused(dtype: str) -> None:
    with pytest.raises(ValueError, match="not for"):
        Fixed.of([bytes(8)], dtype, (1,))
    layout = Fixed("first", False, "ab" * 32)
    with pytest.raises(Damaged, match="fixed"):
        layout.side_bytes(dtype, (1,))


def test_a_matrix_beyond_shared_exponents_is_refused() -> None:
    small = struct.pack("<2f", 0.5, 0.25)
    layout = Fixed.of([small], "float32", (2,))
    with pytest.raises(ValueError, match="beyond"):
        split_matrix(layout, struct.pack("<2f", 1.0, 0.25), "float32", (2,))
    wider = Fixed.of([small], "float32", (2,), at_least=struct.pack("<h", 9))
    planes, side = split_matrix(wider, small, "float32", (2,))
    assert side == struct.pack("<h", 9)
    assert bytes(join_matrix(wider, planes, side, "float32", (2,))) == small


def test_segments_of_a_longer_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("read", "encode", "level", "layouts.segments", "deltas.links", "layouts.fixed"):
        monkeypatch.setattr(f"dlv.pas.{name}.SEGMENT", 16)
    source = random.Random(8)
    for dtype in DTYPES:
        for shape in ((5, 13), (64,), (3, 3, 7), (130, 1)):
            raw = finite(source.randbytes(element_bytes(dtype) * math.prod(shape)), dtype)
            # Segments whose tails are empty between others.
            words = np.frombuffer(raw, format_of(dtype).words).copy()
            words[16:48] = 0
            raw = words.tobytes()
            for rows in ("first", "last"):
                store = MemoryStore()
                layout = Fixed.of([raw], dtype, shape, rows=rows)
                name = store.add(raw, dtype, shape, layout=layout)
                assert store.matrix(name) == raw
                store.reads.clear()
                part = read.read_slice(name, 20, 9, store.encoding, store)
                size = element_bytes(dtype)
                assert bytes(part) == raw[20 * size : 29 * size]
                places = {start for _, kind, plane, start in store.reads if plane == 0}
                assert places == {16}


def test_tails_that_cannot_be_are_damage() -> None:
    raw = struct.pack("<6f", 1.0, 0.3, -2e-9, 0.0, 1e-3, 7.7)
    layout = Fixed.of([raw], "float32", (2, 3))
    planes, side = split_matrix(layout, raw, "float32", (2, 3))
    tail = bytes(planes[3])
    for broken in (tail[:-1], tail + b"\0", b"", tail[:1]):
        with pytest.raises(Damaged, match="tail"):
            join_matrix(layout, [*planes[:3], broken], side, "float32", (2, 3))
    filled = bytes([tail[0] | 1]) + tail[1:]
    with pytest.raises(Damaged, match="zeros"):
        join_matrix(layout, [*planes[:3], filled], side, "float32", (2, 3))
    for other in (side[:-1], side[::-1], b""):
        with pytest.raises(Damaged, match="row exponents"):
            join_matrix(layout, planes, other, "float32", (2, 3))


@pytest.mark.parametrize("exponent", [-149, -200, 129, 300, 32767])
def test_exponents_that_no_number_has_are_damage(exponent: int) -> None:
    side = struct.pack("<h", exponent)
    layout = Fixed("first", False, hash_bytes(side))
    with pytest.raises(Damaged, match="row exponent"):
        layout.cutter(side, "float32", (4,))


def test_a_row_of_zeros_with_something_else_is_damage() -> None:
    side = struct.pack("<h", -32768)
    layout = Fixed("first", False, hash_bytes(side))
    with pytest.raises(Damaged, match="row of zeros"):
        join_matrix(layout, [b"\x00", b"\x00", b"\x01", b""], side, "float32", (1,))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_planes_give_words_or_damage(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(DTYPES))
    side = struct.pack("<h", data.draw(st.integers(-1200, 1100)))
    layout = Fixed("first", False, hash_bytes(side))
    count = data.draw(st.integers(1, 6))
    planes = [data.draw(st.binary(min_size=count, max_size=count)) for _ in range(3)]
    tail = data.draw(st.binary(max_size=40))
    try:
        raw = join_matrix(layout, [*planes, tail], side, dtype, (count,))
    except Damaged:
        return
    assert len(raw) == count * element_bytes(dtype)


@pytest.mark.parametrize(
    "config",
    [
        {"id": "fixed", "rows": "middle", "zero_centre": False, "exponents": "ab" * 32},
        {"id": "fixed", "rows": "first", "zero_centre": 0, "exponents": "ab" * 32},
        {"id": "fixed", "rows": "first", "zero_centre": False, "exponents": "ab"},
        {"id": "fixed", "rows": "first", "zero_centre": False, "exponents": None},
        {"id": "fixed", "rows": ["first"], "zero_centre": False, "exponents": "ab" * 32},
    ],
)
def test_impossible_configs(config: dict[str, object]) -> None:
    with pytest.raises(Damaged, match="fixed"):
        layout_of(config)


def test_configs_of_other_keys_are_newer() -> None:
    with pytest.raises(NewerFormat):
        layout_of({"id": "fixed", "rows": "first", "exponents": "ab" * 32})
