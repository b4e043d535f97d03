"""Which files are one snapshot, under which names their tensors stand, and how files come back."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save

import dlv.weights.snapshots as snapshots
from dlv.adapters import registry
from dlv.canonical import hash_bytes, matrix_hash
from dlv.errors import Conflict, Damaged
from dlv.objects.manifest import Container, Manifest, Snapshot, TensorEntry, decode
from dlv.weights.snapshots import WeightFile, Weights


class Memory:
    """A store that keeps everything in a dict; reads and writes as the real one does."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def add(self, dtype: str, shape: Any, raw: Any) -> str:
        name = matrix_hash(dtype, shape, raw)
        self.kept[name] = bytes(raw)
        return name

    def add_parts(self, dtype: str, shape: Any, nbytes: int, read: Any) -> str:
        half = nbytes // 2
        return self.add(dtype, shape, bytes(read(0, half)) + bytes(read(half, nbytes - half)))

    def add_object(self, kind: str, data: Any) -> str:
        name = hash_bytes(data)
        self.kept[f"{kind} {name}"] = bytes(data)
        return name

    def matrix(self, matrix: str) -> bytes:
        return self.kept[matrix]

    def object(self, kind: str, name: str) -> bytes:
        return self.kept[f"{kind} {name}"]


class Shelf:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.memory = Memory()
        self.contents: dict[str, bytes] = {}

    def file(
        self, path: str, values: dict[str, Any], step: int | None = None, *, own: bool = False
    ) -> WeightFile:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        data = save({name: np.asarray(value, "f4") for name, value in values.items()})
        target.write_bytes(data)
        self.contents[path] = data
        opened = registry.adapter("safetensors").open(str(target))
        return WeightFile(path, "safetensors", len(data), hash_bytes(data), step, own, opened)

    def store(self, *files: WeightFile) -> Weights:
        return snapshots.store(files, self.memory)

    def manifest(self, weights: Weights) -> Manifest:
        made = Manifest(
            "n",
            "",
            "",
            "2026-01-01T00:00:00.000000Z",
            tensors=weights.tensors,
            snapshots=weights.snapshots,
            own=weights.own,
        )
        assert decode(made.encode()) == made
        return made

    def check(self, weights: Weights) -> None:
        """Every file comes back byte for byte, and fresh with the names it had."""
        manifest = self.manifest(weights)
        for snapshot in manifest.snapshots:
            for container in snapshot.containers:
                out = io.BytesIO()
                size, digest = snapshots.rebuild(out, manifest, snapshot, container, self.memory)
                data = self.contents[container.path]
                assert out.getvalue() == data
                assert (size, digest) == (len(data), hash_bytes(data))
                fresh = io.BytesIO()
                tensors = snapshots.renamed(manifest, snapshot, container, self.memory)
                snapshots.save(fresh, "safetensors", tensors, {})
                found, wanted = load(fresh.getvalue()), load(data)
                assert found.keys() == wanted.keys()
                assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def names(weights: Weights) -> list[str]:
    return [tensor.name for tensor in weights.tensors]


def test_steps_in_order_the_latest_is_the_versions_own(shelf: Shelf) -> None:
    weights = shelf.store(
        shelf.file("c.safetensors", {"w": 3}, 1000),
        shelf.file("a.safetensors", {"w": 1}, 10),
        shelf.file("b.safetensors", {"w": 2}, 200),
    )
    assert [s.step for s in weights.snapshots] == [10, 200, 1000]
    assert weights.own == 2
    assert weights.raw == 12
    shelf.check(weights)


def test_what_has_no_step_is_own(shelf: Shelf) -> None:
    weights = shelf.store(
        shelf.file("final.safetensors", {"w": 3}), shelf.file("a.safetensors", {"w": 1}, 10)
    )
    assert [s.step for s in weights.snapshots] == [10, None]
    assert weights.own == 1
    weights = shelf.store(
        shelf.file("best.safetensors", {"w": 3}, 10, own=True),
        shelf.file("a.safetensors", {"w": 1}, 20),
    )
    assert weights.own == 0


def test_two_own_weights(shelf: Shelf) -> None:
    with pytest.raises(Conflict, match="several checkpoints were added as") as found:
        shelf.store(
            shelf.file("a.safetensors", {"w": 1}, 1, own=True),
            shelf.file("b.safetensors", {"w": 2}, 2, own=True),
        )
    assert found.value.why == "a.safetensors, b.safetensors"


