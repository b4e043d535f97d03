"""Sizes of tensors, also of block-wise and packed dtypes."""

from __future__ import annotations

import pytest

from dlv.adapters.blocks import tensor_bytes


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
