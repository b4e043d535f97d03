"""Weights in the files of TensorBoard's projector, read as it reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format
from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig

from dlv.curves.board import ROWS, Room, write_projection
from dlv.metadata import versions
from dlv.repository.handle import Repository
from dlv.weights.store import MatrixStore

NODES: list[dict[str, Any]] = [
    {"name": "flat", "op": "RESHAPE", "attrs": {"kind": "flatten"}, "inputs": ["x"]},
    {"name": "fc", "op": "FULL", "attrs": {"out": 10}, "inputs": ["flat"]},
    {"name": "wide", "op": "FULL", "attrs": {"out": 5000}, "inputs": ["fc"]},
    {"name": "odd", "op": "FULL", "attrs": {"out": 4}, "inputs": ["wide"]},
]
for node in NODES[1:]:
    node["params"] = {slot: f"{node['name']}.{slot}" for slot in ("weight", "bias")}
FC = np.random.default_rng(0).normal(size=(10, 64)).astype("f4")
WIDE = np.arange(50_000, dtype="f4").reshape(5000, 10)


@pytest.fixture(scope="module")
def repository(
    tmp_path_factory: pytest.TempPathFactory, commit_model: Callable[..., str]
) -> Iterator[Repository]:
    made, _ = Repository.init(tmp_path_factory.mktemp("projected"))
    weights = {"fc.weight": FC, "wide.weight": WIDE, "odd.weight": np.full((4, 5000), np.nan, "f4")}
    biases = {
        f"{name}.bias": np.zeros(n, "f4") for name, n in (("fc", 10), ("wide", 5000), ("odd", 4))
    }
    commit_model(made, "net", weights | biases, NODES)
    commit_model(made, "bare", {"w": FC}, root=True)
    yield made
    made.close()


def projected(repository: Repository, name: str, folder: Path, room: Room) -> int:
    version = versions.latest(repository.database, name)
    assert version is not None
    with closing(MatrixStore.of(repository)) as store:
        return write_projection(folder, repository.manifest(version.id), store, room)


def test_what_the_projector_reads(repository: Repository, tmp_path: Path) -> None:
    room = Room()
    before = room.left
    assert projected(repository, "net", tmp_path / "net@1", room) == 2
    text = (tmp_path / "net@1" / "projector_config.pbtxt").read_text()
    first, second = text_format.Parse(text, ProjectorConfig()).embeddings
    assert (first.tensor_name, list(first.tensor_shape)) == ("fc.weight", [10, 64])
    values = np.loadtxt(tmp_path / "net@1" / first.tensor_path, delimiter="\t")
    np.testing.assert_allclose(values, FC, rtol=1e-5)
    names = (tmp_path / "net@1" / first.metadata_path).read_text().splitlines()
    assert (len(names), names[3]) == (10, "fc.weight[3]")
    # A long one is thinned out; one that holds what is no number is left out.
    assert list(second.tensor_shape) == [ROWS, 10]
    rows = np.loadtxt(tmp_path / "net@1" / second.tensor_path, delimiter="\t")
    assert rows[0, 0] == 0
    assert rows[-1, -1] == 49_999
    assert before - room.left == 640 + ROWS * 10


def test_no_more_than_there_is_room_for(repository: Repository, tmp_path: Path) -> None:
    room = Room(1000)
    assert projected(repository, "net", tmp_path / "net@1", room) == 1
    assert room.left == 360
    assert projected(repository, "net", tmp_path / "again", room) == 0
    assert not (tmp_path / "again").exists()


def test_without_a_network_there_is_nothing(repository: Repository, tmp_path: Path) -> None:
    assert projected(repository, "bare", tmp_path / "bare", Room()) == 0
