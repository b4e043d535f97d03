"""dlv.adapters.strided against numpy."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dlv.adapters.strided import swap, transpose

SHAPES = st.lists(st.integers(0, 4), max_size=5)
TYPES = ["u1", "u2", "u4", "u8", "c16", "S3", "U5", "S7"]


@given(SHAPES, st.sampled_from(TYPES), st.randoms(use_true_random=False))
def test_transpose(shape: list[int], name: str, random: object) -> None:
    dtype = np.dtype(name)
    size = int(np.prod(shape)) * dtype.itemsize
    # Opaque bytes: numpy must not interpret them either (NaN payloads, text).
    data = np.arange(size, dtype=np.uint32).astype(np.uint8).tobytes()
    array = np.frombuffer(data, f"V{dtype.itemsize}").reshape(shape)
    other = bytes(transpose(data, shape, dtype.itemsize))
    assert other == array.tobytes(order="F")
    assert bytes(transpose(other, shape[::-1], dtype.itemsize)) == data


@given(st.binary(max_size=20), st.sampled_from([1, 2, 4, 8, 16]))
def test_swap(seed: bytes, unit: int) -> None:
    data = seed * unit
    expected = b"".join(data[at : at + unit][::-1] for at in range(0, len(data), unit))
    assert bytes(swap(data, unit)) == expected
    assert bytes(swap(memoryview(expected), unit)) == data
