"""Planes: read once, counted where packs are read, exact in the end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.evaluation.planes as planes_module
import dlv.pas.chunks as chunks
from dlv.errors import Damaged
from dlv.evaluation.planes import Moved, Planes
from dlv.pas.footer import Encoding
from dlv.pas.level import Level, centre, level
from dlv.weights.store import MatrixStore
from dlv.weights.writer import WeightWriter
from tests.evaluation.stored_models import StoredModel, fresh, mlp, stored_model
from tests.memory_index import MemoryIndex

WHOLE = 99


@dataclass
class Reads:
    """What the pack reader was asked for."""

    bytes: int = 0
    chunks: int = 0
    places: tuple[tuple[int, int], ...] = ()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    found = Reads()
    original = chunks.read_exactly

    def counted(descriptor: int, length: int, offset: int, what: str) -> bytes:
        found.bytes += length
        found.chunks += 1
        found.places += ((length, offset),)
        return original(descriptor, length, offset, what)

    monkeypatch.setattr(chunks, "read_exactly", counted)
    return found


def model(folder: Path, layout: str = "fixed", seed: int = 0, **more: Any) -> StoredModel:
    network, shapes = mlp(16)
    tensors = fresh(shapes, seed)
    bases = {"fc2.weight": tensors["fc2.weight"] * np.float32(1.001)} if more.get("delta") else {}
    return stored_model(folder, network, tensors, x=np.zeros((1, 64)), layout=layout, bases=bases)


@pytest.mark.parametrize("layout", ["fixed", "ieee"])
@pytest.mark.parametrize("delta", [False, True])
def test_each_chunk_is_fetched_once(tmp_path: Path, reads: Reads, layout: str, delta: bool) -> None:
    found = model(tmp_path, layout, delta=delta)
    planes = Planes(found.store, found.hashes)
    before, reads.places = reads.bytes, ()
    for depth in (1, 2, 3, WHOLE):
        wanted = {name: min(depth, planes.planes(name)) for name in planes.names}
        cost = planes.cost(wanted)
        read = planes.bytes_read
        planes.read(wanted)
        assert planes.bytes_read - read == cost
        assert planes.cost(wanted) == 0
        assert planes.bytes_read == reads.bytes - before
    assert len(set(reads.places)) == len(reads.places)
    for name, array in found.tensors.items():
        assert planes.tensor(name).dtype == np.float64
        assert (planes.tensor(name) == array.astype("f8")).all()
        assert planes.bits(name) == 32
        assert planes.between(name) is None
    assert planes.share == 1.0
    behind = {
        (piece.pack, piece.offset): piece
        for matrix in found.hashes.values()
        for piece in found.store.pieces_behind(matrix)
    }
    assert planes.bytes_read == sum(piece.length for piece in behind.values())
    assert planes.raw_read == sum(piece.raw for piece in behind.values())


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_centres_are_those_that_the_writer_bounded(tmp_path: Path, depth: int) -> None:
    found = model(tmp_path)
    planes = Planes(found.store, found.hashes, intervals=True)
    planes.read({"fc1.weight": depth})
    expected = level(found.hashes["fc1.weight"], depth, found.store.encoding, found.store)
    assert isinstance(expected, Level)
    assert (planes.tensor("fc1.weight") == expected.centre).all()
    between = planes.between("fc1.weight")
    assert between is not None
    assert (between[0] == expected.low).all()
    assert (between[1] == expected.high).all()
    assert planes.depths["fc1.weight"] == depth
    assert planes.bits("fc1.weight") == 8 * depth
    assert not planes.whole("fc1.weight")
    assert planes.depths["fc2.weight"] == 0


def test_reading_less_than_is_known_reads_nothing(tmp_path: Path, reads: Reads) -> None:
    found = model(tmp_path)
    planes = Planes(found.store, found.hashes)
    planes.read({"fc1.weight": 2})
    before = reads.bytes, planes.tensor("fc1.weight").copy()
    planes.read({"fc1.weight": 1})
    assert reads.bytes == before[0]
    assert (planes.tensor("fc1.weight") == before[1]).all()


def test_what_shares_chunks_comes_free(tmp_path: Path) -> None:
    """Small matrices stand together in chunks: with the planes of one those of all are there."""
    for folder in ("packs", "tmp"):
        (tmp_path / folder).mkdir()
    index = MemoryIndex()
    store = MatrixStore(tmp_path / "packs", tmp_path / "tmp", index)
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(size=(9, 7)).astype(np.float32) for name in "abc"}
    with WeightWriter(store) as writer:
        hashes = {
            name: writer.add("float32", array.shape, array.tobytes())
            for name, array in arrays.items()
        }
        index.add(writer.finish())
    planes = Planes(store, hashes)
    planes.read({"a": 4, "b": 1})
    read = planes.bytes_read
    for name in "abc":
        assert planes.whole(name)
        assert (planes.tensor(name) == arrays[name]).all()
    assert planes.bytes_read == read == planes.cost({}) + read


def test_memory_is_let_go(tmp_path: Path) -> None:
    found = model(tmp_path)
    planes = Planes(found.store, found.hashes)
    planes.read(dict.fromkeys(planes.names, 3))
    assert planes.chunks._decoded
    planes.read({name: planes.planes(name) for name in planes.names})
    assert not planes.chunks._decoded
    assert not planes.chunks._stored


def test_aliases_and_zeros(tmp_path: Path) -> None:
    found = model(tmp_path)
    planes = Planes(found.store, found.hashes, {"tied": "fc1.weight"})
    assert planes.zeros("tied").shape == (16, 64)
    assert not planes.bytes_read
    planes.read({"fc1.weight": WHOLE})
    assert (planes.tensor("tied") == found.tensors["fc1.weight"]).all()


def test_an_archive_in_between_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = model(tmp_path)
    planes = Planes(found.store, found.hashes)
    planes.read({"fc1.weight": 1})
    matrix = found.hashes["fc1.weight"]
    old = found.store.encoding(matrix)
    assert old is not None
    other = {**old.layout, "zero_centre": True}
    index: Any = found.store.index
    index.encodings[matrix] = replace(old, layout=other)
    with pytest.raises(Moved):
        planes.read({"fc1.weight": 2})
    # The whole is held against its name however it is stored.
    planes.read({"fc1.weight": WHOLE})
    assert (planes.tensor("fc1.weight") == found.tensors["fc1.weight"]).all()


def test_a_moved_pack_is_looked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = model(tmp_path)
    planes = Planes(found.store, found.hashes)
    original: Any = centre
    failed: list[Any] = []

    def once(*given: Any) -> Any:
        if not failed:
            failed.append(given)
            raise FileNotFoundError(2, "gone", "old.pack")
        return original(*given)

    monkeypatch.setattr(planes_module, "centre", once)
    planes.read({"fc1.weight": 1})
    assert planes.depths["fc1.weight"] == 1
    monkeypatch.setattr(planes_module, "centre", _gone)
    with pytest.raises(Damaged, match="pack old is missing"):
        planes.read({"fc2.weight": 1})


def _gone(*_: Any) -> Any:
    raise FileNotFoundError(2, "gone", "old.pack")


def test_damage_is_an_error(tmp_path: Path) -> None:
    found = model(tmp_path)
    for pack in (tmp_path / "packs").rglob("*.pack"):
        raw = bytearray(pack.read_bytes())
        raw[300:330] = bytes(30)
        pack.chmod(0o600)
        pack.write_bytes(raw)
    planes = Planes(found.store, found.hashes)
    with pytest.raises(Damaged, match="checksum"):
        planes.read(dict.fromkeys(planes.names, WHOLE))


def test_numbers_of_other_kinds_are_read_whole_and_kept(tmp_path: Path) -> None:
    for folder in ("packs", "tmp"):
        (tmp_path / folder).mkdir()
    index = MemoryIndex()
    store = MatrixStore(tmp_path / "packs", tmp_path / "tmp", index)
    arrays: dict[str, Any] = {
        "count": np.array([2**62 + 1, -5], np.int64),
        "empty": np.zeros((0, 3), np.float32),
        "wide": np.array([[1e-310, np.inf, np.nan]]),
        "half": np.array([1.5, -65504.0], np.float16),
    }
    with WeightWriter(store) as writer:
        hashes = {
            name: writer.add(array.dtype.name, array.shape, array.tobytes())
            for name, array in arrays.items()
        }
        index.add(writer.finish())
    planes = Planes(store, hashes)
    planes.read({name: planes.planes(name) for name in planes.names})
    for name, array in arrays.items():
        got = planes.tensor(name)
        assert got.shape == array.shape
        assert got.dtype == (np.int64 if name == "count" else np.float64)
        assert np.array_equal(got, array, equal_nan=name != "count")


def test_an_encoding_is_pinned(tmp_path: Path) -> None:
    found = model(tmp_path)
    planes = Planes(found.store, found.hashes)
    assert isinstance(planes.chain("fc1.weight")[0], Encoding)
    assert planes.dtype("fc1.weight") == "float32"
    with pytest.raises(Damaged, match="not stored"):
        Planes(found.store, {"a": "0" * 64})
