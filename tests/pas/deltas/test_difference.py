"""Deltas: configs, words, overlaps of other shapes."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.errors import Damaged, NewerFormat
from dlv.pas.deltas.difference import Delta, base_of, delta_cutter, delta_of, overlap_of, stretched
from dlv.pas.floats import words_in
from dlv.pas.layouts.fixed import DTYPES, Fixed
from dlv.pas.layouts.segments import BLOCK, WORDS, Ieee, Layout
from tests.conformance.delta import DeltaSuite, MemoryStore
from tests.conformance.layout import finite

BASE = "ab" * 32


def test_null_is_the_matrix_itself() -> None:
    assert delta_of(None) is None
    assert base_of(None) is None


@pytest.mark.parametrize(
    "config",
    [
        {"id": "warp", "base": BASE},
        {"id": None},
        {},
        {"id": ["xor"]},
        {"id": "xor", "base": BASE},
        {"id": "xor", "base": BASE, "overlap": None, "predictor": []},
        {"id": "sub", "base": BASE, "overlap": None},
    ],
)
def test_unknown_deltas_are_named(config: dict[str, object]) -> None:
    with pytest.raises(NewerFormat, match="delta"):
        delta_of(config)


def sub(**changes: Any) -> dict[str, Any]:
    return {"id": "sub", "base": BASE, "overlap": None, "predictor": [], **changes}


@pytest.mark.parametrize(
    "config",
    [
        sub(base="ab"),
        sub(base=7),
        sub(overlap=3),
        sub(overlap=[-1]),
        sub(overlap=[True]),
        sub(overlap=[1.0]),
        sub(predictor={}),
        sub(predictor=["drift"]),
        sub(predictor=[{}]),
        sub(predictor=[{"id": "x"}] * 17),
    ],
)
def test_impossible_values_are_damage(config: dict[str, object]) -> None:
    with pytest.raises(Damaged, match="delta"):
        delta_of(config)


def test_configs_say_what_they_were_made_of() -> None:
    for made in (
        Delta("xor", BASE, None),
        Delta("xor", BASE, (2, 3)),
        Delta("sub", BASE, (), ({"id": "drift", "data": BASE},)),
    ):
        assert delta_of(made.get_config()) == made


def test_a_base_is_found_whatever_the_delta() -> None:
    assert base_of({"id": "warp", "base": "ab"}) == "ab"
    assert base_of({"id": "warp", "base": 7}) is None


def test_overlaps() -> None:
    assert overlap_of((2, 3), (2, 3)) is None
    assert overlap_of((2, 3), (4, 1)) == (2, 1)
    with pytest.raises(ValueError, match="rank"):
        overlap_of((2, 3), (6,))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_base_in_another_shape(data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, 4))
    sizes = st.lists(st.integers(0, 5), min_size=rank, max_size=rank)
    old, new = data.draw(sizes), data.draw(sizes)
    base = np.frombuffer(random.Random(1).randbytes(2 * int(np.prod(old, dtype=int))), "<u2")
    expected = np.zeros(new, "<u2")
    where = tuple(slice(0, min(pair)) for pair in zip(old, new, strict=True))
    expected[where] = base.reshape(old)[where]
    flat = expected.reshape(-1)
    start = data.draw(st.integers(0, len(flat)))
    count = data.draw(st.integers(0, len(flat) - start))
    found = stretched(base, old, new, start, count)
    assert found.tolist() == flat[start : start + count].tolist()


class TestXor(DeltaSuite):
    kind = "xor"


class TestSub(DeltaSuite):
    kind = "sub"


class FixedDeltas(DeltaSuite):
    dtypes = DTYPES

    def layout_of(self, raws: Sequence[bytes], dtype: str, shape: Sequence[int]) -> Layout:
        return Fixed.of(raws, dtype, shape, rows="last" if len(raws[0]) % 3 else "first")

    def bytes_for(self, dtype: str, shape: Sequence[int], seed: int) -> bytes:
        return finite(super().bytes_for(dtype, shape, seed), dtype)

    def changed(self, raw: bytes, dtype: str, shape: Sequence[int], seed: int) -> bytes:
        return finite(super().changed(raw, dtype, shape, seed), dtype)


class TestXorOfCodes(FixedDeltas):
    kind = "xor"


class TestSubOfCodes(FixedDeltas):
    kind = "sub"


def test_the_words_of_a_delta() -> None:
    """By hand: the difference of words that stand in the order of the numbers."""

    def order(word: int) -> int:
        return word ^ (0xFFFFFFFF if word >> 31 else 0x80000000)

    source = random.Random(5)
    base = [source.getrandbits(32) for _ in range(50)]
    target = [source.getrandbits(32) for _ in range(25)] + [word ^ 7 for word in base[25:]]
    store = MemoryStore()
    raws = [struct.pack("<50I", *words) for words in (base, target)]
    first = store.add(raws[0], "float32", (50,))
    for kind in ("xor", "sub"):
        name = store.add(raws[1], "float32", (50,), kind=kind, base=first)
        planes = [
            bytes(store.read(next(row for row in store.chunks(name) if row.plane == plane)))
            for plane in range(4)
        ]
        for at, (word, under) in enumerate(zip(target, base, strict=True)):
            digits = [planes[plane][at] for plane in range(4)]
            if kind == "xor":
                assert digits == list((word ^ under).to_bytes(4))
            else:
                signed = [digit - 256 if digit > 127 else digit for digit in digits]
                value = sum(digit << (24 - 8 * plane) for plane, digit in enumerate(signed))
                assert (order(under) + value) % 2**32 == order(word)
        del store.encodings[name], store.rows[name]


@pytest.mark.parametrize("kind", ["xor", "sub"])
@pytest.mark.parametrize("dtype", WORDS)
def test_a_base_gives_way_to_its_target(dtype: str, kind: str) -> None:
    """In place, over the end of a block, and in several threads that have their own memory."""
    rng = np.random.default_rng(1)
    size = (BLOCK + 3) * WORDS[dtype][0]
    base, *targets = (words_in(rng.bytes(size), dtype) for _ in range(4))
    cutter = delta_cutter(kind, Ieee(), b"", dtype, (len(base),))

    def back(target: Any) -> Any:
        words = base.copy()
        for _ in range(3):
            planes = cutter.cut(target, base, 0)
            words[:] = base
            cutter.paste(planes, words, 0, words)
        return words

    with ThreadPoolExecutor(3) as pool:
        for target, found in zip(targets, pool.map(back, targets), strict=True):
            assert np.array_equal(found, target)
