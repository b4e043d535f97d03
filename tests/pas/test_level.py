"""Bounds from the first planes: never wrong, and as tight as the unread bytes allow."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlv.canonical import hash_bytes, matrix_hash
from dlv.kinds import Piece
from dlv.pas.footer import Encoding
from dlv.pas.layouts.fixed import DTYPES, Fixed
from dlv.pas.layouts.segments import SEGMENT, WORDS, Ieee, Layout, element_bytes
from dlv.pas.level import Level, Unusable, level
from tests.conformance.delta import MemoryStore, near
from tests.conformance.layout import finite


def numbers(raw: bytes, dtype: str) -> list[float | int]:
    """Python's own reading of the bytes."""
    codes = {
        "float16": "e", "float32": "f", "float64": "d", "complex64": "f", "complex128": "d",
        "int8": "b", "int16": "h", "int32": "i", "int64": "q",
        "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q", "bool": "B",
    }  # fmt: skip
    if dtype == "bfloat16":
        raw = b"".join(b"\0\0" + raw[at : at + 2] for at in range(0, len(raw), 2))
        dtype = "float32"
    code = codes[dtype]
    return list(struct.unpack(f"<{len(raw) // struct.calcsize(code)}{code}", raw))


def inside(found: Level, values: Sequence[float | int]) -> None:
    for low, centre, high, value in zip(
        found.low.reshape(-1).tolist(),
        found.centre.reshape(-1).tolist(),
        found.high.reshape(-1).tolist(),
        values,
        strict=True,
    ):
        if found.exact and isinstance(value, float) and not math.isfinite(value):
            assert (low == high == centre == value) or (math.isnan(low) and math.isnan(value))
            continue
        assert math.isfinite(low)
        assert math.isfinite(high)
        assert Fraction(low) <= Fraction(value) <= Fraction(high)
        assert low <= centre <= high


READABLE = sorted(set(WORDS) - {"bool"} - {name for name in WORDS if name.startswith("float8")})


@st.composite
def chains(draw: st.DrawFn) -> tuple[MemoryStore, str, tuple[int, ...], list[str], list[bytes]]:
    dtype = draw(st.sampled_from(READABLE))
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=2)))
    seed = draw(st.integers(0, 1 << 32))
    source = random.Random(seed)
    size = element_bytes(dtype) * math.prod(shape)
    count = draw(st.integers(1, 5))
    tame = draw(st.booleans())
    raws: list[bytes] = []
    for step in range(count):
        moved = draw(st.integers(0, 3))
        if raws and moved:
            raw = near(raws[-1], WORDS[dtype][0], seed % 1000 + step)
        else:
            raw = source.randbytes(size)
        if tame and dtype in DTYPES:
            raw = finite(raw, dtype)
        raws.append(raw)
    able = tame and dtype in DTYPES
    one: Layout = Ieee()
    mixed = draw(st.booleans())
    if able and draw(st.booleans()):
        rows = draw(st.sampled_from(["first", "last"]))
        one = Fixed.of(raws, dtype, shape, rows=rows, zero_centre=draw(st.booleans()))
    store = MemoryStore()
    names: list[str] = []
    for raw in raws:
        layout = one
        if mixed and able:
            layout = draw(st.sampled_from([one, Ieee(), Fixed.of(raws, dtype, shape)]))
        kind = draw(st.sampled_from(["sub", "xor", "sub", "xor", "materialise"]))
        base = names[-1] if names else None
        names.append(store.add(raw, dtype, shape, layout=layout, kind=kind, base=base))
    return store, dtype, shape, names, raws


@settings(max_examples=300, deadline=None)
@given(chains())
def test_the_numbers_lie_within(
    made: tuple[MemoryStore, str, tuple[int, ...], list[str], list[bytes]],
) -> None:
    store, dtype, shape, names, raws = made
    for name, raw in zip(names, raws, strict=True):
        planes = store.encodings[name].planes
        for k in range(1, planes + 2):
            found = level(name, k, store.encoding, store)
            if isinstance(found, Unusable):
                assert k < planes
                continue
            assert found.exact == (k >= planes)
            assert found.centre.shape == (shape if "complex" not in dtype else (*shape, 2))
            inside(found, numbers(raw, dtype))


