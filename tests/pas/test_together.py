"""Several matrices in one walk: right, each once, and no base decoded twice without need."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.canonical import matrix_hash
from dlv.errors import Damaged
from dlv.pas.deltas.links import chain
from dlv.pas.layouts.segments import SEGMENT
from dlv.pas.read import families, read_together
from tests.conformance.delta import MemoryStore, near
from tests.pas.unwritten import encode_in_contexts


def grown(
    parents: list[int], shape: tuple[int, ...] = (8, 8)
) -> tuple[MemoryStore, dict[str, bytes]]:
    """Matrix i is a delta against matrix parents[i]; -1: it is stored as it is."""
    store, raws, names = MemoryStore(), [], []
    source = random.Random(len(parents))
    for number, parent in enumerate(parents):
        if parent < 0:
            raws.append(source.randbytes(4 * int(np.prod(shape))))
            names.append(store.add(raws[-1], "float32", shape))
        else:
            raws.append(near(raws[parent], 4, number))
            kind = source.choice(["sub", "xor"])
            names.append(store.add(raws[-1], "float32", shape, kind=kind, base=names[parent]))
    store.reads.clear()
    return store, dict(zip(names, raws, strict=True))


def top_planes_read(store: MemoryStore) -> Counter[str]:
    return Counter(name for name, kind, plane, start in store.reads if (plane, start) == (0, 0))


@st.composite
def forests(draw: st.DrawFn) -> list[int]:
    count = draw(st.integers(1, 14))
    return [
        draw(st.integers(-1 if i < 3 or draw(st.booleans()) else 0, i - 1)) for i in range(count)
    ]


@settings(max_examples=150, deadline=None)
@given(forests(), st.data())
def test_every_one_comes_once_and_right(parents: list[int], data: st.DataObject) -> None:
    store, content = grown(parents)
    wanted = data.draw(st.lists(st.sampled_from(list(content))))
    found = [(name, bytes(raw)) for name, raw in read_together(wanted, store.encoding, store)]
    assert sorted(name for name, _ in found) == sorted(set(wanted))
    for name, raw in found:
        assert raw == content[name]
    needed = {e.matrix for name in wanted for e in chain(name, store.encoding)}
    assert set(top_planes_read(store)) == needed


def test_a_chain_is_decoded_once() -> None:
    store, content = grown([-1, *range(30)])
    names = list(content)
    assert [name for name, _ in read_together(reversed(names), store.encoding, store)] == names
    assert set(top_planes_read(store).values()) == {1}


def test_a_star_and_a_comb_are_decoded_once() -> None:
    for parents in ([-1] + [0] * 9, [-1, 0, 0, 1, 1, 3, 3, 5, 5]):
        store, content = grown(parents)
        found = dict(read_together(content, store.encoding, store))
        assert found.keys() == content.keys()
        assert set(top_planes_read(store).values()) == {1}


def test_a_fork_within_a_branch_starts_again() -> None:
    # Two equal branches of 0, each with two tips.
    store, content = grown([-1, 0, 0, 1, 1, 2, 2])
    found = {name: bytes(raw) for name, raw in read_together(content, store.encoding, store)}
    assert found == content
    root, *_ = content
    assert top_planes_read(store)[root] == 2


def test_what_nobody_wants_is_passed_on_the_way_only() -> None:
    store, content = grown([-1, 0, 1, 2, -1])
    names = list(content)
    assert [name for name, _ in read_together([names[2]], store.encoding, store)] == [names[2]]
    assert set(top_planes_read(store)) == set(names[:3])
    assert list(read_together([], store.encoding, store)) == []


def test_another_shape_on_the_way() -> None:
    store = MemoryStore()
    raws = [np.arange(n * 6, dtype="<f4").tobytes() for n in (4, 7, 5)]
    names: list[str] = []
    for raw, rows in zip(raws, (4, 7, 5), strict=True):
        base = names[-1] if names else None
        names.append(store.add(raw, "float32", (rows, 6), kind="sub", base=base))
    found = {name: bytes(raw) for name, raw in read_together(names, store.encoding, store)}
    assert found == dict(zip(names, raws, strict=True))


def test_contexts_from_further_down() -> None:
    """Links whose exponents are those of a matrix that is neither they nor their base."""
    store = MemoryStore()
    rng = np.random.default_rng(1)
    weights = rng.normal(0, 0.1, (100, 200)).astype("<f4")
    names = [store.add(weights.tobytes(), "float32", (100, 200))]
    content = {names[0]: weights.tobytes()}
    parents = [0, 1, 2, 1, 4, 2]
    for parent in parents:
        base = np.frombuffer(content[names[parent]], "<f4")
        raw = (base + rng.normal(0, 1e-4, base.shape).astype("<f4")).tobytes()
        name = matrix_hash("float32", (100, 200), raw)
        store.encodings[name], parts, _ = encode_in_contexts(
            *(raw, content[names[parent]], "float32", (100, 200), (name, names[parent])),
            scale=(names[0], content[names[0]]),
        )
        for part in parts:
            store.put(name, part)
        names.append(name)
        content[name] = raw
    far = {
        row.codec["scale"]
        for name in names[2:]
        for row in store.chunks(name)
        if "scale" in row.codec
    }
    assert far == {names[0]}
    for wanted in (names, names[3:], names[5:6]):
        found = {name: bytes(raw) for name, raw in read_together(wanted, store.encoding, store)}
        assert found == {name: content[name] for name in wanted}


def test_damage_is_named() -> None:
    store, content = grown([-1, 0, 1])
    names = list(content)
    store.change(names[1], delta=None)  # its digits are no words
    with pytest.raises(Damaged, match=names[1]):
        list(read_together(names, store.encoding, store))


def test_families_share_a_root() -> None:
    store, content = grown([-1, 0, -1, 2, 1])
    a, b, c, d, e = content
    assert families([d, a, e, b, d, c], store.encoding) == [[d, c], [a, e, b]]
    with pytest.raises(Damaged, match="not stored"):
        families(["0" * 64], store.encoding)


@pytest.mark.parametrize("parents", [[-1, 0, 1, 2], [-1, 0, 0, 0], [-1, 0, 0, 1, 1, 2, 2]])
def test_memory_is_that_of_two_matrices(parents: list[int]) -> None:
    size = 16 << 20
    store, content = grown(parents, (1 << 11, 1 << 11))
    assert len(next(iter(content.values()))) == size
    tracemalloc.start()
    try:
        count = sum(1 for _ in read_together(content, store.encoding, store))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == len(parents)
    assert peak < 2 * size + SEGMENT * 28  # and what it takes to decode a segment
