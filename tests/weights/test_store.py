"""The store: matrices and named objects out of real packs on disk."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dlv.canonical import hash_bytes
from dlv.disk.durable import path_of
from dlv.errors import Damaged
from dlv.kinds import Piece
from dlv.pas.layouts.segments import WORDS
from dlv.weights.store import MatrixStore
from dlv.weights.writer import PackRecord, WeightWriter
from tests.conformance.layout import SHAPES, random_matrix, special_matrix
from tests.memory_index import MemoryIndex

Filled = tuple[MatrixStore, MemoryIndex, dict[str, bytes], list[PackRecord]]


@pytest.fixture
def filled(tmp_path: Path) -> Filled:
    """A store with a matrix of every dtype and shape, a longer one and two objects."""
    (tmp_path / "packs").mkdir()
    (tmp_path / "tmp").mkdir()
    index = MemoryIndex()
    store = MatrixStore(tmp_path / "packs", tmp_path / "tmp", index)
    content: dict[str, bytes] = {}
    writer = WeightWriter(store)
    for seed, dtype in enumerate(WORDS):
        for shape in SHAPES:
            raw = random_matrix(dtype, shape, seed)
            content[writer.add(dtype, shape, raw)] = raw
    content[writer.add("float32", (14,), special_matrix())] = special_matrix()
    long = random_matrix("float32", (50_000,), 3)
    content[writer.add("float32", (100, 500), long)] = long
    content[writer.add("raw:q4_0", (9, 9), b"opaque")] = b"opaque"
    for kind, data in (("network", b"{}" * 50), ("skeleton", b"")):
        content[writer.add_object(kind, data)] = data
    packs = writer.finish()
    index.add(packs)
    return store, index, content, packs


def test_everything_comes_back(filled: Filled) -> None:
    store, index, content, packs = filled
    assert len(packs) == 1
    for name in index.encodings:
        assert bytes(store.matrix(name)) == content[name]
    assert store.object("network", hash_bytes(b"{}" * 50)) == b"{}" * 50
    assert store.object("skeleton", hash_bytes(b"")) == b""


def test_unknown_names(filled: Filled) -> None:
    store = filled[0]
    assert store.encoding("0" * 64) is None
    with pytest.raises(Damaged, match="0" * 64):
        store.matrix("0" * 64)
    with pytest.raises(Damaged, match="series"):
        store.object("series", "0" * 64)


def test_threads_share_the_store(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    store, index, content, _ = filled
    monkeypatch.setattr("dlv.weights.store.KEPT_CHUNKS", 2)
    names = list(index.encodings) * 4
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda name: bytes(store.matrix(name)) == content[name], names))


def test_open_packs_are_limited(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    store, index, content, _ = filled
    monkeypatch.setattr("dlv.weights.store.OPEN_PACKS", 0)
    name = next(iter(index.encodings))
    assert bytes(store.matrix(name)) == content[name]
    assert not store._open


def flip(store: MatrixStore, piece: Piece) -> None:
    path = path_of(store.packs_dir, piece.pack, ".pack")
    data = bytearray(path.read_bytes())
    data[piece.offset + piece.length // 2] ^= 4
    path.write_bytes(data)


def test_a_flipped_bit_is_named(filled: Filled) -> None:
    store, index, _, packs = filled
    piece = next(row for row in index.pieces if row.count == 50_000 and row.plane == 3)
    flip(store, piece)
    with pytest.raises(Damaged, match=f"{packs[0].hash}, plane at {piece.offset}"):
        store.matrix(piece.object)
    store.level(piece.object, 2)


def test_a_wrong_row_of_the_index_never_gives_wrong_bytes(filled: Filled) -> None:
    store, index, _, _ = filled
    rows = [row for row in index.pieces if row.kind == "plane" and row.plane == 0]
    first, second = [row for row in rows if row.count == row.raw - 1 or row.count == 257][:2]
    index.pieces.remove(first)
    index.pieces.append(Piece(**{**second.__dict__, "object": first.object, "count": first.count}))
    with pytest.raises(Damaged):
        store.matrix(first.object)


def test_an_object_under_a_wrong_name_is_damage(filled: Filled) -> None:
    store, index, _, _ = filled
    (row,) = [row for row in index.pieces if row.kind == "network"]
    index.pieces.append(Piece(**{**row.__dict__, "object": "d" * 64}))
    with pytest.raises(Damaged, match="network d"):
        store.object("network", "d" * 64)


def test_a_pack_that_moved_is_looked_up_again(filled: Filled) -> None:
    store, index, content, packs = filled
    name = next(row.matrix for row in index.encodings.values() if row.shape == (100, 500))
    other = "e" * 64
    rows = index.pieces

    class Late(MemoryIndex):
        asked = 0

        def chunks(self, matrix: str) -> list[Piece]:
            self.asked += 1
            wrong = other if self.asked == 1 else packs[0].hash
            return [
                Piece(**{**row.__dict__, "pack": wrong})
                for row in rows
                if row.object == matrix and row.kind == "plane"
            ]

    late = Late()
    late.encodings = index.encodings
    again = MatrixStore(store.packs_dir, store.tmp_dir, late)
    assert bytes(again.matrix(name)) == content[name]
    path_of(store.packs_dir, packs[0].hash, ".pack").unlink()
    with pytest.raises(Damaged, match=f"{packs[0].hash} is missing"):
        MatrixStore(store.packs_dir, store.tmp_dir, index).matrix(name)


def test_verify(filled: Filled) -> None:
    store, index, _, _ = filled
    piece = index.pieces[0]
    store.verify(piece, content=True)
    flip(store, piece)
    store.verify(piece, content=False)
    with pytest.raises(Damaged, match="is corrupt"):
        store.verify(piece, content=True)
    path = path_of(store.packs_dir, piece.pack, ".pack")
    path.write_bytes(path.read_bytes()[: piece.offset + piece.length - 1])
    with pytest.raises(Damaged, match="shorter"):
        store.verify(piece, content=False)
    path.unlink()
    with pytest.raises(Damaged, match="missing"):
        store.verify(piece, content=False)


def test_close_gives_the_files_back(filled: Filled) -> None:
    store, index, _, _ = filled
    store.matrix(next(iter(index.encodings)))
    store.close()
    assert not store._open


def test_together(filled: Filled) -> None:
    store, index, content, _ = filled
    names = [*index.encodings, *index.encodings]
    found = [(name, bytes(raw)) for name, raw in store.together(names)]
    assert len(found) == len(index.encodings)
    assert dict(found) == {name: content[name] for name in index.encodings}


def test_packs_that_move_while_several_are_read(filled: Filled) -> None:
    store, index, _, packs = filled
    walk = store.together(index.encodings)
    before = [next(walk)[0] for _ in range(3)]
    store.close()
    [pack] = packs
    aside = pack.path.with_suffix(".aside")
    pack.path.rename(aside)
    chunks = index.chunks

    def moved(matrix: str) -> object:  # the index is asked again: by now the pack is back
        if aside.exists():
            aside.rename(pack.path)
        return chunks(matrix)

    index.chunks = moved  # type: ignore[assignment, method-assign]
    after = [name for name, _ in walk]
    assert sorted([*before, *after]) == sorted(index.encodings)
    store.close()
    pack.path.unlink()
    with pytest.raises(Damaged, match=f"pack {pack.hash} is missing"):
        list(store.together(index.encodings))


def test_slices(filled: Filled) -> None:
    store, index, content, _ = filled
    name = next(row.matrix for row in index.encodings.values() if row.shape == (100, 500))
    assert bytes(store.slice(name, 30, 50)) == content[name][120:320]