@settings(max_examples=300, deadline=None)
@given(chains(), st.integers(1, 3), st.randoms(use_true_random=False))
def test_whatever_the_unread_bytes_are(
    made: tuple[MemoryStore, str, tuple[int, ...], list[str], list[bytes]],
    k: int,
    source: random.Random,
) -> None:
    """Unread planes are replaced by other bytes; what that decodes to lies within as well."""
    store, dtype, shape, names, _ = made
    found = level(names[-1], k, store.encoding, store)
    order = [names[-1]]
    while (delta := store.encodings[order[-1]].delta) is not None:
        order.append(delta["base"])
    layouts = [store.encodings[name].layout for name in order]
    if isinstance(found, Unusable) or found.exact or any(one != layouts[0] for one in layouts):
        return
    fixed = layouts[0]["id"] == "fixed"
    width = 3 if fixed else WORDS[dtype][0]
    words: list[int] = []
    for name in reversed(order):
        rows = sorted(
            (row for row in store.chunks(name) if row.kind == "plane"),
            key=lambda row: row.plane or 0,
        )
        planes = [bytes(store.read(row)) for row in rows][:width]
        planes[k:] = [source.randbytes(len(plane)) for plane in planes[k:]]
        kind = "codes" if fixed else dtype
        base = words or [0] * len(planes[0])
        words = completed(base, planes, store.encodings[name].delta, kind)
    if not fixed:
        raw = b"".join(word.to_bytes(width, "little") for word in words)
        inside(found, numbers(raw, dtype))
        return
    side = b"".join(bytes(store.read(row)) for row in store.chunks(order[0]) if row.kind == "side")
    exponents = struct.unpack(f"<{len(side) // 2}h", side)
    for at, code in enumerate(words):
        row = at % shape[-1] if layouts[0]["rows"] == "last" else at // (len(words) // shape[0])
        e = exponents[0 if len(shape) < 2 else row]
        if e == -32768:
            continue
        sizes = [Fraction((code & 0x7FFFFF) + more) * Fraction(2) ** (e - 23) for more in (0, 1)]
        ends = [-size if code >> 23 else size for size in sizes]
        low, high = found.low.reshape(-1)[at], found.high.reshape(-1)[at]
        assert Fraction(low) <= min(ends)
        assert max(ends) <= Fraction(high)


def order_of(word: int, bits: int, dtype: str) -> int:
    """The order-preserving map, once more."""
    top = 1 << (bits - 1)
    if dtype.startswith("uint"):
        return word
    if dtype.startswith("int"):
        return word ^ top
    return word ^ ((1 << bits) - 1) if word & top else word | top


def word_of(order: int, bits: int, dtype: str) -> int:
    top = 1 << (bits - 1)
    if dtype.startswith("uint"):
        return order
    if dtype.startswith("int"):
        return order ^ top
    return order ^ top if order & top else order ^ ((1 << bits) - 1)


def completed(base: Sequence[int], planes: Sequence[bytes], delta: object, dtype: str) -> list[int]:
    """Words of one link from those of its base, in plain integers."""
    bits = 8 * len(planes)
    out = []
    for at, under in enumerate(base):
        digits = [plane[at] for plane in planes]
        joined = int.from_bytes(bytes(digits), "big")
        if delta is None:
            out.append(joined)
        elif isinstance(delta, dict) and delta["id"] == "xor":
            out.append(joined ^ under)
        else:
            value = sum(
                (digit - 256 if digit > 127 else digit) << (bits - 8 - 8 * plane)
                for plane, digit in enumerate(digits)
            )
            out.append(word_of((order_of(under, bits, dtype) + value) % (1 << bits), bits, dtype))
    return out


def raw_piece(store: MemoryStore, name: str, plane: int, data: bytes) -> None:
    offset = 8 + sum(map(len, store.data.values()))
    store.data[offset] = data
    row = Piece(
        *(name, "pack", "plane", plane, offset, len(data), len(data), "", {"id": "raw"}),
        *(0, 0, len(data)),
    )
    store.rows.setdefault(name, []).append(row)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int16", "uint16"])
@pytest.mark.parametrize("kind", ["sub", "xor"])
@pytest.mark.quick("sub-float16", "sub-int16", "xor-bfloat16", "xor-uint16")
def test_every_completion_of_two_links(dtype: str, kind: str) -> None:
    """All 65,536 pairs of unread bytes of base and delta: the bounds are met on both sides."""
    source = random.Random(f"{dtype} {kind}")
    for _ in range(6):
        top, digit = source.randrange(1, 250), source.choice([0, 1, 255, 3, source.randrange(256)])
        count = 1 << 16
        low_bytes = [bytes(at >> 8 for at in range(count)), bytes(at & 255 for at in range(count))]
        planes = [[bytes([top]) * count, low_bytes[0]], [bytes([digit]) * count, low_bytes[1]]]
        base = completed([0] * count, planes[0], None, dtype)
        target = completed(base, planes[1], {"id": kind}, dtype)
        raws = [struct.pack(f"<{count}H", *words) for words in (base, target)]
        names = [matrix_hash(dtype, (count,), raw) for raw in raws]
        store = MemoryStore()
        store.add(raws[0], dtype, (count,))
        del store.rows[names[0]]
        delta: dict[str, Any] = {"id": kind, "base": names[0], "overlap": None}
        if kind == "sub":
            delta["predictor"] = []
        store.encodings[names[1]] = store.encodings[names[0]]
        store.change(names[1], matrix=names[1], delta=delta)
        for name, parts in zip(names, planes, strict=True):
            for plane, part in enumerate(parts):
                raw_piece(store, name, plane, part)
        assert store.matrix(names[1]) == raws[1]
        values = numbers(raws[1], dtype)
        found = level(names[1], 1, store.encoding, store)
        if isinstance(found, Unusable):
            orders = [order_of(word, 16, dtype) for word in target]
            wraps = max(orders) - min(orders) > 1 << 15
            assert wraps or any(not math.isfinite(value) for value in values)
            continue
        assert not found.exact
        assert found.low.min() == found.low.max() == min(values)
        assert found.high.min() == found.high.max() == max(values)
        assert found.bytes_read == 2 * count


