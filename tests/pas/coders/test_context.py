"""The context codecs: any digits in any contexts, and nothing but Damaged for wrong bytes."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dlv.errors import Damaged
from dlv.pas.coders.context import ContextPacked, ContextZstd, Order, zstd_blocks
from dlv.pas.coders.contexts import CONTEXTS

SCALE = "0" * 64
CODECS: list[ContextZstd | ContextPacked] = [ContextZstd(8, SCALE), ContextPacked(8, SCALE)]


@st.composite
def digits_in_contexts(draw: st.DrawFn) -> tuple[bytes, NDArray[np.uint8]]:
    count = draw(st.integers(0, 3000))
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    contexts = random.integers(0, draw(st.integers(1, 128)), count).astype(np.uint8)
    spread = draw(st.sampled_from([0.0, 0.3, 2.0, 60.0]))
    digits = np.rint(random.normal(0, spread * (1 + contexts / 16), count)).astype(np.int64)
    return digits.astype(np.uint8).tobytes(), contexts


@pytest.mark.parametrize("codec", CODECS)
@given(digits_in_contexts())
def test_there_and_back(
    codec: ContextZstd | ContextPacked, pair: tuple[bytes, NDArray[np.uint8]]
) -> None:
    digits, contexts = pair
    stored = codec.encode(digits, contexts)
    assert bytes(codec.decode(stored, contexts)) == digits


@given(digits_in_contexts())
def test_the_order_is_that_of_a_stable_sort(pair: tuple[bytes, NDArray[np.uint8]]) -> None:
    digits, contexts = pair
    order = Order(contexts)
    by_context = sorted(range(len(digits)), key=lambda index: int(contexts[index]))
    assert order.index.tolist() == by_context
    assert bytes(order.scatter(order.gather(digits))) == digits


def test_contexts_make_digits_smaller() -> None:
    random = np.random.default_rng(3)
    contexts = random.integers(0, 16, 1 << 17).astype(np.uint8)
    digits = np.rint(random.normal(0, 1.5 ** contexts.astype(float) / 3)).astype(np.int64)
    data = digits.astype(np.uint8).tobytes()
    plain = len(zstandard.compress(data, 19))
    sorted_ = len(CODECS[0].encode(data, contexts))
    packed = len(CODECS[1].encode(data, contexts))
    assert sorted_ < 0.93 * plain
    assert packed < 0.99 * sorted_


def test_a_rare_digit_costs_little() -> None:
    random = np.random.default_rng(4)
    digits = (random.random(1 << 18) < 0.02).astype(np.uint8).tobytes()
    contexts = np.full(1 << 18, 40, np.uint8)
    # Its entropy is .1414 bits a digit; classes cannot go below .25 without repeats.
    assert len(CODECS[1].encode(digits, contexts)) < 0.3 * (1 << 18) / 8


@given(st.integers(0, 1 << 30), st.integers(0, 5000), st.sampled_from([0, 0.45, 0.6, 0.97, 1]))
@settings(max_examples=80, deadline=None)
def test_a_context_of_most_digits_is_found_by_itself(seed: int, count: int, share: float) -> None:
    """The order is that of a stable sort whatever way it was found."""
    rng = np.random.default_rng(seed)
    contexts = rng.integers(0, CONTEXTS, count).astype(np.uint8)
    contexts[rng.random(count) < share] = seed % CONTEXTS
    order = Order(contexts)
    assert np.array_equal(order.index, np.argsort(contexts, kind="stable"))
    assert np.array_equal(order.counts, np.bincount(contexts, minlength=CONTEXTS))


@pytest.mark.parametrize("share", [0, 0.9])
def test_contexts_beyond_the_limit(share: float) -> None:
    contexts = np.full(4000, 70, np.uint8)
    contexts[int(share * 4000) :] = 3
    contexts[-1] = 70
    for limit in (64, CONTEXTS):
        if limit == 64:
            with pytest.raises(Damaged, match="not below 64"):
                Order(contexts, limit)
        else:
            assert Order(contexts, limit).counts[70] == int(share * 4000) + 1


@given(st.lists(st.integers(0, 40), max_size=30), st.integers(0, 3))
def test_blocks_are_one_plain_frame(counts: list[int], more: int) -> None:
    data = np.arange(sum(counts) + more).astype(np.uint8)
    stored = zstd_blocks(data, counts)
    assert zstandard.frame_content_size(stored) == len(data)
    assert zstandard.decompress(stored) == data.tobytes()


def test_runs_that_are_alike_share_a_block_and_others_do_not() -> None:
    random = np.random.default_rng(6)
    narrow = np.rint(random.normal(0, 1, 1 << 15)).astype(np.int64).astype(np.uint8)
    wide = np.rint(random.normal(0, 12, 1 << 15)).astype(np.int64).astype(np.uint8)
    many = [64] * 512
    assert len(zstd_blocks(narrow, many)) < 1.02 * len(zstd_blocks(narrow, [len(narrow)]))
    both = np.concatenate((narrow, wide))
    apart = len(zstd_blocks(narrow, [len(narrow)])) + len(zstd_blocks(wide, [len(wide)]))
    assert len(zstd_blocks(both, [64] * 1024)) < 1.02 * apart
    assert len(zstd_blocks(both, [len(both)])) > 1.05 * apart


@pytest.mark.parametrize("codec", CODECS)
def test_damage_is_named(codec: ContextZstd | ContextPacked) -> None:
    random = np.random.default_rng(5)
    contexts = random.integers(0, 128, 2000).astype(np.uint8)
    digits = np.rint(random.normal(0, contexts / 20)).astype(np.int64).astype(np.uint8).tobytes()
    stored = codec.encode(digits, contexts)
    for size in range(0, len(stored), 7):
        with pytest.raises(Damaged):
            codec.decode(stored[:size], contexts)
    with pytest.raises(Damaged):
        codec.decode(stored + b"\0", contexts)
    for fewer in (0, 1, 1999):
        with pytest.raises(Damaged):
            codec.decode(stored, contexts[:fewer])
    for at in range(0, len(stored), 3):
        for flip in (1, 0x80, 0xFF):
            changed = bytearray(stored)
            changed[at] ^= flip
            with contextlib.suppress(Damaged):
                assert len(codec.decode(bytes(changed), contexts)) == 2000


@pytest.mark.parametrize("codec", CODECS)
def test_contexts_beyond_the_last_are_refused(codec: ContextZstd | ContextPacked) -> None:
    with pytest.raises(Damaged):
        codec.encode(b"\0", np.array([128], np.uint8))


@given(st.binary(max_size=300))
@settings(max_examples=300)
def test_any_bytes_decode_or_are_damage(data: bytes) -> None:
    contexts = np.arange(100).astype(np.uint8)
    for codec in CODECS:
        with contextlib.suppress(Damaged):
            assert len(codec.decode(data, contexts)) == 100
    # Past the bit map and the length there are frames, so that more than the head is tried.
    frame = zstandard.compress(b"\0")
    with contextlib.suppress(Damaged):
        head = data[:16].ljust(16, b"\0") + struct.pack("<I", len(frame))
        assert len(CODECS[1].decode(head + frame + data[16:], contexts)) == 100


def test_a_frame_of_more_than_was_asked_for_takes_no_memory() -> None:
    bomb = zstandard.compress(bytes(64 << 20))
    contexts = np.zeros(1000, np.uint8)
    packed = b"\xff" * 16 + struct.pack("<I", len(bomb)) + bomb + bomb
    tracemalloc.start()
    try:
        for codec, data in zip(CODECS, (bomb, packed), strict=True):
            with pytest.raises(Damaged):
                codec.decode(data, contexts)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_classes_are_filled_up_with_zeros() -> None:
    contexts = np.zeros(3, np.uint8)
    good = b"\xff" * 16
    for last, fine in ((0b00010101, True), (0b01010101, False)):
        classes, rest = zstandard.compress(bytes([last])), zstandard.compress(b"")
        stored = good + struct.pack("<I", len(classes)) + classes + rest
        if fine:
            assert bytes(CODECS[1].decode(stored, contexts)) == bytes(3)
        else:
            with pytest.raises(Damaged, match="filled up"):
                CODECS[1].decode(stored, contexts)
