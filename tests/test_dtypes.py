"""The table of element types, held against numpy and Python's struct module."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from dlv.dtypes import DTYPES, block_of, tensor_bytes


@pytest.mark.parametrize("name", DTYPES)
def test_a_row_agrees_with_numpy_and_struct(name: str) -> None:
    dtype = DTYPES[name]
    assert block_of(name) == (1, dtype.bytes)
    if dtype.numpy is not None:
        assert np.dtype(dtype.numpy).name == name
        assert np.dtype(dtype.numpy).itemsize == dtype.bytes
    if dtype.struct is not None:
        assert struct.calcsize(f"<{dtype.struct}") == dtype.bytes
    if dtype.exponent and dtype.numpy is not None:
        limits = np.finfo(np.dtype(dtype.numpy))
        assert (limits.nexp, limits.nmant) == (dtype.exponent, dtype.mantissa)
        assert limits.minexp == 1 - dtype.bias
    if "float" in name and dtype.exponent:
        assert 1 + dtype.exponent + dtype.mantissa == 8 * dtype.bytes


@pytest.mark.parametrize(
    ("dtype", "shape", "size"),
    [
        ("float32", (3, 5), 60),
        ("bfloat16", (), 2),
        ("float64", (0, 7), 0),
        ("raw:Q4_K", (2, 512), 4 * 144),
        ("raw:Q8_0_BE", (64,), 2 * 34),
        ("raw:F4", (5,), 3),
        ("raw:F6_E2M3", (4,), 3),
        ("raw:INT4", (3, 3), 5),
        ("raw:complex32", (3,), 12),
        ("raw:int7", (3,), 3),
        ("raw:never heard of", (9,), 0),
    ],
)
def test_sizes(dtype: str, shape: tuple[int, ...], size: int) -> None:
    assert tensor_bytes(dtype, shape) == size
