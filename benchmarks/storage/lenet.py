"""The LeNet corpus: Caffe's LeNet, 431,080 float32 weights, on scikit-learn's digits at 28x28.

Two chains of twelve checkpoints (Adam; SGD with momentum and weight decay), two retrainings from
other seeds, and three fine-tunes of the SGD chain's end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.nn import functional

from benchmarks.storage.models import Model, matrix

TRAINING, CHECKPOINTS = 1300, 12


@dataclass(frozen=True)
class Setting:
    """An optimizer, the images in a batch, the passes over all images between checkpoints."""

    optimizer: Callable[[list[Any]], Any]
    batch: int
    passes: int


ADAM = Setting(lambda moving: torch.optim.Adam(moving, lr=1e-3), 32, 2)
SGD = Setting(
    lambda moving: torch.optim.SGD(moving, lr=0.005, momentum=0.9, weight_decay=5e-4), 16, 1
)
# For fine-tuning: a fifth of the rate.
GENTLE = Setting(
    lambda moving: torch.optim.SGD(moving, lr=0.001, momentum=0.9, weight_decay=5e-4), 64, 2
)
Weights = dict[str, Any]


def images() -> tuple[Any, Any, Any, Any]:
    """Training images and labels, the other 497 and theirs."""
    digits = load_digits()
    small = torch.from_numpy(digits.images.astype(np.float32) / 16)[:, None]
    x = functional.interpolate(small, size=(28, 28), mode="bilinear", align_corners=False)
    y = torch.from_numpy(digits.target.astype(np.int64))
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order].contiguous(), y[order].contiguous()
    return x[:TRAINING], y[:TRAINING], x[TRAINING:], y[TRAINING:]


def fresh(seed: int, classes: int = 10) -> Weights:
    """Xavier initialisation, as in Caffe's example."""
    torch.manual_seed(seed)
    shapes = {"conv1": (20, 1, 5, 5), "conv2": (50, 20, 5, 5), "ip1": (500, 800)}
    weights: Weights = {}
    for name, shape in {**shapes, "ip2": (classes, 500)}.items():
        bound = float(np.sqrt(3 / np.prod(shape[1:])))
        weights[f"{name}.weight"] = torch.empty(shape).uniform_(-bound, bound)
        weights[f"{name}.bias"] = torch.zeros(shape[0])
    return weights


def forward(weights: Weights, x: Any) -> Any:
    h = functional.conv2d(x, weights["conv1.weight"], weights["conv1.bias"])
    h = functional.max_pool2d(h, 2)
    h = functional.conv2d(h, weights["conv2.weight"], weights["conv2.bias"])
    h = functional.max_pool2d(h, 2).flatten(1)
    h = functional.relu(functional.linear(h, weights["ip1.weight"], weights["ip1.bias"]))
    return functional.linear(h, weights["ip2.weight"], weights["ip2.bias"])


def train(
    weights: Weights,
    x: Any,
    y: Any,
    seed: int,
    setting: Setting,
    checkpoints: int,
    trained: Callable[[str], bool] = lambda _: True,
) -> Iterator[Model]:
    """Checkpoints of training; only parameters that `trained` accepts move."""
    weights = {name: held.clone().requires_grad_(trained(name)) for name, held in weights.items()}
    optimizer = setting.optimizer([held for held in weights.values() if held.requires_grad])
    order = np.random.default_rng(seed)
    for _ in range(checkpoints):
        for _ in range(setting.passes):
            for batch in np.array_split(order.permutation(len(x)), len(x) // setting.batch):
                optimizer.zero_grad()
                loss: Any = functional.cross_entropy(forward(weights, x[batch]), y[batch])
                loss.backward()
                optimizer.step()
        yield {name: matrix(held.detach().numpy()) for name, held in weights.items()}


def tensors(model: Model) -> Weights:
    return {name: torch.from_numpy(held.array().copy()) for name, held in model.items()}


def accuracy(model: Model, x: Any, y: Any) -> float:
    with torch.no_grad():
        return float((forward(tensors(model), x).argmax(1) == y).float().mean())


def lines(seed: int, end: Callable[[str], Model]) -> dict[str, Callable[[], Iterator[Model]]]:
    """What there is to train, by name; `end` gives the last checkpoint of another line."""
    x, y, _, _ = images()

    def chain(first: int, setting: Setting) -> Iterator[Model]:
        return train(fresh(first), x, y, first, setting, CHECKPOINTS)

    def tuned(labels: Any, keep: Any, classes: int) -> Iterator[Model]:
        """A new last layer, and all layers trained on."""
        start = tensors(end("sgd"))
        start |= {name: t for name, t in fresh(seed + 3, classes).items() if name[:3] == "ip2"}
        return train(start, x[keep], labels[keep], seed + 3, GENTLE, 1)

    def last_layer() -> Iterator[Model]:
        start = tensors(end("sgd"))
        return train(start, x, y, seed + 4, GENTLE, 1, lambda name: name.startswith("ip2"))

    return {
        "adam": lambda: chain(seed, ADAM),
        "sgd": lambda: chain(seed, SGD),
        "retrained-adam": lambda: chain(seed + 1, ADAM),
        "retrained-sgd": lambda: chain(seed + 2, SGD),
        "labels": lambda: tuned(y, y < 5, 5),
        "parity": lambda: tuned(y % 2, y >= 0, 2),
        "last": last_layer,
    }
