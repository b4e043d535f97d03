"""Small networks with weights, data that they can learn, and trials of both."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import dlv.training.trainers.rows as rows
from dlv.adapters.data.sets import open_parts
from dlv.network import json_form
from dlv.network.graph import Network
from dlv.training.config import resolve, trial_id
from dlv.training.trainers.datasets import Data
from dlv.training.trainers.interface import Readers
from dlv.training.trial_files import Held, Trial, TrialFiles, start_hash

Array = npt.NDArray[Any]
READERS = Readers(rows=open_parts)
IMAGE = ["B", 1, 6, 6]


def network(nodes: Sequence[Mapping[str, Any]], shape: Sequence[Any]) -> Network:
    """A chain: each node reads the one before it."""
    made, before = [], "x"
    for node in nodes:
        slots = {
            "CONV": ("weight", "bias"),
            "FULL": ("weight", "bias"),
            "NORM": ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"),
        }.get(node["op"], ())
        row = {"inputs": [before], "params": {s: f"{node['name']}.{s}" for s in slots}, **node}
        made.append(row)
        before = str(node["name"])
    inputs = [{"name": "x", "shape": list(shape), "dtype": "float32"}]
    form = {"dlv_network": 1, "inputs": inputs, "nodes": made, "outputs": [before]}
    return json_form.read(form)[0]


def mlp(hidden: int = 8) -> Network:
    return network(
        [
            {"name": "fc1", "op": "FULL", "attrs": {"out": hidden}},
            {"name": "relu1", "op": "RELU"},
            {"name": "fc2", "op": "FULL", "attrs": {"out": 3}},
        ],
        ["B", 4],
    )


def mlp_weights(hidden: int = 8) -> dict[str, Array]:
    draw = np.random.default_rng(7)
    return {
        "fc1.weight": draw.normal(0, 0.5, (hidden, 4)).astype(np.float32),
        "fc1.bias": np.zeros(hidden, np.float32),
        "fc2.weight": draw.normal(0, 0.5, (3, hidden)).astype(np.float32),
        "fc2.bias": np.zeros(3, np.float32),
    }


def cnn() -> Network:
    """With batch normalisation and dropout."""
    return network(
        [
            {"name": "conv1", "op": "CONV", "attrs": {"out": 4, "kernel": [3, 3], "pad": 1}},
            {"name": "bn1", "op": "NORM", "variant": "BATCH"},
            {"name": "relu1", "op": "RELU"},
            {"name": "pool1", "op": "POOL", "variant": "MAX", "attrs": {"kernel": 2, "stride": 2}},
            {"name": "flatten", "op": "RESHAPE", "attrs": {"kind": "flatten"}},
            {"name": "drop", "op": "DROPOUT", "attrs": {"p": 0.3}},
            {"name": "fc", "op": "FULL", "attrs": {"out": 3}},
        ],
        IMAGE,
    )


def cnn_weights() -> dict[str, Array]:
    draw = np.random.default_rng(8)
    return {
        "conv1.weight": draw.normal(0, 0.3, (4, 1, 3, 3)).astype(np.float32),
        "conv1.bias": np.zeros(4, np.float32),
        "bn1.weight": np.ones(4, np.float32),
        "bn1.bias": np.zeros(4, np.float32),
        "bn1.running_mean": np.zeros(4, np.float32),
        "bn1.running_var": np.ones(4, np.float32),
        "bn1.num_batches_tracked": np.zeros((), np.int64),
        "fc.weight": draw.normal(0, 0.3, (3, 36)).astype(np.float32),
        "fc.bias": np.zeros(3, np.float32),
    }


def blobs(count: int = 90) -> tuple[Array, Array]:
    """Three clouds of points in four dimensions."""
    draw = np.random.default_rng(9)
    labels = np.arange(count) % 3
    x = draw.normal(0, 0.4, (count, 4)) + np.eye(3, 4)[labels] * 2
    return x.astype(np.float32), labels.astype(np.int64)


def pictures(count: int = 60) -> tuple[Array, Array]:
    """Bars in three rows."""
    draw = np.random.default_rng(10)
    labels = np.arange(count) % 3
    x = draw.normal(0, 0.3, (count, 1, 6, 6))
    for image, label in zip(x, labels, strict=True):
        image[0, 2 * label] += 1.5
    return x.astype(np.float32), labels.astype(np.int64)


def created(
    folder: Path,
    made: Network,
    weights: Mapping[str, Array],
    config: Mapping[str, Any],
    *,
    record: Mapping[str, Any] | None = None,
) -> TrialFiles:
    """The files of a trial in `folder/trials/<id>`."""
    return of_held(folder, made, held(weights), config, record=record)


def of_held(
    folder: Path,
    made: Network,
    start: Mapping[str, Held],
    config: Mapping[str, Any],
    *,
    record: Mapping[str, Any] | None = None,
) -> TrialFiles:
    """The same for weights as bytes."""
    resolved = resolve(config, [], made)
    name = trial_id(made.id, start_hash(start), resolved, {}, "1")
    files = TrialFiles(folder / "trials" / name)
    files.create(made, resolved, start, {"directory": str(folder), **(record or {})})
    return files


def held(weights: Mapping[str, Array]) -> dict[str, Held]:
    return {
        n: Held(a.dtype.name, a.shape, np.ascontiguousarray(a).tobytes())
        for n, a in weights.items()
    }


def saved(path: Path, x: Array, y: Array, **more: Array) -> str:
    """Data as an archive; its absolute path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **{"x": x, "y": y, **more})  # type: ignore[arg-type]
    return str(path.absolute())


def opened(trial: Trial) -> Data:
    """The data of a trial."""
    assert READERS.rows is not None
    return rows.opened(trial, READERS.rows)


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]
