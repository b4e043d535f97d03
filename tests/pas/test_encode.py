"""Encoding: nothing is stored that does not decode to the same bits."""

from __future__ import annotations

import random
import tracemalloc

import numpy as np
import pytest

from dlv.canonical import hash_bytes
from dlv.errors import Damaged
from dlv.pas import encode
from dlv.pas.codecs import codec_of
from dlv.pas.coders.zstd import ZstdCodec
from dlv.pas.encode import encode_elements, encode_object, same_bytes
from dlv.pas.segments import WORDS, Ieee
from tests.conformance.layout import random_matrix, special_matrix


def decoded(dtype: str, parts: list[encode.Encoded]) -> bytes:
    planes = [codec_of(part.codec).decode(part.data, part.raw) for part in parts]
    shape = (sum(len(plane) for plane in planes) // (WORDS[dtype][0] * WORDS[dtype][1]),)
    return bytes(Ieee().join(planes, b"", dtype, shape))


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
        def split(self, raw, dtype, shape):  # type: ignore[no-untyped-def]
            planes, side = super().split(raw, dtype, shape)
            return planes[::-1], side

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
