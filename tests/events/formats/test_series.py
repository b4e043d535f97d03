"""Frozen series: golden bytes, every float comes back, longer logs share blocks."""

from __future__ import annotations

import contextlib
import json
import math
import struct
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.canonical import dumps, hash_bytes
from dlv.errors import Damaged, DlvError, NewerFormat, UsageError
from dlv.events.formats.series import (
    BLOCK,
    Scalars,
    block_hashes,
    decode_scalars,
    encode_scalars,
    series_hash,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "series" / "1"
HEAD = (GOLDEN / "head.json").read_bytes()
POINTS = (GOLDEN / "points.bin").read_bytes()
NAN, INF = math.nan, math.inf
KNOWN = Scalars(
    "val",
    "loss/ü",
    [-5, 0, 10, 2**62, 10],
    [0.0, 1e9, 1e9 + 0.5, -1.0, INF],
    [0.5, NAN, INF, -INF, -0.0],
    "Loss",
)


class Store(dict[str, bytes]):
    def add(self, kind: str, data: bytes) -> str:
        name = hash_bytes(data)
        self[f"{kind} {name}"] = data
        return name

    def read(self, kind: str, name: str) -> bytes:
        return self[f"{kind} {name}"]


def bits(series: Scalars) -> tuple[Any, ...]:
    n = len(series.values)
    return (
        *(series.run, series.tag, series.display_name, series.description, list(series.steps)),
        *(struct.pack(f"<{n}d", *series.walls), struct.pack(f"<{n}d", *series.values)),
    )


def test_golden() -> None:
    store = Store()
    assert encode_scalars(KNOWN, store.add) == (GOLDEN / "head.id").read_text().strip()
    assert store == {f"points {hash_bytes(POINTS)}": POINTS, f"series {hash_bytes(HEAD)}": HEAD}
    assert bits(decode_scalars(HEAD, store.read)) == bits(KNOWN)
    assert block_hashes(HEAD) == [hash_bytes(POINTS)]
    assert series_hash(KNOWN) == hash_bytes(HEAD)


POINT = st.tuples(st.integers(-(2**63), 2**63 - 1), st.floats(), st.floats())


@given(st.lists(POINT, max_size=20), st.text(st.characters(exclude_categories=["Cs"]), max_size=5))
def test_round_trip(points: list[tuple[int, float, float]], tag: str) -> None:
    columns = [list(column) for column in zip(*points, strict=True)] or [[], [], []]
    series = Scalars("run", tag, columns[0], columns[1], columns[2], tag, tag)
    store = Store()
    head = store.read("series", encode_scalars(series, store.add))
    assert bits(decode_scalars(head, store.read)) == bits(series)


@pytest.mark.parametrize("n", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 3 * BLOCK + 5])
def test_blocks(n: int) -> None:
    series = Scalars("", "t", range(n), array("d", range(n)), [float(i) / 7 for i in range(n)])
    store = Store()
    head = store.read("series", encode_scalars(series, store.add))
    counts = [count for _, count in json.loads(head)["points"]]
    assert counts == [BLOCK] * (n // BLOCK) + ([n % BLOCK] if n % BLOCK else [])
    assert block_hashes(head) == [digest for digest, _ in json.loads(head)["points"]]
    assert bits(decode_scalars(head, store.read)) == bits(series)
    assert len(decode_scalars(head, store.read)) == n


def test_a_longer_log_shares_all_but_the_last_block() -> None:
    def log(n: int) -> Scalars:
        return Scalars(
            "", "t", range(n), [1e9 + i for i in range(n)], [1 / (i + 1) for i in range(n)]
        )

    store = Store()
    short = block_hashes(store.read("series", encode_scalars(log(2 * BLOCK + 100), store.add)))
    before = set(store)
    long = block_hashes(store.read("series", encode_scalars(log(3 * BLOCK + 7), store.add)))
    assert short[:2] == long[:2]
    assert short[2] != long[2]
    # Two new blocks and a new head.
    assert len(set(store) - before) == 3


def test_steps_beyond_64_bits() -> None:
    with pytest.raises(UsageError, match="`loss` is out of range"):
        series_hash(Scalars("", "loss", [2**63], [0.0], [0.0]))


def test_uneven_columns() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        series_hash(Scalars("", "loss", [1, 2], [0.0], [0.0, 1.0]))


def changed(**fields: Any) -> bytes:
    return dumps({**json.loads(HEAD), **fields})


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"{}",
        b"[]",
        HEAD + b" ",
        changed(n=4),
        changed(n=5.0),
        changed(n=True),
        changed(n="5"),
        changed(points=None),
        changed(points=[[hash_bytes(POINTS)]]),
        changed(points=[["x", 5]]),
        changed(points=[[hash_bytes(POINTS), 0]], n=0),
        changed(points=[[hash_bytes(POINTS), 4]], n=4),
        changed(points=[[hash_bytes(POINTS), BLOCK + 1]], n=BLOCK + 1),
        changed(points=[[hash_bytes(POINTS), True]], n=1),
        changed(run=None),
        changed(tag=5),
        dumps({k: v for k, v in json.loads(HEAD).items() if k != "purges"}),
    ],
)
def test_damage(head: bytes) -> None:
    with pytest.raises(Damaged):
        decode_scalars(head, lambda *_: POINTS)


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (changed(format="dlv/series/2"), "dlv/series/2"),
        (changed(later=1), "`later`"),
        (changed(data_class=4), "data class 4"),
    ],
)
def test_newer(head: bytes, said: str) -> None:
    with pytest.raises(NewerFormat, match=said) as found:
        decode_scalars(head, lambda *_: POINTS)
    assert "dlv 0.1.0" in (found.value.why or "")


def test_nothing_is_read_before_the_lengths_add_up() -> None:
    head = changed(points=[[hash_bytes(POINTS), BLOCK]] * 100_000, n=5)

    def read(kind: str, name: str) -> bytes:
        raise AssertionError("read")

    with pytest.raises(Damaged, match="corrupt"):
        decode_scalars(head, read)


@given(st.integers(0, len(HEAD) - 1), st.integers(1, 255))
@settings(max_examples=150)
def test_flipped_bytes(place: int, flip: int) -> None:
    head = bytearray(HEAD)
    head[place] ^= flip
    with contextlib.suppress(DlvError):
        decode_scalars(bytes(head), lambda *_: POINTS)
