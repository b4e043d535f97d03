"""Archives whose stored bytes were exchanged, against Python's own zip reader."""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlv.adapters import archive
from dlv.adapters.archive import read_directory
from dlv.adapters.source import Source


class _Pipe(io.RawIOBase):
    """Cannot be rewound, so that zipfile writes data descriptors."""

    def __init__(self) -> None:
        self.data = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.data += data
        return len(data)


def exchange(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert data.count(old) == 1
    assert len(old) == len(new)
    path.write_bytes(data.replace(old, new))


def renew(path: Path) -> int:
    with Source(str(path)) as file:
        patches = archive.renewed_checksums(file)
    with open(path, "r+b") as out:
        for place, data in patches:
            out.seek(place)
            out.write(data)
    return len(patches)


@pytest.mark.parametrize("force_zip64", [False, True])
@pytest.mark.parametrize("descriptors", [False, True])
def test_every_reader_is_content_again(
    tmp_path: Path, descriptors: bool, force_zip64: bool
) -> None:
    pipe = _Pipe()
    target: Any = pipe if descriptors else io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in (("a", b"first" * 9), ("b", b"second" * 9), ("c", b"third" * 9)):
            with archive.open(name, "w", force_zip64=force_zip64) as entry:
                entry.write(content)
    path = tmp_path / "some.zip"
    path.write_bytes(bytes(pipe.data) if descriptors else target.getvalue())
    exchange(path, b"second" * 9, b"SECOND" * 9)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() == "b"
    assert renew(path) == 2
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.read("b") == b"SECOND" * 9
        assert zlib.crc32(b"first" * 9) == archive.getinfo("a").CRC
    with Source(str(path)) as file:  # compares both headers and the descriptor
        assert [entry.name for entry in read_directory(file)] == ["a", "b", "c"]


def test_right_ones_stay(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", a=np.arange(30), b=np.ones(3))
    np.savez_compressed(tmp_path / "c.npz", a=np.arange(30))
    assert renew(tmp_path / "w.npz") == renew(tmp_path / "c.npz") == 0


def test_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "w.pt"
    weights = torch.arange(500, dtype=torch.float32)
    torch.save({"w": weights, "b": torch.ones(3)}, path)
    exchange(path, weights.numpy().tobytes(), (-weights).numpy().tobytes())
    assert renew(path) > 0
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
    with Source(str(path)) as file:
        read_directory(file)
    assert torch.equal(torch.load(path)["w"], -weights)