def test_nothing(shelf: Shelf) -> None:
    assert shelf.store() == Weights((), (), None, 0)


def test_shards_are_one_snapshot_in_their_order(shelf: Shelf) -> None:
    parts = [shelf.file(f"model-{n:05}-of-00010.safetensors", {f"w{n}": n}) for n in (10, 2, 1)]
    weights = shelf.store(*parts)
    assert names(weights) == ["w1", "w2", "w10"]
    [snapshot] = weights.snapshots
    assert [c.tensors for c in snapshot.containers] == [(0,), (1,), (2,)]
    shelf.check(weights)


def test_two_files_of_one_step(shelf: Shelf) -> None:
    weights = shelf.store(
        shelf.file("a/model.safetensors", {"w": 1, "b": 2}, 5),
        shelf.file("a/extra.safetensors", {"v": 3}, 5),
    )
    assert sorted(names(weights)) == ["b", "v", "w"]
    assert len(weights.snapshots) == 1
    shelf.check(weights)


def test_equal_values_under_one_name_are_shared(shelf: Shelf) -> None:
    weights = shelf.store(
        shelf.file("a.safetensors", {"w": 1, "b": 2}), shelf.file("b.safetensors", {"w": 1, "c": 2})
    )
    assert names(weights) == ["b", "w", "c"]
    shelf.check(weights)


def test_other_values_under_one_name_get_the_files_name(shelf: Shelf) -> None:
    weights = shelf.store(
        shelf.file("model.safetensors", {"w": 1, "b": 2}, 5),
        shelf.file("optim.safetensors", {"w": 7, "b": 2, "m": 3}, 5),
    )
    assert sorted(names(weights)) == ["b", "optim.b", "optim.m", "optim.w", "w"]
    shelf.check(weights)


def test_a_name_that_begins_like_its_file_is_no_prefix(shelf: Shelf) -> None:
    weights = shelf.store(
        shelf.file("backbone.safetensors", {"w": 1}, 5),
        shelf.file("model.safetensors", {"model.w": 1, "model.v": 2}, 5),
    )
    assert names(weights) == ["w", "model.v", "model.w"]
    shelf.check(weights)


def test_names_that_would_stand_for_two(shelf: Shelf) -> None:
    """Three files called alike: the third must not overwrite the second."""
    files = [shelf.file(f"{f}/part.safetensors", {"w": i, f: i}, 5) for i, f in enumerate("abc")]
    with pytest.raises(Conflict, match=r"`part\.w` would name two tensors"):
        shelf.store(*files)


def test_the_same_tensors_with_other_values(shelf: Shelf) -> None:
    with pytest.raises(Conflict, match=r"the same tensors with different values \(step 5\)"):
        shelf.store(
            shelf.file("a.safetensors", {"w": 1}, 5), shelf.file("b.safetensors", {"w": 2}, 5)
        )
    with pytest.raises(Conflict, match="step unknown"):
        shelf.store(shelf.file("a.safetensors", {"w": 1}), shelf.file("b.safetensors", {"w": 2}))


def test_another_shape_in_another_snapshot(shelf: Shelf) -> None:
    with pytest.raises(Conflict, match="w is float32") as found:
        shelf.store(
            shelf.file("a.safetensors", {"w": 1}, 1), shelf.file("b.safetensors", {"w": [1, 2]}, 2)
        )
    assert found.value.why == "in another checkpoint it is float32 []"


def test_tensors_that_come_and_go(shelf: Shelf) -> None:
    weights = shelf.store(
        shelf.file("a.safetensors", {"w": 1, "old": 2}, 1),
        shelf.file("b.safetensors", {"w": 1, "new": 3}, 2),
    )
    assert names(weights) == ["old", "w", "new"]
    assert [[h is None for h in s.hashes] for s in weights.snapshots] == [
        [False, False, True],
        [True, False, False],
    ]
    shelf.check(weights)


