"""Encodings and pieces made to attack the reader: typed errors, little memory, little time."""

from __future__ import annotations

import contextlib
import random
import time
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.canonical import hash_bytes, matrix_hash
from dlv.errors import Damaged, DlvError, NewerFormat, StorageError
from dlv.kinds import Piece
from dlv.pas.coders.zstd import ZstdCodec
from dlv.pas.deltas.links import MAX_CHAIN, check_memory
from dlv.pas.footer import Encoding
from dlv.pas.layouts.fixed import Fixed
from dlv.pas.layouts.segments import SEGMENT
from dlv.pas.level import level
from dlv.pas.read import read_matrix, read_slice, read_together
from tests.conformance.delta import MemoryStore, near

SHAPE = (40, 50)


def built() -> tuple[MemoryStore, list[str]]:
    """A chain of materialised `fixed`, a difference of codes, of words, and an XOR."""
    store = MemoryStore()
    raw = np.random.default_rng(3).normal(0, 1, SHAPE).astype("<f4").tobytes()
    names: list[str] = []
    for step, (kind, coded) in enumerate(
        [("materialise", True), ("sub", True), ("sub", False), ("xor", False)]
    ):
        layout = Fixed.of([raw], "float32", SHAPE, at_least=b"\x05\0" * 40) if coded else None
        base = names[-1] if names else None
        names.append(store.add(raw, "float32", SHAPE, layout=layout, kind=kind, base=base))
        raw = near(raw, 4, step)
    return store, names


def every_way(store: MemoryStore, name: str) -> None:
    """Whatever reads, ends in an error of its own or in the right bytes."""
    for read in (
        lambda: read_matrix(name, store.encoding, store),
        lambda: first_elements(store, name),
        lambda: level(name, 1, store.encoding, store),
        lambda: level(name, 3, store.encoding, store),
        lambda: list(read_together([name], store.encoding, store)),
    ):
        with contextlib.suppress(DlvError):
            read()


def first_elements(store: MemoryStore, name: str) -> None:
    try:
        read_slice(name, 0, 10, store.encoding, store)
    except ValueError as error:
        # A shape that was made smaller has no ten elements: the caller's mistake then.
        if "elements 0 .. 10" not in str(error):
            raise


HASHES = st.sampled_from(["ab" * 32, "", "x" * 64])
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.sampled_from([1 << 20, 1 << 40, (1 << 62) - 1, -(1 << 40)]),
    st.sampled_from(["ieee", "fixed", "table", "sub", "xor", "first", "zstd", "raw", ""]),
    HASHES,
    st.lists(st.integers(-1, 50), max_size=3),
    st.dictionaries(st.sampled_from(["id", "base"]), HASHES, max_size=2),
)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_configs_changed_at_random(data: st.DataObject) -> None:
    store, names = built()
    victim = data.draw(st.sampled_from(names))
    encoding = store.encodings[victim]
    field = data.draw(st.sampled_from(["layout", "delta", "shape", "dtype", "planes"]))
    if field in ("layout", "delta"):
        config = dict((encoding.layout if field == "layout" else encoding.delta) or {"id": "xor"})
        key = data.draw(st.sampled_from([*config, "overlap", "predictor"]))
        config[key] = data.draw(st.one_of(VALUES, st.sampled_from(names)))
        store.change(victim, **{field: config})
    elif field == "shape":
        size = st.sampled_from([0, 1, 39, 40, 50, 1 << 20, 1 << 31, 1 << 40])
        store.change(victim, shape=tuple(data.draw(st.lists(size, max_size=4))))
    elif field == "dtype":
        dtypes = ["float64", "float16", "int32", "bool", "raw:x", "float99", "complex64", ""]
        store.change(victim, dtype=data.draw(st.sampled_from(dtypes)))
    else:
        store.change(victim, planes=data.draw(st.integers(0, 64)))
    tracemalloc.start()
    began = time.monotonic()
    try:
        every_way(store, names[-1])
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert time.monotonic() - began < 20


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_pieces_changed_at_random(data: st.DataObject) -> None:
    store, names = built()
    victim = data.draw(st.sampled_from(names))
    rows = store.rows[victim]
    at = data.draw(st.integers(0, len(rows) - 1))
    row = rows[at]
    match data.draw(st.sampled_from(["lost", "twice", "number", "codec", "bytes", "plane"])):
        case "lost":
            del rows[at]
        case "twice":
            rows.append(row)
        case "number":
            name = data.draw(st.sampled_from(["start", "count", "at", "raw", "length"]))
            changes: dict[str, Any] = {name: data.draw(st.sampled_from([0, 1, 2001, 1 << 40]))}
            rows[at] = replace(row, **changes)
        case "codec":
            codecs = [
                {"id": "raw"},
                {"id": "context-above"},
                {"id": "context-zstd", "lo": 8, "scale": names[0]},
                {"id": "context-zstd", "lo": 8, "scale": "ab" * 32},
                {"id": "context-packed", "lo": 200, "scale": names[0]},
                {"id": "context-rans", "lo": 8, "scale": names[0], "table": "ab" * 32},
                {"id": "context-next", "lo": 8, "scale": names[0]},
            ]
            rows[at] = replace(row, codec=data.draw(st.sampled_from(codecs)))
        case "bytes":
            stored = bytearray(store.data[row.offset])
            if stored:
                stored[data.draw(st.integers(0, len(stored) - 1))] ^= 1 << data.draw(
                    st.integers(0, 7)
                )
            store.data[row.offset] = bytes(stored)
        case _:
            rows[at] = replace(row, plane=data.draw(st.sampled_from([None, 0, 1, 7])))
    every_way(store, names[-1])


