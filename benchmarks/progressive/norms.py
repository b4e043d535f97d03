"""Norms of weights and of what is unread of them, without what dlv's writer of bounds uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dlv.network.bounds.ball import Norms
from dlv.network.program import Program, params_of

Array = NDArray[Any]
Tensor = Callable[[str], Array]

# For the rounding of the decompositions.
UP = 1 + 1e-7


def norms_of(
    program: Program, whole: Tensor, centre: Tensor, sides: Mapping[str, tuple[int, int]]
) -> dict[str, Norms]:
    """Of every linear node; `sides`: height and width of the inputs of convolutions."""
    found = {}
    for step in program.linear:
        weight = params_of(step, whole)["weight"]
        unread = weight - params_of(step, centre)["weight"]
        found[step.node.name] = _norms(weight, unread, sides.get(step.node.name))
    return found


def _norms(weight: Array, unread: Array, side: tuple[int, int] | None) -> Norms:
    rows, open_rows = (each.reshape(len(each), -1) for each in (weight, unread))
    opn, dopn = norm(rows), float("inf")
    if side is not None:
        opn, dopn = (of_torus(each, side) for each in (weight, unread))
    return Norms(
        opn,
        float(np.linalg.norm(rows)) * UP,
        float(np.abs(rows).max()),
        norm(open_rows),
        float(np.linalg.norm(open_rows)) * UP,
        np.linalg.norm(rows, axis=1) * UP,
        np.linalg.norm(open_rows, axis=1) * UP,
        dopn,
    )


def norm(matrix: Array) -> float:
    gram = matrix @ matrix.T if len(matrix) < matrix.shape[1] else matrix.T @ matrix
    return float(np.sqrt(max(np.linalg.eigvalsh(gram)[-1], 0.0))) * UP


def of_torus(weight: Array, side: tuple[int, int]) -> float:
    """Of a convolution on inputs of this side, which is a part of one on a torus."""
    size = [length + k - 1 for length, k in zip(side, weight.shape[2:], strict=True)]
    waves = torch.fft.fft2(torch.from_numpy(weight), s=size)
    blocks = waves.permute(2, 3, 0, 1).reshape(-1, *weight.shape[:2])
    if weight.shape[0] > weight.shape[1]:
        blocks = blocks.transpose(1, 2)
    largest = torch.linalg.eigvalsh(blocks @ blocks.transpose(1, 2).conj())[:, -1].max()
    return float(largest.clamp(min=0).sqrt()) * UP
