"""Rows as a network takes them: shapes, dtypes, batches, memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dlv.api as api
from dlv.adapters.data.columns import Held
from dlv.adapters.data.sets import Data, open_data
from dlv.adapters.data.settings import Settings
from dlv.api import Repo
from dlv.errors import NotFound, UnsafeInput, UsageError
from dlv.evaluation.data import Rows, find_data, read_settings, split_words, value, wanted_inputs
from dlv.network.graph import Input, Network, Node
from dlv.network.program import Program, program
from dlv.network.vocabulary import complete


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("3", 3),
        ("0.5", 0.5),
        ("1,8,8", [1, 8, 8]),
        ("[1, 8]", [1, 8]),
        ("false", False),
        ("1/255", "1/255"),
        ("a,b", ["a", "b"]),
        ("x", "x"),
        ('"3"', "3"),
        ("", ""),
    ],
)
def test_values(text: str, meant: Any) -> None:
    assert value(text) == meant


@pytest.mark.parametrize("form", ["toml", "json"])
def test_a_file_and_what_changes_it(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"c.{form}"
    if form == "toml":
        path.write_text('lr = 1\nbatch_size = 5\n[data]\nscale = 2.0\nlabels = "t"\n')
    else:
        path.write_text('{"lr": 1, "batch_size": 5, "data": {"scale": 2.0, "labels": "t"}}')
    found = read_settings(str(path), ["data.scale=3", "data.inputs.ids=k", "top_k=2"])
    assert (found.batch, found.top_k, found.data.scale) == (5, 2, 3.0)
    assert (found.data.labels, found.data.inputs) == ("t", {"ids": "k"})
    assert found.precision is found.engine is found.input_data is None


@pytest.mark.parametrize(
    "settings",
    [
        ["lr=3"],
        ["data.nothing=3"],
        ["top_k"],
        ["=3"],
        ["batch_size=0"],
        ["batch_size=x"],
        ["precision=float16"],
        ["engine=jax"],
        ["input_data=3"],
        ["data.scale.x=3"],
    ],
)
def test_refused(settings: list[str]) -> None:
    with pytest.raises(UsageError):
        read_settings(None, settings)


def test_files_name_no_code(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('input_data = "python:os:getcwd"\n')
    with pytest.raises(UnsafeInput):
        read_settings(str(path), [])
    path.write_text("data = 3\n")
    with pytest.raises(UsageError, match="not a table"):
        read_settings(str(path), [])
    assert read_settings(None, ["input_data=python:os:getcwd"]).input_data == "python:os:getcwd"


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: Any) -> Iterator[Repo]:
    """net@1 has one data set, net@2 another, net@3 both."""
    monkeypatch.chdir(tmp_path)
    with api.open(tmp_path, create=True) as found:
        for number, names in enumerate((["a.npz"], ["b.npz"], ["a.npz", "b.npz"])):
            for path in tmp_path.glob("*.npz"):
                path.unlink()
            for name in names:
                np.savez(tmp_path / name, x=np.full(3, ord(name[0])))
                found.add(name, role="data")
            orphan = number != 2
            found.commit("with data", name="net", parameters={"n": number}, orphan=orphan)
        for path in tmp_path.glob("*.npz"):
            path.unlink()
        yield found


@pytest.mark.parametrize(
    ("words", "references", "data"),
    [
        (["net"], ["net"], None),
        (["net@1", "net@2"], ["net@1", "net@2"], None),
        (["net@1", "net@1:a.npz"], ["net@1"], "net@1:a.npz"),
        (["net@1", "python:m:f"], ["net@1"], "python:m:f"),
        (["net@1", "net@2", "folder"], ["net@1", "net@2"], "folder"),
        (["folder"], ["HEAD"], "folder"),
        (["nope"], ["nope"], None),
        ([], ["HEAD"], None),
        (["net@1", "net/100"], ["net@1", "net/100"], None),
    ],
)
def test_the_last_word(
    repo: Repo, words: list[str], references: list[str], data: str | None
) -> None:
    here = repo.repository.root
    (here / "folder").mkdir()
    assert split_words(repo.repository, words, here) == (references, data)


def test_a_file_that_is_missing(repo: Repo) -> None:
    here = repo.repository.root
    (here / "test.csv").touch()
    with pytest.raises(NotFound, match=r"no such file: tset\.csv") as error:
        split_words(repo.repository, ["net", "tset.csv"], here)
    assert error.value.did_you_mean == ["test.csv"]
    with pytest.raises(NotFound, match=r"no file `c\.npz`") as error:
        split_words(repo.repository, ["net", "net@1:c.npz"], here)
    assert error.value.did_you_mean[0] == "net@1:a.npz"


def test_what_was_added_with_the_version(repo: Repo) -> None:
    here = repo.repository.root
    found = find_data(repo.repository, None, ["net@1"], here)
    assert (found.where, found.entry is not None) == ("net@1:a.npz", True)
    with pytest.raises(UsageError, match="have several") as error:
        find_data(repo.repository, None, ["net@1", "net@2"], here)
    assert error.value.why == "net@1:a.npz, net@2:b.npz"
    with pytest.raises(UsageError, match="have several"):
        find_data(repo.repository, None, ["net@3"], here)
    assert find_data(repo.repository, "net@2:b.npz", ["net@1"], here).entry is not None
    assert find_data(repo.repository, "elsewhere.npz", ["net@1"], here).entry is None


Array = NDArray[Any]


def taking(*inputs: Input) -> Program:
    """A program that takes these inputs."""
    ports = tuple((each.name, 0) for each in inputs)
    if len(inputs) == 1:
        nodes = (Node("out", "RELU", None, complete("RELU", None, {}), ports, {}),)
    else:
        nodes = (Node("out", "ADD", None, complete("ADD", None, {}), ports, {}),)
    return program(Network(tuple(inputs), nodes, (("out", 0),)))


def rows_of(x: Array, taken: Input, labels: Array | None = None) -> Rows:
    column = None if labels is None else Held("y", labels)
    return Rows(taking(taken), Data("d", {"x": Held("x", x)}, column, len(x), None))


def joined(rows: Rows, size: int) -> Array:
    return np.concatenate([batch.inputs["x"] for batch in rows.batches(size)])


@pytest.mark.parametrize("size", [1, 3, 10, 100])
def test_batches(size: int) -> None:
    x, y = np.random.default_rng(0).normal(size=(10, 2)), np.arange(10)
    rows = rows_of(x, Input("x", ("B", 2), "float64"), y)
    for _ in range(2):
        batches = list(rows.batches(size))
        assert [batch.start for batch in batches] == list(range(0, 10, size))
        assert np.array_equal(np.concatenate([b.inputs["x"] for b in batches]), x)
        assert np.array_equal(np.concatenate([b.labels for b in batches]), y)


def test_floats_are_those_that_the_network_would_get() -> None:
    x = np.random.default_rng(0).normal(size=(10, 2))
    found = joined(rows_of(x, Input("x", ("B", 2))), 4)
    assert found.dtype == np.float64
    assert np.array_equal(found, x.astype(np.float32).astype(np.float64))
    half = joined(rows_of(x, Input("x", ("B", 2), "float16")), 4)
    assert np.array_equal(half, x.astype(np.float16).astype(np.float64))
    pixels = np.arange(20, dtype=np.uint8).reshape(10, 2)
    assert np.array_equal(joined(rows_of(pixels, Input("x", ("B", 2))), 4), pixels)


def test_whole_numbers() -> None:
    ids = np.arange(20).reshape(10, 2)
    taken = Input("x", ("B", 2), "int64")
    assert joined(rows_of(ids.astype(np.float64), taken), 4).dtype == np.int64
    assert np.array_equal(joined(rows_of(ids.astype(np.uint8), taken), 4), ids)
    with pytest.raises(UsageError, match="has fractions,"):
        joined(rows_of(ids + 0.5, taken), 4)


@pytest.mark.parametrize(
    ("seen", "want", "hint"),
    [
        ((8, 8, 3), (3, 8, 8), "data.transpose=2,0,1"),
        ((3, 8, 9), (8, 9, 3), "data.transpose=1,2,0"),
        ((28, 28), (1, 28, 28), "data.shape=1,28,28"),
        ((784,), (1, 28, 28), "data.shape=1,28,28"),
        ((1, 1, 784), (784,), "data.shape=784"),
        ((5,), (4,), None),
        ((5, 5), (None, 4), None),
    ],
)
def test_shapes(seen: tuple[int, ...], want: tuple[int | None, ...], hint: str | None) -> None:
    with pytest.raises(UsageError, match="do not fit the network's input `x`") as error:
        rows_of(np.zeros((2, *seen)), Input("x", ("B", *want)))
    assert (error.value.hint or "").startswith(f"--set {hint} " if hint else "")
    assert bool(error.value.hint) == bool(hint)


def test_the_hint_is_right() -> None:
    x = np.random.default_rng(0).normal(size=(2, 8, 9, 3))
    with pytest.raises(UsageError) as error:
        rows_of(x, Input("x", ("B", 3, 8, 9)))
    axes = [int(axis) for axis in str(error.value.hint).split()[1].partition("=")[2].split(",")]
    assert x.transpose(0, *(axis + 1 for axis in axes)).shape == (2, 3, 8, 9)


def test_what_is_wanted() -> None:
    found = wanted_inputs(taking(Input("a", ("B", 4, "T")), Input("b", ("B", 4, "T"))))
    assert [(each.name, each.shape) for each in found] == [("a", (4, None)), ("b", (4, None))]


@pytest.mark.parametrize(
    ("labels", "classes", "fits"),
    [
        (np.array([0, 9]), 10, True),
        (np.array([0.0, 9.0]), 10, True),
        (np.array([True, False]), 2, True),
        (np.array([0, 10]), 10, False),
        (np.array([0, -1]), 10, False),
        (np.array([0, 0.5]), 10, False),
        (np.array([0, np.nan]), 10, False),
        (np.array([0, 2**63], np.uint64), 10, False),
    ],
)
def test_labels_must_be_classes(labels: Array, classes: int, fits: bool) -> None:
    rows = rows_of(np.zeros((2, 2)), Input("x", ("B", 2)), labels)
    if fits:
        rows.check_classes(classes)
        return
    with pytest.raises(UsageError, match="row 1 of y has the label"):
        rows.check_classes(classes)


@pytest.mark.parametrize("packed", [False, True])
def test_what_is_large_is_never_held(tmp_path: Path, packed: bool) -> None:
    x = np.zeros((20_000, 500), np.float32)  # 40 MB
    x[:, 0] = np.arange(20_000)
    (np.savez_compressed if packed else np.savez)(tmp_path / "d.npz", x=x)
    del x
    steps = taking(Input("x", ("B", 500)))
    tracemalloc.start()
    try:
        data = open_data(str(tmp_path / "d.npz"), Settings(), wanted_inputs(steps))
        total = sum(batch.inputs["x"][:, 0].sum() for batch in Rows(steps, data).batches(64))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert total == sum(range(20_000))
    assert peak < 8 << 20
