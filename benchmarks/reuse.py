"""What reused weights are worth: a trained network edited, then trained on, against new weights.

The digits network of examples/digits is edited in several ways and then trained by dlv's own
trainer; its accuracy on the test images is taken before any training, after one epoch and after
three, once with the weights that `dlv copy` would carry over and once with new ones, for several
seeds. Needs torch and scikit-learn.
Prints a table and, as its last line, a JSON document.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dlv.network.edits.edit as editing
import dlv.training.trainers.contract as contract
import dlv.versions.copying as copying
from dlv.adapters import network_json, safetensors
from dlv.adapters.checkpoint import Tensor
from dlv.adapters.data.sets import open_parts
from dlv.network.edits import reuse
from dlv.network.edits.edit import Editor
from dlv.network.edits.reuse import Plan
from dlv.network.graph import Network
from dlv.network.patterns import template
from dlv.network.torch.module import build
from dlv.training.checkpoints import Checkpoint
from dlv.training.config import resolve
from dlv.training.trainers.interface import Readers
from dlv.training.trial_files import TrialFiles
from dlv.training.workers.slices import Recorder
from dlv.weights.arrays import to_array

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
    found: Sequence[Any] = module.digits(10)
    return found


def module_of(network: Network, tensors: Sequence[Tensor]) -> Any:
    held = {
        tensor.name: torch.from_numpy(np.array(to_array(tensor.dtype, tensor.shape, tensor.read())))
        for tensor in tensors
    }
    return build(network, held, {})


def accuracy(module: Any, x: Any, y: Any) -> float:
    module.eval()
    with torch.no_grad():
        return float((module(x).argmax(1) == y).float().mean())


def run(network: Network, tensors: Sequence[Tensor], data: Path, seed: int) -> list[float]:
    """Accuracy before training, after the first epoch, after the last."""
    with np.load(data) as held:
        x, test_x, test_y = held["x"], held["x_val"], held["y_val"]
    epoch = len(x) // BATCH
    template = {
        "input_data": str(data),
        "steps": EPOCHS * epoch,
        "log_every": epoch,
        "base_lr": RATE,
        "batch_size": BATCH,
        "metrics": ["accuracy"],
        "seed": seed,
    }
    found = [accuracy(module_of(network, tensors), *map(torch.from_numpy, (test_x, test_y)))]

    def row(_: int, metrics: Mapping[str, float]) -> bool:
        found.append(metrics["accuracy"])
        return False

    with tempfile.TemporaryDirectory() as folder:
        files = TrialFiles(Path(folder, "trials", "one"))
        config = resolve(template, [], network)
        files.create(network, config, {tensor.name: tensor for tensor in tensors}, {})
        log = Recorder(files.load(), Checkpoint(), config.steps, row)
        contract.run(files.load(), config.steps, Checkpoint(), log, Readers(rows=open_parts))
    return [found[0], found[1], found[-1]]


def measured(seeds: int) -> dict[str, Any]:
    """Medians over the seeds, for each mutation and both ways to begin."""
    data = images()
    network, _ = network_json.parse((DIGITS / "base" / "network.json").read_bytes())
    held = safetensors.open(str(DIGITS / "base" / "step-600.safetensors")).tensors
    shapes = {tensor.name: (tensor.dtype, tensor.shape) for tensor in held}
    rows: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "digits.npz")
        np.savez(file, **dict(zip(("x", "y", "x_val", "y_val"), data, strict=True)))
        for name, action in MUTATIONS.items():
            made = editing.edit(network, [action]).network
            plan = reuse.plan(network, made, shapes)
            new = Plan(tuple(replace(item, action=reuse.INIT) for item in plan.tensors), ())
            rows[name] = {}
            for way, chosen in (("reuse", plan), ("scratch", new)):
                runs = [
                    run(made, copying.derived_tensors(chosen, held, seed), file, seed)
                    for seed in range(seeds)
                ]
                columns = zip(*runs, strict=True)
                rows[name][way] = [statistics.median(each) for each in columns]
    base = accuracy(module_of(network, held), *map(torch.from_numpy, data[2:]))
    ahead = sum(row["reuse"][1] > row["scratch"][1] for row in rows.values())
    return {"base": base, "seeds": seeds, "mutations": rows, "ahead": ahead}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    found = measured(parser.parse_args().seeds)
    rows = found["mutations"]
    print(
        f"the network before it is edited: {found['base']:.3f}; medians of {found['seeds']} seeds"
    )
    print(f"{'mutation':16}  {'reuse: 0, 1, 3 epochs':24}  scratch: 0, 1, 3 epochs")
    for name, row in rows.items():
        texts = ["  ".join(f"{value:.3f}" for value in row[way]) for way in ("reuse", "scratch")]
        print(f"{name:16}  {texts[0]:24}  {texts[1]}")
    print(f"ahead after one epoch: {found['ahead']} of {len(rows)}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
