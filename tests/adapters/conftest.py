"""Keras models, random weights, and both ways of reading them, for the tests of its files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlv.adapters.checkpoint import Checkpoint
from dlv.network.graph import Network


@pytest.fixture(scope="session")
def keras() -> Any:
    """Keras itself, on torch."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    found = pytest.importorskip("keras")
    if found.config.backend() != "torch":
        pytest.skip("Keras is there without torch")
    pytest.importorskip("torch").set_num_threads(1)
    return found


@pytest.fixture(scope="session")
def with_weights() -> Callable[[Any], Any]:
    """The model with weights that are all different; variances above zero."""

    def fill(model: Any) -> Any:
        dice = np.random.default_rng(0)
        model.set_weights(
            [
                (
                    dice.random(held.shape) + 0.5
                    if "variance" in variable.path
                    else dice.normal(size=held.shape) * 0.2
                ).astype(held.dtype)
                for variable, held in zip(model.weights, model.get_weights(), strict=True)
            ]
        )
        return model

    return fill


@pytest.fixture(scope="session")
def arrays_of() -> Callable[[Checkpoint], dict[str, Any]]:
    """The tensors that are no optimizer's, by name."""

    def read(checkpoint: Checkpoint) -> dict[str, Any]:
        return {
            tensor.name: np.frombuffer(bytes(tensor.read()), tensor.dtype).reshape(tensor.shape)
            for tensor in checkpoint.tensors
            if tensor.role != "optimizer"
        }

    return read


@pytest.fixture(scope="session")
def inputs_for() -> Callable[[Network, int], list[Any]]:
    """Random inputs of a network, seven for every length that is open."""
    torch = pytest.importorskip("torch")

    def make(network: Network, batch: int) -> list[Any]:
        generator = torch.Generator().manual_seed(0)
        found = []
        for item in network.inputs:
            shape = [batch if dim == "B" else dim or 7 for dim in item.shape]
            if item.dtype.startswith("int"):
                found.append(torch.randint(0, 5, shape, generator=generator))
            else:
                found.append(torch.randn(shape, generator=generator))
        return found

    return make


@pytest.fixture(scope="session")
def difference() -> Callable[[Any, Any], float]:
    """The largest difference between outputs, against the largest value if that is above one."""

    def largest(ours: Any, theirs: Any) -> float:
        pairs = zip(_listed(ours), _listed(theirs), strict=True)
        result = 0.0
        for a, b in pairs:
            assert tuple(a.shape) == tuple(b.shape)
            scale = max(1.0, float(b.detach().abs().max()))
            result = max(result, float((a - b).detach().abs().max()) / scale)
        return result

    return largest


def _listed(value: Any) -> Sequence[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[Any, str], Path]:
    """A Keras model saved by Keras."""

    def save(model: Any, suffix: str = ".keras") -> Path:
        path = tmp_path / f"model{suffix}"
        model.save(path)
        return path

    return save
