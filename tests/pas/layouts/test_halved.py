"""The layout `halved`: `fixed` by its rules, the second plane in halves, and bounds from each."""

from __future__ import annotations

import math
import random
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.canonical import matrix_hash
from dlv.errors import Damaged, NewerFormat
from dlv.pas import read
from dlv.pas.deltas.difference import delta_cutter
from dlv.pas.encode import encode_delta, encode_materialised
from dlv.pas.floats import format_of
from dlv.pas.layouts import fixed
from dlv.pas.layouts.fixed import DTYPES, Fixed, Halved
from dlv.pas.layouts.registry import bits_after, layout_of
from dlv.pas.layouts.segments import Layout, element_bytes, join_matrix, split_matrix
from dlv.pas.level import Level, Unusable, centre, level, needed
from tests.conformance.delta import MemoryStore
from tests.conformance.layout import finite
from tests.pas.layouts.test_fixed import matrices, owners_of, reference

Array = Any
DEPTHS = (8, 12, 16, 24)


def digits(numbers: bytes, place: int) -> bytes:
    """One hexadecimal digit of each byte, two digits to a byte."""
    text = "".join(f"{number:02x}"[place] for number in numbers)
    return bytes.fromhex(text + "0" * (len(text) % 2))


@settings(max_examples=40, deadline=None)
@given(matrices(), st.sampled_from(["first", "last"]))
def test_by_the_rules(matrix: tuple[str, tuple[int, ...], bytes], rows: str) -> None:
    dtype, shape, raw = matrix
    layout = Halved(rows, False)
    planes, side = split_matrix(layout, raw, dtype, shape)
    words = np.frombuffer(raw, format_of(dtype).words).tolist()
    owners = owners_of(len(words), shape, rows)
    (first, second, third, tail), exponents = reference(words, owners, dtype)
    expected = [first, digits(second, 0), digits(second, 1), third, tail]
    assert [bytes(plane) for plane in planes] == expected
    assert side == exponents
    assert layout.planes(dtype) == 5
    again = layout_of(layout.get_config())
    assert bytes(join_matrix(again, [bytes(plane) for plane in planes], side, dtype, shape)) == raw
    assert again.side_of(raw, dtype, shape) == side


def stored(array: Array, layout: Layout, base: Array = None, under: Layout | None = None) -> Any:
    """A store with a matrix, or an XOR against another in a layout of its own; and its name."""
    store = MemoryStore()
    dtype, shape = array.dtype.name, array.shape

    def name_of(one: Array) -> str:
        return matrix_hash(dtype, shape, one.tobytes())

    def put(one: Array) -> Any:
        return lambda part: store.put(name_of(one), part)

    if base is None:
        given = (array.tobytes(), dtype, shape, name_of(array), put(array))
        store.encodings[name_of(array)] = encode_materialised(*given, layout=layout, effort="small")
        return store, name_of(array)
    given = (base.tobytes(), dtype, shape, name_of(base), put(base))
    store.encodings[name_of(base)] = encode_materialised(*given, layout=under or layout)
    store.encodings[name_of(array)] = encode_delta(
        "xor",
        *(array.tobytes(), base.tobytes(), dtype, shape, name_of(array), name_of(base)),
        put(array),
        layout=layout,
    )
    return store, name_of(array)


