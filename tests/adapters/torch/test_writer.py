"""dlv.adapters.torch.reader, read by the standard library's zipfile and unpickler."""

from __future__ import annotations

import collections
import io
import pickle
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest

from dlv.adapters.checkpoint import Tensor
from dlv.adapters.torch import reader as torch_files
from dlv.errors import UsageError


def held(name: str, data: bytes, tied: str | None = None, dtype: str = "uint8") -> Tensor:
    return Tensor(name, dtype, (len(data),), len(data), lambda: data, tied=tied)


def written(*tensors: Tensor, **metadata: str) -> bytes:
    out = io.BytesIO()
    torch_files.save(out, tensors, metadata)
    return out.getvalue()


class Reader(pickle.Unpickler):
    """The standard unpickler with tuples in the place of torch's functions."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        return lambda *arguments: (f"{module}.{name}", *arguments)

    def persistent_load(self, identity: Any) -> Any:
        return identity[2:]


def test_pickle_as_the_standard_library_reads_it() -> None:
    data = written(held("a", b"xyz"), held("ü", b"xyz", tied="a"), held("b", b"\0", dtype="bool"))
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        assert file.testzip() is None
        root = Reader(io.BytesIO(file.read("archive/data.pkl"))).load()
        assert file.read("archive/data/0") == b"xyz"
        assert file.read("archive/data/1") == b"\0"
        assert len(file.read("archive/.data/serialization_id")) == 40
    rebuild = "torch._utils._rebuild_tensor_v2"
    none: collections.OrderedDict[str, Any] = collections.OrderedDict()
    assert list(root.items()) == [
        ("a", (rebuild, ("0", "cpu", 3), 0, (3,), (1,), False, none)),
        ("ü", (rebuild, ("0", "cpu", 3), 0, (3,), (1,), False, none)),
        ("b", (rebuild, ("1", "cpu", 1), 0, (1,), (1,), False, none)),
    ]


def test_integers() -> None:
    values = [0, 255, 256, 65536, (1 << 31) - 1, 1 << 31, (1 << 40) + 5, (1 << 63) - 1]
    for value in values:
        assert pickle.loads(b"\x80\x02" + torch_files._integer(value) + b".") == value


def test_data_are_aligned() -> None:
    dice = random.Random(3)
    tensors = [held(f"n{'x' * i}", dice.randbytes(i * 5)) for i in range(40)]
    data = written(*tensors)
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        for info in file.infolist():
            offset = info.header_offset
            sizes = data[offset + 26 : offset + 30]
            begin = offset + 30 + int.from_bytes(sizes[:2], "little")
            begin += int.from_bytes(sizes[2:], "little")
            assert begin % 64 == 0


def test_deterministic_and_dependent_on_the_content() -> None:
    first = written(held("a", b"xyz"), x="y")
    assert written(held("a", b"xyz"), x="y") == first
    assert written(held("a", b"xyy"), x="y") != first


def test_metadata_is_an_attribute() -> None:
    data = written(held("a", b"xyz"), two="2", one="1")
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        root = Reader(io.BytesIO(file.read("archive/data.pkl"))).load()
    assert list(root) == ["a"]
    assert vars(root) == {"dlv_metadata": {"one": "1", "two": "2"}}


def test_a_tie_that_is_none_is_not_written_as_one(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes(written(held("a", b"xyz"), held("b", b"xyzz", tied="a"), held("c", b"q", "d")))
    checkpoint = torch_files.open(str(path))
    assert [(t.name, t.tied, bytes(t.read())) for t in checkpoint.tensors] == [
        ("a", None, b"xyz"),
        ("b", None, b"xyzz"),
        ("c", None, b"q"),
    ]
    checkpoint.close()


def test_size_that_is_not_the_shape() -> None:
    with pytest.raises(UsageError, match="'a'"):
        written(Tensor("a", "float32", (3,), 11, lambda: bytes(11)))


@pytest.mark.slow
def test_beyond_4_gib(tmp_path: Path) -> None:
    """zip64 in sizes, in offsets and in the directory's end."""
    size = (1 << 32) + 10
    path = tmp_path / "big.pt"
    small = held("small", b"xyz")
    with path.open("wb") as out:
        big = Tensor("big", "uint8", (size,), size, lambda: bytes(size))
        torch_files.save(out, [big, small], {})
    with zipfile.ZipFile(path) as file:
        assert file.getinfo("archive/data/0").file_size == size
        assert file.read("archive/data/1") == b"xyz"
    checkpoint = torch_files.open(str(path))
    assert [t.nbytes for t in checkpoint.tensors] == [size, 3]
    assert bytes(checkpoint.tensors[1].read()) == b"xyz"
    checkpoint.close()
