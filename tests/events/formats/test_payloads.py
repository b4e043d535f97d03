"""Frozen tensors and blob sequences: golden bytes, what goes in comes out, damage is told."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.canonical import dumps, hash_bytes, loads
from dlv.errors import Damaged, NewerFormat
from dlv.events.formats import series as frozen_series
from dlv.events.formats.series import Blobs, Head, Tensor

GOLDEN = Path(__file__).parents[2] / "golden" / "series" / "1"
TENSORS = [
    Tensor(-1, 1.7e9, "float32", (2, 1), b"\0\0\x80?\0\0\0@", b""),
    Tensor(2**40, math.nan, "string", (1,), b"\2\0\0\0hi", b"old"),
]
BLOBS = [
    Blobs(0, 0.5, (b"1", b"1", b"\x89PNG")),
    Blobs(3, -math.inf, ()),
    Blobs(3, 2.0, (b"", b"\x89PNG")),
]
WALLS = st.floats(allow_nan=False)
STEPS = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize("kind", ["tensors", "blobs"])
def test_golden(kind: str) -> None:
    """The hash of a block is part of a version's id: these bytes never change."""
    made = (
        frozen_series.tensor_block(TENSORS)
        if kind == "tensors"
        else frozen_series.blob_block(BLOBS)
    )
    assert made == (GOLDEN / f"{kind}.bin").read_bytes()


def test_golden_head() -> None:
    blocks = ((hash_bytes((GOLDEN / "blobs.bin").read_bytes()), 3),)
    texts = ("images", frozen_series.BLOBS, b"\x10\x01", "An image", "of noise")
    head = Head("val", "img/ü", *texts, blocks, (("marked", 2, 3), ("marked", 3, -1)))
    assert head.encode() == (GOLDEN / "blobs.json").read_bytes()
    assert frozen_series.decode_head(head.encode()) == head


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.builds(
            Tensor,
            *(STEPS, WALLS, st.text(max_size=5), st.lists(st.integers(0, 9)).map(tuple)),
            *(st.binary(max_size=20), st.binary(max_size=5)),
        ),
        max_size=6,
    )
)
def test_tensors_come_back(points: list[Tensor]) -> None:
    assert (
        list(frozen_series.read_tensors(frozen_series.tensor_block(points), len(points))) == points
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.builds(Blobs, STEPS, WALLS, st.lists(st.binary(max_size=3), max_size=4).map(tuple)),
        max_size=6,
    )
)
def test_blobs_come_back(points: list[Blobs]) -> None:
    assert list(frozen_series.read_blobs(frozen_series.blob_block(points), len(points))) == points


def test_equal_blobs_stand_in_a_block_once() -> None:
    points = [Blobs(step, 0.0, (b"x" * 1000, b"x" * 1000)) for step in range(10)]
    assert len(frozen_series.blob_block(points)) < 3500


def test_blocks_are_bounded_and_shared_by_longer_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen_series, "MOST_BLOCK_BYTES", 1000)
    points = [Blobs(step, 0.0, (bytes([step]) * 150,)) for step in range(10)]
    kept: dict[str, bytes] = {}

    def add(kind: str, data: bytes) -> str:
        assert kind == "points"
        kept[hash_bytes(data)] = data
        return hash_bytes(data)

    short, long = (
        frozen_series.encode_blobs(points[:8], add),
        frozen_series.encode_blobs(points, add),
    )
    assert [count for _, count in short] == [2, 2, 2, 2]
    assert long[:4] == short
    huge = [Blobs(0, 0.0, (b"x" * 5000,)), Blobs(1, 0.0, (b"y",))]
    assert [count for _, count in frozen_series.encode_blobs(huge, add)] == [1, 1]
    found = [point for name, n in long for point in frozen_series.read_blobs(kept[name], n)]
    assert found == points


@pytest.mark.parametrize("kind", ["tensors", "blobs"])
def test_any_damage_is_told(kind: str) -> None:
    """Hashes are checked before; still nothing but Damaged may come out."""
    read = frozen_series.read_tensors if kind == "tensors" else frozen_series.read_blobs
    data = (GOLDEN / f"{kind}.bin").read_bytes()
    count = 2 if kind == "tensors" else 3
    assert len(list(read(data, count))) == count
    for broken in (b"", data[:3], data[:30], data[:-1], data + b"x"):
        with pytest.raises(Damaged):
            list(read(broken, count))
    with pytest.raises(Damaged):
        list(read(data, count + 1))
    for at in range(len(data)):
        for flipped in (1, 0x80):
            other = bytearray(data)
            other[at] ^= flipped
            try:
                list(read(bytes(other), count))
            except Damaged:
                continue
            assert at > 4  # a payload, or a number that another could be


def changed(**keys: object) -> bytes:
    made = Head("r", "t", "p", frozen_series.TENSORS, b"", "", "", (("a" * 64, 2),))
    value = loads(made.encode())
    return dumps({**value, **keys})


@pytest.mark.parametrize(
    "keys",
    [
        {"data_class": True},
        {"data_class": 4},
        {"plugin_content": "?"},
        {"plugin_content": 1},
        {"tag": 1},
        {"n": 3},
        {"points": [["a" * 64, 0]]},
        {"points": [["a", 2]]},
        {"purges": [["marked", -1, 0]]},
        {"purges": [["marked", 1]]},
        {"purges": None},
        {"later": 1},
    ],
)
def test_heads_that_are_wrong(keys: dict[str, object]) -> None:
    assert frozen_series.decode_head(changed()).n == 2
    with pytest.raises((Damaged, NewerFormat)):
        frozen_series.decode_head(changed(**keys))
