"""dlv.adapters.splice against numpy's views."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from dlv.adapters.splice import extent, gather, is_contiguous, normal_form, swap, transpose

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


AXES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12)), max_size=5)


@given(AXES, st.sampled_from([1, 2, 4, 8, 16]))
def test_as_numpy(axes: list[tuple[int, int]], item: int) -> None:
    shape = [size for size, _ in axes]
    strides = [step for _, step in axes]
    needed = extent(shape, strides)
    data = bytes(i * 7 % 251 for i in range(needed * item))
    if not needed:
        assert gather(data, item, shape, strides) == b""
        return
    base = np.frombuffer(data, dtype=f"V{item}")
    view = as_strided(base, shape, [step * item for step in strides])
    assert gather(data, item, shape, strides) == view.tobytes()


@given(AXES)
def test_extent_is_the_last_index(axes: list[tuple[int, int]]) -> None:
    shape, strides = [a for a, _ in axes], [b for _, b in axes]
    last = -1
    for index in np.ndindex(*shape):
        last = max(last, sum(i * step for i, step in zip(index, strides, strict=True)))
    assert extent(shape, strides) == last + 1


@given(AXES)
def test_contiguous_means_one_run(axes: list[tuple[int, int]]) -> None:
    shape, strides = [a for a, _ in axes], [b for _, b in axes]
    offsets = [sum(map(int.__mul__, i, strides)) for i in np.ndindex(*shape)]
    assert is_contiguous(shape, strides) == (offsets == list(range(len(offsets))))


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((), (), ((), ())),
        ((1, 1), (5, 9), ((), ())),
        ((2, 3, 4), (12, 4, 1), ((24,), (1,))),
        ((2, 3, 4), (24, 4, 1), ((2, 12), (24, 1))),
        ((4, 3), (1, 4), ((4, 3), (1, 4))),
        ((3, 4), (0, 0), ((12,), (0,))),
    ],
)
def test_axes_are_merged(
    shape: tuple[int, ...], strides: tuple[int, ...], expected: tuple[tuple[int, ...], ...]
) -> None:
    assert normal_form(shape, strides) == expected
