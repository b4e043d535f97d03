"""The codec `context-above`: bytes in the order of others."""

from __future__ import annotations

import contextlib
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.errors import Damaged, DlvError
from dlv.pas.coders.codecs import codec_of
from dlv.pas.coders.context import MAX_DIGITS, AboveCodec
from dlv.pas.coders.zstd import ZstdCodec


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 5000), st.integers(0, 1 << 32), st.integers(1, 256))
def test_there_and_back(count: int, seed: int, kinds: int) -> None:
    source = np.random.default_rng(seed)
    above = source.integers(0, kinds, count).astype(np.uint8)
    data = (above * 3 + source.integers(0, 4, count)).astype(np.uint8).tobytes()
    codec = AboveCodec()
    assert bytes(codec.decode(codec.encode(data, above.tobytes()), above.tobytes())) == data


def test_the_order_is_stable_and_by_the_byte_above() -> None:
    above, data = bytes([5, 1, 5, 0, 1]), bytes([10, 20, 30, 40, 50])
    stored = AboveCodec().encode(data, above)
    assert ZstdCodec().decode(stored, 5) == bytes([40, 20, 50, 10, 30])
    source = random.Random(4)
    above, data = bytes(source.choices(range(9), k=5000)), source.randbytes(5000)
    expected = bytes(data[at] for at in sorted(range(5000), key=lambda at: above[at]))
    assert ZstdCodec().decode(AboveCodec().encode(data, above), 5000) == expected


def test_what_depends_on_the_byte_above_becomes_smaller() -> None:
    source = np.random.default_rng(2)
    above = source.integers(0, 8, 100_000).astype(np.uint8)
    data = (above * 32 + source.integers(0, 16, 100_000)).astype(np.uint8).tobytes()
    plain = min(len(ZstdCodec(effort).encode(data)) for effort in ("literals", "ultra"))
    assert len(AboveCodec().encode(data, above.tobytes())) < 0.85 * plain


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.binary(max_size=60))
def test_rubbish_gives_bytes_of_that_length_or_an_error(data: bytes, above: bytes) -> None:
    with contextlib.suppress(DlvError):
        assert len(AboveCodec().decode(data, above)) == len(above)


def test_other_lengths_are_refused() -> None:
    stored = AboveCodec().encode(bytes(100), bytes(100))
    for count in (0, 99, 101):
        with pytest.raises(Damaged):
            AboveCodec().decode(stored, bytes(count))
    with pytest.raises(Damaged, match="segment"):
        AboveCodec().decode(stored, bytes(MAX_DIGITS + 1))


def test_it_stands_nowhere_without_a_plane_above() -> None:
    with pytest.raises(Damaged, match="no contexts"):
        codec_of(AboveCodec().get_config())
