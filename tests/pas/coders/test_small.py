"""The small tier: any bits come back through the reader, and nothing grows beyond the fast tier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dlv.canonical import hash_bytes, matrix_hash
from dlv.errors import Damaged
from dlv.kinds import Piece
from dlv.pas.coders import compiled as kernels
from dlv.pas.coders import small
from dlv.pas.coders.codecs import codec_of
from dlv.pas.coders.numbers import ContextNumbers, NumbersCodec
from dlv.pas.coders.small import encode_plain, encode_small
from dlv.pas.deltas import lowrank
from dlv.pas.encode import Part, encode_delta, encode_materialised
from dlv.pas.floats import format_of, words_in
from dlv.pas.footer import Encoding
from dlv.pas.layouts.segments import WORDS, Ieee, element_bytes
from dlv.pas.read import read_matrix
from tests.pas.unwritten import encode_in_contexts

Raw = bytes | bytearray | memoryview


class Shelf:
    """Encodings and their parts in memory, for the real reader."""

    def __init__(self) -> None:
        self.encodings: dict[str, Encoding] = {}
        self.rows: dict[str, list[Piece]] = {}
        self.data: dict[int, Raw] = {}
        self.tables: dict[str, bytes] = {}

    def add(self, encoding: Encoding, parts: Sequence[Part]) -> int:
        self.encodings[encoding.matrix] = encoding
        for part in parts:
            offset = len(self.data)
            done = part.encoded
            self.data[offset] = done.data
            row = Piece(
                *(encoding.matrix, "00" * 32, part.kind, part.plane, offset, len(done.data)),
                *(done.raw, done.blake3, done.codec, 0, part.start, part.count),
            )
            self.rows.setdefault(encoding.matrix, []).append(row)
            assert hash_bytes(done.data) == done.blake3
        return sum(len(part.encoded.data) for part in parts)

    def chunks(self, matrix: str) -> list[Piece]:
        return self.rows.get(matrix, [])

    def read(self, piece: Any) -> Raw:
        return codec_of(piece.codec).decode(self.data[piece.offset], piece.raw)

    def stored(self, piece: Any) -> Raw:
        return self.data[piece.offset]

    def object(self, kind: str, name: str) -> Raw:
        assert kind == "table"
        return self.tables[name]

    def matrix(self, name: str) -> Raw:
        return read_matrix(name, self.encodings.get, self)


def stored(
    target: bytes, base: bytes, dtype: str, shape: tuple[int, ...], **options: Any
) -> tuple[Shelf, Encoding, list[Part], int]:
    """The pair on a shelf, the target by the small tier; its encoding, parts and bytes."""
    shelf = Shelf()
    name, under = matrix_hash(dtype, shape, target), matrix_hash(dtype, shape, base)
    if name != under:
        first: list[Part] = []
        made = encode_materialised(base, dtype, shape, under, first.append, layout=Ieee())
        shelf.add(made, first)
    parts: list[Part] = []
    encoding = encode_small(target, base, dtype, shape, name, under, parts.append, **options)
    size = shelf.add(encoding, parts)
    if name != under:
        assert bytes(shelf.matrix(name)) == target
    return shelf, encoding, parts, size


def fast(target: bytes, base: bytes, dtype: str, shape: tuple[int, ...]) -> int:
    parts: list[Part] = []
    encode_delta(
        "sub", *(target, base, dtype, shape, "a" * 64, "b" * 64, parts.append), layout=Ieee()
    )
    return sum(len(part.encoded.data) for part in parts)


def words_of_kind(kind: str, dtype: str, count: int, random: np.random.Generator) -> bytes:
    """Random bits, special values among normal ones, or weights."""
    raw = random.bytes(count * element_bytes(dtype))
    form = format_of(dtype)
    if kind == "bits" or form.kind != "float":
        return raw
    words = words_in(raw, dtype).copy()
    if kind == "weights":
        # Exponents around one half, as weights have them.
        mask = form.words.type(((1 << form.exponent) - 1) << form.mantissa)
        middle = (1 << (form.exponent - 1)) - 3
        few = random.integers(middle - 2, middle + 1, len(words)).astype(form.words)
        words = (words & ~mask) | (few << form.words.type(form.mantissa))
    special = random.random(len(words)) < 0.05
    top, full = form.top, ((1 << form.exponent) - 1) << form.mantissa
    choices = np.array([0, top, 1, top | 1, full, full | top, full | 1, full - 1], dtype=np.uint64)
    words[special] = random.choice(choices, int(special.sum())).astype(form.words)
    return words.tobytes()


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(WORDS)),
    st.sampled_from([(0,), (), (3,), (70_000,), (9, 0, 2), (300, 250), (50, 20, 9, 9)]),
    st.sampled_from(["bits", "weights"]),
    st.sampled_from(["bits", "near", "equal", "few"]),
    st.integers(0, 1 << 20),
)
def test_any_bits_come_back_and_never_larger(
    dtype: str, shape: tuple[int, ...], kind: str, other: str, seed: int
) -> None:
    random = np.random.default_rng(seed)
    count = int(np.prod(shape, dtype=int))
    base = words_of_kind(kind, dtype, count, random)
    form = format_of(dtype)
    words = words_in(base, dtype).copy()
    if other == "bits":
        target = words_of_kind(kind, dtype, count, random)
    else:
        moved = random.normal(0, 40, len(words)).astype(np.int64).astype(form.words)
        if other == "few":
            moved[random.random(len(words)) < 0.95] = 0
        target = (words if other == "equal" else words + moved).astype(form.words).tobytes()
    _, encoding, _, size = stored(target, base, dtype, shape)
    least = min(fast(target, base, dtype, shape), len(base))
    # Headers of runs; and a few parts in a hundred where zstd sees what bins do not.
    assert size <= 1.05 * least + 64
    assert encoding.delta is not None
    assert encoding.delta["id"] == "sub"


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(300, 250), (9000, 9), (2, 40_000)])
def test_no_bits_are_too_odd_to_search_in(dtype: str, shape: tuple[int, ...]) -> None:
    """Infinities, the largest numbers, signs turned round, all zeros: numpy warns of nothing."""
    random = np.random.default_rng(7)
    form = format_of(dtype)
    count = shape[0] * shape[1]
    for kind in ("bits", "weights"):
        base = words_of_kind(kind, dtype, count, random)
        turned = (words_in(base, dtype) ^ form.words.type(form.top)).tobytes()
        for target in (words_of_kind(kind, dtype, count, random), turned, bytes(len(base))):
            stored(target, base, dtype, shape)
            stored(base, target, dtype, shape)


def pair(rows: int, columns: int, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    """Weights, and what training with rows and columns of its own pace makes of them."""
    random = np.random.default_rng(seed)
    base = random.normal(0, 0.05, (rows, columns)).astype("<f4")
    pace = np.exp(random.normal(0, 1, (rows, 1)) + random.normal(0, 1, (1, columns)))
    moved = 1e-6 * pace * random.normal(0, 1, base.shape)
    return base, (base + moved).astype("<f4")


def test_rows_and_columns_make_it_smaller() -> None:
    base, target = pair(300, 400)
    *_, size = stored(target.tobytes(), base.tobytes(), "float32", base.shape)
    assert size < 0.92 * fast(target.tobytes(), base.tobytes(), "float32", base.shape)


def test_a_merged_adapter_costs_little_more_than_itself() -> None:
    random = np.random.default_rng(1)
    base = random.normal(0, 0.05, (384, 384)).astype("<f4")
    left, right = random.normal(0, 0.02, (384, 8)), random.normal(0, 0.02, (8, 384))
    target = base + (left.astype("<f4") @ right.astype("<f4"))
    _, encoding, _, size = stored(target.tobytes(), base.tobytes(), "float32", base.shape)
    assert size < 0.1 * base.nbytes
    assert encoding.delta is not None
    assert "lowrank" in [one["id"] for one in encoding.delta["predictor"]]


def test_weight_decay_alone_costs_nearly_nothing() -> None:
    base, target = pair(2000, 96)
    decayed = base.copy()
    for _ in range(300):
        decayed *= np.float32(1 - 2e-7)
    target = np.where(np.arange(2000)[:, None] % 4 > 0, decayed, target).astype("<f4")
    _, encoding, _, size = stored(target.tobytes(), base.tobytes(), "float32", base.shape)
    assert encoding.delta is not None
    assert encoding.delta["predictor"][0]["id"] == "drift"
    alone = stored(target[::4].tobytes(), base[::4].tobytes(), "float32", (500, 96))[3]
    assert size < alone + 0.01 * base.nbytes


def test_shrinking_is_found() -> None:
    base, target = pair(300, 400)
    target = (target * 0.998).astype("<f4")
    _, encoding, _, size = stored(target.tobytes(), base.tobytes(), "float32", base.shape)
    assert encoding.delta is not None
    assert encoding.delta["predictor"][0]["id"] == "shrink"
    assert size < 0.75 * fast(target.tobytes(), base.tobytes(), "float32", base.shape)


def test_segments_of_a_chain() -> None:
    """Rows that end within segments."""
    base, middle = pair(1100, 1001)
    target = middle + (pair(1100, 1001, seed=1)[1] - pair(1100, 1001, seed=1)[0])
    shape = base.shape
    raw = [one.tobytes() for one in (base, middle, target)]
    names = [matrix_hash("float32", shape, one) for one in raw]
    shelf = Shelf()
    parts: list[Part] = []
    made = encode_materialised(raw[0], "float32", shape, names[0], parts.append, layout=Ieee())
    shelf.add(made, parts)
    for index in (1, 2):
        parts = []
        given_ = raw[index], raw[index - 1], "float32", shape, names[index], names[index - 1]
        shelf.add(encode_small(*given_, parts.append), parts)
        assert {part.start for part in parts if part.kind == "plane"} == {0, 2 << 20}
        assert any(part.encoded.codec.get("scale") == names[index - 1] for part in parts)
        assert bytes(shelf.matrix(names[index])) == raw[index]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.quick("False")
def test_the_range_coder_and_its_tables_are_read(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "force", [compiled])
    base, target = pair(1100, 1001)
    raw, under = target.tobytes(), base.tobytes()
    shelf = Shelf()
    names = [matrix_hash("float32", base.shape, one) for one in (raw, under)]
    parts: list[Part] = []
    materialised = (under, "float32", base.shape, names[1], parts.append)
    shelf.add(encode_materialised(*materialised, layout=Ieee()), parts)
    encoding, parts, tables = encode_in_contexts(
        *(raw, under, "float32", base.shape, (names[0], names[1])), codec="context-rans"
    )
    shelf.add(encoding, parts)
    shelf.tables = {hash_bytes(table): table for table in tables}
    assert {part.encoded.codec.get("table") for part in parts} - {None} == set(shelf.tables)
    assert bytes(shelf.matrix(names[0])) == raw
    shelf.tables = dict.fromkeys(shelf.tables, tables[0][:-1])
    with pytest.raises(Damaged):
        shelf.matrix(names[0])


def test_a_matrix_that_is_not_held_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    base, target = pair(200, 300)
    given_ = (target.tobytes(), base.tobytes(), "float32", base.shape)
    *_, parts, _ = stored(*given_)
    monkeypatch.setattr(small, "HELD", 0)
    monkeypatch.setattr(lowrank, "HELD", 0)
    *_, again, _ = stored(*given_)
    assert parts == again


def test_what_is_read_back_by_others_need_not_be_decoded_here() -> None:
    base, target = pair(200, 300)
    given_ = (target.tobytes(), base.tobytes(), "float32", base.shape)
    *_, parts, _ = stored(*given_)
    *_, unchecked, _ = stored(*given_, check=False)
    assert parts == unchecked


@pytest.mark.parametrize("codec", [ContextNumbers, NumbersCodec])
def test_a_codec_that_loses_a_bit_is_caught(
    codec: type[ContextNumbers], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = codec.decode

    def wrong(self: ContextNumbers, data: bytes, contexts: Any) -> bytes:
        result = bytearray(honest(self, data, contexts))
        result[-1] ^= 1
        return bytes(result)

    monkeypatch.setattr(codec, "decode", wrong)
    base, target = pair(200, 300)
    encode = encode_small if codec is ContextNumbers else encode_plain
    with pytest.raises(Damaged, match="same bits"):
        encode(
            *(target.tobytes(), base.tobytes(), "float32", base.shape),
            *("a" * 64, "b" * 64, lambda _: None),
        )
