"""What every layout must do: subclass `LayoutSuite` in the layout's own test file."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlv.errors import Damaged
from dlv.pas.floats import format_of
from dlv.pas.layouts.segments import Layout, element_bytes, join_matrix, split_matrix

SHAPES: list[tuple[int, ...]] = [
    (),
    (1,),
    (7,),
    (0,),
    (0, 3),
    (2, 3),
    (3, 1, 2),
    (1, 1, 1, 1),
    (257,),
]

# Words whose bits a detour through floating point would not keep.
SPECIAL_FLOAT32 = (
    0x00000000, 0x80000000,  # zeros of both signs
    0x00000001, 0x807FFFFF, 0x00800000,  # denormals, the smallest normal
    0x7F800000, 0xFF800000,  # infinities
    0x7FC00000, 0xFFC00001, 0x7F800001, 0x7FFFFFFF, 0xFFABCDEF,  # NaNs, quiet and signalling
    0x3F800000, 0x7F7FFFFF,
)  # fmt: skip


def random_matrix(dtype: str, shape: Sequence[int], seed: int) -> bytes:
    """Any bit pattern: NaNs with payloads, negative zeros and denormals among them."""
    return random.Random(seed).randbytes(element_bytes(dtype) * math.prod(shape))


def finite(raw: bytes, dtype: str) -> bytes:
    """The same words, but 0 where one is no finite number."""
    form = format_of(dtype)
    words = np.frombuffer(raw, form.words).copy()
    full = form.words.type(((1 << form.exponent) - 1) << form.mantissa)
    words[(words & full) == full] = 0
    return words.tobytes()


def special_matrix() -> bytes:
    return struct.pack(f"<{len(SPECIAL_FLOAT32)}I", *SPECIAL_FLOAT32)


class LayoutSuite:
    """`layout` and `dtypes` (those that it takes) are what a subclass sets."""

    layout: Layout
    dtypes: Sequence[str]

    def check(self, raw: bytes, dtype: str, shape: Sequence[int]) -> None:
        planes, side = split_matrix(self.layout, raw, dtype, shape)
        assert len(planes) == self.layout.planes(dtype)
        assert len(side) == self.layout.side_bytes(dtype, shape)
        for index, plane in enumerate(planes):
            expected = self.layout.plane_bytes(index, dtype, shape)
            assert expected is None or len(plane) == expected
        copies = [bytes(plane) for plane in planes]
        assert bytes(join_matrix(self.layout, copies, bytes(side), dtype, shape)) == raw

    def test_every_dtype_and_shape(self) -> None:
        for seed, dtype in enumerate(self.dtypes):
            for shape in SHAPES:
                self.check(random_matrix(dtype, shape, seed), dtype, shape)

    def test_bits_that_are_no_numbers(self) -> None:
        raw = special_matrix()
        for dtype in self.dtypes:
            size = element_bytes(dtype)
            count = len(raw) // size
            self.check(raw[: count * size], dtype, (count,))

    @settings(
        max_examples=60, deadline=None, suppress_health_check=[HealthCheck.differing_executors]
    )
    @given(st.data())
    def test_any_bytes(self, data: st.DataObject) -> None:
        dtype = data.draw(st.sampled_from(list(self.dtypes)))
        count = data.draw(st.integers(0, 40))
        size = count * element_bytes(dtype)
        self.check(data.draw(st.binary(min_size=size, max_size=size)), dtype, (count,))

    def test_elementwise_means_that_pieces_may_be_split_alone(self) -> None:
        if not self.layout.elementwise:
            pytest.skip("planes depend on the whole matrix")
        for dtype in self.dtypes:
            size = element_bytes(dtype)
            raw = random_matrix(dtype, (10,), 5)
            whole, _ = split_matrix(self.layout, raw, dtype, (10,))
            first, _ = split_matrix(self.layout, raw[: 4 * size], dtype, (4,))
            second, _ = split_matrix(self.layout, raw[4 * size :], dtype, (6,))
            joined = [bytes(a) + bytes(b) for a, b in zip(first, second, strict=True)]
            assert joined == [bytes(plane) for plane in whole]

    def test_planes_of_wrong_length_are_damage(self) -> None:
        for dtype in self.dtypes:
            planes, side = split_matrix(self.layout, random_matrix(dtype, (6,), 1), dtype, (6,))
            short = [*planes[:-1], bytes(planes[-1])[:-1]]
            if self.layout.plane_bytes(len(planes) - 1, dtype, (6,)) is not None:
                with pytest.raises(Damaged):
                    join_matrix(self.layout, short, side, dtype, (6,))
            with pytest.raises(Damaged):
                join_matrix(self.layout, planes[:-1], side, dtype, (6,))
            with pytest.raises(Damaged):
                join_matrix(self.layout, planes, bytes(side) + b"x", dtype, (6,))

    def test_the_config_names_the_layout(self) -> None:
        assert self.layout.get_config()["id"] == self.layout.layout_id
