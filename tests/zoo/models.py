"""ZOO: the models that importers, rebuilding and exporters are tried on, and inputs for them.

`build("lenet")` gives (module, inputs): fresh, the same each time, in train mode. No random
state is touched outside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tests.zoo import oddities, sequences, vision

Inputs = tuple[Tensor, ...]
Entry = tuple[Callable[[], nn.Module], Callable[[], Inputs]]


def _image(*shape: int) -> Callable[[], Inputs]:
    return lambda: (torch.randn(2, *shape),)


def _tokens(length: int, most: int) -> Callable[[], Inputs]:
    return lambda: (torch.randint(0, most, (2, length)),)


ZOO: dict[str, Entry] = {
    "lenet": (vision.LeNet, _image(1, 28, 28)),
    "alexnet": (vision.AlexNet, _image(3, 64, 64)),
    "resnet16": (vision.ResNet16, _image(3, 16, 16)),
    "unet": (vision.UNet, _image(1, 16, 16)),
    "densenet": (vision.DenseNet, _image(3, 8, 8)),
    "inception": (vision.Inception, _image(3, 9, 9)),
    "mobilenet": (vision.MobileNet, _image(3, 16, 16)),
    "generator": (vision.Generator, _image(10, 1, 1)),
    "bert": (sequences.Bert, lambda: (torch.randint(0, 50, (2, 7)), torch.randint(0, 2, (2, 7)))),
    "encoder": (sequences.Encoder, _tokens(6, 40)),
    "gpt": (sequences.Gpt, _tokens(8, 30)),
    "lstm": (sequences.Lstm, _tokens(5, 20)),
    "gru": (sequences.Gru2, _image(4, 5)),
    # Its batch is the second axis.
    "gru_state": (sequences.Gru, lambda: (torch.randn(4, 3, 5), torch.randn(2, 3, 7))),
    "functional": (oddities.Functional, _image(6)),
    "shared": (oddities.Shared, _image(4)),
    "rolled": (oddities.Rolled, _image(8)),
    "norms": (oddities.ManyNorms, _image(6, 10)),
    "pools": (oddities.Pools, _image(1, 4, 8, 8)),
    "masked": (
        oddities.Masked,
        lambda: (torch.randn(2, 5, 8), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])),
    ),
    "fixed_batch": (oddities.FixedBatch, _image(4)),
}
# torch.export cannot take these apart.
UNEXPORTABLE: dict[str, Entry] = {"forking": (oddities.Forking, _image(4))}
# The first axis of their inputs is no free batch.
STATIC = frozenset({"gru_state", "fixed_batch"})


def build(name: str, seed: int = 0) -> tuple[nn.Module, Inputs]:
    """The module, in train mode with weights from `seed`, and inputs for it."""
    factory, inputs = (ZOO | UNEXPORTABLE)[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module, given = factory(), inputs()
        settle_statistics(module)
    return module.train(), given


def settle_statistics(module: nn.Module) -> None:
    """Statistics of normalisation as after some training: neither 0 nor 1."""
    for name, buffer in module.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_(0, 0.1)
        elif name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)


def state(module: nn.Module) -> dict[str, Any]:
    """Copies of all that state_dict names."""
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
