"""Matrices for many files at once: right in any order, each decoded once, errors end it."""

from __future__ import annotations

import random
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dlv.weights.reading.retrieval as retrieval
from dlv.errors import Damaged
from dlv.weights.reading.retrieval import Ahead, Source, Task, write_all
from dlv.weights.store import MatrixStore
from tests.conformance.delta import MemoryStore, near


class Chained(MatrixStore):
    """A real store over encodings in memory: `layers` chains of `steps` matrices each."""

    def __init__(self, layers: int, steps: int, shape: tuple[int, ...], backwards: int = 0) -> None:
        super().__init__(Path(), Path(), None)  # type: ignore[arg-type]
        self.memory = MemoryStore()
        self.content: dict[str, bytes] = {}
        self.names: list[list[str]] = []  # [step][layer]
        columns = []
        source = random.Random(layers)
        for layer in range(layers):
            raw = source.randbytes(4 * int(np.prod(shape)))
            column: list[str] = []
            for step in range(steps):
                base = column[-1] if column else None
                column.append(self.memory.add(raw, "float32", shape, kind="sub", base=base))
                self.content[column[-1]] = raw
                raw = near(raw, 4, 100 * layer + step)
            columns.append(column[::-1] if layer < backwards else column)
        self.names = [list(row) for row in zip(*columns, strict=True)]
        self.memory.reads.clear()

    def encoding(self, matrix: str) -> Any:
        return self.memory.encoding(matrix)

    def chunks(self, matrix: str) -> Any:
        return self.memory.chunks(matrix)

    def read(self, piece: Any) -> Any:
        return self.memory.read(piece)

    def stored(self, piece: Any) -> Any:
        return self.memory.stored(piece)

    def decoded(self) -> Counter[str]:
        return Counter(name for name, _, plane, start in self.memory.reads if plane == start == 0)


def copying(names: Sequence[str]) -> Task[list[bytes]]:
    """A file that asks for matrices one by one and keeps a copy of each."""

    def write(source: Source) -> list[bytes]:
        return [bytes(source.matrix(name)) for name in names]

    return Task(names, write)


@pytest.mark.parametrize("jobs", [1, 2, 4])
def test_chains_across_files_are_decoded_once(jobs: int) -> None:
    store = Chained(5, 12, (8, 8))
    found = write_all(store, [copying(names) for names in store.names], jobs)
    assert found == [[store.content[n] for n in names] for names in store.names]
    assert set(store.decoded().values()) == {1}


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_is_still_read_does_not_change(jobs: int) -> None:
    store = Chained(2, 6, (64, 64))

    def slow(names: Sequence[str]) -> Task[list[bytes]]:
        def write(source: Source) -> list[bytes]:
            found = []
            for name in names:
                raw = source.matrix(name)
                time.sleep(0.01)
                found.append(bytes(raw))
            return found

        return Task(names, write)

    found = write_all(store, [slow(names) for names in store.names], jobs)
    assert found == [[store.content[n] for n in names] for names in store.names]


@pytest.mark.parametrize("jobs", [1, 3])
def test_chains_in_both_directions(jobs: int) -> None:
    store = Chained(6, 8, (8, 8), backwards=3)
    found = write_all(store, [copying(names) for names in store.names], jobs)
    assert found == [[store.content[n] for n in names] for names in store.names]
    assert set(store.decoded().values()) == {1}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_order_any_subset_twice_or_never(data: st.DataObject) -> None:
    store = Chained(3, 5, (4,), backwards=1)
    everything = list(store.content)
    orders = data.draw(st.lists(st.lists(st.sampled_from(everything), max_size=8), max_size=6))
    asked = [data.draw(st.permutations(o)) if data.draw(st.booleans()) else o[::2] for o in orders]
    tasks = [Task(needs, copying(names).write) for needs, names in zip(orders, asked, strict=True)]
    found = write_all(store, tasks, data.draw(st.integers(1, 4)))
    assert found == [[store.content[n] for n in names] for names in asked]


def test_more_files_than_are_open_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrieval, "WRITERS", 3)
    store = Chained(2, 8, (4,))
    before = threading.active_count()
    most = 0

    def counted(names: Sequence[str]) -> Task[list[bytes]]:
        def write(source: Source) -> list[bytes]:
            nonlocal most
            most = max(most, threading.active_count() - before)
            return copying(names).write(source)

        return Task(names, write)

    found = write_all(store, [counted(names) for names in store.names], 2)
    assert found == [[store.content[n] for n in names] for names in store.names]
    assert most <= 3 + 2