def numbers(seed: int, shape: tuple[int, ...], dtype: str) -> Array:
    """Rows of all sizes, some of zeros; zeros of both signs."""
    rng = np.random.default_rng(seed)
    spread = 10.0 ** rng.integers(-30, 30, shape[:1] + (1,) * len(shape[1:]))
    made = rng.normal(size=shape) * spread
    made = np.where(rng.random(shape) < 0.2, 0.0, made) * rng.choice([1, 1, 1e-44, 0.0])
    with np.errstate(over="ignore"):
        made = np.copysign(made, rng.normal(size=shape)).astype(dtype)
    return np.where(np.isfinite(made), made, 0).astype(dtype)


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 1 << 32),
    st.sampled_from([(5, 7), (3, 2, 2, 3), (9,), (), (1, 6), (6, 1), (0, 3)]),
    st.sampled_from(["float32", "float64", "float16"]),
    st.sampled_from(["first", "last"]),
    st.booleans(),
    st.integers(1, 5),
)
def test_bounds_from_each_plane(
    seed: int, shape: tuple[int, ...], dtype: str, rows: str, zero_centre: bool, k: int
) -> None:
    """Every number lies between its bounds, and these are 2^(E+1-bits) apart."""
    array = numbers(seed, shape, dtype)
    store, name = stored(array, Halved(rows, zero_centre))
    found, near = level(name, k, store.encoding, store), centre(name, k, store.encoding, store)
    assert isinstance(found, Level)
    whole = array.astype(np.float64)
    assert (found.low <= whole).all()
    assert (whole <= found.high).all()
    if k == 5 or not array.size:
        assert found.exact or not array.size
        assert (found.centre == whole).all()
        return
    assert near is not None
    assert (near == found.centre).all()
    side = np.frombuffer(Halved(rows, False).side_of(array.tobytes(), dtype, shape), "<i2")
    cells = np.ldexp(1.0, np.where(side == -32768, -2000, side.astype(int) + 1 - DEPTHS[k - 1]))
    if len(shape) > 1:
        cells = cells.reshape(-1, *[1] * (len(shape) - 1)) if rows == "first" else cells
    assert (found.high - found.low == cells).all()
    middle = (found.low + found.high) / 2
    around = (found.low <= 0) & (found.high >= 0)
    assert (found.centre == np.where(around & zero_centre, 0, middle)).all()


def test_a_level_reads_no_more_than_its_planes() -> None:
    array = np.random.default_rng(0).normal(size=(40, 600)).astype("f4")
    store, name = stored(array, Halved("first", False))
    assert {piece.plane for piece in needed(name, 2, store.encoding, store)} == {None, 0, 1}
    sizes = {piece.plane: piece.length for piece in store.chunks(name)}
    assert [sizes[plane] for plane in (1, 2, 3)] == [12_000, 12_000, 24_000]
    assert [bits_after(store.encodings[name].layout, planes) for planes in range(1, 5)] == [*DEPTHS]


def test_segments_of_a_longer_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("read", "encode", "level", "deltas.links", "layouts.fixed", "layouts.segments"):
        monkeypatch.setattr(f"dlv.pas.{name}.SEGMENT", 16)
    source = random.Random(8)
    for dtype in DTYPES:
        for shape in ((5, 13), (64,), (3, 3, 7), (131, 1)):
            raw = finite(source.randbytes(element_bytes(dtype) * math.prod(shape)), dtype)
            words = np.frombuffer(raw, format_of(dtype).words).copy()
            words[16:48] = 0  # segments whose tails are empty between others
            for rows in ("first", "last"):
                store = MemoryStore()
                name = store.add(words.tobytes(), dtype, shape, layout=Halved(rows, False))
                assert store.matrix(name) == words.tobytes()
                part = read.read_slice(name, 20, 9, store.encoding, store)
                size = element_bytes(dtype)
                assert bytes(part) == words.tobytes()[20 * size : 29 * size]
                for k in (1, 2, 3):
                    found = level(name, k, store.encoding, store)
                    assert isinstance(found, Level)
                    near = centre(name, k, store.encoding, store)
                    assert near is not None
                    assert (near == found.centre).all()


def test_planes_that_cannot_be_are_damage() -> None:
    raw = struct.pack("<5f", 1.0, 0.3, -2e-9, 0.0, 7.7)
    layout = Halved("first", False)
    planes, side = split_matrix(layout, raw, "float32", (5,))
    for at in range(5):
        for broken in (bytes(planes[at])[:-1], bytes(planes[at]) + b"\0"):
            with pytest.raises(Damaged):
                join_matrix(
                    layout, [*planes[:at], broken, *planes[at + 1 :]], side, "float32", (5,)
                )
    for at in (1, 2):
        filled = bytes(planes[at])[:-1] + bytes([bytes(planes[at])[-1] | 1])
        with pytest.raises(Damaged, match="zeros"):
            join_matrix(layout, [*planes[:at], filled, *planes[at + 1 :]], side, "float32", (5,))
    for count in (4, 6):
        with pytest.raises(Damaged):
            join_matrix(layout, [*planes, b"", b""][:count], side, "float32", (5,))


