"""dlv.adapters.hdf5.writer: h5py reads what it writes."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from dlv.adapters.checkpoint import Tensor
from dlv.adapters.hdf5 import writer as hdf5_writer
from dlv.adapters.hdf5.writer import Group
from dlv.errors import UsageError

h5py = pytest.importorskip("h5py")

DTYPES = (*("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"), "f2", "f4", "f8", "?", "c8", "c16")


def tensor(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]], dtype: str = "") -> Tensor:
    data = array.tobytes()
    return Tensor("t", dtype or str(array.dtype), array.shape, len(data), lambda: data)


@pytest.mark.parametrize("many", [1, 2000])
def test_h5py_reads_it(tmp_path: Path, many: int) -> None:
    dice = np.random.default_rng(0)
    root = Group(attributes={"about": "ünï", "empty": "", "long": "x" * 100_000})
    arrays = {}
    for dtype in DTYPES:
        for shape in ((), (3,), (2, 0), (2, 3, 4)):
            name = f"{dtype}-{len(shape)}"
            arrays[f"types/{name}"] = dice.integers(0, 2, shape).astype(dtype)
            root.below(["types"]).tensors[name] = tensor(arrays[f"types/{name}"])
    for number in range(many):
        arrays[f"layers/n{number}/vars/0"] = np.arange(number % 5, dtype="f4")
        group = root.below(["layers", f"n{number}", "vars"])
        group.tensors["0"] = tensor(arrays[f"layers/n{number}/vars/0"])
        group.attributes["name"] = f"layer{number}"
    path = tmp_path / "a.h5"
    with path.open("wb") as out:
        hdf5_writer.write_tree(out, root)
    with h5py.File(path) as file:
        assert dict(file.attrs) == {"about": "ünï", "empty": "", "long": "x" * 100_000}
        assert len(file["layers"]) == many
        for name, array in arrays.items():
            theirs = file[name]
            assert (theirs.shape, theirs.dtype) == (array.shape, array.dtype), name
            assert theirs[()].tobytes() == array.tobytes(), name
        assert file["layers/n0/vars"].attrs["name"] == "layer0"
    with h5py.File(path, "a") as file:  # it is whole: others may go on writing
        file["layers/more"] = 1.0
        del file["types"]
    with h5py.File(path) as file:
        assert "types" not in file
        assert file["layers/more"][()] == 1.0


def test_bfloat16(tmp_path: Path) -> None:
    root = Group(tensors={"w": tensor(np.arange(6, dtype="u2").reshape(2, 3), "bfloat16")})
    with (tmp_path / "a.h5").open("wb") as out:
        hdf5_writer.write_tree(out, root)
    with h5py.File(tmp_path / "a.h5") as file:
        assert (file["w"].dtype, file["w"].attrs["dtype"]) == (np.dtype("V2"), "bfloat16")
        assert file["w"][()].tobytes() == np.arange(6, dtype="u2").tobytes()


@pytest.mark.parametrize(
    "names",
    [["a", "a"], ["a", "a/b"], ["a/b", "a"], ["../a"], ["a//b"], ["/a"], [""], ["a\0"], ["."]],
)
def test_names_that_no_file_can_hold(names: list[str]) -> None:
    made = tensor(np.zeros(2, "f4"))
    with pytest.raises(UsageError, match="HDF5 cannot hold"):
        hdf5_writer.write(io.BytesIO(), [(name, made) for name in names], {})


def test_more_than_a_message_holds() -> None:
    made = tensor(np.zeros(2, "f4"))
    for root in (
        Group(attributes={"a" * 70_000: "x"}),
        Group(tensors={"x" * 70_000: made}),
        Group(tensors={"x": tensor(np.zeros((1,) * 33, "f4"))}),
        Group(tensors={"x": tensor(np.zeros(1, "u1"), "raw:F4")}),
    ):
        with pytest.raises(UsageError, match="HDF5 cannot hold"):
            hdf5_writer.write_tree(io.BytesIO(), root)