@pytest.mark.parametrize("k", [1, 2, 3])
def test_codes_of_a_materialised_matrix(k: int) -> None:
    """By the formula: |w| in [c, c+1] * 2^(r + E - 23), the centre in its middle."""
    values = [0.75, -0.3, 1e-9, -0.0, 0.0, -0.999]
    raw = struct.pack("<6f", *values)
    for centred in (False, True):
        store = MemoryStore()
        layout = Fixed.of([raw], "float32", (6,), zero_centre=centred)
        name = store.add(raw, "float32", (6,), layout=layout)
        found = level(name, k, store.encoding, store)
        assert isinstance(found, Level)
        r = 24 - 8 * k
        for at, value in enumerate(struct.unpack("<6f", raw)):
            c = math.floor(abs(value) * 2**23) >> r
            ends = sorted(math.copysign(end * 2.0 ** (r - 23), value) for end in (c, c + 1))
            assert [found.low[at], found.high[at]] == ends
            middle = 0.0 if centred and c == 0 else (ends[0] + ends[1]) / 2
            assert found.centre[at] == middle


def test_a_row_of_zeros_is_certain_at_once() -> None:
    raw = struct.pack("<4f", 0.0, -0.0, 1.0, -2.0)
    store = MemoryStore()
    name = store.add(raw, "float32", (2, 2), layout=Fixed.of([raw], "float32", (2, 2)))
    found = level(name, 1, store.encoding, store)
    assert isinstance(found, Level)
    assert found.low[0].tolist() == found.high[0].tolist() == [0.0, 0.0]


def test_only_what_is_asked_for_is_read_and_counted() -> None:
    source = np.random.default_rng(5)
    first = source.normal(0, 1, 3000).astype("<f4").tobytes()
    second = near(first, 4, 1)
    store = MemoryStore()
    base = store.add(first, "float32", (3000,))
    name = store.add(second, "float32", (3000,), kind="sub", base=base)
    for k in (1, 2, 3, 4):
        store.reads.clear()
        found = level(name, k, store.encoding, store)
        assert isinstance(found, Level)
        read = {(owner, plane) for owner, _, plane, _ in store.reads}
        assert read == {(owner, plane) for owner in (base, name) for plane in range(k)}
        rows = [row for row in (*store.chunks(base), *store.chunks(name)) if (row.plane or 0) < k]
        assert found.bytes_read == sum(row.length for row in rows)


def test_what_may_be_infinite_is_unusable() -> None:
    raw = struct.pack("<2f", 1.0, 3.4e38)
    store = MemoryStore()
    name = store.add(raw, "float32", (2,))
    found = level(name, 1, store.encoding, store)
    assert isinstance(found, Unusable)
    assert isinstance(level(name, 2, store.encoding, store), Level)
    assert isinstance(level(name, 4, store.encoding, store), Level)


def test_an_xor_against_what_is_not_certain_is_unusable() -> None:
    base = np.random.default_rng(1).normal(0, 1, 64).astype("<f4").tobytes()
    store = MemoryStore()
    first = store.add(base, "float32", (64,))
    moved = near(base, 4, 2)
    second = store.add(moved, "float32", (64,), kind="sub", base=first)
    third = store.add(near(moved, 4, 3), "float32", (64,), kind="xor", base=second)
    assert isinstance(level(third, 3, store.encoding, store), Unusable)
    assert isinstance(level(third, 4, store.encoding, store), Level)


def test_opaque_bytes_have_no_bounds() -> None:
    store = MemoryStore()
    name = store.add(b"some bytes", "raw:q4", (4,))
    assert isinstance(level(name, 1, store.encoding, store), Unusable)
    with pytest.raises(ValueError, match="plane"):
        level(name, 0, store.encoding, store)


