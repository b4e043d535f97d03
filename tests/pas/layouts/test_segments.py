"""Layouts."""

from __future__ import annotations

import struct

import pytest

from dlv.dtypes import ITEM_BYTES
from dlv.errors import NewerFormat
from dlv.pas.layouts import segments
from dlv.pas.layouts.registry import layout_of
from dlv.pas.layouts.segments import (
    WORDS,
    Ieee,
    element_bytes,
    join_matrix,
    matrix_bytes,
    split_matrix,
    words_of,
)
from tests.conformance.layout import LayoutSuite, random_matrix


class TestIeee(LayoutSuite):
    layout = Ieee()
    dtypes = (*WORDS, "raw:gguf_q4_0")


def test_plane_k_is_byte_k_from_the_top() -> None:
    raw = struct.pack("<2I", 0x01020304, 0xA1B2C3D4)
    planes, side = split_matrix(Ieee(), raw, "float32", (2,))
    assert [bytes(plane) for plane in planes] == [
        b"\x01\xa1",
        b"\x02\xb2",
        b"\x03\xc3",
        b"\x04\xd4",
    ]
    assert side == b""


@pytest.mark.parametrize("dtype", sorted(WORDS))
def test_against_slicing(dtype: str) -> None:
    width, per_element = WORDS[dtype]
    raw = random_matrix(dtype, (1001,), 3)
    planes, _ = split_matrix(Ieee(), raw, dtype, (7, 143))
    assert [bytes(plane) for plane in planes] == [raw[width - 1 - k :: width] for k in range(width)]
    assert len(planes[0]) == 1001 * per_element


def test_blocks_of_a_long_matrix_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "BLOCK", 64)
    for dtype in ("float64", "float32", "bfloat16"):
        for count in (63, 64, 65, 1000):
            raw = random_matrix(dtype, (count,), count)
            planes, side = split_matrix(Ieee(), raw, dtype, (count,))
            width = WORDS[dtype][0]
            assert bytes(planes[1]) == raw[width - 2 :: width]
            assert bytes(join_matrix(Ieee(), planes, side, dtype, (count,))) == raw


def test_complex_numbers_are_twice_as_many_words() -> None:
    raw = struct.pack("<2f", 1.0, -2.0)
    planes, _ = split_matrix(Ieee(), raw, "complex64", ())
    assert [len(plane) for plane in planes] == [2, 2, 2, 2]
    assert bytes(planes[0]) == b"\x3f\xc0"


def test_sizes_agree_with_the_adapters() -> None:
    assert {dtype: element_bytes(dtype) for dtype in WORDS} == ITEM_BYTES


def test_lengths() -> None:
    assert matrix_bytes("complex128", (2, 3)) == 96
    assert matrix_bytes("int16", ()) == 2
    assert matrix_bytes("float32", (4, 0)) == 0
    assert matrix_bytes("raw:q4", (10,)) is None
    with pytest.raises(ValueError, match="7 bytes"):
        split_matrix(Ieee(), b"1234567", "float32", (2,))


@pytest.mark.parametrize(
    "config", [{}, {"id": "table2"}, {"id": "ieee", "rows": "first"}, {"id": None}]
)
def test_unknown_layouts_are_named(config: dict[str, object]) -> None:
    with pytest.raises(NewerFormat, match="layout"):
        layout_of(config)


def test_unknown_dtype_is_named() -> None:
    with pytest.raises(NewerFormat, match="float4"):
        words_of("float4")
    assert layout_of({"id": "ieee"}).get_config() == {"id": "ieee"}
