"""What numba compiles gives the same bytes as what numpy does, and is never needed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dlv.errors import Damaged
from dlv.pas.coders import compiled
from dlv.pas.coders.context import AboveCodec, ContextPacked, ContextZstd
from dlv.pas.coders.contexts import Scales, numbers
from dlv.pas.deltas.difference import WordDelta
from dlv.pas.deltas.predictors import DRIFT_BINS, Drift
from dlv.pas.floats import applied, differences, format_of

SCALE = "0" * 64
CODECS: list[ContextZstd | ContextPacked] = [ContextZstd(0, SCALE), ContextPacked(0, SCALE)]
FLOAT32 = format_of("float32")


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    seen = compiled._seen[0]
    yield
    compiled.force.clear()
    compiled._seen[0] = seen


def both(function: Callable[[], Any]) -> tuple[Any, Any]:
    """With the loops compiled and without; Damaged counts as an answer."""
    pytest.importorskip("numba")
    found = []
    for force in (True, False):
        compiled.force[:] = [force]
        try:
            found.append(function())
        except Damaged:
            found.append(Damaged)
    compiled.force.clear()
    return found[0], found[1]


Bytes = NDArray[np.uint8]


def drawn(seed: int, count: int) -> tuple[Bytes, Bytes]:
    rng = np.random.default_rng(seed)
    contexts = rng.integers(0, 128, count).astype(np.uint8)
    digits = np.rint(rng.normal(0, 0.2 + contexts % 16, count)).astype(np.int64).astype(np.uint8)
    return digits, contexts


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.codec_id)
@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 7, 1001, 70_000])
def test_digits_in_contexts(codec: ContextZstd | ContextPacked, count: int) -> None:
    digits, contexts = drawn(count, count)
    data = codec.encode(digits.data, contexts)
    with_loops, without = both(lambda: bytes(codec.decode(data, contexts)))
    assert with_loops == without == digits.tobytes()


@given(st.integers(0, 5000), st.integers(0, 1 << 20), st.integers(0, 255), st.booleans())
@settings(max_examples=80, deadline=None)
def test_damage_is_seen_alike(seed: int, at: int, byte: int, longer: bool) -> None:
    digits, contexts = drawn(seed, 300 + seed % 50)
    for codec in CODECS:
        data = bytearray(codec.encode(digits.data, contexts))
        given = np.append(contexts, np.uint8(at % 128)) if longer else contexts
        if not longer:
            data[at % len(data)] = byte
        with_loops, without = both(partial(codec.decode, data, given))
        assert with_loops == without


@pytest.mark.parametrize("count", [0, 1, 6, 1003, 90_000])
def test_bytes_in_the_order_of_the_plane_above(count: int) -> None:
    rng = np.random.default_rng(count)
    above = np.rint(rng.normal(0, 40, count)).astype(np.int64).astype(np.uint8)
    data = (above // 3 + rng.integers(0, 4, count)).astype(np.uint8)
    stored = AboveCodec().encode(data.data, above.data)
    with_loops, without = both(lambda: bytes(AboveCodec().decode(stored, above.data)))
    assert with_loops == without == data.tobytes()


def test_contexts_beyond_the_last_are_damage() -> None:
    digits, contexts = drawn(1, 500)
    data = ContextZstd(0, SCALE).encode(digits.data, contexts)
    contexts[77] = 128
    assert both(lambda: ContextZstd(0, SCALE).decode(data, contexts)) == (Damaged, Damaged)


@given(st.integers(0, 1 << 30), st.integers(1, 40), st.integers(1, 60), st.integers(0, 127))
@settings(max_examples=80, deadline=None)
def test_contexts(seed: int, rows: int, columns: int, lo: int) -> None:
    rng = np.random.default_rng(seed)
    of_rows = rng.integers(-(1 << 15), 1 << 15, rows).astype(np.int16)
    scales = Scales(of_rows, rng.integers(-(1 << 15), 1 << 15, columns).astype(np.int16))
    start = int(rng.integers(0, rows * columns))
    count = int(rng.integers(0, rows * columns - start + 1))
    for kind, most in ((np.uint8, 256), (np.uint16, 2048)):
        exponents: Any = rng.integers(0, most, count).astype(kind)
        q, plain = both(partial(scales.q, exponents, start))
        assert np.array_equal(q, plain)
    above = rng.integers(0, 256, count).astype(np.uint8)
    found, plain = both(partial(numbers, q, above, lo))
    assert np.array_equal(found, plain)


def _in_place(delta: WordDelta, planes: Any, base: NDArray[Any]) -> NDArray[Any]:
    out = base.copy()
    delta.paste(planes, out, 0, out)
    return out


@given(st.integers(0, 1 << 30), st.integers(0, 300), st.sampled_from([9, 22, 24, 30]))
@settings(max_examples=60, deadline=None)
def test_drift_and_differences(seed: int, count: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    steps = rng.integers(-(1 << size), 1 << size, DRIFT_BINS).astype(np.int32)
    columns = 1 + seed % 30
    drift = Drift(steps, rng.random(1 + count // columns) < 0.6, columns)
    usual = (rng.normal(0, 1, count).astype("<f4")).view("<u4")
    large = (0x7F800000 - rng.integers(1, 1 << size, count) % 5000).astype("<u4")
    for words in (usual, large, rng.integers(0, 1 << 32, count).astype("<u4")):
        with_loops, without = both(partial(drift.apply, words, 0))
        assert np.array_equal(with_loops, without)
        slow = Drift(steps, rng.random(1) < 2, columns)
        slow._by_half = None
        fast = Drift(steps, rng.random(1) < 2, columns)
        assert np.array_equal(slow._moved(words), fast._moved(words))
        target = rng.integers(0, 1 << 32, count).astype("<u4")
        delta = WordDelta("sub", FLOAT32)
        planes, in_blocks = both(partial(delta.cut, target, words, 0))
        assert list(map(bytes, planes)) == list(map(bytes, in_blocks))
        pasted, plain = both(partial(_in_place, delta, planes, words))
        assert np.array_equal(pasted, plain)
        assert np.array_equal(plain, target)
        digits = differences(target, words, FLOAT32)
        assert np.array_equal(applied(digits, words, FLOAT32), target)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_every_difference_of_halves(dtype: str) -> None:
    """Each word against some of all kinds."""
    target = np.arange(1 << 16, dtype="<u2")
    delta = WordDelta("sub", format_of(dtype))
    for base in (target[::-1].copy(), np.roll(target, 77), np.full_like(target, 0x8000)):
        planes, in_blocks = both(partial(delta.cut, target, base, 0))
        assert list(map(bytes, planes)) == list(map(bytes, in_blocks))
        for pasted in both(partial(_in_place, delta, planes, base)):
            assert np.array_equal(pasted, target)


def test_words_at_odd_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not compiled for: that takes seconds."""
    pytest.importorskip("numba")
    raw = np.arange(4001, dtype=np.uint8).tobytes()
    words = np.frombuffer(raw, "<u4", offset=1)
    delta = WordDelta("sub", FLOAT32)
    compiled.force[:] = [True]
    with monkeypatch.context() as patch:
        patch.setattr(compiled, "_compiled", lambda: pytest.fail("asked for"))
        planes = delta.cut(words, words[::-1], 0)
        base = words.copy()
        backwards = delta.cut(base, words[::-1], 0)
    assert list(map(bytes, planes)) == list(map(bytes, backwards))
    assert np.array_equal(_in_place(delta, planes, words[::-1]), words)


def test_numba_waits_until_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "numba"]:
        monkeypatch.delitem(sys.modules, name)
    asked: list[int] = []
    monkeypatch.setattr(compiled, "_compiled", lambda: asked.append(1))
    compiled._seen[0] = 0
    assert compiled.loops(compiled.PATIENCE - 1) is None
    assert not asked
    compiled.loops(1)
    assert asked


def test_without_numba_everything_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    digits, contexts = drawn(3, 5000)
    stored = [(codec, codec.encode(digits.data, contexts)) for codec in CODECS]
    monkeypatch.setitem(sys.modules, "numba", None)
    compiled._compiled.cache_clear()
    try:
        compiled.force[:] = [True]
        assert compiled.loops() is None
        for codec, data in stored:
            assert bytes(codec.decode(data, contexts)) == digits.tobytes()
    finally:
        compiled._compiled.cache_clear()
