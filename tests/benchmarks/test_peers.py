from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.storage import models, ratios
from benchmarks.storage.models import Matrix
from benchmarks.storage.peers import AGAINST, ALONE, Blob, Peer, unzigzag, zigzag

DTYPES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8, "int64": 8}
DTYPES |= {"int8": 1, "float8_e4m3fn": 1}


@pytest.mark.parametrize("peer", [*ALONE, *AGAINST], ids=lambda peer: peer.name)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_bit_pattern_comes_back(peer: Peer, dtype: str) -> None:
    rng = np.random.default_rng(3)
    # ZipNN takes bytes by fours and crashes on a rest.
    for count in (4, 28, 5000) if DTYPES[dtype] == 1 else (1, 7, 5000):
        base = Matrix(dtype, (count,), rng.bytes(count * DTYPES[dtype]))
        target = Matrix(dtype, (count,), rng.bytes(count * DTYPES[dtype]))
        blob = peer.encode(target, base)
        assert all(isinstance(part, bytes) for part in blob)
        assert peer.decode(blob, target, base) == target.raw


@pytest.mark.parametrize("peer", [*ALONE, *AGAINST], ids=lambda peer: peer.name)
def test_close_weights_come_back_and_the_given_ones_stay(peer: Peer) -> None:
    rng = np.random.default_rng(5)
    start = rng.normal(0, 0.05, (40, 300)).astype("f4")
    moved = start + rng.normal(0, 1e-5, start.shape).astype("f4")
    base, target = models.matrix(start), models.matrix(moved)
    keep = bytes(bytearray(base.raw)), bytes(bytearray(target.raw))
    blob = peer.encode(target, base)
    assert peer.decode(blob, target, base) == keep[1]
    assert (base.raw, target.raw) == keep
    assert 0 < sum(map(len, blob)) < len(target.raw)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=1), st.sampled_from(["<u2", "<u4", "<u8"]))
def test_zigzag_keeps_small_differences_small(values: list[int], kind: str) -> None:
    words = np.array(values, "<u8").astype(kind)
    assert np.array_equal(unzigzag(zigzag(words)), words)
    minus = np.array([1, 2, 3], kind) * np.array([-1], kind.replace("u", "i")).view(kind)
    assert zigzag(minus).tolist() == [1, 3, 5]


def test_a_peer_that_loses_a_bit_is_found() -> None:
    def encode(target: Matrix, _: Matrix | None) -> Blob:
        return [target.raw]

    def decode(blob: Blob, *_: Matrix | None) -> bytes:
        return bytes([blob[0][0] ^ 1]) + blob[0][1:]

    model = {"w": models.matrix(np.ones(5, "f4"))}
    with pytest.raises(SystemExit, match="wrong bits for w"):
        ratios.by_peer(Peer("lossy", encode, decode), model, None, ratios.Figure())


def test_a_peer_without_a_base_of_this_shape_stores_the_matrix_alone() -> None:
    rng = np.random.default_rng(1)
    target = {"w": models.matrix(rng.normal(size=(30, 40)).astype("f4"))}
    base = {"w": models.matrix(rng.normal(size=(31, 40)).astype("f4"))}
    with_base, without = ratios.Figure(), ratios.Figure()
    ratios.by_peer(AGAINST[0], target, base, with_base)
    ratios.by_peer(ALONE[1], target, None, without)
    assert with_base.ratios == without.ratios
