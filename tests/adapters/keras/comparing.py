"""A Keras model and what dlv makes of it, side by side, for the tests of its importer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dlv.adapters.checkpoint import Checkpoint
from dlv.adapters.keras import files as keras_files
from dlv.adapters.keras import h5 as keras_h5
from dlv.network.agreement import distance
from dlv.network.graph import Network
from dlv.network.torch.module import build
from dlv.weights.arrays import to_array


def filled(model: Any, seed: int = 0) -> Any:
    """The model with weights that are all different, those of variances above zero."""
    dice = np.random.default_rng(seed)
    held = zip(model.weights, model.get_weights(), strict=True)
    model.set_weights(
        [
            (
                dice.random(w.shape) + 0.5
                if "variance" in v.path
                else dice.normal(size=w.shape) * 0.4
            ).astype(w.dtype)
            for v, w in held
        ]
    )
    return model


def drawn(model: Any, rows: int, seed: int = 0) -> list[Any]:
    """Inputs: numbers, or small whole ones, of which the last half are zeros."""
    dice = np.random.default_rng(seed)
    found = []
    for item in model.inputs:
        shape = (rows, *(side or 6 for side in item.shape[1:]))
        if "int" in item.dtype or type(model.layers[0]).__name__ == "Embedding":
            whole = dice.integers(1, 6, shape).astype(item.dtype)
            whole[..., shape[-1] // 2 :] = 0
            found.append(whole)
        else:
            found.append(dice.normal(size=shape).astype(item.dtype))
    return found


def imported(model: Any, path: Path) -> Checkpoint:
    """What dlv reads from the file that Keras writes."""
    model.save(path)
    return keras_h5.open(str(path)) if path.suffix == ".h5" else keras_files.open(str(path))


def raw(network: Network | None) -> list[str]:
    """The layers that dlv keeps as they are, and refuses to run; all of it without a network."""
    if network is None:
        return ["everything"]
    sources = [node.source for node in network.nodes if node.source]
    return [str(source["op"]) for source in sources if source["dialect"] == "keras"]


def off(model: Any, checkpoint: Checkpoint) -> float:
    """How far `module()` is from Keras on batches of two sizes and other numbers."""
    import torch

    network = checkpoint.network
    assert network is not None
    tensors = {
        tensor.name: torch.from_numpy(
            np.frombuffer(bytes(tensor.read()), tensor.dtype).reshape(tensor.shape).copy()
        )
        for tensor in checkpoint.tensors
        if tensor.role != "optimizer"
    }
    constants = {
        tensor.name: torch.from_numpy(to_array(tensor.dtype, tensor.shape, tensor.read()).copy())
        for tensor in checkpoint.constants
    }
    module = build(network, tensors, constants).eval()
    largest = 0.0
    for rows in (1, 3):
        given = drawn(model, rows, seed=rows)
        wanted = model(given if len(given) > 1 else given[0], training=False)
        got = module(*map(torch.from_numpy, given))
        pairs = zip(_listed(got), _listed(wanted), strict=True)
        for a, b in pairs:
            largest = max(largest, distance(a.detach().numpy(), b.detach().numpy()))
    return largest


def _listed(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [value[key] for key in sorted(value)]
    return list(value) if isinstance(value, (list, tuple)) else [value]
