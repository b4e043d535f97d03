"""A search of the size that a laptop does in a minute: learning rates x widths on the digits.

A perceptron in plain numpy; what it comes to is a function of (rate, width, seed, epoch) alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

EPOCHS = 27
ROWS, BATCH = 1400, 50
RATES = tuple(float(f"{rate:.3g}") for rate in np.logspace(-2.5, 0.5, 9))
WIDTHS = (8, 24, 72)
GRID = tuple(itertools.product(RATES, WIDTHS))


@dataclass(frozen=True)
class Curve:
    """A trial of the grid, trained to the end: the loss on rows it did not see, by epoch."""

    rate: float
    width: int
    losses: Sequence[float]


@cache
def rows() -> tuple[Any, Any, Any, Any]:
    from sklearn.datasets import load_digits  # as everywhere only where it is needed

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = (x[order] / 16).astype(np.float32), y[order]
    return x[:ROWS], y[:ROWS], x[ROWS:], y[ROWS:]


def grid(seed: int) -> list[Curve]:
    return [Curve(rate, width, train(rate, width, seed)) for rate, width in GRID]


def train(rate: float, width: int, seed: int) -> list[float]:
    x, y, x_val, y_val = rows()
    rng = np.random.default_rng([seed, width])
    w1 = rng.normal(0, (2 / 64) ** 0.5, (64, width)).astype(np.float32)
    w2 = rng.normal(0, (1 / width) ** 0.5, (width, 10)).astype(np.float32)
    b1, b2 = np.zeros(width, np.float32), np.zeros(10, np.float32)
    losses = []
    for epoch in range(EPOCHS):
        order = np.random.default_rng([seed, epoch]).permutation(len(x))
        for start in range(0, len(x), BATCH):
            chosen = order[start : start + BATCH]
            hidden = np.maximum(x[chosen] @ w1 + b1, 0)
            error = _softmax(hidden @ w2 + b2)
            error[np.arange(len(chosen)), y[chosen]] -= 1
            error *= np.float32(rate / len(chosen))
            back = (error @ w2.T) * (hidden > 0)
            w2 -= hidden.T @ error
            b2 -= error.sum(0)
            w1 -= x[chosen].T @ back
            b1 -= back.sum(0)
        chances = _softmax(np.maximum(x_val @ w1 + b1, 0) @ w2 + b2)
        right = chances[np.arange(len(x_val)), y_val]
        losses.append(float(-np.log(np.maximum(right, 1e-9)).mean()))
    return losses


def _softmax(values: Any) -> Any:
    raised = np.exp(values - values.max(1, keepdims=True))
    return raised / raised.sum(1, keepdims=True)
