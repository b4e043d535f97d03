"""Encoding: nothing is stored that does not decode to the same bits."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import numpy as np
import pytest

from dlv.canonical import hash_bytes
from dlv.errors import Damaged
from dlv.pas import encode
from dlv.pas.coders.codecs import codec_of
from dlv.pas.coders.zstd import ZstdCodec
from dlv.pas.deltas.difference import WordDelta
from dlv.pas.encode import Effort, Part, encode_delta, encode_elements, encode_object, same_bytes
from dlv.pas.layouts.fixed import Fixed
from dlv.pas.layouts.segments import WORDS, Ieee, Layout, join_matrix
from tests.conformance.delta import MemoryStore, near
from tests.conformance.layout import random_matrix, special_matrix


def decoded(dtype: str, parts: list[encode.Encoded]) -> bytes:
    planes = [codec_of(part.codec).decode(part.data, part.raw) for part in parts]
    shape = (sum(len(plane) for plane in planes) // (WORDS[dtype][0] * WORDS[dtype][1]),)
    return bytes(join_matrix(Ieee(), planes, b"", dtype, shape))


@pytest.mark.parametrize("dtype", sorted(WORDS))
def test_every_dtype(dtype: str) -> None:
    raw = random_matrix(dtype, (999,), 8)
    parts = encode_elements(Ieee(), dtype, memoryview(raw))
    assert decoded(dtype, parts) == raw
    for part in parts:
        assert part.blake3 == hash_bytes(part.data)


def test_nan_payloads_stay() -> None:
    raw = special_matrix()
    assert decoded("float32", encode_elements(Ieee(), "float32", raw)) == raw


def test_a_codec_that_loses_a_bit_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ZstdCodec.decode

    def wrong(self: ZstdCodec, data: bytes, raw_length: int) -> bytes:
        result = bytearray(honest(self, data, raw_length))
        result[-1] ^= 1
        return bytes(result)

    monkeypatch.setattr(ZstdCodec, "decode", wrong)
    with pytest.raises(Damaged, match="same bits"):
        encode_elements(Ieee(), "float32", bytes(40_000))
    with pytest.raises(Damaged, match="same bits"):
        encode_object(b"text " * 100)


def test_a_layout_that_swaps_planes_is_caught() -> None:
    class Swapped(Ieee):
        def cutter(self, side, dtype, shape):  # type: ignore[no-untyped-def]
            cutter: Any = super().cutter(side, dtype, shape)
            cut = cutter.cut
            cutter.cut = lambda words, start: cut(words, start)[::-1]
            return cutter

    with pytest.raises(Damaged, match="same bits"):
        encode_elements(Swapped(), "float32", random_matrix("float32", (500,), 1))


def test_what_is_kept_does_not_change_with_the_buffer() -> None:
    buffer = bytearray(random.Random(2).randbytes(5000))
    before = bytes(buffer)
    parts = encode_elements(Ieee(), "uint8", memoryview(buffer))
    one = encode_object(memoryview(buffer))
    buffer[:] = bytes(5000)
    assert bytes(parts[0].data) == bytes(one[0].data) == before


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000, 4099])
def test_same_bytes(count: int) -> None:
    data = random.Random(count).randbytes(count)
    assert same_bytes(data, bytearray(data))
    for position in {0, count // 2, count - 1} if count else set():
        other = bytearray(data)
        other[position] ^= 0x10
        assert not same_bytes(data, other)
    assert not same_bytes(data, data + b"\0")


def test_memory_stays_within_a_few_slices() -> None:
    raw = np.random.default_rng(1).normal(0, 1, 2 << 20).astype("<f4").tobytes()
    encode_elements(Ieee(), "float32", raw)
    tracemalloc.start()
    try:
        encode_elements(Ieee(), "float32", raw)
        assert tracemalloc.get_traced_memory()[1] < 3 * len(raw) + (8 << 20)
    finally:
        tracemalloc.stop()


def trained(count: int, dtype: str, seed: int) -> bytes:
    """Numbers like those of weights."""
    values = np.random.default_rng(seed).normal(0, 0.05, count).astype("<f4")
    if dtype == "bfloat16":
        return (values.view("<u4") >> 16).astype("<u2").tobytes()
    if dtype.startswith("int"):
        return (values * 1000).astype(f"<i{WORDS[dtype][0]}").tobytes()
    return values.astype(f"<f{WORDS[dtype][0]}").tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int32"])
@pytest.mark.parametrize("count", [10, 3000, 60_000])
@pytest.mark.parametrize("coded", [False, True])
def test_small_is_never_larger_than_fast(dtype: str, count: int, coded: bool) -> None:
    if coded and dtype == "int32":
        return
    raw = trained(count, dtype, count)
    moved = near(raw, WORDS[dtype][0], 1)
    shape = (count // 10, 10)
    layout: Layout = Fixed.of([raw, moved], dtype, shape) if coded else Ieee()
    sizes = {}
    efforts: tuple[Effort, ...] = ("fast", "small")
    for effort in efforts:
        store = MemoryStore()
        base = store.add(raw, dtype, shape, layout=layout, effort=effort)
        name = store.add(moved, dtype, shape, layout=layout, kind="sub", base=base, effort=effort)
        sizes[effort] = store.bytes_of(base), store.bytes_of(name)
        assert store.matrix(base) == raw
        assert store.matrix(name) == moved
    assert all(small <= fast for small, fast in zip(sizes["small"], sizes["fast"], strict=True))


def test_planes_that_share_a_chunk_have_no_contexts() -> None:
    for count, context in ((32_768, False), (32_769, True)):
        raw = trained(count, "bfloat16", 1)
        store = MemoryStore()
        name = store.add(raw, "bfloat16", (count,), effort="small")
        used = {str(row.codec["id"]) for row in store.chunks(name)}
        assert ("context-above" in used) == context


def test_goal_of_half_precision() -> None:
    """Exponent and sign of real weights take 2.65 bits of 16, the rest is noise."""
    raw = trained(400_000, "bfloat16", 3)
    store = MemoryStore()
    name = store.add(raw, "bfloat16", (400, 1000), effort="small")
    assert store.bytes_of(name) <= 0.67 * len(raw)
    assert store.matrix(name) == raw


def test_an_encoder_that_loses_a_bit_of_a_delta_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = trained(3000, "float32", 5)
    store = MemoryStore()
    base = store.add(raw, "float32", (3000,))
    honest = WordDelta.paste

    def wrong(self: WordDelta, planes: Any, base: Any, start: int, out: Any) -> None:
        honest(self, planes, base, start, out)
        out[-1] ^= 1

    monkeypatch.setattr(WordDelta, "paste", wrong)
    for kind in ("xor", "sub"):
        with pytest.raises(Damaged, match="same bits"):
            store.add(near(raw, 4, 1), "float32", (3000,), kind=kind, base=base)


def test_bases_of_another_size_are_refused() -> None:
    for kind in ("xor", "sub"):
        with pytest.raises(ValueError, match="words of a base"):
            encode_delta(
                kind,
                *(bytes(8), bytes(12), "float32", (2,), "a" * 64, "b" * 64, list[Part]().append),
                layout=Ieee(),
            )