NAMES = st.sampled_from(["w", "b", "model.w", "optim.w", "x"])
FILES = st.dictionaries(NAMES, st.integers(0, 2), min_size=1, max_size=4)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["model", "optim", "a/model", "a/optim", "b/model"]),
            FILES,
            st.sampled_from([None, 1, 2]),
        ),
        min_size=1,
        max_size=4,
        unique_by=lambda item: item[0],
    )
)
@settings(max_examples=120, deadline=None)
def test_whatever_is_stored_comes_back(tmp_path_factory: Any, files: Any) -> None:
    shelf = Shelf(tmp_path_factory.mktemp("shelf"))
    opened = [shelf.file(f"{path}.safetensors", values, step) for path, values, step in files]
    try:
        weights = shelf.store(*opened)
    except Conflict:
        return
    finally:
        for file in opened:
            file.opened.close()
    manifest = shelf.manifest(weights)
    for snapshot in manifest.snapshots:
        for container in snapshot.containers:
            out = io.BytesIO()
            snapshots.rebuild(out, manifest, snapshot, container, shelf.memory)
            assert out.getvalue() == shelf.contents[container.path]
    # Less any one file, the others still do.
    for gone in shelf.contents:
        left = snapshots.without(manifest, [gone])
        kept = shelf.manifest(left)
        paths = {c.path for s in kept.snapshots for c in s.containers}
        assert paths == set(shelf.contents) - {gone}
        assert (left.own is None) == (not left.snapshots)
        for snapshot in kept.snapshots:
            for container in snapshot.containers:
                out = io.BytesIO()
                snapshots.rebuild(out, kept, snapshot, container, shelf.memory)
                assert out.getvalue() == shelf.contents[container.path]


def test_a_file_that_changed_while_it_was_stored_is_not_proven(shelf: Shelf) -> None:
    file = shelf.file("a.safetensors", {"w": 1})
    file.hash = "0" * 64
    weights = shelf.store(file)
    assert weights.snapshots[0].containers[0].blake3 is None


def test_damage_is_seen_when_a_file_is_built(shelf: Shelf) -> None:
    weights = shelf.store(shelf.file("a.safetensors", {"w": 1, "v": 2}))
    manifest = shelf.manifest(weights)
    [snapshot] = manifest.snapshots
    [container] = snapshot.containers
    other = snapshot.hashes[::-1]
    swapped = Snapshot(None, other, snapshot.containers)
    with pytest.raises(Damaged, match="does not match the committed file"):
        snapshots.rebuild(io.BytesIO(), manifest, swapped, container, shelf.memory)
    lacking = Snapshot(None, (None, snapshot.hashes[1]), snapshot.containers)
    with pytest.raises(Damaged, match="lacks tensors"):
        snapshots.rebuild(io.BytesIO(), manifest, lacking, container, shelf.memory)


def test_without_keeps_what_dlv_made_itself() -> None:
    manifest = Manifest(
        "n",
        "",
        "",
        "",
        tensors=(TensorEntry("w", "float32", ()), TensorEntry("v", "float32", ())),
        snapshots=(
            Snapshot(None, ("1" * 64, None), (), ("2" * 64, None)),
            Snapshot(5, (None, "3" * 64), (Container("a", "pt", 1, None, None, (1,)),)),
        ),
        own=1,
    )
    weights = snapshots.without(manifest, ["a"])
    assert [t.name for t in weights.tensors] == ["w"]
    assert weights.snapshots == (Snapshot(None, ("1" * 64,), (), ("2" * 64,)),)
    assert weights.own == 0


def test_ties_hold_where_the_values_are_equal() -> None:
    manifest = Manifest(
        "n",
        "",
        "",
        "",
        tensors=(TensorEntry("a", "float32", (2,)), TensorEntry("b", "float32", (2,), tied="a")),
    )
    equal = Snapshot(1, ("1" * 64, "1" * 64))
    apart = Snapshot(2, ("1" * 64, "2" * 64))

    def ties(snapshot: Snapshot, indices: list[int]) -> list[str | None]:
        found = snapshots.tensors_of(manifest, snapshot, indices, lambda _: b"")
        assert all(tensor.nbytes == math.prod(tensor.shape) * 4 for tensor in found)
        return [tensor.tied for tensor in found]

    assert ties(equal, [0, 1]) == [None, "a"]
    assert ties(apart, [0, 1]) == [None, None]
    assert ties(equal, [1]) == [None]
