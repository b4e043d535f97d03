"""Stored snapshots read tensor by tensor, slice by slice, and roughly."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dlv
from dlv.api import Repo
from dlv.archiving.budgets import Policy
from dlv.errors import Damaged, NotFound, UsageError
from dlv.pas.layouts.segments import SEGMENT
from dlv.weights.reading.reader import Reader
from dlv.weights.store import MatrixStore

MANY = (3, 700_000)  # two segments of 2^20 elements and a bit


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repo]:
    for name in list(os.environ):
        if name.startswith("DLV_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("DLV_USER_NAME", "Ada")
    monkeypatch.chdir(tmp_path)
    with dlv.open(tmp_path, create=True) as repo:
        yield repo


def values(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype.startswith("complex"):
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    return (100 * rng.normal(size=shape)).astype(dtype)


class Counting:
    """Which stored bytes a reader asks its packs for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        read, stored = MatrixStore.read, MatrixStore.stored

        def counted_read(store: MatrixStore, piece: Any) -> Any:
            self.bytes += piece.length
            return read(store, piece)

        def counted_stored(store: MatrixStore, piece: Any) -> Any:
            self.bytes += piece.length
            return stored(store, piece)

        monkeypatch.setattr(MatrixStore, "read", counted_read)
        monkeypatch.setattr(MatrixStore, "stored", counted_stored)


INDICES: list[Any] = [2, slice(1, 4), (slice(None), 3), (..., -1), (3, 2), slice(None, None, -2)]
DTYPES = ["bool", "uint8", "int64", "float16", "float32", "float64", "complex64"]


@pytest.fixture
def filled(repo: Repo) -> Repo:
    weights = {f"of.{dtype}": values(dtype, (6, 5), at) for at, dtype in enumerate(DTYPES)}
    weights |= {"none": np.zeros((0, 3), np.float32), "one": np.float32(7)}
    weights["many"] = values("float32", MANY)
    repo.commit("first", name="net", weights=weights, checkpoints={5: {"one": np.float32(1)}})
    return repo


def test_names_shapes_and_tensors(filled: Repo) -> None:
    version = filled["net"]
    with version.open() as f:
        assert set(f.keys()) == set(f) == set(version.tensors)
        assert len(f) == len(DTYPES) + 3
        for name in f.keys():  # noqa: SIM118 (what users of safe_open write)
            assert (f.dtype(name), f.shape(name)) == version.tensors[name]
            assert np.array_equal(f.tensor(name), version.tensor(name))
            assert np.array_equal(f.get_tensor(name), f.get_slice(name)[...])
            assert bytes(f.raw(name)) == bytes(version.raw(name))
            assert f.get_slice(name).get_shape() == list(f.shape(name))
            assert f.get_slice(name).get_dtype() == f.dtype(name)
        assert f.metadata() == {"dlv": version.id}
        assert "many" in f
        assert repr(f) == "<dlv reader of net@1, 10 tensors>"
    with version.at(5).open() as f:
        assert f.keys() == ["one"]
        assert f.tensor("one") == 1
        assert f.metadata() == {"dlv": version.id, "step": "5"}


def test_an_unknown_name_is_answered_with_the_nearest(filled: Repo) -> None:
    with filled["net"].open() as f:
        calls: list[Any] = [f.tensor, f.slice, f.shape, f.dtype, f.raw]
        for call in [*calls, lambda name: f.approximate(name, planes=1)]:
            with pytest.raises(NotFound, match="net@1 has no tensor `mony`") as caught:
                call("mony")
            assert caught.value.did_you_mean[0] == "many"