@pytest.mark.parametrize("rows", ["first", "last"])
def test_exponents_must_be_the_smallest(rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Larger ones hold the same numbers: bounds would hang on which are stored."""
    array = np.random.default_rng(1).normal(size=(6, 8)).astype("f4")
    array[2] = array[:, 2] = 0
    smallest = np.frombuffer(Halved(rows, False).side_of(array.tobytes(), "float32", (6, 8)), "<i2")
    for place, exponent in ((0, smallest[0] + 1), (2, -3)):
        larger = smallest.copy()
        larger[place] = exponent
        monkeypatch.setattr(Halved, "side_of", lambda *_, larger=larger: larger.tobytes())
        store, name = stored(array, Halved(rows, False))
        assert store.matrix(name) == array.tobytes()
        for k in (1, 2, 3, 4):
            with pytest.raises(Damaged, match="smallest"):
                level(name, k, store.encoding, store)
            with pytest.raises(Damaged, match="smallest"):
                centre(name, k, store.encoding, store)


@pytest.mark.parametrize("rows", ["first", "last"])
@pytest.mark.parametrize("zero_centre", [False, True])
def test_xor_in_fixed_on_halves(rows: str, zero_centre: bool) -> None:
    """Level by level what it would be on a base in `fixed`."""
    rng = np.random.default_rng(3)
    base = rng.normal(size=(12, 21)).astype("f4")
    target = (base * (1 + 1e-3 * rng.normal(size=base.shape))).astype("f4")
    target.flat[::50] = base.flat[::50]
    target = np.clip(target, -np.abs(base).max(), np.abs(base).max())
    layout = Fixed.of([base.tobytes()], "float32", base.shape, rows=rows, zero_centre=zero_centre)
    try:
        split_matrix(layout, target.tobytes(), "float32", base.shape)
    except ValueError:  # a row has grown
        target = np.where(np.abs(target) > np.abs(base), base, target)
    store, name = stored(target, layout, base, Halved(rows, zero_centre))
    alone, _ = stored(target, layout, base)
    assert store.matrix(name) == target.tobytes()
    under = matrix_hash("float32", base.shape, base.tobytes())
    for k, planes in ((1, {0}), (2, {0, 1, 2}), (3, {0, 1, 2, 3})):
        found = level(name, k, store.encoding, store)
        expected = level(name, k, alone.encoding, alone)
        assert isinstance(found, Level)
        assert isinstance(expected, Level)
        assert (found.centre == expected.centre).all()
        assert (found.low == expected.low).all()
        assert (found.high == expected.high).all()
        store.reads.clear()
        level(name, k, store.encoding, store)
        assert {plane for owner, _, plane, _ in store.reads if owner == under} == {None, *planes}


def test_other_exponents_than_the_base_s_bound_nothing() -> None:
    base = np.random.default_rng(3).normal(size=(4, 9)).astype("f4")
    target = base * np.float32(3)
    layout = Fixed.of([base.tobytes(), target.tobytes()], "float32", base.shape)
    store, name = stored(target, layout, base, Halved("first", False))
    assert store.matrix(name) == target.tobytes()
    assert isinstance(level(name, 1, store.encoding, store), Unusable)


def test_there_are_no_deltas_in_halves() -> None:
    for kind in ("xor", "sub"):
        with pytest.raises(NewerFormat, match="halved"):
            delta_cutter(kind, Halved("first", False), struct.pack("<h", 3), "float32", (4,))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_planes_give_words_or_damage(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(DTYPES))
    side = struct.pack("<h", data.draw(st.integers(-1200, 1100)))
    count = data.draw(st.integers(1, 6))
    half = (count + 1) // 2
    sizes = [count, half, half, count]
    planes = [data.draw(st.binary(min_size=size, max_size=size)) for size in sizes]
    tail = data.draw(st.binary(max_size=40))
    try:
        raw = join_matrix(Halved("first", False), [*planes, tail], side, dtype, (count,))
    except Damaged:
        return
    assert len(raw) == count * element_bytes(dtype)


@pytest.mark.parametrize(
    "config",
    [
        {"id": "halved", "rows": "middle", "zero_centre": False},
        {"id": "halved", "rows": "first", "zero_centre": 0},
        {"id": "halved", "rows": ["first"], "zero_centre": False},
    ],
)
def test_impossible_configs(config: dict[str, object]) -> None:
    with pytest.raises(Damaged, match="halved"):
        layout_of(config)


def test_configs_of_other_keys_are_newer() -> None:
    with pytest.raises(NewerFormat):
        layout_of({"id": "halved", "rows": "first", "zero_centre": False, "exponents": "ab" * 32})


def test_halves() -> None:
    assert fixed.halves(np.array([0x12, 0x34, 0x56], np.uint8)) == (b"\x13\x50", b"\x24\x60")
    assert fixed.doubled(b"\x13\x50", 3).tolist() == [1, 3, 5]
