"""Small networks, trained on scikit-learn's digits in a second or two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

Array = NDArray[Any]
Nodes = Sequence[Mapping[str, Any]]


class Conv(nn.Module):
    """Two convolutions, the second with batch norm behind it, and a last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 12, 3, padding=1)
        self.conv2 = nn.Conv2d(12, 32, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(32)
        self.fc = nn.Linear(512, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.conv1(x))
        x = functional.relu(self.norm(self.conv2(x)))
        found: torch.Tensor = self.fc(x.flatten(1))
        return found


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(64, 96)
        self.fc2 = nn.Linear(96, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.fc2(functional.relu(self.fc1(x.flatten(1))))
        return found


def _params(name: str, *slots: str) -> dict[str, str]:
    return {slot: f"{name}.{slot}" for slot in slots}


CONV: Nodes = [
    {
        "name": "conv1",
        "op": "CONV",
        "inputs": ["x"],
        "attrs": {"out": 12, "kernel": [3, 3], "pad": 1},
        "params": _params("conv1", "weight", "bias"),
    },
    {"name": "relu1", "op": "RELU", "attrs": {}, "inputs": ["conv1"]},
    {
        "name": "conv2",
        "op": "CONV",
        "inputs": ["relu1"],
        "attrs": {"out": 32, "kernel": [3, 3], "pad": 1, "stride": 2, "bias": False},
        "params": _params("conv2", "weight"),
    },
    {
        "name": "norm",
        "op": "NORM",
        "variant": "BATCH",
        "attrs": {},
        "inputs": ["conv2"],
        "params": _params("norm", "weight", "bias", "running_mean", "running_var"),
    },
    {"name": "relu2", "op": "RELU", "attrs": {}, "inputs": ["norm"]},
    {"name": "flat", "op": "RESHAPE", "attrs": {"kind": "flatten"}, "inputs": ["relu2"]},
    {
        "name": "fc",
        "op": "FULL",
        "attrs": {"out": 10},
        "inputs": ["flat"],
        "params": _params("fc", "weight", "bias"),
    },
]
MLP: Nodes = [
    {"name": "flat", "op": "RESHAPE", "attrs": {"kind": "flatten"}, "inputs": ["x"]},
    {
        "name": "fc1",
        "op": "FULL",
        "attrs": {"out": 96},
        "inputs": ["flat"],
        "params": _params("fc1", "weight", "bias"),
    },
    {"name": "relu", "op": "RELU", "attrs": {}, "inputs": ["fc1"]},
    {
        "name": "fc2",
        "op": "FULL",
        "attrs": {"out": 10},
        "inputs": ["relu"],
        "params": _params("fc2", "weight", "bias"),
    },
]


@cache
def digits() -> tuple[Array, Array]:
    found = load_digits()
    return (found.images / 16).astype(np.float32)[:, None], found.target


@cache
def trained(kind: str) -> tuple[dict[str, Array], dict[str, Array]]:
    """The weights, and those of a few steps more."""
    torch.manual_seed(0)
    module: nn.Module = Conv() if kind == "conv" else Mlp()
    x, y = (torch.from_numpy(each[:1200]) for each in digits())
    optimizer = torch.optim.Adam(module.parameters(), lr=3e-3)
    order = np.random.default_rng(0)
    module.train()
    for rows in np.array_split(np.concatenate([order.permutation(1200) for _ in range(6)]), 150):
        optimizer.zero_grad()
        functional.cross_entropy(module(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    first = _state(module)
    for group in optimizer.param_groups:
        group["lr"] = 1e-5
    for _ in range(3):
        optimizer.zero_grad()
        functional.cross_entropy(module(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return first, _state(module)


def _state(module: nn.Module) -> dict[str, Array]:
    return {
        name: value.detach().numpy().copy()
        for name, value in module.state_dict().items()
        if "batches" not in name
    }
