"""Chains of small-tier deltas: scales further down, levels, damage, several read together."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dlv.canonical import matrix_hash
from dlv.errors import Damaged
from dlv.pas.coders.small import encode_small
from dlv.pas.footer import Encoding
from dlv.pas.level import Level, Unusable, level
from dlv.pas.read import read_matrix, read_slice, read_together
from tests.conformance.delta import MemoryStore
from tests.pas.unwritten import encode_in_contexts

COUNT = 20_000
SHAPE = (100, 200)


def start() -> bytes:
    return np.random.default_rng(1).normal(0, 0.1, COUNT).astype("<f4").tobytes()


def moved(raw: bytes, seed: int) -> bytes:
    """Weights after some training steps."""
    words = np.frombuffer(raw, "<f4")
    steps = np.random.default_rng(seed).normal(0, 1e-4, len(words)).astype("<f4")
    after: bytes = (words + steps).astype("<f4").tobytes()
    return after


def add_small(store: MemoryStore, raw: bytes, base: str) -> str:
    parts: list[Any] = []
    name = matrix_hash("float32", SHAPE, raw)
    given = raw, store.matrix(base), "float32", SHAPE, name, base
    return put(store, encode_small(*given, parts.append), parts)


def add_far(store: MemoryStore, raw: bytes, base: str, scale: str) -> str:
    """A difference whose contexts are those of a matrix further down the chain."""
    names = matrix_hash("float32", SHAPE, raw), base
    encoding, parts, _ = encode_in_contexts(
        *(raw, store.matrix(base), "float32", SHAPE, names), scale=(scale, store.matrix(scale))
    )
    return put(store, encoding, parts)


def put(store: MemoryStore, encoding: Encoding, parts: list[Any]) -> str:
    for part in parts:
        store.put(encoding.matrix, part)
    store.encodings[encoding.matrix] = encoding
    return encoding.matrix


@pytest.fixture(scope="module")
def trained() -> tuple[MemoryStore, list[str], list[bytes]]:
    """A chain of xor, context-coded and plain differences."""
    store = MemoryStore()
    raws = [start()]
    names = [store.add(raws[0], "float32", SHAPE, effort="small")]
    for step in range(6):
        raws.append(moved(raws[-1], step))
        if step == 2:
            names.append(store.add(raws[-1], "float32", SHAPE, kind="xor", base=names[-1]))
        elif step == 4:
            names.append(store.add(raws[-1], "float32", SHAPE, kind="sub", base=names[-1]))
        else:
            names.append(add_far(store, raws[-1], names[-1], names[0]))
    return store, names, raws


def test_contexts_from_further_down_the_chain(
    trained: tuple[MemoryStore, list[str], list[bytes]],
) -> None:
    store, names, raws = trained
    codecs = {str(row.codec["id"]) for name in names for row in store.chunks(name)}
    assert "context-zstd" in codecs
    scales = {row.codec["scale"] for row in store.chunks(names[6]) if "scale" in row.codec}
    assert scales == {names[0]}
    for name, raw in zip(names, raws, strict=True):
        assert store.matrix(name) == raw
        assert bytes(read_slice(name, 777, 99, store.encoding, store)) == raw[4 * 777 : 4 * 876]


def test_levels_of_context_coded_matrices(
    trained: tuple[MemoryStore, list[str], list[bytes]],
) -> None:
    store, names, raws = trained
    for name, raw in zip(names, raws, strict=True):
        values = np.frombuffer(raw, "<f4").astype(np.float64).reshape(SHAPE)
        last = np.inf
        for k in (1, 2, 3, 4):
            store.reads.clear()
            found = level(name, k, store.encoding, store)
            if isinstance(found, Unusable):
                assert k < 4
                continue
            assert isinstance(found, Level)
            assert (found.low <= values).all()
            assert (values <= found.high).all()
            if k < 3:
                # Exponents take two planes of what the contexts come from, never more.
                assert {plane for _, kind, plane, _ in store.reads if kind == "plane"} <= {0, 1}
            width = float((found.high - found.low).mean())
            assert width <= last
            last = width
        assert isinstance(found, Level)
        assert found.exact


def test_shared_bases_are_decoded_once(trained: tuple[MemoryStore, list[str], list[bytes]]) -> None:
    store, names, raws = trained
    wanted = [names[6], names[2], names[4], names[0]]
    store.reads.clear()
    found = {name: bytes(raw) for name, raw in read_together(wanted, store.encoding, store)}
    assert found == {name: raws[names.index(name)] for name in wanted}
    assert len(store.reads) == len(set(store.reads))
    assert {owner for owner, _, _, _ in store.reads} == set(names)


def test_a_damaged_base_is_found_out(trained: tuple[MemoryStore, list[str], list[bytes]]) -> None:
    store, names, raws = trained
    row = next(row for row in store.chunks(names[1]) if row.kind == "plane" and row.plane == 3)
    good = store.data[row.offset]
    try:
        store.data[row.offset] = good[:-1]
        with pytest.raises(Damaged):
            list(read_together([names[4]], store.encoding, store))
        assert bytes(read_matrix(names[0], store.encoding, store)) == raws[0]
    finally:
        store.data[row.offset] = good


@pytest.mark.parametrize("change", ["other", "none", "itself", "two", "materialised"])
def test_scales_that_cannot_be(
    trained: tuple[MemoryStore, list[str], list[bytes]], change: str
) -> None:
    store, names, _ = trained
    name = names[2]
    rows = list(store.chunks(name))
    at = next(n for n, row in enumerate(rows) if "scale" in row.codec)
    scale = {"other": "ab" * 32, "none": names[5], "itself": name}.get(change, names[0])
    encoding = store.encodings[name]
    try:
        if change == "materialised":
            store.change(name, delta=None)
        else:
            some = {at} if change == "two" else set(range(len(rows)))
            if change == "two":
                scale = names[0] if rows[at].codec["scale"] != names[0] else "cd" * 32
            store.rows[name] = [
                replace(row, codec={**row.codec, "scale": scale})
                if n in some and "scale" in row.codec
                else row
                for n, row in enumerate(rows)
            ]
        if change == "two" and sum("scale" in row.codec for row in rows) == 1:
            store.rows[name].append(store.rows[name][at])
        with pytest.raises(Damaged):
            store.matrix(name)
    finally:
        store.rows[name] = rows
        store.encodings[name] = encoding


def test_predictors_and_contexts_of_several_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("dlv.pas.") and hasattr(module, "SEGMENT"):
            monkeypatch.setattr(module, "SEGMENT", 4096)
    source = np.random.default_rng(9)
    store = MemoryStore()
    raw = start()
    base = store.add(raw, "float32", SHAPE)
    rank = np.outer(source.normal(0, 1e-3, 100), source.normal(0, 1, 200)).astype("<f4").ravel()
    merged = (np.frombuffer(raw, "<f4") + rank).astype("<f4").tobytes()
    name = add_small(store, merged, base)
    delta = store.encodings[name].delta
    assert delta is not None
    assert [one["id"] for one in delta["predictor"]] == ["lowrank"]
    assert store.matrix(name) == merged
    again = add_small(store, moved(merged, 3), name)
    assert store.matrix(again) == moved(merged, 3)
    store.reads.clear()
    part = read_slice(again, 9000, 50, store.encoding, store)
    assert bytes(part) == moved(merged, 3)[36000:36200]
    assert {start for _, kind, _, start in store.reads if kind == "plane"} == {8192, 16384}
    for k in (1, 2, 3):
        found = level(again, k, store.encoding, store)
        if isinstance(found, Level):
            values = np.frombuffer(moved(merged, 3), "<f4").reshape(SHAPE)
            assert (found.low <= values).all()
            assert (values <= found.high).all()
