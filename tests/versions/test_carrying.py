"""What a derived network can begin with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.versions.copying as copying
from dlv.errors import NotFound
from dlv.metadata import versions
from dlv.network.edits.edit import set_attributes
from dlv.repository.handle import Repository
from dlv.weights.store import MatrixStore

CommitModel = Callable[..., str]
FC = {
    "name": "fc",
    "op": "FULL",
    "attrs": {"out": 3},
    "inputs": ["x"],
    "params": {"weight": "fc.weight"},
}


def _weights(seed: int) -> dict[str, Any]:
    return {"fc.weight": np.random.default_rng(seed).normal(size=(3, 8)).astype("f4")}


@pytest.fixture
def repository(tmp_path: Path, commit_model: CommitModel) -> Repository:
    made, _ = Repository.init(tmp_path)
    files = {"train.py": "", "log.csv": "step,loss\n1,2.0\n"}
    commit_model(made, "net", {1: _weights(1), 2: _weights(2)}, [FC], files=files, shape=[8])
    commit_model(made, "bare", _weights(3), root=True)
    return made


def held(repository: Repository, name: str, **given: Any) -> copying.Held:
    (version,) = versions.of_name(repository.database, name)
    manifest = repository.manifest(version.id)
    return copying.held_by(manifest, version.label, MatrixStore.of(repository), **given)


def test_network_and_weights(repository: Repository) -> None:
    found = held(repository, "net")
    assert [node.name for node in found.network.nodes] == ["fc"]
    assert found.shapes == {"fc.weight": ("float32", (3, 8))}
    assert found.tied == {}
    assert bytes(found.tensors[0].read()) == _weights(2)["fc.weight"].tobytes()


def test_of_another_snapshot_or_none(repository: Repository) -> None:
    first = held(repository, "net", snapshot=0)
    assert bytes(first.tensors[0].read()) == _weights(1)["fc.weight"].tobytes()
    assert held(repository, "net", weights=False).tensors == []


def test_what_is_made_of_them(repository: Repository) -> None:
    found = held(repository, "net")
    wider = set_attributes(found.network, "fc", out=5).network
    (made,) = found.carried(found.plan(wider), seed=1)
    assert made.shape == (5, 8)
    assert bytes(made.read())[: 3 * 8 * 4] == _weights(2)["fc.weight"].tobytes()


def test_a_version_without_a_network(repository: Repository) -> None:
    with pytest.raises(NotFound, match="bare@1 has no network"):
        held(repository, "bare")


def test_files_that_still_hold(repository: Repository) -> None:
    (version,) = versions.of_name(repository.database, "net")
    kept = copying.copied_files(repository.manifest(version.id))
    assert [entry.path for entry in kept] == ["train.py"]
