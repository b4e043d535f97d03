"""Small modules as people write them: one idiom each, by name, with what they are called with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

Make = Callable[[], nn.Module]
Inputs = Callable[[int], tuple[Any, ...]]


@dataclass(frozen=True)
class Idiom:
    """`inputs` and `keywords`: what it is called with at a batch size.

    `draws`: its answers in eval mode are random. `narrow`: it computes in 16 bits. `grads`: its
    answer is that with gradients on, as torch has a shortcut without them that gives others.
    """

    name: str
    subject: str
    make: Make
    inputs: Inputs
    keywords: Callable[[int], dict[str, Any]] = field(default=lambda _: {})
    sizes: tuple[int, int] = (3, 5)
    draws: bool = False
    narrow: bool = False
    grads: bool = False

    def module(self) -> nn.Module:
        """Always with the same weights, in eval mode; statistics and gains are no neutral ones."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(11)
            made = self.make()
            for name, tensor in [*made.named_parameters(), *made.named_buffers()]:
                last = name.rpartition(".")[2]
                with torch.no_grad():
                    if last in ("running_mean", "running_var"):
                        tensor.copy_(torch.rand(tensor.shape).to(tensor.dtype) * 0.5 + 0.5)
        return made.eval()

    def called(self, second: bool = False) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of the example batch, or of one of other numbers and another size."""
        size = self.sizes[second]
        return self.inputs(size), self.keywords(size)


IDIOMS: dict[str, Idiom] = {}


def idiom(subject: str, inputs: Inputs, name: str = "", **options: Any) -> Callable[[Any], Any]:
    """Puts a module's class, or a function that makes one, into the table."""

    def put(make: Any) -> Any:
        own = name or make.__name__.strip("_")
        if own in IDIOMS:
            raise ValueError(f"{own} stands twice in the table")
        IDIOMS[own] = Idiom(own, subject, make, inputs, **options)
        return make

    return put


class Body(nn.Module):
    """A layer, and a function of its values."""

    def __init__(self, function: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
        super().__init__()
        self.function = function
        self.stem: nn.Module = nn.Linear(shape[-1], shape[-1])
        if len(shape) == 3:
            self.stem = nn.Conv2d(shape[0], shape[0], 3, padding=1)

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self.stem(x))


def body(subject: str, *shape: int, **options: Any) -> Callable[[Any], Any]:
    """Puts a function of a layer's values into the table; `shape` without the batch."""

    def put(function: Any) -> Any:
        make = partial(Body, function, shape)
        idiom(subject, floats(*shape), function.__name__.strip("_"), **options)(make)
        return function

    return put


def randn(n: int, *shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * seed + n)
    return torch.randn(n, *shape, generator=generator)


def randint(top: int, n: int, *shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * seed + n)
    return torch.randint(0, top, (n, *shape), generator=generator)


def floats(*shape: int) -> Inputs:
    return lambda n: (randn(n, *shape),)


def tokens(top: int, *shape: int) -> Inputs:
    return lambda n: (randint(top, n, *shape),)
