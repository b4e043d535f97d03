"""What `add` takes `commit` stores: a file that it could not store is refused at once."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.metadata.facts as facts
import dlv.versions.add as adding
import dlv.versions.commit as committing
from dlv.adapters import registry
from dlv.adapters.archive import read_directory
from dlv.adapters.source import Source
from dlv.adapters.torch import reader as torch_files
from dlv.errors import Damaged, DlvError, NotFound, UsageError
from dlv.repository.handle import Repository
from dlv.weights.arrays import to_tensors

FORMATS = ("safetensors", "npz", "pt", "gguf")


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    with Repository.init(tmp_path)[0] as made:
        yield made


def add(repository: Repository, *names: str, **more: Any) -> adding.Added:
    return adding.add(repository, repository.root, names, adding.Request(**more))


def commit(repository: Repository, **more: Any) -> committing.Committed:
    return committing.commit(repository, committing.Request("m", "Ada", "net", **more))


def weights(size: int = 50) -> dict[str, Any]:
    values = np.random.default_rng(1).normal(size=(size, 40)).astype("f4")
    return {"a.weight": values, "a.bias": values[0], "n": np.arange(5)}


def file_of(kind: str, size: int = 50) -> bytes:
    if kind == "npz, compressed":
        out = io.BytesIO()
        np.savez_compressed(out, **{n.replace(".", "_"): v for n, v in weights(size).items()})
        return out.getvalue()
    if kind == "npy":
        out = io.BytesIO()
        np.save(out, weights(size)["a.weight"])
        return out.getvalue()
    if kind == "h5":
        h5py = pytest.importorskip("h5py")
        out = io.BytesIO()
        with h5py.File(out, "w") as file:
            for name, value in weights(size).items():
                file.create_dataset(name, data=value, compression="gzip")
        return out.getvalue()
    out = io.BytesIO()
    registry.adapter(kind).save(out, to_tensors(weights(size)), {})
    return out.getvalue()


SUFFIXES = {"npz, compressed": ".npz", "npy": ".npy", "h5": ".h5"}
KINDS = [*FORMATS, *SUFFIXES]


def suffix(kind: str) -> str:
    return SUFFIXES.get(kind) or registry.adapter(kind).SUFFIX


def spoilt(data: bytes, lot: np.random.Generator) -> Iterator[bytes]:
    """Cut off at the end and at the beginning, and bits flipped anywhere."""
    yield data[: len(data) - 1]
    yield data[: len(data) // 2]
    yield data[1:]
    for _ in range(8):
        flipped = bytearray(data)
        flipped[int(lot.integers(len(data)))] ^= 1 << int(lot.integers(8))
        yield bytes(flipped)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_taken_can_be_committed(repository: Repository, kind: str) -> None:
    data, refused = file_of(kind), 0
    path = repository.root / f"w{suffix(kind)}"
    for number, content in enumerate([data, *spoilt(data, np.random.default_rng(len(kind)))]):
        path.write_bytes(content)
        try:
            add(repository, path.name)
        except DlvError:
            assert number, "what is right is taken"
            refused += 1
        else:
            commit(repository)
    assert refused


def without_data(data: bytes, name: Path) -> bytes:
    """A torch file as skip_data() leaves it: no bytes, and no checksums of them."""
    name.write_bytes(data)
    made = bytearray(data)
    with Source(str(name)) as file:
        for entry in read_directory(file):
            if "/data/" in entry.name:
                made[entry.offset : entry.offset + entry.size] = bytes(entry.size)
                at = entry.offset + entry.size
                for place in (entry.header + 14, entry.row + 16, at + 4):
                    if made[place : place + 4] == entry.crc.to_bytes(4, "little"):
                        made[place : place + 4] = bytes(4)
    return bytes(made)


@pytest.mark.parametrize("size", [50, 70_000])
def test_a_torch_file_without_data(repository: Repository, size: int) -> None:
    """However large: nobody reads it to the end to see it."""
    path = repository.root / "w.pt"
    path.write_bytes(without_data(file_of("pt", size), path))
    with pytest.raises(Damaged, match=r"w\.pt has no data for the tensor") as caught:
        add(repository, "w.pt")
    assert "skip_data" in str(caught.value.why)
    assert "torch.save" in str(caught.value.hint)
    assert facts.staged_files(repository.database) == []
    add(repository, "w.pt", role="file")
    commit(repository)


def test_as_torch_itself_leaves_it(repository: Repository) -> None:
    pytest.importorskip("torch")
    import torch as library
    from torch.serialization import skip_data

    with skip_data():
        library.save(library.nn.Linear(30, 20).state_dict(), repository.root / "skip.pt")
    with pytest.raises(Damaged, match="has no data"):
        add(repository, "skip.pt")
    # A writer that broke off leaves an archive without the list of tensors.
    (repository.root / "broken.pt").write_bytes(b"")
    with pytest.raises(Exception, match="pickle"):
        library.save({"a": lambda: 0}, repository.root / "broken.pt")
    with pytest.raises(DlvError, match=r"broken\.pt"):
        add(repository, "broken.pt")


def test_a_checksum_that_happens_to_be_zero(repository: Repository) -> None:
    """Four bytes more make it so: what was written is read, and taken."""
    array = np.zeros(64, "u1")
    for value in np.random.default_rng(0).integers(0, 1 << 32, 1):
        array[:8] = np.frombuffer(int(value).to_bytes(8, "little"), "u1")
    whole = array[:-4].tobytes()
    array[-4:] = np.frombuffer(_ending(whole), "u1")
    assert zlib.crc32(array.tobytes()) == 0
    out = io.BytesIO()
    torch_files.save(out, to_tensors({"w": array}), {})
    (repository.root / "w.pt").write_bytes(out.getvalue())
    add(repository, "w.pt")
    assert commit(repository).new == 1


def _ending(data: bytes) -> bytes:
    """The four bytes after which the checksum of `data` is nothing: each bit counts linearly."""
    base = zlib.crc32(data + bytes(4))
    columns = [zlib.crc32(data + (1 << bit).to_bytes(4, "little")) ^ base for bit in range(32)]
    rows = [(column, 1 << bit) for bit, column in enumerate(columns)]
    target, chosen = base, 0
    for at in range(31, -1, -1):
        pivot = next((row for row in rows if row[0] >> at & 1), None)
        if pivot is None:
            continue
        rows = [
            (row[0] ^ pivot[0], row[1] ^ pivot[1]) if row[0] >> at & 1 else row
            for row in rows
            if row is not pivot
        ]
        if target >> at & 1:
            target, chosen = target ^ pivot[0], chosen ^ pivot[1]
    assert not target
    return chosen.to_bytes(4, "little")


@pytest.mark.parametrize("suffix", [".bin", ".safetensors"])
def test_an_index_that_names_a_missing_part(repository: Repository, suffix: str) -> None:
    folder = repository.root / "model"
    folder.mkdir()
    name = f"model-00001-of-00002{suffix}"
    kind = "pt" if suffix == ".bin" else "safetensors"
    if kind == "pt":
        name = f"pytorch_{name}"
    (folder / name).write_bytes(file_of(kind))
    told = dict.fromkeys(weights(), name) | {"b": name.replace("00001", "00002")}
    index = name.split("-")[0] + f"{suffix}.index.json"
    (folder / index).write_text(json.dumps({"metadata": {}, "weight_map": told}))
    with pytest.raises(NotFound, match=r"00002-of-00002.* is missing"):
        add(repository, "model")


@pytest.mark.parametrize("when", ["before", "between"])
def test_the_way_out(repository: Repository, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """Damage that is too large to be seen by `add`, or that comes after it."""
    (repository.root / "good.safetensors").write_bytes(file_of("safetensors"))
    data = bytearray(file_of("pt"))
    data[len(data) // 2] ^= 1
    bad = repository.root / "bad.pt"
    bad.write_bytes(data if when == "before" else file_of("pt"))
    monkeypatch.setattr(adding, "READ_FILE", 0)
    add(repository, "bad.pt", step=1)
    add(repository, "good.safetensors", step=2)
    if when == "between":
        bad.write_bytes(data)
    with pytest.raises(DlvError) as caught:
        commit(repository)
    assert "bad.pt" in caught.value.message
    assert "dlv add bad.pt" in str(caught.value.hint)
    adding.remove(repository, repository.root, ["bad.pt"])
    assert commit(repository).snapshots == 1


def test_a_part_is_no_file_to_add(repository: Repository) -> None:
    name = ".w.pt.0123456789abcdef.dlv-part"
    (repository.root / name).write_bytes(file_of("pt"))
    with pytest.raises(UsageError, match="is a temporary file of") as caught:
        add(repository, name)
    assert "dlv gc" in str(caught.value.hint)
    assert add(repository, ".").files == []
