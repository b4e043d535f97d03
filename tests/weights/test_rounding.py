"""Rounded weights in the files they came in."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

import dlv.versions.add as adding
import dlv.weights.rounding as rounding
from dlv.adapters import registry
from dlv.adapters.checkpoint import Checkpoint, Tensor
from dlv.canonical import matrix_hash
from dlv.objects.manifest import Container, Snapshot
from dlv.pas.layouts.schemes import parse
from dlv.weights.rounding import Tally
from dlv.weights.snapshots import Weights

UNIFORM = parse("uniform:8")


def tensor(
    name: str = "w", role: str = "weight", tied: str | None = None, parts: bool = True, n: int = 900
) -> Tensor:
    values = np.random.default_rng(3).normal(size=(3, n // 3)).astype("<f4")
    raw = values.tobytes()
    part = (lambda start, size: raw[start : start + size]) if parts else None
    return Tensor(name, "float32", values.shape, len(raw), lambda: raw, role, tied, part)


class TestTensors:
    @pytest.mark.parametrize("role", ["buffer", "optimizer", "extra"])
    def test_only_weights(self, role: str) -> None:
        assert rounding.fits(UNIFORM, tensor(role=role)) is None
        assert rounding.fits(UNIFORM, tensor()) is not None

    @settings(max_examples=60, deadline=None)
    @given(st.integers(0, 3600), st.integers(0, 3600))
    def test_any_bytes_of_it(self, a: int, b: int) -> None:
        found = rounding.fits(UNIFORM, tensor())
        assert found is not None
        assert found.rounding is not None
        made = rounding.rounded(tensor(), found.rounding)
        start, end = min(a, b), max(a, b)
        assert made.part is not None
        whole = bytes(made.read())
        assert bytes(made.part(start, end - start)) == whole[start:end]
        assert whole == bytes(found.rounding.apply(tensor().read()))

    def test_without_parts(self) -> None:
        found = rounding.fits(UNIFORM, tensor(parts=False))
        assert found is not None
        assert found.rounding is not None
        made = rounding.rounded(tensor(parts=False), found.rounding)
        assert made.part is None
        assert bytes(made.read()) == b"".join(bytes(part) for part in made.parts())


class TestCheckpoint:
    def file(self, *tensors: Tensor) -> Checkpoint:
        return Checkpoint("npz", list(tensors))

    def test_tied_tensors_stay_tied(self, tmp_path: Path) -> None:
        tally = Tally()
        opened = self.file(tensor(), tensor("again", tied="w"), tensor("b", role="buffer"))
        made, sources = rounding.checkpoint(opened, UNIFORM, tmp_path, tally)
        first, second, buffer = (bytes(t.read()) for t in made.tensors)
        assert first == second != buffer == tensor().read()
        before = matrix_hash("float32", (3, 300), tensor().read())
        assert sources == {0: before, 1: before}

    def test_a_file_with_nothing_to_round_is_left_alone(self, tmp_path: Path) -> None:
        opened = self.file(tensor(role="buffer"))
        made, sources = rounding.checkpoint(opened, UNIFORM, tmp_path, Tally())
        assert made is opened
        assert sources == {}

    def test_why_one_stays_exact(self, tmp_path: Path) -> None:
        raw = np.full((2, 2), 7e4, "<f4").tobytes()
        large = Tensor("large", "float32", (2, 2), 16, lambda: raw)
        tally = Tally()
        rounding.checkpoint(self.file(large), parse("fp16"), tmp_path, tally)
        assert tally.notes == ["large stays exact: 70000 is too large for it"]


class TestSources:
    def test_where_they_belong(self) -> None:
        a, b, c, d = (f"{i:064x}" for i in range(4))
        container = Container("w.npz", "npz", 1, None, None, (2, 0))
        weights = Weights((), (Snapshot(None, (a, None, b), (container,)),), 0)
        made = rounding.with_sources(weights, {"w.npz": {0: c, 1: d}})
        assert made.snapshots[0].sources == (d, None, c)
        assert rounding.changed(made) == 2
        assert rounding.changed(weights) == 0
        same = rounding.with_sources(weights, {"w.npz": {0: b}, "other": {0: d}})
        assert same.snapshots[0].sources == (a, None, b)
        assert rounding.changed(same) == 0


def safetensors(path: Path, values: dict[str, Any]) -> None:
    save_file(values, path)


def npz(path: Path, values: dict[str, Any]) -> None:
    np.savez(path, **values)


def pt(path: Path, values: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    torch.save({name: torch.from_numpy(value) for name, value in values.items()}, path)


class TestSkeleton:
    @pytest.mark.parametrize(
        ("suffix", "write"), [("safetensors", safetensors), ("npz", npz), ("pt", pt)]
    )
    def test_the_file_is_whole(
        self, tmp_path: Path, suffix: str, write: Callable[[Path, dict[str, Any]], None]
    ) -> None:
        values = {
            "a": np.random.default_rng(0).normal(size=(30, 40)).astype("f4"),
            "b": np.arange(5.0),
        }
        path = tmp_path / f"w.{suffix}"
        write(path, values)
        opened = adding.open_weights(path, suffix)
        work = tmp_path / "tmp"
        work.mkdir()
        made, _ = rounding.checkpoint(opened, UNIFORM, work, Tally())
        assert not list(work.iterdir())
        assert made.skeleton is not None
        with open(tmp_path / f"again.{suffix}", "wb") as out:
            registry.adapter(suffix).restore(out, made.skeleton, made.tensors)
        if suffix != "safetensors":
            assert made.skeleton != opened.skeleton
            with zipfile.ZipFile(tmp_path / f"again.{suffix}") as archive:
                assert archive.testzip() is None
        again = adding.open_weights(tmp_path / f"again.{suffix}", suffix)
        assert [bytes(t.read()) for t in again.tensors] == [bytes(t.read()) for t in made.tensors]
        assert len(np.unique(np.frombuffer(again.tensors[0].read(), "<f4"))) <= 256
        opened.close()
        again.close()

    def test_one_that_does_not_hold_the_tensors_is_not_used(self, tmp_path: Path) -> None:
        values = {"a": np.zeros((3, 4), "f4"), "b": np.ones((3, 4), "f4")}
        save_file(values, tmp_path / "w.safetensors")
        opened = adding.open_weights(tmp_path / "w.safetensors", "safetensors")
        assert opened.skeleton is not None
        # As if two tensors lay on the same bytes of the file and were rounded apart.
        answers = [bytes(48), np.full(12, math.pi, "<f4").tobytes()]
        first = opened.tensors[0]
        odd = Tensor(first.name, "float32", (3, 4), 48, lambda: answers.pop(0))
        tensors = [odd, *opened.tensors[1:]]
        assert rounding.skeleton("safetensors", opened.skeleton, tensors, tmp_path) is None
        opened.close()