def test_bytes_are_counted() -> None:
    store = Chained(2, 4, (4,))
    for jobs in (1, 2):
        seen: list[int] = []
        write_all(store, [copying(names) for names in store.names], jobs, seen.append)
        assert sum(seen) == sum(map(len, store.content.values()))
        write_all(store, [copying(store.names[0])], jobs, seen.append)
        assert sum(seen) == sum(map(len, store.content.values())) + 2 * 16


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_fails_in_a_file_ends_all(jobs: int) -> None:
    store = Chained(3, 6, (4,))

    def failing(source: Source) -> list[bytes]:
        source.matrix(store.names[2][0])
        raise OSError("disk full")

    tasks = [copying(names) for names in store.names]
    tasks[2] = Task(store.names[2], failing)
    before = threading.active_count()
    with pytest.raises(OSError, match="disk full"):
        write_all(store, tasks, jobs)
    assert threading.active_count() == before


@pytest.mark.parametrize("jobs", [1, 2])
def test_damage_ends_all(jobs: int) -> None:
    store = Chained(3, 6, (4,))
    broken = store.names[3][1]
    store.memory.change(broken, delta=None)
    with pytest.raises(Damaged, match=broken):
        write_all(store, [copying(names) for names in store.names], jobs)
    with pytest.raises(Damaged, match="not stored"):
        write_all(store, [copying(["0" * 64]), copying(store.names[0])], jobs)


def test_memory_does_not_grow_with_the_files() -> None:
    size = 4 << 20
    store = Chained(2, 10, (1 << 20,))

    def write(names: Sequence[str]) -> Task[int]:
        def run(source: Source) -> int:
            total = 0
            for name in names:
                total += len(source.matrix(name))
            return total

        return Task(names, run)

    tracemalloc.start()
    try:
        found = write_all(store, [write(names) for names in store.names], 1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == [2 * size] * 10
    assert peak < 9 * size  # a matrix and what it takes to decode a segment


def test_all_of_a_version_by_threads() -> None:
    store = Chained(4, 3, (4,))
    wanted = [name for row in store.names for name in row] * 2
    for jobs in (1, 3):
        assert retrieval.matrices(store, wanted, jobs) == store.content
    store.memory.reads.clear()
    assert retrieval.related(store, [row[0] for row in store.names]).keys() == {
        row[0] for row in store.names
    }
    assert set(store.decoded().values()) == {1}


def test_nothing_to_do() -> None:
    store = Chained(1, 1, (4,))
    assert write_all(store, [], 4) == []
    assert write_all(store, [Task([], lambda _: 7)] * 2, 4) == [7, 7]
    assert retrieval.matrices(store, [], 4) == {}


class TestAhead:
    @pytest.mark.parametrize("jobs", [1, 3])
    def test_in_any_order(self, jobs: int) -> None:
        store = Chained(6, 2, (4,))
        told = [name for row in store.names for name in row]
        for asked in (told, told[::-1], told[::2] + told, random.Random(1).sample(told, 5)):
            with Ahead(store, told, jobs) as source:
                found = {name: bytes(source.matrix(name)) for name in asked}
            assert found == {name: store.content[name] for name in asked}

    def test_no_more_wait_than_there_are_threads(self) -> None:
        store = Chained(9, 1, (4,))
        [told] = store.names
        seen: list[int] = []
        with Ahead(store, told, 2, seen.append) as source:
            source.matrix(told[0])
            source.matrix(told[1])
            time.sleep(0.05)
            assert len(store.decoded()) <= 4
        assert seen == [16, 16]

    def test_each_belongs_to_who_asked(self) -> None:
        store = Chained(1, 4, (4,))
        names = [row[0] for row in store.names]
        with Ahead(store, names, 2) as source:
            raws = [source.matrix(name) for name in names]
        assert [bytes(raw) for raw in raws] == [store.content[name] for name in names]

    def test_damage_comes_when_it_is_asked_for(self) -> None:
        store = Chained(3, 1, (4,))
        [names] = store.names
        store.memory.change(names[1], shape=(5,))
        with Ahead(store, names, 2) as source:
            source.matrix(names[0])
            with pytest.raises(Damaged):
                source.matrix(names[1])
            source.matrix(names[2])
