"""Train a small convolutional network, with numpy alone: the model of `dlv demo`.

`python train.py` reads config.json from its folder and writes there the checkpoints
(step-*.safetensors), the metrics (log.csv) and the network (network.json). The images are made
up: a noisy bar of four directions that the network learns to tell apart.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dlv.kinds import Array

Weights = dict[str, Array]
SIZE, LABELS = 8, 4


def images(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
    """Noise with a bar in it: flat, upright, falling or rising."""
    labels = rng.integers(0, LABELS, count)
    x = rng.normal(0, 0.5, (count, SIZE, SIZE))
    along = np.arange(SIZE)
    for image, label, shift in zip(x, labels, rng.integers(0, SIZE, count), strict=True):
        flat, across = np.full(SIZE, shift), (along + shift) % SIZE
        bars = [(flat, along), (along, flat), (across, along), (across[::-1], along)]
        image[bars[label]] += 1.0
    return x[:, None].astype(np.float32), labels.astype(np.int64)


def new_weights(rng: np.random.Generator, filters: int, hidden: int) -> Weights:
    shapes: dict[str, tuple[int, ...]] = {
        "conv1": (filters, 1, 3, 3),
        "fc1": (hidden, filters * 9),
        "fc2": (LABELS, hidden),
    }
    weights = {}
    for name, shape in shapes.items():
        spread = (2 / np.prod(shape[1:])) ** 0.5
        weights[f"{name}.weight"] = rng.normal(0, spread, shape).astype(np.float32)
        weights[f"{name}.bias"] = np.zeros(shape[0], np.float32)
    return weights


def forward(weights: Weights, x: Array) -> tuple[Array, ...]:
    windows = np.lib.stride_tricks.sliding_window_view(x[:, 0], (3, 3), axis=(1, 2))
    maps = np.einsum("nijkl,okl->noij", windows, weights["conv1.weight"][:, 0])
    maps = np.maximum(maps + weights["conv1.bias"][:, None, None], 0)
    pooled = maps.reshape(len(x), -1, 3, 2, 3, 2).mean((3, 5)).reshape(len(x), -1)
    hidden = np.maximum(pooled @ weights["fc1.weight"].T + weights["fc1.bias"], 0)
    return windows, maps, pooled, hidden, hidden @ weights["fc2.weight"].T + weights["fc2.bias"]


def gradients(weights: Weights, x: Array, y: Array) -> tuple[float, Weights]:
    """The mean cross entropy of a batch, and its derivatives."""
    windows, maps, pooled, hidden, logits = forward(weights, x)
    odds = np.exp(logits - logits.max(1, keepdims=True))
    odds /= odds.sum(1, keepdims=True)
    loss = -float(np.log(odds[np.arange(len(y)), y]).mean())
    out = (odds - np.eye(LABELS)[y]) / len(y)
    inner = out @ weights["fc2.weight"] * (hidden > 0)
    spread = (inner @ weights["fc1.weight"]).reshape(len(x), -1, 3, 1, 3, 1) / 4
    at_maps = np.broadcast_to(spread, (*spread.shape[:3], 2, 3, 2)).reshape(maps.shape) * (maps > 0)
    return loss, {
        "conv1.weight": np.einsum("noij,nijkl->okl", at_maps, windows)[:, None],
        "conv1.bias": at_maps.sum((0, 2, 3)),
        "fc1.weight": inner.T @ pooled,
        "fc1.bias": inner.sum(0),
        "fc2.weight": out.T @ hidden,
        "fc2.bias": out.sum(0),
    }


def train(
    config: dict[str, Any], weights: Weights | None
) -> Iterator[tuple[dict[str, Any], Weights]]:
    """A row of the log and the weights after each step; `weights` to go on from."""
    test_x, test_y = images(np.random.default_rng(0), 500)
    rng = np.random.default_rng(config["seed"])
    weights = weights or new_weights(rng, config["filters"], config["hidden"])
    optimizer = config["optimizer"]
    speed: Weights = {}
    for step in range(config["first"] + 1, config["last"] + 1):
        loss, slopes = gradients(weights, *images(rng, config["batch"]))
        for name in weights:
            if name.split(".")[0] in config["train"]:
                moved = (
                    optimizer["momentum"] * speed.get(name, 0.0) - optimizer["lr"] * slopes[name]
                )
                speed[name] = moved
                weights = {**weights, name: (weights[name] + moved).astype(np.float32)}
        row: dict[str, Any] = {"step": step, "loss": round(loss, 5), "accuracy": None}
        if step % config["checkpoint"] == 0:
            hits = forward(weights, test_x)[-1].argmax(1) == test_y
            row["accuracy"] = round(float(hits.mean()), 4)
        yield row, weights


def network(filters: int, hidden: int) -> dict[str, Any]:
    """The layers as dlv's network JSON."""
    full = {"op": "FULL", "attrs": {"out": hidden}}
    nodes: list[dict[str, Any]] = [
        {"name": "conv1", "op": "CONV", "attrs": {"out": filters, "kernel": [3, 3]}},
        {"name": "relu1", "op": "RELU"},
        {"name": "pool1", "op": "POOL", "variant": "AVG", "attrs": {"kernel": 2, "stride": 2}},
        {"name": "flatten", "op": "RESHAPE", "attrs": {"kind": "flatten"}},
        {"name": "fc1", **full},
        {"name": "relu2", "op": "RELU"},
        {"name": "fc2", **full, "attrs": {"out": LABELS}},
    ]
    before = "x"
    for node in nodes:
        node["inputs"] = [before]
        before = node["name"]
        if node["op"] in ("CONV", "FULL"):
            node["params"] = {slot: f"{before}.{slot}" for slot in ("weight", "bias")}
    inputs = [{"name": "x", "shape": ["B", 1, SIZE, SIZE], "dtype": "float32"}]
    return {"dlv_network": 1, "inputs": inputs, "nodes": nodes, "outputs": [before]}


def save(path: Path, weights: Weights) -> None:
    """A safetensors file: length of the header, header, arrays."""
    header, at = {}, 0
    for name, array in weights.items():
        places = [at, at + array.nbytes]
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": places}
        at = places[1]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    arrays = b"".join(array.astype("<f4").tobytes() for array in weights.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + arrays)


def run(folder: Path, config: dict[str, Any], weights: Weights | None = None) -> Weights:
    """Train as the settings say and write everything into `folder`; the last weights."""
    rows, last = [], weights or {}
    for row, last in train(config, weights):
        rows.append(row)
        if row["step"] % config["checkpoint"] == 0:
            save(folder / f"step-{row['step']}.safetensors", last)
    with (folder / "log.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    text = json.dumps(network(config["filters"], config["hidden"]), indent=1)
    (folder / "network.json").write_text(text + "\n")
    return last


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    run(here, json.loads((here / "config.json").read_text()))
