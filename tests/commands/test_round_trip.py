"""add, commit, checkout, export through the real program: what went in comes out bit for bit."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.numpy import save_file

import dlv.cli as cli
import dlv.versions.add as adding
from dlv.adapters.checkpoint import Tensor
from dlv.adapters.torch import reader as torch_files

Tree = dict[str, Any]

# Dtypes that numpy and every format have; bit patterns of all kinds, NaN payloads among them.
_DTYPES = ["bool", "i1", "u1", "<i2", "<i4", "<i8", "<f2", "<f4", "<f8", "<c8"]
_NAMES = st.text("abcXYZ019_-", min_size=1, max_size=6)


@st.composite
def bit_arrays(draw: st.DrawFn) -> Any:
    dtype = np.dtype(draw(st.sampled_from(_DTYPES)))
    shape = draw(arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    size = int(np.prod(shape, dtype=int)) * dtype.itemsize
    raw = draw(st.binary(min_size=size, max_size=size))
    if dtype == np.bool_:
        raw = bytes(byte & 1 for byte in raw)
    return np.frombuffer(raw, dtype).reshape(shape)


trees = st.dictionaries(
    st.lists(_NAMES, min_size=1, max_size=3).map(".".join), bit_arrays(), min_size=1, max_size=4
)


def run(folder: Path, *args: str) -> Any:
    """dlv in this process, in `folder`; the document that it prints."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.run(["-C", str(folder), *args, "--json"])
    assert code == 0, err.getvalue()
    return json.loads(out.getvalue())


@contextlib.contextmanager
def project() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "project")
        run(Path(name), "init", str(folder))
        yield folder


def write_safetensors(path: Path, tree: Tree) -> None:
    save_file({name: np.ascontiguousarray(value) for name, value in tree.items()}, path)


def write_npz(path: Path, tree: Tree) -> None:
    np.savez(path, **tree)


def write_packed(path: Path, tree: Tree) -> None:
    np.savez_compressed(path, **tree)


def write_fortran(path: Path, tree: Tree) -> None:
    turned: Tree = {name: np.asfortranarray(value) for name, value in tree.items()}
    np.savez(path, **turned)


def write_torch(path: Path, tree: Tree) -> None:
    """As torch writes it, but without torch."""
    tensors = [
        Tensor(name, value.dtype.name, value.shape, value.nbytes, value.tobytes)
        for name, value in tree.items()
    ]
    with path.open("wb") as out:
        torch_files.save(out, tensors, {})


def bits(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    opened = adding.open_weights(path, path.suffix[1:])
    try:
        return {t.name: (t.dtype, t.shape, bytes(t.read())) for t in opened.tensors}
    finally:
        opened.close()


Writer = Callable[[Path, Tree], None]


@pytest.mark.parametrize(
    ("name", "write", "exact"),
    [
        ("w.safetensors", write_safetensors, True),
        ("w.npz", write_npz, True),
        ("w.npz", write_fortran, True),
        ("w.npz", write_packed, False),
        ("w.pt", write_torch, True),
    ],
    ids=["safetensors", "npz", "npz-fortran", "npz-packed", "pt"],
)
@settings(max_examples=10, deadline=None)
@given(tree=trees, other=trees)
def test_trees(name: str, write: Writer, exact: bool, tree: Tree, other: Tree) -> None:
    with project() as folder:
        path = folder / name
        write(path, other)
        run(folder, "add", "--as", "weights", name)
        run(folder, "commit", "-m", "other", "--name", "model")
        write(path, tree)
        added, expected = path.read_bytes(), bits(path)
        run(folder, "add", "--as", "weights", name)
        run(folder, "commit", "-m", "tree")
        assert run(folder, "status")["modified"] == []

        run(folder, "checkout", "model@1")
        run(folder, "checkout", "model@2")
        written = run(folder, "checkout", "model@2", "--to", "out")["written"]
        assert [item["path"] for item in written] == [name]
        for found in (path, folder / "out" / name):
            assert bits(found) == expected
            assert not exact or found.read_bytes() == added
        made = run(folder, "export", "model@2", f"export{path.suffix}")["written"][0]
        assert made["original"] is exact
        assert bits(folder / f"export{path.suffix}") == expected
        if exact:
            assert (folder / f"export{path.suffix}").read_bytes() == added
        for format_ in ("safetensors", "pt", "npz"):
            target = folder / f"as.{format_}"
            run(folder, "export", "model@2", target.name)
            assert bits(target) == expected
        assert run(folder, "status")["modified"] == []


@settings(max_examples=10, deadline=None)
@given(value=bit_arrays(), fortran=st.booleans())
def test_single_arrays(value: Any, fortran: bool) -> None:
    with project() as folder:
        np.save(folder / "a.npy", np.asfortranarray(value) if fortran else value)
        added = (folder / "a.npy").read_bytes()
        run(folder, "add", "a.npy")
        run(folder, "commit", "-m", "array", "--name", "array")
        (folder / "a.npy").unlink()
        run(folder, "checkout", "HEAD")
        assert (folder / "a.npy").read_bytes() == added


def test_a_checkpoint_of_torch(tmp_path: Path) -> None:
    """With an optimizer, views, ties, bfloat16 and values that are no tensors."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Linear(5, 6).bfloat16())
    base = torch.arange(24.0).reshape(4, 6)
    state = {
        "model": {**model.state_dict(), "tied": model[0].weight, "view": base[1:3], "t": base.t()},
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9).state_dict(),
        "step": 12,
        "args": {"lr": 0.1, "name": "x"},
    }
    with project() as folder:
        torch.save(state, folder / "ckpt.pt")
        added = (folder / "ckpt.pt").read_bytes()
        run(folder, "add", "ckpt.pt")
        run(folder, "commit", "-m", "torch", "--name", "torch")
        (folder / "ckpt.pt").unlink()
        run(folder, "checkout", "torch/12")
        assert (folder / "ckpt.pt").read_bytes() == added
        run(folder, "export", "torch", "all.pt", "--all")
        assert (folder / "all.pt").read_bytes() == added
        found = torch.load(folder / "all.pt", weights_only=True)
        assert torch.equal(found["model"]["view"], base[1:3])


def test_without_the_optimizer(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(6, 5)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(6)).sum().backward()
    optimizer.step()
    with project() as folder:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, folder / "ckpt.pt")
        run(folder, "add", "--no-optimizer", "ckpt.pt")
        run(folder, "commit", "-m", "torch", "--name", "torch")
        assert run(folder, "status")["modified"] == []
        assert run(folder, "checkout", "HEAD")["unchanged"] == ["ckpt.pt"]
        run(folder, "checkout", "HEAD", "--to", "out")
        found = torch.load(folder / "out" / "ckpt.pt", weights_only=True)
        assert sorted(found) == ["bias", "weight"]


def test_several_files_of_one_snapshot() -> None:
    with project() as folder:
        for index in (1, 2, 3):
            tree = {f"layer{index}.w": np.full((3, index), index, "f4")}
            write_safetensors(folder / f"model-0000{index}-of-00003.safetensors", tree)
        added = {p.name: p.read_bytes() for p in folder.glob("*.safetensors")}
        run(folder, "add", ".")
        made = run(folder, "commit", "-m", "shards", "--name", "shards")
        assert made["checkpoints"] == 1
        run(folder, "checkout", "HEAD", "--to", "out")
        assert {p.name: p.read_bytes() for p in (folder / "out").iterdir()} == added
        run(folder, "export", "HEAD", "one.npz")
        with zipfile.ZipFile(folder / "one.npz") as found:
            assert len(found.namelist()) == 3