def test_slices_of_small_ones(filled: Repo) -> None:
    with filled["net"].open() as f:
        for dtype in DTYPES:
            part, whole = f.slice(f"of.{dtype}"), f.tensor(f"of.{dtype}")
            assert len(part) == 6
            for index in INDICES:
                found = part[index]
                assert np.array_equal(found, whole[index])
                assert found.dtype == whole.dtype
        assert f.slice("none")[:, 1].shape == (0,)
        assert f.slice("one")[()] == 7
        with pytest.raises(TypeError):
            len(f.slice("one"))
        with pytest.raises(UsageError, match="`many` of shape"):
            f.slice("many")[3]


class TestManySegments:
    @settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        first=st.integers(-4, 4),
        step=st.sampled_from([1, 2, -1]),
        low=st.integers(0, MANY[1]),
        high=st.integers(0, MANY[1]),
        jump=st.sampled_from([1, 3, 250_001, -1, -70_000]),
    )
    def test_as_numpy(
        self, filled: Repo, first: int, step: int, low: int, high: int, jump: int
    ) -> None:
        whole = values("float32", MANY)
        with filled["net"].open() as f:
            index = (slice(first, None, step), slice(low, high, jump))
            assert np.array_equal(f.slice("many")[index], whole[index])

    def test_only_what_is_needed_is_read(
        self, filled: Repo, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with filled["net"].open() as f:
            part = f.slice("many")
            counting = Counting(monkeypatch)
            assert part[0, :0].size == 0
            assert counting.bytes == 0
            part[0, 100:200]
            one = counting.bytes
            assert 0 < one <= 4 * SEGMENT
            part[2, -1:]  # the last segment, a short one
            assert counting.bytes - one < one / 8
            before = counting.bytes
            f.tensor("many")
            assert counting.bytes - before > 1.9 * one

    def test_segments_between_are_left_out(
        self, repo: Repo, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = values("float32", (4, SEGMENT))
        repo.commit("rows", name="net", weights={"w": whole})
        with repo["net"].open() as f:
            counting = Counting(monkeypatch)
            assert np.array_equal(f.slice("w")[1, :5], whole[1, :5])
            one, counting.bytes = counting.bytes, 0
            assert np.array_equal(f.slice("w")[::3, :5], whole[::3, :5])
            assert 1.9 * one < counting.bytes < 2.1 * one

    def test_a_far_stride_reads_each_segment_once(
        self, filled: Repo, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with filled["net"].open() as f:
            counting = Counting(monkeypatch)
            whole = f.tensor("many")
            all_of_it, counting.bytes = counting.bytes, 0
            assert np.array_equal(f.slice("many")[:, ::1000], whole[:, ::1000])
            assert counting.bytes == all_of_it


def test_memory_stays_below_the_whole(repo: Repo) -> None:
    big = values("float32", (64, 1 << 18))  # 64 MiB
    repo.commit("big", name="net", weights={"w": big})
    with repo["net"].open() as f:
        f.slice("w")[0, :10]  # what is loaded once
        tracemalloc.start()
        try:
            found = f.slice("w")[:, ::512]
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert np.array_equal(found, big[:, ::512])
    assert peak < big.nbytes * 0.75  # that of a few segments, whatever the matrix has


def test_damage_is_found_in_a_slice(repo: Repo) -> None:
    repo.commit("big", name="net", weights={"w": values("float32", MANY)})
    for pack in repo.repository.packs.rglob("*.pack"):
        data = bytearray(pack.read_bytes())
        data[100] ^= 1
        pack.write_bytes(data)
    with repo["net"].open() as f:
        f.slice("w")[2, -10:]  # elsewhere
        with pytest.raises(Damaged):
            f.slice("w")[0, :10]


def _chain(repo: Repo, shape: tuple[int, ...], count: int = 4) -> list[Any]:
    rng = np.random.default_rng(1)
    weights, made = rng.normal(0, 0.1, shape).astype(np.float32), []
    for _ in range(count):
        made.append(weights.copy())
        repo.commit("step", name="net", weights={"w": weights})
        weights += rng.normal(0, 1e-4, shape).astype(np.float32)
    return made


@pytest.fixture
def chained(repo: Repo, archived: Any) -> tuple[Repo, list[Any]]:
    made = _chain(repo, (300, 100))
    archived(repo.repository, Policy(alpha=50.0))
    return repo, made


class TestApproximately:
    def test_bounds_hold_and_tighten(self, filled: Repo) -> None:
        with filled["net"].open() as f:
            whole = f.tensor("many").astype(np.float64)
            widths, read = [], []
            for planes in (1, 2, 3, 4):
                found = f.approximate("many", planes=planes)
                assert found.center.shape == whole.shape
                assert (found.low <= whole).all()
                assert (whole <= found.high).all()
                assert (found.low <= found.center).all()
                assert (found.center <= found.high).all()
                widths.append(float((found.high - found.low).max()))
                read.append(found.bytes_read)
                assert found.exact == (planes == 4)
                assert found.reading.bytes_whole == f.approximate("many", planes=4).bytes_read
            assert widths == sorted(widths, reverse=True)
            assert widths[-1] == 0
            assert read == sorted(read)
            assert read[0] < read[-1] == found.reading.bytes_whole
            assert found.share == 1

    def test_along_a_chain(self, chained: tuple[Repo, list[Any]]) -> None:
        repo, made = chained
        depths = set()
        for number, whole in enumerate(made, 1):
            with repo[f"net@{number}"].open() as f:
                assert np.array_equal(f.slice("w")[7:9, ::3], whole[7:9, ::3])
                for planes in (1, 2, 3, 4):
                    found = f.approximate("w", planes=planes)
                    assert (found.low <= whole).all()
                    assert (whole <= found.high).all()
                depths.add(found.reading.bytes_whole)
        assert len(depths) > 1

    def test_what_has_no_bounds_is_read_whole(self, repo: Repo) -> None:
        weights = values("float32", (40, 50))
        weights[3, 4], weights[5, 6] = np.nan, np.inf
        repo.commit("odd", name="net", weights={"w": weights})
        with repo["net"].open() as f:
            found = f.approximate("w", planes=1)
            assert found.exact
            assert found.reading.why is not None
            assert found.bytes_read == found.reading.bytes_whole
            assert np.array_equal(found.center, weights.astype(np.float64), equal_nan=True)

    def test_no_planes_are_no_question(self, filled: Repo) -> None:
        with filled["net"].open() as f, pytest.raises(UsageError):
            f.approximate("many", planes=0)


def test_closing_takes_nothing_from_others(filled: Repo) -> None:
    version = filled["net"]
    first, second = version.open(), version.open()
    first.tensor("one")
    first.close()
    assert isinstance(second, Reader)
    assert second.tensor("one") == 7
    assert first.tensor("one") == 7


class TestManyAtOnce:
    def test_all_matrices_by_threads(self, filled: Repo) -> None:
        version = filled["net"]
        one = version.state_dict()
        for jobs in (1, 3):
            found = version.state_dict(jobs=jobs)
            assert list(found) == list(one)
            for name, values_ in found.items():
                assert np.array_equal(values_, version.tensor(name))

    def test_a_matrix_at_every_step(self, repo: Repo, archived: Any) -> None:
        rng = np.random.default_rng(2)
        weights = rng.normal(0, 0.1, (200, 100)).astype(np.float32)
        made: dict[int, Any] = {}
        for step in (10, 20, 30):
            made[step] = {"w": weights.copy()}
            weights += rng.normal(0, 1e-4, weights.shape).astype(np.float32)
        repo.commit("run", name="net", weights={"w": weights}, checkpoints=made)
        archived(repo.repository, Policy(alpha=50.0))
        found = repo["net"].over_steps("w")
        assert list(found) == [10, 20, 30, None]
        for at, array in found.items():
            assert np.array_equal(array, weights if at is None else made[at]["w"])
        with pytest.raises(NotFound) as caught:
            repo["net"].over_steps("v")
        assert caught.value.did_you_mean == []