@pytest.mark.parametrize("kind", ["sub", "xor"])
@pytest.mark.parametrize(
    ("base", "digits"),
    [
        (0x1234, (0, 1)),
        (0x9234, (0, 255)),
        (0x0000, (0, 3)),
        (0x0000, (0, 0)),
        (0x8001, (0, 2)),  # through zero
        (0x7FFE, (0, 5)),  # beyond the largest code
        (0x7FFF, (0, 0)),
        (0xFFFF, (0, 254)),  # beyond the smallest
        (0x4000, (0x40, 0)),
    ],
)
def test_every_completion_of_two_codes(kind: str, base: int, digits: tuple[int, int]) -> None:
    """The third byte of both codes is open: 65,536 pairs, and the ends of all they may mean."""
    count = 1 << 16
    exponent = 3
    side = struct.pack("<h", exponent)
    layout = Fixed("first", False, hash_bytes(side))
    names = ["ab" * 32, "cd" * 32]
    store = MemoryStore()
    tops = [base.to_bytes(2), bytes(digits)]
    delta: dict[str, Any] = {"id": kind, "base": names[0], "overlap": None}
    if kind == "sub":
        delta["predictor"] = []
    for name, top, config in zip(names, tops, (None, delta), strict=True):
        store.encodings[name] = Encoding(name, "float32", (4,), layout.get_config(), config, 4)
        for plane in range(2):
            raw_piece(store, name, plane, top[plane : plane + 1] * 4)
        raw_piece(store, name, 0, side)
        row = store.rows[name].pop()
        store.rows[name].append(replace(row, kind="side", plane=None))
    orders = []
    for pair in range(count):
        code, last = base << 8 | pair >> 8, pair & 255
        if kind == "xor":
            found_code = code ^ (int.from_bytes(bytes(digits)) << 8 | last)
            orders.append(found_code ^ (0xFFFFFF if found_code >> 23 else 0x800000))
            continue
        order = code ^ (0xFFFFFF if code >> 23 else 0x800000)
        signed = [digit - 256 if digit > 127 else digit for digit in (*digits, last)]
        orders.append(order + signed[0] * 65536 + signed[1] * 256 + signed[2])
    ends = [min(orders), max(orders)]
    if len({end >> 24 for end in ends}) > 1:
        ends = [0, (1 << 24) - 1]
    ends = [end % (1 << 24) for end in ends]
    found = level(names[1], 2, store.encoding, store)
    assert isinstance(found, Level)
    unit = 2.0 ** (exponent - 23)
    assert set(found.low.tolist()) == {(ends[0] - (1 << 23)) * unit}
    assert set(found.high.tolist()) == {(ends[1] + 1 - (1 << 23)) * unit}
    assert ((found.low <= found.centre) & (found.centre <= found.high)).all()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(chains(), st.integers(1, 4), st.data())
def test_spans_are_parts_of_the_whole(
    made: tuple[MemoryStore, str, tuple[int, ...], list[str], list[bytes]],
    k: int,
    data: st.DataObject,
) -> None:
    store, _, _, names, _ = made
    name = data.draw(st.sampled_from(names))
    whole = level(name, k, store.encoding, store)
    if isinstance(whole, Unusable):
        return
    count = whole.low.size
    part = level(name, k, store.encoding, store, (0, count))
    assert isinstance(part, Level)
    assert part.exact == whole.exact
    for a, b in ((part.low, whole.low), (part.high, whole.high), (part.centre, whole.centre)):
        assert np.array_equal(a, b.reshape(-1), equal_nan=True)


@pytest.mark.parametrize("layout", ["ieee", "fixed"])
def test_spans_of_several_segments(layout: str) -> None:
    store, shape = MemoryStore(), (700, 3000)
    raws = [np.random.default_rng(1).normal(0, 0.1, shape).astype("<f4").tobytes()]
    raws += [near(raws[0], 4, 1)]
    made: Layout = Ieee() if layout == "ieee" else Fixed.of(raws, "float32", shape)
    names = [store.add(raws[0], "float32", shape, layout=made)]
    names.append(store.add(raws[1], "float32", shape, layout=made, kind="sub", base=names[0]))
    count = shape[0] * shape[1]
    for name in names:
        for k in (1, 2, 3, 4):
            whole = level(name, k, store.encoding, store)
            assert isinstance(whole, Level)
            for start in range(0, count, SEGMENT):
                stop = min(start + SEGMENT, count)
                part = level(name, k, store.encoding, store, (start, stop))
                assert isinstance(part, Level)
                for a, b in (
                    (part.low, whole.low),
                    (part.high, whole.high),
                    (part.centre, whole.centre),
                ):
                    assert np.array_equal(a, b.reshape(-1)[start:stop])
