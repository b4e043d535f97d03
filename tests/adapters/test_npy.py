"""dlv.adapters.npz against numpy's own headers."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dlv.adapters import npz
from dlv.errors import Damaged, DlvError, UnsafeInput

PLAIN = ["bool", "float16", "float32", "float64", "complex64", "complex128"]
PLAIN += [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
RAW = ["<U5", "|S3", "|V7", "<M8[ns]", "<m8[25s]", "<f16", "<c32", "<M8"]
SHAPES = st.lists(st.integers(0, 5), max_size=5).map(tuple)


def saved(array: np.ndarray[Any, Any], version: tuple[int, int] | None = None) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=version, allow_pickle=False)
    return out.getvalue()


def parse(data: bytes) -> npz.Header:
    return npz.parse(data[: npz.header_length(data[:12], "x")], "x")


@given(st.sampled_from(PLAIN + RAW), SHAPES, st.sampled_from([None, (1, 0), (2, 0), (3, 0)]))
@example("float32", (1 << 20, 0), None)
def test_reads_and_writes_as_numpy(
    dtype: str, shape: tuple[int, ...], version: tuple[int, int] | None
) -> None:
    array = np.zeros(shape, dtype)
    data = saved(array, version)
    header = parse(data)
    name = dtype if dtype in PLAIN else f"raw:{dtype}"
    assert (header.dtype, header.shape, header.item) == (name, shape, array.itemsize)
    assert (header.unit, header.nbytes) == (1, array.nbytes)
    assert header.length + header.nbytes == len(data)
    if version in (None, (1, 0)):
        assert npz.make(name, shape) == data[: header.length]


@pytest.mark.parametrize("dtype", [">f4", ">c8", ">U3", ">M8[ns]", ">i8", ">u2", ">c16", ">f16"])
def test_big_endian(dtype: str) -> None:
    header = parse(saved(np.zeros(3, dtype)))
    unit = {"c": 2, "U": 3}.get(dtype[1], 1)
    assert header.unit == np.dtype(dtype).itemsize // unit
    assert ">" not in header.dtype


def test_fortran() -> None:
    assert parse(saved(np.zeros((2, 3), order="F"))).fortran
    assert not parse(saved(np.zeros((2, 3)))).fortran


def with_header(text: str, version: int = 1) -> bytes:
    raw = text.encode("latin-1")
    return (
        npz.MAGIC
        + bytes([version, 0])
        + len(raw).to_bytes(2 if version == 1 else 4, "little")
        + raw
    )


def dictionary(descr: str = "'<f4'", flag: str = "False", shape: str = "(3,)") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {flag}, 'shape': {shape}}}"


@pytest.mark.parametrize(
    "text",
    [
        dictionary(),
        dictionary() + "  \n",
        dictionary(shape="(3L, )"),
        '{"shape": ( 3 , ) , "descr":"<f4","fortran_order":False , }',
    ],
)
def test_forms_that_other_writers_use(text: str) -> None:
    assert parse(with_header(text)).shape == (3,)


WRONG: dict[str, tuple[str, type[DlvError]]] = {
    "object": (dictionary("'|O'"), UnsafeInput),
    "object with size": (dictionary("'|O8'"), UnsafeInput),
    "structured": (dictionary("[('a', '<f4'), ('b', '|O')]"), UnsafeInput),
    "call": (dictionary("__import__('os').system('id')"), Damaged),
    "shape expression": (dictionary(shape="(10**9,)"), Damaged),
    "shape of lists": (dictionary(shape="[3]"), UnsafeInput),
    "shape without comma": (dictionary(shape="(3)"), Damaged),
    "shape of commas": (dictionary(shape="(,)"), Damaged),
    "negative": (dictionary(shape="(-1,)"), Damaged),
    "float": (dictionary(shape="(1.0,)"), Damaged),
    "huge": (dictionary(shape=f"({1 << 40}, {1 << 40})"), UnsafeInput),
    "huge and zero": (dictionary(shape=f"({1 << 62}, {1 << 62}, 0)"), UnsafeInput),
    "zero and huge": (dictionary(shape=f"(0, {1 << 62}, {1 << 62})"), UnsafeInput),
    "long number": (dictionary(shape=f"({'9' * 5000},)"), Damaged),
    "dimensions": (dictionary(shape=f"({'1,' * 65})"), UnsafeInput),
    "nested": ("(" * 30000, Damaged),
    "unary": ("-" * 30000 + "1", Damaged),
    "escapes": (dictionary(r"'\x3cf4'"), Damaged),
    "missing": ("{'descr': '<f4', 'shape': ()}", Damaged),
    "extra": (dictionary()[:-1] + ", 'x': True}", Damaged),
    "twice": (dictionary()[:-1] + ", 'descr': '<f4'}", Damaged),
    "not closed": (dictionary()[:-1], Damaged),
    "more after it": (dictionary() + "x", Damaged),
    "empty": ("", Damaged),
    "flag": (dictionary(flag="1"), Damaged),
    "no byte order": (dictionary("'f4'"), Damaged),
    "native order": (dictionary("'=f4'"), Damaged),
    "order of one byte": (dictionary("'|f4'"), Damaged),
    "odd size": (dictionary("'<f3'"), Damaged),
    "wide bool": (dictionary("'<b4'"), Damaged),
    "wide int": (dictionary("'<i16'"), Damaged),
    "moment of int": (dictionary("'<i8[ns]'"), Damaged),
    "wide moment": (dictionary("'<M4[ns]'"), Damaged),
}


@pytest.mark.parametrize("case", WRONG)
def test_refuses(case: str) -> None:
    text, kind = WRONG[case]
    with pytest.raises(kind):
        parse(with_header(text))


def test_lengths_and_versions() -> None:
    good = with_header(dictionary(), 2)
    assert parse(good).shape == (3,)
    with pytest.raises(UnsafeInput, match="too large"):
        npz.header_length(npz.MAGIC + b"\x02\0" + (1 << 20).to_bytes(4, "little"), "x")
    for data in (b"", good[:9], good[:11], b"\x93NUMPX" + good[6:], npz.MAGIC + b"\4\0" + good[8:]):
        with pytest.raises(Damaged):
            npz.header_length(data[:12], "x")


@given(st.text(st.sampled_from("{}()[]'\":, 0123<fdescrshapnt_oT"), max_size=60))
def test_any_text(text: str) -> None:
    with pytest.raises(DlvError):
        parse(with_header(text))


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float8_e4m3", "raw:F4", "raw:|O", "raw:>U3", "raw:<i3"]
)
def test_dtypes_that_numpy_lacks(dtype: str) -> None:
    assert npz.make(dtype, (1,)) is None