def test_huge_shapes_cost_nothing() -> None:
    """Chunks that decode to what a shape promises would have to be there."""
    for dtype, shape in (("float32", (1 << 40, 1 << 20)), ("uint8", (1 << 45,))):
        store = MemoryStore()
        name = matrix_hash("float32", (2,), bytes(8))
        planes = 4 if dtype == "float32" else 1
        store.encodings[name] = Encoding(name, dtype, shape, {"id": "ieee"}, None, planes)
        size = 1 << (60 if planes == 4 else 45)
        frame = ZstdCodec().encode(bytes(1000))
        for plane in range(planes):
            store.data[8 + plane] = frame
            row = Piece(
                *(name, "p", "plane", plane, 8 + plane, len(frame), size),
                *(hash_bytes(frame), {"id": "zstd"}, 0, 0, size),
            )
            store.rows.setdefault(name, []).append(row)
        tracemalloc.start()
        try:
            with pytest.raises(Damaged, match="longer than its chunk"):
                read_matrix(name, store.encoding, store)
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()


def test_more_than_this_machine_has_is_refused() -> None:
    with pytest.raises(StorageError, match="memory"):
        check_memory(1 << 60, "ab" * 32)
    check_memory(1 << 20, "ab" * 32)


def test_a_chain_of_too_many_far_scales() -> None:
    """Exponents of many matrices at once would have to be held."""
    store = MemoryStore()
    source = random.Random(1)
    names: list[str] = []
    for _ in range(8):
        base = names[-1] if names else None
        names.append(store.add(source.randbytes(4000), "float32", (1000,), kind="sub", base=base))
    for number, name in enumerate(names[4:], 4):
        scale = names[7 - number]
        store.rows[name] = [
            replace(row, codec={"id": "context-zstd", "lo": 0, "scale": scale})
            for row in store.rows[name]
        ]
        side = bytes(2 * 1001)
        offset = max(store.data) + 1_000_000
        store.data[offset] = side
        row = Piece(
            *(name, "p", "side", None, offset, len(side), len(side), "", {"id": "raw"}),
            *(0, 0, len(side)),
        )
        store.rows[name].append(row)
    with pytest.raises(Damaged, match="too many tensors"):
        read_matrix(names[-1], store.encoding, store)


def test_the_longest_chain_is_read_and_not_a_longer_one() -> None:
    store = MemoryStore()
    raws = [random.Random(seed).randbytes(64) for seed in range(MAX_CHAIN + 2)]
    name: str | None = None
    for raw in raws[:-1]:
        name = store.add(raw, "int16", (32,), kind="xor", base=name)
    assert name is not None
    assert store.matrix(name) == raws[-2]
    last = store.add(raws[-1], "int16", (32,), kind="sub", base=name)
    with pytest.raises(Damaged, match="more than 64"):
        store.matrix(last)


def test_a_segment_of_another_length(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SEGMENT == 1 << 20
    for name in ("read", "encode", "level", "layouts.segments", "deltas.links", "layouts.fixed"):
        monkeypatch.setattr(f"dlv.pas.{name}.SEGMENT", 64)
    store, names = built()
    assert len([row for row in store.chunks(names[0]) if row.plane == 3]) == 32
    rows = store.rows[names[0]]
    tails = [n for n, row in enumerate(rows) if row.plane == 3]
    rows[tails[0]], rows[tails[1]] = (
        replace(rows[tails[1]], start=0),
        replace(rows[tails[0]], start=rows[tails[1]].count),
    )
    every_way(store, names[0])
    with pytest.raises((Damaged, NewerFormat)):
        store.matrix(names[0])
