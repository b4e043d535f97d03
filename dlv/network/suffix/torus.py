"""Convolutions as one matrix per frequency of a torus, large enough that nothing wraps around.

A feature map lies on the torus, zero outside its support. A zero-padded convolution is then the
circular one, cut off at the support of its result; with a stride, the frequencies of the finer
torus that fall on one of the coarser are stacked, times 1/sqrt(their number).
Real kernels have conjugate matrices at opposite frequencies: one of each two is kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from dlv.dataclass import dataclass
from dlv.kinds import Array

Sides = tuple[int, ...]


@dataclass(frozen=True)
class Torus:
    """Its sides; none at all stand for a vector, which has one frequency."""

    sides: Sides = ()

    @cached_property
    def frequencies(self) -> NDArray[np.int64]:
        """(count, axes): one of each pair of opposite ones, as multiples of 2 pi / side."""
        found = {
            min(each, tuple(-f % n for f, n in zip(each, self.sides, strict=True)))
            for each in itertools.product(*(range(n) for n in self.sides))
        }
        return np.array(sorted(found), np.int64).reshape(len(found), len(self.sides))

    @property
    def count(self) -> int:
        return len(self.frequencies)


@dataclass(frozen=True)
class Window:
    """How a kernel moves along each axis."""

    kernel: Sides
    stride: Sides
    pad: tuple[tuple[int, int], ...]
    dilation: Sides

    @property
    def alone(self) -> bool:
        """Whether each position sees itself alone: nothing is cut off at a border."""
        return all(k == 1 for k in self.kernel) and not any(map(any, self.pad))

    @property
    def aliases(self) -> int:
        return prod(self.stride)

    def least(self, inputs: Sequence[int], outputs: Sequence[int]) -> Sides:
        """The smallest sides of the result's torus on which no window wraps onto the input."""
        sides = []
        for axis, (given, made) in enumerate(zip(inputs, outputs, strict=True)):
            step, (before, _) = self.stride[axis], self.pad[axis]
            reach = self.dilation[axis] * (self.kernel[axis] - 1)
            end = step * (made - 1) + reach - before + 1
            sides.append(max(made, -(-max(given + before, end) // step)))
        return tuple(sides)

    def overlap(self) -> int:
        """In how many windows a position can be."""
        return prod(
            -(-k // max(1, s // np.gcd(s, d)))
            for k, s, d in zip(self.kernel, self.stride, self.dilation, strict=True)
        )


def transformed(kernel: Array, window: Window, torus: Torus) -> Array:
    """(out, in, *kernel) as (frequencies of the result's torus, out, aliases * in)."""
    if not torus.sides:
        return kernel.reshape(1, *kernel.shape[:2])
    out, depth = kernel.shape[:2]
    taps = kernel.reshape(out * depth, -1).T
    offsets = np.array(list(itertools.product(*(range(k) for k in window.kernel))), np.float64)
    dilation, pad = np.array(window.dilation), np.array([before for before, _ in window.pad])
    offsets = offsets.reshape(-1, len(torus.sides)) * dilation - pad
    fine = np.array(torus.sides) * np.array(window.stride)
    parts = []
    for alias in itertools.product(*(range(s) for s in window.stride)):
        turns = (torus.frequencies + np.array(alias) * np.array(torus.sides)) / fine
        phases = np.exp(2j * np.pi * (turns @ offsets.T))
        parts.append((phases @ taps).reshape(-1, out, depth))
    found: Array = np.concatenate(parts, axis=2) / np.sqrt(window.aliases)
    return found
