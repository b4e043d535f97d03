"""What reused weights are worth: a trained network edited, then trained on, against new weights.

The digits network of examples/digits is edited in several ways; its accuracy on the test images
is taken before any training, after one epoch and after three, once with the weights that `dlv
copy` would carry over and once with new ones, for several seeds. Needs torch and scikit-learn.
Prints a table and, as its last line, a JSON document.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dlv.arrays as arrays
import dlv.derive as derive
import dlv.network.edit as editing
from dlv.adapters import network_json, safetensors
from dlv.adapters.checkpoint import Tensor
from dlv.network import reuse
from dlv.network.edit import Editor
from dlv.network.graph import Network
from dlv.network.reuse import Plan
from dlv.network.templates import template
from dlv.network.torch_module import build

DIGITS = Path(__file__).resolve().parent.parent / "examples" / "digits"
EPOCHS, BATCH, RATE = 3, 48, 0.05
MUTATIONS: dict[str, Callable[[Editor], object]] = {
    "insert RELU": lambda e: e.insert("conv2", template("RELU")),
    "insert BN": lambda e: e.insert("conv2", template("NORM", "BATCH")),
    "conv2 32 -> 48": lambda e: e.set_attributes("conv2", out=48),
    "conv2 32 -> 24": lambda e: e.set_attributes("conv2", out=24),
    "delete conv2": lambda e: e.delete("conv2"),
}


def images() -> Sequence[Any]:
    """Training and test images, as the example makes them."""
    spec = importlib.util.spec_from_file_location("train", DIGITS / "train.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [torch.from_numpy(array) for array in module.digits(10)]


def module_of(network: Network, tensors: Sequence[Tensor]) -> Any:
    held = {
        tensor.name: torch.from_numpy(
            np.array(arrays.to_array(tensor.dtype, tensor.shape, tensor.read()))
        )
        for tensor in tensors
    }
    return build(network, held, {})


def accuracy(module: Any, x: Any, y: Any) -> float:
    module.eval()
    with torch.no_grad():
        return float((module(x).argmax(1) == y).float().mean())


def run(network: Network, tensors: Sequence[Tensor], data: Sequence[Any], seed: int) -> list[float]:
    """Accuracy before training, after the first epoch, after the last."""
    x, y, test_x, test_y = data
    module = module_of(network, tensors)
    found = [accuracy(module, test_x, test_y)]
    order = np.random.RandomState(seed)
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE, momentum=0.9)
    for _ in range(EPOCHS):
        module.train()
        for batch in np.array_split(order.permutation(len(x)), len(x) // BATCH):
            optimizer.zero_grad()
            loss: Any = torch.nn.functional.cross_entropy(module(x[batch]), y[batch])
            loss.backward()
            optimizer.step()
        found.append(accuracy(module, test_x, test_y))
    return [found[0], found[1], found[-1]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    data = images()
    network, _ = network_json.parse((DIGITS / "base" / "network.json").read_bytes())
    held = safetensors.open(str(DIGITS / "base" / "step-600.safetensors")).tensors
    shapes = {tensor.name: (tensor.dtype, tensor.shape) for tensor in held}
    rows: dict[str, dict[str, list[float]]] = {}
    for name, action in MUTATIONS.items():
        made = editing.edit(network, [action]).network
        plan = reuse.plan(network, made, shapes)
        new = Plan(tuple(replace(item, action=reuse.INIT) for item in plan.tensors), ())
        rows[name] = {}
        for way, chosen in (("reuse", plan), ("scratch", new)):
            runs = [
                run(made, derive.tensors(chosen, held, seed), data, seed)
                for seed in range(given.seeds)
            ]
            columns = zip(*runs, strict=True)
            rows[name][way] = [statistics.median(each) for each in columns]
    base = accuracy(module_of(network, held), *data[2:])
    print(f"the network before it is edited: {base:.3f}; medians of {given.seeds} seeds")
    print(f"{'mutation':16}  {'reuse: 0, 1, 3 epochs':24}  scratch: 0, 1, 3 epochs")
    for name, row in rows.items():
        texts = ["  ".join(f"{value:.3f}" for value in row[way]) for way in ("reuse", "scratch")]
        print(f"{name:16}  {texts[0]:24}  {texts[1]}")
    better = sum(row["reuse"][1] > row["scratch"][1] for row in rows.values())
    print(f"ahead after one epoch: {better} of {len(rows)}")
    print(json.dumps({"base": base, "seeds": given.seeds, "mutations": rows, "ahead": better}))


if __name__ == "__main__":
    main()
