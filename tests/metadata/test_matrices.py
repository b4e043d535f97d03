"""Packs in the catalogue: which bytes of which chunk make up a matrix or an object."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from dlv.kinds import EncodingRow, Piece
from dlv.metadata import matrices
from dlv.metadata.database import Database
from dlv.metadata.matrices import PackIndex

M, N, O = "1" * 64, "2" * 64, "3" * 64  # noqa: E741


def encoding(matrix: str, planes: int = 2, **fields: Any) -> dict[str, Any]:
    return {
        "matrix": matrix,
        "dtype": "float16",
        "shape": [4],
        "layout": {"id": "ieee"},
        "delta": None,
        "planes": planes,
        **fields,
    }


def chunk(offset: int, members: list[list[Any]], kind: str = "plane", plane: int | None = 0) -> Any:
    raw = sum(member[2] for member in members)
    return {
        "kind": kind,
        "plane": plane,
        "offset": offset,
        "length": 10,
        "raw": raw,
        "blake3": "9" * 64,
        "codec": {"id": "zstd"},
        "members": members,
    }


def footer(encodings: list[Any], chunks: list[Any]) -> dict[str, Any]:
    return {"encodings": encodings, "chunks": chunks}


def pieces(found: list[Piece]) -> list[tuple[Any, ...]]:
    return [(p.pack[0], p.kind, p.plane, p.offset, p.at, p.start, p.count) for p in found]


@pytest.fixture
def index(db: Database) -> PackIndex:
    return PackIndex(db)


def test_shared_chunks(db: Database, index: PackIndex) -> None:
    chunks = [
        chunk(8, [[0, 0, 4], [1, 0, 6]]),
        chunk(18, [[0, 0, 4]], plane=1),
        chunk(28, [[1, 0, 3]], plane=1),
        chunk(38, [[1, 3, 3]], plane=1),
        chunk(48, [[O, 0, 5], [N, 0, 7]], kind="points", plane=None),
        chunk(58, [[O, 0, 9]], kind="series", plane=None),
    ]
    both = [encoding(M), encoding(N, layout={"id": "fixed"}, delta={"id": "xor", "base": M})]
    matrices.insert_packs(db, [("a" * 64, 100, footer(both, chunks))])
    assert pieces(index.chunks(M)) == [
        ("a", "plane", 0, 8, 0, 0, 4),
        ("a", "plane", 1, 18, 0, 0, 4),
    ]
    assert pieces(index.chunks(N)) == [
        ("a", "plane", 0, 8, 4, 0, 6),
        ("a", "plane", 1, 28, 0, 0, 3),
        ("a", "plane", 1, 38, 0, 3, 3),
    ]
    assert pieces(index.object_chunks("points", N)) == [("a", "points", None, 48, 5, 0, 7)]
    assert pieces(index.object_chunks("series", O)) == [("a", "series", None, 58, 0, 0, 9)]
    assert index.object_chunks("series", N) == []
    assert index.encoding(M) == EncodingRow(M, "float16", (4,), {"id": "ieee"}, None, 2)
    assert index.encoding(N) == EncodingRow(
        N, "float16", (4,), {"id": "fixed"}, {"id": "xor", "base": M}, 2
    )
    assert index.encoding(O) is None
    piece = index.chunks(M)[0]
    assert (piece.length, piece.raw, piece.blake3, piece.codec) == (
        10,
        10,
        "9" * 64,
        {"id": "zstd"},
    )
    assert db.rows("SELECT base_hash FROM encoding ORDER BY id") == [(None,), (M,)]
    assert matrices.packs(db) == [("a" * 64, 100)]


def test_planes_of_one_encoding_in_two_packs(db: Database, index: PackIndex) -> None:
    first = footer([encoding(M)], [chunk(8, [[0, 0, 4]])])
    second = footer([encoding(N), encoding(M)], [chunk(8, [[1, 0, 4]], plane=1)])
    matrices.insert_packs(db, [("a" * 64, 1, first), ("b" * 64, 1, second)])
    assert [(p.pack[0], p.plane) for p in index.chunks(M)] == [("a", 0), ("b", 1)]


def test_the_first_encoding_stays(db: Database, index: PackIndex) -> None:
    first = footer([encoding(M)], [chunk(8, [[0, 0, 4]]), chunk(18, [[0, 0, 4]], plane=1)])
    matrices.insert_packs(db, [("a" * 64, 1, first)])
    other = footer(
        [encoding(M, planes=3, layout={"id": "fixed"})],
        [chunk(8, [[0, 0, 4]]), chunk(18, [[0, 0, 4]], plane=2), chunk(28, [[0, 0, 2]], "side")],
    )
    before = pieces(index.chunks(M))
    matrices.insert_packs(db, [("b" * 64, 1, other)])
    assert pieces(index.chunks(M)) == before
    assert index.encoding(M) == EncodingRow(M, "float16", (4,), {"id": "ieee"}, None, 2)


def test_another_encoding_in_the_same_call_is_not_mixed_in(db: Database, index: PackIndex) -> None:
    """As a rebuild finds them: the pack that counts first, then the one it replaced."""
    first = footer([encoding(M)], [chunk(8, [[0, 0, 4]]), chunk(18, [[0, 0, 4]], plane=1)])
    other = footer(
        [encoding(M, planes=3, layout={"id": "fixed"})],
        [chunk(8, [[0, 0, 4]]), chunk(18, [[0, 0, 4]], plane=2), chunk(28, [[0, 0, 2]], "side")],
    )
    matrices.insert_packs(db, [("a" * 64, 1, first), ("b" * 64, 1, other)])
    assert [(p.pack[0], p.kind, p.plane) for p in index.chunks(M)] == [
        ("a", "plane", 0),
        ("a", "plane", 1),
    ]


def test_the_same_encoding_twice_is_found_once(db: Database, index: PackIndex) -> None:
    whole = footer([encoding(M)], [chunk(8, [[0, 0, 4]]), chunk(18, [[0, 0, 4]], plane=1)])
    cut = footer(
        [encoding(M)],
        [chunk(8, [[0, 0, 2]]), chunk(18, [[0, 2, 2]]), chunk(28, [[0, 0, 4]], plane=1)],
    )
    matrices.insert_packs(db, [("a" * 64, 1, whole), ("b" * 64, 1, cut)])
    assert [p.pack[0] for p in index.chunks(M)] == ["a", "a"]


@pytest.mark.parametrize("seed", range(40))
def test_random_packs_against_a_model(db: Database, index: PackIndex, seed: int) -> None:
    """Whatever packs come in whatever order: each byte of each plane is found exactly once."""
    rng = random.Random(seed)
    length, number = 12, 0
    known: dict[str, tuple[int, int]] = {}  # matrix -> (its encoding, the call that made it)
    found: dict[tuple[str, int], set[int]] = {}
    for call in range(rng.randint(1, 4)):
        packs = []
        for _ in range(rng.randint(1, 3)):
            number += 1
            used = rng.sample([M, N, O], rng.randint(1, 3))
            variants = [rng.choice([1, 1, 2]) for _ in used]
            for matrix, variant in zip(used, variants, strict=True):
                known.setdefault(matrix, (variant, call))
            chunks, offset = [], 8
            for plane in range(2):
                for position, matrix in enumerate(used):
                    cuts = [0, *sorted(rng.sample(range(1, length), rng.randint(0, 2))), length]
                    pieces_ = [(a, b - a) for a, b in itertools.pairwise(cuts)]
                    for start, count in rng.sample(pieces_, rng.randint(0, len(pieces_))):
                        chunks.append(chunk(offset, [[position, start, count]], plane=plane))
                        offset += 10
                        have = found.setdefault((matrix, plane), set())
                        bytes_ = set(range(start, start + count))
                        if known[matrix] == (variants[position], call) and not have & bytes_:
                            have |= bytes_
            encodings = [
                encoding(m, layout={"id": "ieee" if v == 1 else "fixed"})
                for m, v in zip(used, variants, strict=True)
            ]
            packs.append((f"{number:064}", offset, footer(encodings, chunks)))
        matrices.insert_packs(db, packs)
    for matrix, (variant, _) in known.items():
        row = index.encoding(matrix)
        assert row is not None
        assert row.layout == {"id": "ieee" if variant == 1 else "fixed"}
        for plane in range(2):
            pieces_found = [p for p in index.chunks(matrix) if p.plane == plane]
            covered = [b for p in pieces_found for b in range(p.start, p.start + p.count)]
            assert len(covered) == len(set(covered))
            assert set(covered) == found.get((matrix, plane), set())


def test_parts_of_a_plane_in_two_packs(db: Database, index: PackIndex) -> None:
    second = footer([encoding(M)], [chunk(8, [[0, 2, 2]])])
    first = footer([encoding(M)], [chunk(8, [[0, 0, 2]])])
    matrices.insert_packs(db, [("b" * 64, 1, second), ("a" * 64, 1, first)])
    assert sorted((p.start, p.count) for p in index.chunks(M)) == [(0, 2), (2, 2)]


def test_a_pack_is_entered_once(db: Database, index: PackIndex) -> None:
    pack = ("a" * 64, 1, footer([encoding(M)], [chunk(8, [[0, 0, 4]])]))
    matrices.insert_packs(db, [pack, pack])
    matrices.insert_packs(db, [pack])
    assert len(index.chunks(M)) == 1
    assert len(matrices.packs(db)) == 1


def test_large_objects_in_pieces(db: Database, index: PackIndex) -> None:
    parts = [chunk(8, [[O, 0, 5]], "file", None), chunk(18, [[O, 5, 3]], "file", None)]
    matrices.insert_packs(db, [("a" * 64, 1, footer([], parts))])
    matrices.insert_packs(db, [("b" * 64, 1, footer([], parts))])
    assert [(p.pack[0], p.start, p.count) for p in index.object_chunks("file", O)] == [
        ("a", 0, 5),
        ("a", 5, 3),
    ]


def test_empty_matrices_have_an_encoding_and_no_chunk(db: Database, index: PackIndex) -> None:
    matrices.insert_packs(db, [("a" * 64, 1, footer([encoding(M, shape=[0])], []))])
    assert index.encoding(M) is not None
    assert index.chunks(M) == []
    assert matrices.stored_bytes(db) == {}


def test_bytes_of_shared_chunks_are_divided(db: Database) -> None:
    chunks = [chunk(8, [[0, 0, 4], [1, 0, 12]]), chunk(18, [[0, 0, 4]], plane=1)]
    matrices.insert_packs(db, [("a" * 64, 1, footer([encoding(M), encoding(N)], chunks))])
    assert matrices.stored_bytes(db) == {M: 12.5, N: 7.5}
    assert matrices.stored_of(db, [M, M, O]) == {M: 12.5}
