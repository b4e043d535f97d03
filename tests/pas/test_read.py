"""Reading matrices out of pieces: any order, any cut, never something else than was named."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from dlv.canonical import hash_bytes, matrix_hash
from dlv.errors import Damaged, NewerFormat
from dlv.kinds import Piece
from dlv.pas.deltas.links import MAX_CHAIN, chain
from dlv.pas.footer import Encoding
from dlv.pas.read import read_matrix
from tests.memory_index import MemoryIndex


class Cut(MemoryIndex):
    """Raw chunks cut as the test likes, kept in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: dict[int, bytes] = {}

    def read(self, piece: Piece) -> bytes:
        return self.bytes[piece.offset]

    def stored(self, piece: Piece) -> bytes:
        return self.bytes[piece.offset]

    def object(self, kind: str, name: str) -> bytes:
        raise KeyError(f"{kind} {name}")

    def put(self, matrix: str, plane: int, start: int, part: bytes, before: bytes = b"") -> None:
        """One piece, behind `before` and in front of three bytes of another in its chunk."""
        data = before + part + b"end"
        offset = 8 + sum(map(len, self.bytes.values()))
        self.bytes[offset] = data
        checksum, at = hash_bytes(data), len(before)
        codec = {"id": "raw"}
        row = Piece(
            matrix, "p", "plane", plane, offset, len(data), len(data), checksum, codec,
            at, start, len(part),
        )  # fmt: skip
        self.pieces.append(row)

    def declare(self, dtype: str, shape: tuple[int, ...], raw: bytes, planes: int) -> str:
        name = matrix_hash(dtype, shape, raw)
        self.encodings[name] = Encoding(name, dtype, shape, {"id": "ieee"}, None, planes)
        return name


RAW = random.Random(4).randbytes(4 * 30)


@pytest.fixture
def cut() -> tuple[Cut, str]:
    index = Cut()
    name = index.declare("float32", (5, 6), RAW, 4)
    for plane in range(4):
        data = RAW[3 - plane :: 4]
        bounds = [0, 1, 11, 30] if plane % 2 else [0, 30]
        parts = list(itertools.pairwise(bounds))
        for start, stop in reversed(parts):
            index.put(name, plane, start, data[start:stop], b"other" * plane)
    return index, name


def test_pieces_are_put_together(cut: tuple[Cut, str]) -> None:
    index, name = cut
    assert bytes(read_matrix(name, index.encoding, index)) == RAW


@pytest.mark.parametrize("change", ["lost", "twice", "short", "late", "outside"])
def test_pieces_that_do_not_fit(cut: tuple[Cut, str], change: str) -> None:
    index, name = cut
    number = next(n for n, row in enumerate(index.pieces) if row.plane == 1 and row.start == 1)
    row = index.pieces.pop(number)
    index.pieces += {
        "lost": [],
        "twice": [row, row],
        "short": [replace(row, count=row.count - 1)],
        "late": [replace(row, start=2)],
        "outside": [replace(row, at=row.raw - 2)],
    }[change]
    with pytest.raises(Damaged, match=f"plane 1 of tensor {name}"):
        read_matrix(name, index.encoding, index)


def test_other_bytes_than_the_name_promises(cut: tuple[Cut, str]) -> None:
    index, name = cut
    offset = next(iter(index.bytes))
    index.bytes[offset] = b"\xff" + index.bytes[offset][1:]
    with pytest.raises(Damaged, match=name):
        read_matrix(name, index.encoding, index)


def test_pieces_of_two_planes_swapped(cut: tuple[Cut, str]) -> None:
    index, name = cut
    swap = {0: 2, 2: 0}
    index.pieces = [replace(row, plane=swap.get(row.plane or 0, row.plane)) for row in index.pieces]
    with pytest.raises(Damaged, match="is corrupt"):
        read_matrix(name, index.encoding, index)


def test_empty_and_opaque() -> None:
    index = Cut()
    empty = index.declare("float64", (3, 0), b"", 8)
    assert bytes(read_matrix(empty, index.encoding, index)) == b""
    opaque = index.declare("raw:q4_0", (32,), b"eighteen bytes or so", 1)
    index.put(opaque, 0, 0, b"eighteen bytes or so")
    assert bytes(read_matrix(opaque, index.encoding, index)) == b"eighteen bytes or so"


def test_unknown_matrix() -> None:
    with pytest.raises(Damaged, match="not stored"):
        read_matrix("ab" * 32, Cut().encoding, Cut())


def link(name: str, base: str | None) -> Encoding:
    delta = None if base is None else {"id": "xor", "base": base, "overlap": None}
    return Encoding(name, "uint8", (1,), {"id": "ieee"}, delta, 1)


def named(number: int) -> str:
    return f"{number:064x}"


def test_chains_are_followed_to_their_end() -> None:
    index = Cut()
    raws = [bytes([9, 8]), bytes([10, 8]), bytes([11, 7])]
    names = [matrix_hash("uint8", (2,), raw) for raw in raws]
    for number, (name, raw) in enumerate(zip(names, raws, strict=True)):
        base = raws[number - 1] if number else bytes(2)
        delta = {"id": "xor", "base": names[number - 1], "overlap": None} if number else None
        index.encodings[name] = Encoding(name, "uint8", (2,), {"id": "ieee"}, delta, 1)
        index.put(name, 0, 0, bytes(a ^ b for a, b in zip(raw, base, strict=True)))
    assert [link.matrix for link in chain(names[2], index.encoding)] == names[::-1]
    assert bytes(read_matrix(names[2], index.encoding, index)) == raws[2]


def test_cycles_and_long_chains_are_refused() -> None:
    a, b, c, lost = map(named, range(4))
    ring = {name: link(name, base) for name, base in ((a, b), (b, c), (c, a))}
    with pytest.raises(Damaged, match="against itself"):
        chain(a, ring.get)
    line = {named(n): link(named(n), named(n - 1) if n else None) for n in range(MAX_CHAIN + 5)}
    assert len(chain(named(MAX_CHAIN), line.get)) == MAX_CHAIN + 1
    with pytest.raises(Damaged, match="more than 64"):
        chain(named(MAX_CHAIN + 1), line.get)
    with pytest.raises(Damaged, match=f"tensor {lost}") as caught:
        chain(a, {a: link(a, lost)}.get)
    assert caught.value.why == f"tensor {a} is a delta against it"


def test_unknown_deltas_are_named_before_anything_is_read() -> None:
    row = replace(link(named(0), named(1)), delta={"id": "warp", "base": named(1)})
    with pytest.raises(NewerFormat, match="warp"):
        read_matrix(named(0), {named(0): row}.get, Cut())
