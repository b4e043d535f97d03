"""The range coder, which dlv only reads: the digits come back, and only Damaged for wrong ones."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dlv.canonical import hash_bytes
from dlv.errors import Damaged
from dlv.pas.coders.context import STATES, TOTAL, ContextRans, Table
from tests.golden.weights.make import encode_ranged, make_table

SCALE = "0" * 64
Bytes = NDArray[np.uint8]


def counted(digits: Bytes, contexts: Bytes) -> NDArray[np.int64]:
    counts = np.zeros((128, 256), np.int64)
    np.add.at(counts, (contexts, digits), 1)
    return counts


def stored_with(digits: Bytes, contexts: Bytes) -> tuple[ContextRans, bytes]:
    table = make_table(counted(digits, contexts))
    codec = ContextRans(8, SCALE, hash_bytes(table), table)
    return codec, encode_ranged(digits.tobytes(), contexts, table)


@st.composite
def digits_in_contexts(draw: st.DrawFn) -> tuple[Bytes, Bytes]:
    count = draw(st.sampled_from([1, 2, 63, 64, 65, 128, 1000, 3001]))
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    contexts = random.integers(0, draw(st.integers(1, 128)), count).astype(np.uint8)
    spread = draw(st.sampled_from([0.0, 0.3, 2.0, 1e9]))
    digits = np.rint(random.normal(0, spread, count)).astype(np.int64).astype(np.uint8)
    return digits, contexts


@given(digits_in_contexts())
def test_there_and_back(pair: tuple[Bytes, Bytes]) -> None:
    digits, contexts = pair
    codec, stored = stored_with(digits, contexts)
    assert bytes(codec.decode(stored, contexts)) == digits.tobytes()


def reference(data: bytes, contexts: list[int], table: bytes) -> bytes:
    """A decoder after the format's description, one digit at a time."""
    used = [c for c in range(128) if table[c // 8] >> (c % 8) & 1]
    rows = {}
    for index, context in enumerate(used):
        at = 16 + 512 * index
        row = [int.from_bytes(table[at + 2 * d : at + 2 * d + 2], "little") for d in range(256)]
        rows[context] = row
    states = [int.from_bytes(data[4 * k : 4 * k + 4], "little") for k in range(64)]
    at, out = 4 * 64, []
    for index, context in enumerate(contexts):
        state = states[index % 64]
        place, digit = state % (1 << 12), 0
        while place >= rows[context][digit]:
            place -= rows[context][digit]
            digit += 1
        state = rows[context][digit] * (state >> 12) + place
        if state < 1 << 16:
            state = state << 16 | int.from_bytes(data[at : at + 2], "little")
            at += 2
        states[index % 64] = state
        out.append(digit)
    assert at == len(data)
    assert states == [1 << 16] * 64
    return bytes(out)


def test_the_format_is_as_described() -> None:
    random = np.random.default_rng(1)
    contexts = random.integers(3, 9, 500).astype(np.uint8)
    digits = np.rint(random.normal(0, contexts)).astype(np.int64).astype(np.uint8)
    table = make_table(counted(digits, contexts))
    stored = stored_with(digits, contexts)[1]
    assert reference(stored, contexts.tolist(), table) == digits.tobytes()


def test_it_comes_near_the_entropy() -> None:
    random = np.random.default_rng(2)
    digits = (random.random(1 << 16) < 0.02).astype(np.uint8)
    contexts = np.full(1 << 16, 40, np.uint8)
    p = digits.mean()
    bits = -(p * np.log2(p) + (1 - p) * np.log2(1 - p)) * (1 << 16)
    stored = len(stored_with(digits, contexts)[1])
    assert stored < bits / 8 * 1.01 + 4 * STATES


def test_damage_is_named() -> None:
    random = np.random.default_rng(3)
    contexts = random.integers(0, 20, 700).astype(np.uint8)
    digits = np.rint(random.normal(0, 1 + contexts)).astype(np.int64).astype(np.uint8)
    codec, stored = stored_with(digits, contexts)
    for wrong in (b"", stored[:255], stored[:-1], stored[:-2], stored + b"12", bytes(len(stored))):
        with pytest.raises(Damaged):
            codec.decode(wrong, contexts)
    for fewer in (0, 1, 699):
        with pytest.raises(Damaged):
            codec.decode(stored, contexts[:fewer])
    for more in (1, 100, 200):
        with pytest.raises(Damaged):
            codec.decode(stored, contexts + np.uint8(more))
    caught = 0
    for at in range(0, len(stored), 5):
        changed = bytearray(stored)
        changed[at] ^= 0x10
        try:
            codec.decode(bytes(changed), contexts)
        except Damaged:
            caught += 1
    assert caught > len(stored) / 5 * 0.9


@given(st.binary(min_size=200, max_size=900))
@settings(max_examples=150, deadline=None)
def test_any_bytes_decode_or_are_damage(data: bytes) -> None:
    contexts = np.arange(100).astype(np.uint8)
    codec, _ = stored_with(np.arange(100).astype(np.uint8), contexts)
    with contextlib.suppress(Damaged):
        assert len(codec.decode(data, contexts)) == 100


def test_no_table_no_digits() -> None:
    codec = ContextRans(0, SCALE, "a" * 64)
    with pytest.raises(Damaged, match="without its table"):
        codec.decode(bytes(256), np.zeros(0, np.uint8))
    with pytest.raises(Damaged, match="table"):
        codec.with_table(b"other")
    table = make_table(counted(np.zeros(1, np.uint8), np.zeros(1, np.uint8)))
    assert (
        ContextRans(0, SCALE, hash_bytes(table))
        .with_table(table)
        .decode(np.full(64, 1 << 16, "<u4").tobytes(), np.zeros(0, np.uint8))
        == b""
    )


@given(st.lists(st.integers(0, 1 << 40), min_size=256, max_size=256))
def test_tables_give_every_digit_seen_a_share(row: list[int]) -> None:
    counts = np.zeros((128, 256), np.int64)
    counts[7] = row
    table = Table(make_table(counts))
    if not any(row):
        assert not table.used.any()
        return
    assert np.flatnonzero(table.used).tolist() == [7]
    shares = table.frequencies[0]
    assert shares.sum() == TOTAL
    assert ((shares > 0) == (counts[7] > 0)).all()


@pytest.mark.parametrize("raw", [b"", bytes(15), bytes(17), b"\x01" + bytes(15) + bytes(512)])
def test_wrong_tables_are_named(raw: bytes) -> None:
    with pytest.raises(Damaged, match="frequencies"):
        Table(raw)
