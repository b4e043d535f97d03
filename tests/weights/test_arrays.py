"""Arrays of every dtype into bytes and back, against numpy and torch."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest

from dlv.dtypes import ITEM_BYTES
from dlv.errors import UsageError
from dlv.weights.arrays import to_array, to_tensors, to_torch

NUMPY = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NUMPY += ["float16", "float32", "float64", "complex64", "complex128"]
TORCH = {
    "bfloat16": "bfloat16",
    "float8_e4m3": "float8_e4m3fn",
    "float8_e5m2": "float8_e5m2",
    "float8_e4m3fnuz": "float8_e4m3fnuz",
    "float8_e5m2fnuz": "float8_e5m2fnuz",
    "float8_e8m0": "float8_e8m0fnu",
}


def one(value: Any) -> Any:
    return to_tensors({"x": value})[0]


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3), (2, 0, 3)])
def test_numpy(dtype: str, shape: tuple[int, ...]) -> None:
    values = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    tensor = one(values)
    assert (tensor.name, tensor.dtype, tensor.shape) == ("x", dtype, shape)
    assert bytes(tensor.read()) == values.tobytes()
    assert tensor.nbytes == values.nbytes
    back = to_array(dtype, shape, tensor.read())
    assert back.dtype == values.dtype
    np.testing.assert_array_equal(back, values)


@pytest.mark.parametrize(
    "values",
    [
        np.arange(6, dtype=">f4").reshape(2, 3),
        np.arange(12, dtype="f4").reshape(3, 4)[:, ::2],
        np.asfortranarray(np.arange(6, dtype="f8").reshape(2, 3)),
        np.arange(6)[::-1],
        np.float32(3.0),
        3.5,
        [[1, 2], [3, 4]],
        True,
    ],
    ids=["big", "strided", "fortran", "reversed", "scalar", "float", "list", "bool"],
)
def test_other_layouts(values: Any) -> None:
    tensor = one(values)
    back = to_array(tensor.dtype, tensor.shape, tensor.read())
    np.testing.assert_array_equal(back, np.asarray(values))


def test_a_copy_is_taken() -> None:
    values = np.ones(3, "f4")
    tensor = one(values)
    values[:] = 7
    np.testing.assert_array_equal(to_array("float32", (3,), tensor.read()), np.ones(3))


@pytest.mark.parametrize(
    "value", [np.array(["a"]), np.array([object()]), np.array([1], "M8[s]"), [[1], [2, 3]], "text"]
)
def test_what_is_not_stored(value: Any) -> None:
    with pytest.raises(UsageError, match="x "):
        one(value)


def test_names_are_text() -> None:
    with pytest.raises(UsageError, match="not text"):
        to_tensors({1: np.ones(1)})  # type: ignore[dict-item]


def test_opaque_dtypes_have_no_numbers() -> None:
    with pytest.raises(UsageError, match="Q4_K"):
        to_array("raw:Q4_K", (256,), bytes(144))


def test_bfloat16_widens_exactly() -> None:
    words = np.arange(1 << 16, dtype="<u2")
    found = to_array("bfloat16", (1 << 16,), words.tobytes())
    for word in range(0, 1 << 16, 97):
        (wanted,) = struct.unpack("<f", struct.pack("<I", word << 16))
        assert found[word] == wanted or (math.isnan(wanted) and math.isnan(found[word]))


@pytest.mark.parametrize("dtype", TORCH)
def test_small_floats_against_torch(dtype: str) -> None:
    torch: Any = pytest.importorskip("torch")
    if not hasattr(torch, TORCH[dtype]):
        pytest.skip(f"this torch has no {TORCH[dtype]}")
    size = ITEM_BYTES[dtype]
    raw = np.arange(256 if size == 1 else 1 << 16, dtype=f"<u{size}").tobytes()
    codes = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(getattr(torch, TORCH[dtype]))
    tensor = one(codes)
    assert (tensor.dtype, bytes(tensor.read())) == (dtype, raw)
    found = to_array(dtype, tensor.shape, raw)
    assert found.dtype == np.float32
    wanted = codes.to(torch.float32).numpy()
    np.testing.assert_array_equal(
        found.view("u4")[~np.isnan(wanted)], wanted.view("u4")[~np.isnan(wanted)]
    )
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))


@pytest.mark.parametrize("dtype", [d for d in NUMPY if d not in ("uint16", "uint32", "uint64")])
def test_torch(dtype: str) -> None:
    torch: Any = pytest.importorskip("torch")
    for shape in ((), (0,), (2, 3)):
        values = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
        tensor = one(torch.from_numpy(values.copy()))
        assert (tensor.dtype, tensor.shape) == (dtype, shape)
        assert bytes(tensor.read()) == values.tobytes()


def test_torch_views() -> None:
    torch: Any = pytest.importorskip("torch")
    base = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    for view in (base.t(), base[:, 1:3], base.expand(2, 3, 4), torch.nn.Parameter(base)):
        tensor = one(view)
        wanted = view.detach().contiguous().numpy()
        np.testing.assert_array_equal(to_array(tensor.dtype, tensor.shape, tensor.read()), wanted)
    complex_ = torch.tensor([1 + 2j, 3 - 4j])
    for view in (complex_.conj(), complex_.conj().imag):
        tensor = one(view)
        wanted = view.resolve_conj().resolve_neg().numpy()
        np.testing.assert_array_equal(to_array(tensor.dtype, tensor.shape, tensor.read()), wanted)


def test_torch_things_that_are_not_stored() -> None:
    torch: Any = pytest.importorskip("torch")
    for value in (
        torch.ones(2, 2).to_sparse(),
        torch.ones(2, device="meta"),
        torch.Size([1]),
        torch.float32,
    ):
        with pytest.raises(UsageError, match="x is "):
            one(value)


@pytest.mark.parametrize("dtype", [*NUMPY, *TORCH])
def test_to_torch_and_back(dtype: str) -> None:
    torch: Any = pytest.importorskip("torch")
    there = getattr(torch, TORCH.get(dtype, dtype), None)
    if there is None:
        pytest.skip(f"this torch has no {dtype}")
    for shape in ((), (0,), (5,), (2, 0, 3), (2, 3)):
        size = math.prod(shape) * ITEM_BYTES[dtype]
        raw = bytes(range(1, 250))[:size] if dtype != "bool" else bytes([0, 1] * 3)[:size]
        read_only = memoryview(raw)
        found = to_torch(dtype, shape, read_only)
        assert (found.dtype, tuple(found.shape)) == (there, shape)
        back = one(found)
        assert (back.dtype, back.shape, bytes(back.read())) == (dtype, shape, raw)
        if size and found.is_floating_point() and there.itemsize > 1:
            found.zero_()  # its memory is its own
            assert bytes(read_only) == raw


@pytest.mark.parametrize("dtype", ["raw:Q4_K", "float99", "Tensor", "nn"])
def test_what_torch_does_not_have(dtype: str) -> None:
    pytest.importorskip("torch")
    with pytest.raises(UsageError, match="has no dtype"):
        to_torch(dtype, (2,), bytes(8))
