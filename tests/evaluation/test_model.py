"""What is evaluated: tensors by the names of the network, bytes counted once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.api as api
from dlv.adapters.data.sets import of_arrays
from dlv.adapters.data.settings import Settings
from dlv.api import Repo
from dlv.errors import NotFound, UsageError
from dlv.evaluation.answers import Progress
from dlv.evaluation.data import Rows, wanted_inputs
from dlv.evaluation.evaluate import KeptValues, Options, evaluate_fully
from dlv.evaluation.model import Model

DIM = 6


@pytest.fixture
def weights() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "a.weight": rng.normal(size=(DIM, DIM)).astype(np.float32),
        "b.weight": rng.normal(size=(3, DIM)).astype(np.float16),
        "b.bias": rng.normal(size=3),
        "unused": rng.normal(size=5).astype(np.float32),
    }


@pytest.fixture
def repo(tmp_path: Path, weights: dict[str, Any], monkeypatch: Any) -> Iterator[Repo]:
    """Two layers share `a.weight`, one of them by another name for it."""

    def full(name: str, before: str, tensor: str, out: int) -> dict[str, Any]:
        params = {"weight": f"{tensor}.weight"} | ({"bias": "b.bias"} if tensor == "b" else {})
        attrs = {"out": out, "bias": tensor == "b"}
        return {"name": name, "op": "FULL", "attrs": attrs, "inputs": [before], "params": params}

    nodes = [
        full("one", "x", "a", DIM),
        {"name": "act", "op": "ACT", "variant": "TANH", "attrs": {}, "inputs": ["one"]},
        full("two", "act", "same", DIM),
        full("three", "two", "b", 3),
        {"name": "prob", "op": "SOFTMAX", "attrs": {"axis": -1}, "inputs": ["three"]},
    ]
    inputs = [{"name": "x", "shape": ["B", DIM], "dtype": "float32"}]
    network = {"dlv_network": 1, "inputs": inputs, "nodes": nodes, "outputs": ["prob"]}
    network["aliases"] = {"same.weight": "a.weight"}
    (tmp_path / "network.json").write_text(json.dumps(network))
    monkeypatch.chdir(tmp_path)
    with api.open(tmp_path, create=True) as found:
        found.add("network.json")
        found.commit("shared", name="shared", weights=weights)
        yield found


def expected(weights: dict[str, Any], x: Any) -> dict[str, Any]:
    a, b = (np.asarray(weights[f"{name}.weight"], np.float64) for name in "ab")
    act = np.tanh(x @ a.T)
    return {"act": act, "three": act @ a.T @ b.T + weights["b.bias"]}


def test_tensors(repo: Repo, weights: dict[str, Any]) -> None:
    model = Model.of(repo.repository, "shared")
    assert set(model.hashes) == {"a.weight", "b.weight", "b.bias"}
    for name in ("a.weight", "same.weight"):
        assert model.tensor(name).dtype == np.float64
        assert np.array_equal(model.tensor(name), weights["a.weight"])
    assert np.array_equal(model.tensor("b.weight", np.float32), weights["b.weight"])
    assert model.raw_whole == 4 * DIM * DIM + 2 * 3 * DIM + 8 * 3
    assert model.elements == DIM * DIM + 3 * DIM + 3
    assert (model.label, model.step) == ("shared@1", None)
    assert model.bytes_whole > 0


def test_nodes_are_kept_by_name_and_alias(repo: Repo, weights: dict[str, Any]) -> None:
    model = Model.of(repo.repository, "shared", until=["act", "full3"])
    x = np.random.default_rng(1).normal(size=(20, DIM)).astype(np.float32).astype(np.float64)
    rows = Rows(model.program, of_arrays("x", x, Settings(), wanted_inputs(model.program)))
    told: list[Progress] = []
    kept = KeptValues()
    found = evaluate_fully(model, rows, Options(batch=7, watch=told.append), kept)
    truth = expected(weights, x)
    assert found.labels.tolist() == truth["three"].argmax(1).tolist()
    assert set(kept.columns) == {"act", "three"}
    for name, column in kept.columns.items():
        assert np.allclose(column.read(0, 20), truth[name], rtol=1e-13, atol=1e-13)
    assert [each.done for each in told][-3:] == [7, 14, 20]
    assert found.bytes_read == found.bytes_whole == model.bytes_whole


def test_what_is_not_there(repo: Repo, weights: dict[str, Any]) -> None:
    with pytest.raises(NotFound, match="no layer `acd`") as error:
        Model.of(repo.repository, "shared", until=["acd"])
    assert error.value.did_you_mean == ["act"]
    with pytest.raises(UsageError, match="is a file"):
        Model.of(repo.repository, "shared:network.json")
    del weights["b.bias"]
    repo.add("network.json")
    repo.commit("without a bias", weights=weights)
    with pytest.raises(NotFound, match=r"lacks the tensor `b\.bias`"):
        Model.of(repo.repository, "shared@2")
