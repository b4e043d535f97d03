"""What slice and construct begin with."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import dlv.api as api
from dlv.dql import deriving
from dlv.metadata import versions
from dlv.weights.store import MatrixStore

NETWORK = {
    "dlv_network": 1,
    "inputs": [{"name": "x", "shape": ["B", 4], "dtype": "float32"}],
    "nodes": [
        {
            "name": "fc",
            "op": "FULL",
            "attrs": {"out": 2},
            "inputs": ["x"],
            "params": {"weight": "fc.weight", "bias": "fc.bias"},
        }
    ],
    "outputs": ["fc"],
}


def test_a_network_comes_with_the_shapes_of_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with api.open(tmp_path, create=True) as repo:
        bare = repo.commit("bare", name="bare", weights={"w": np.zeros(3, np.float32)})
        Path("network.json").write_text(json.dumps(NETWORK))
        repo.add("network.json")
        weights = {"fc.weight": np.ones((2, 4), np.float32), "fc.bias": np.ones(2, np.float32)}
        made = repo.commit("one", name="a", weights=weights, orphan=True)
        store = MatrixStore.of(repo.repository)
        found = {
            version.label: deriving.of_version(repo.repository, store, version)
            for version in versions.all_versions(repo.repository.database)
        }
        assert found["bare@1"] is None
        origin = found["a@1"]
        assert origin is not None
        assert origin.version == made.id != bare.id
        assert origin.network.id == made.network.id  # type: ignore[union-attr]
        assert origin.tensors == {"fc.weight": ("float32", (2, 4)), "fc.bias": ("float32", (2,))}
