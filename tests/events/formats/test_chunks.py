"""Packed chunks: what comes out is what went in, to the bit."""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dlv.errors import Damaged
from dlv.events.formats import chunks
from dlv.events.formats.chunks import Scalars

BITS = st.integers(0, 2**64 - 1)
# Half of them single precision, as most logs are.
VALUES = st.one_of(
    st.floats(width=32).map(float), st.floats(), BITS.map(lambda b: np.uint64(b).view(np.float64))
)
STEPS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-5, 300))


def same(a: Scalars, b: Scalars) -> bool:
    return all(
        x.dtype == y.dtype and np.array_equal(x.view(np.uint64), y.view(np.uint64))
        for x, y in zip(a, b, strict=True)
    )


def points(rows: list[tuple[int, float, float]]) -> Scalars:
    steps, walls, values = zip(*rows, strict=True)
    return Scalars(np.array(steps, np.int64), np.array(walls), np.array(values))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(STEPS, VALUES, VALUES), min_size=1, max_size=40))
def test_a_chunk_comes_back(rows: list[tuple[int, float, float]]) -> None:
    given_ = points(rows)
    assert same(chunks.unpack(chunks.pack(given_)), given_)


def noise(n: int) -> NDArray[np.float64]:
    return np.random.default_rng(5).normal(size=n).astype(np.float32).astype(np.float64)


def test_a_usual_log_takes_eight_bytes_a_point() -> None:
    walls = 1.7e9 + np.cumsum(np.random.default_rng(6).uniform(0.01, 0.5, 4096))
    usual = Scalars(np.arange(4096) * 10, walls, noise(4096))
    packed = chunks.pack(usual)
    assert len(packed) < 8 * 4096
    assert same(chunks.unpack(packed), usual)


def test_double_precision_and_constants_are_kept() -> None:
    steps, walls = np.arange(300), np.ones(300) * 5
    double = Scalars(steps, walls, np.random.default_rng(7).normal(size=300))
    assert len(chunks.pack(double)) < 9 * 300
    constant = Scalars(steps, walls, np.full(300, -0.0))
    assert len(chunks.pack(constant)) < 60
    assert math.copysign(1, chunks.unpack(chunks.pack(constant)).values[7]) == -1


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(STEPS, VALUES, VALUES), min_size=1, max_size=30))
def test_figures_are_those_of_a_loop(rows: list[tuple[int, float, float]]) -> None:
    told = chunks.figures(points(rows))
    finite = [(v, i) for i, (_, _, v) in enumerate(rows) if math.isfinite(v)]
    assert (told.n, told.nonfinite) == (len(rows), len(rows) - len(finite))
    assert (told.step0, told.step1) == (min(r[0] for r in rows), max(r[0] for r in rows))
    least = min(finite, default=(None, None), key=lambda pair: pair[0])
    most = max(finite, default=(None, None), key=lambda pair: pair[0])
    assert (told.vmin, told.imin, told.vmax, told.imax) == (*least, *most)


def test_damage_is_told() -> None:
    packed = chunks.pack(Scalars(np.arange(50), 1.5 * np.arange(50).astype(np.float64), noise(50)))
    for broken in (b"", packed[:10], packed[:-1], packed + b"x", b"\0\0" + packed[2:]):
        with pytest.raises(Damaged):
            chunks.unpack(broken)
    for at in range(5):  # lengths and kinds: refused or of another size, never a crash
        for value in range(256):
            data = bytearray(packed)
            data[at] = value
            with contextlib.suppress(Damaged):
                chunks.unpack(bytes(data))
