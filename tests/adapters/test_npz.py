"""dlv.adapters.npz against numpy."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dlv.adapters import npz
from dlv.adapters.checkpoint import Adapter
from dlv.errors import Damaged, DlvError, UnsafeInput, UsageError
from tests.conformance.adapter import AdapterSuite, in_memory

Array = np.ndarray[Any, Any]

NAMES = "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64"


class TestConformance(AdapterSuite):
    adapter = cast(Adapter, npz)
    dtypes = (*NAMES.split(), "complex64", "complex128")


def everything(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    checkpoint = npz.open(str(path))
    try:
        return {t.name: (t.dtype, t.shape, bytes(t.read())) for t in checkpoint.tensors}
    finally:
        checkpoint.close()


def restored(path: Path) -> bytes:
    checkpoint = npz.open(str(path))
    out = io.BytesIO()
    try:
        assert checkpoint.exact
        assert checkpoint.skeleton is not None
        assert len(checkpoint.skeleton) < 2000
        npz.restore(out, checkpoint.skeleton, checkpoint.tensors)
    finally:
        checkpoint.close()
    return out.getvalue()


def little(array: Array) -> bytes:
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes(order="C")


def random_array(dtype: str, shape: tuple[int, ...], order: str, seed: int) -> Array:
    raw = np.random.default_rng(seed).bytes(np.dtype(dtype).itemsize * int(np.prod(shape)))
    if np.dtype(dtype).kind in "bU":
        raw = bytes(len(raw))
    array = np.frombuffer(raw, dtype).reshape(shape)
    return array.copy(order="F" if order == "F" else "C")


ARRAYS = st.builds(
    random_array,
    st.sampled_from([*NAMES.split(), ">f4", ">f8", ">c8", ">c16", ">i2", ">U3", "<U3", "S3", "V5"]),
    hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
    st.sampled_from("CF"),
    st.integers(0, 1 << 20),
)
TREES = st.dictionaries(
    st.from_regex(r"[a-zA-Zä][a-z.0-9_]{0,6}(/[a-z]{1,3})?", fullmatch=True), ARRAYS, max_size=4
)


@settings(max_examples=80, deadline=None)
@given(TREES, st.booleans())
def test_numpy_archives(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, Array], deflate: bool
) -> None:
    path = tmp_path_factory.mktemp("npz") / "a.npz"
    (np.savez_compressed if deflate else np.savez)(path, allow_pickle=False, **tree)
    found = everything(path)
    assert {name: (shape, data) for name, (_, shape, data) in found.items()} == {
        name: (array.shape, little(array)) for name, array in tree.items()
    }
    if deflate and tree:
        checkpoint = npz.open(str(path))
        checkpoint.close()
        assert (checkpoint.exact, checkpoint.skeleton) == (False, None)
        assert "compressed" in checkpoint.notes[-1]
    else:
        assert restored(path) == path.read_bytes()


@settings(max_examples=80, deadline=None)
@given(ARRAYS)
def test_single_arrays(tmp_path_factory: pytest.TempPathFactory, array: Array) -> None:
    path = tmp_path_factory.mktemp("npy") / "conv1.npy"
    np.save(path, array, allow_pickle=False)
    [(name, (_, shape, data))] = everything(path).items()
    assert (name, shape, data) == ("conv1", array.shape, little(array))
    assert restored(path) == path.read_bytes()


def test_saves_the_bytes_of_numpy(tmp_path: Path) -> None:
    arrays = {"b": np.arange(6.0).reshape(2, 3), "a/c": np.array(3), "u": np.array(["ab", "c"])}
    np.savez(tmp_path / "theirs.npz", allow_pickle=False, **arrays)
    out = io.BytesIO()
    checkpoint = npz.open(str(tmp_path / "theirs.npz"))
    npz.save(out, checkpoint.tensors, {"lost": "yes"})
    checkpoint.close()
    assert out.getvalue() == (tmp_path / "theirs.npz").read_bytes()


@pytest.mark.parametrize("name", ["../x", "/x", "a\\b", "a\0", "a//b"])
def test_names_that_no_archive_may_hold(name: str) -> None:
    with pytest.raises(UsageError, match="name"):
        npz.save(io.BytesIO(), [in_memory(name, ("uint8", (), b"a"))], {})


def test_other_members_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, a=np.arange(3))
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr("readme.txt", "text" * 50)
    assert list(everything(path)) == ["a"]
    assert restored(path) == path.read_bytes()
    checkpoint = npz.open(str(path))
    checkpoint.close()
    assert checkpoint.notes == ["readme.txt is not an array"]


def member(content: bytes, method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        file.writestr("a.npy", content)
    return out.getvalue()


def array_bytes(array: Array, *, pickled: bool = False) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=pickled)
    return out.getvalue()


PLAIN = array_bytes(np.arange(9, dtype="<f4"))
WRONG: dict[str, tuple[bytes, type[DlvError]]] = {
    "objects": (array_bytes(np.array([{}, 1], object), pickled=True), UnsafeInput),
    "structured": (array_bytes(np.zeros(2, "i4,f4")), UnsafeInput),
    "short": (PLAIN[:-1], Damaged),
    "long": (PLAIN + b"x", Damaged),
    "header cut": (PLAIN[:40], Damaged),
    "magic cut": (PLAIN[:9], Damaged),
    "two arrays": (PLAIN * 2, Damaged),
    "terabytes": (PLAIN.replace(b"(9,), }         ", b"(900000000000,),"), Damaged),
    "no array": (b"hello", Damaged),
    "empty": (b"", Damaged),
}


@pytest.mark.parametrize("case", WRONG)
def test_refuses(tmp_path: Path, case: str) -> None:
    content, kind = WRONG[case]
    for data in (content, member(content), member(content, zipfile.ZIP_DEFLATED)):
        path = tmp_path / "a"
        path.write_bytes(data)
        with pytest.raises(kind):
            npz.open(str(path))


def test_damaged_elements_are_found_when_read(tmp_path: Path) -> None:
    data = bytearray(member(PLAIN))
    at = bytes(data).index(PLAIN) + len(PLAIN) - 1
    data[at] ^= 1
    path = tmp_path / "a.npz"
    path.write_bytes(data)
    checkpoint = npz.open(str(path))
    with pytest.raises(Damaged, match="is corrupt"):
        checkpoint.tensors[0].read()
    checkpoint.close()
