"""What linear layers are usually given: the mean and the spread of each channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.network.forward import Forward
from dlv.network.layers.layer import Run
from dlv.network.program import Program, Step
from dlv.network.schedule import Inputs, Weights

Array = NDArray[Any]
Floats = NDArray[np.float64]

BATCH = 32
# Channels that hardly vary are taken to vary by this part of the largest deviation.
_FLOOR = 1e-2


@dataclass(frozen=True)
class Habit:
    """Sums over the positions of a row, means over rows."""

    mean: Floats  # of each channel, of one position
    power: Floats
    variance: Floats

    @property
    def start(self) -> Floats:
        """log2 of 1 / deviation."""
        deviation = np.sqrt(self.variance)
        most = float(deviation.max(initial=0.0))
        found: Floats = -np.log2(np.maximum(deviation, _FLOOR * most if most > 0 else 1.0))
        return found

    def size(self, scale: Array) -> float:
        """||A x|| as it usually is."""
        return float(np.sqrt(scale**2 @ self.power))

    def moved(self, scale: Array) -> float:
        """||A (x - mean)||."""
        return float(np.sqrt(scale**2 @ self.variance))


def habits(program: Program, weights: Weights, rows: Inputs) -> dict[str, Habit]:
    """By the result of each linear step: what it is given on these rows."""
    watcher = _Watcher(program, weights)
    count = len(next(iter(rows.values())))
    for first in range(0, count, BATCH):
        watcher({name: each[first : first + BATCH] for name, each in rows.items()})
    return {name: _habit(*sums) for name, sums in watcher.sums.items()}


def _habit(total: Floats, squares: Floats, places: int, count: int) -> Habit:
    mean = total / max(places, 1)
    power = squares / max(count, 1)
    each = places / max(count, 1)
    return Habit(mean, power, np.maximum(power - each * mean**2, 1e-6 * power))


class _Watcher(Forward):
    def __init__(self, program: Program, weights: Weights) -> None:
        super().__init__(program, lambda name: weights.tensor(name, None))
        self.sums: dict[str, tuple[Floats, Floats, int, int]] = {}

    def ran(self, step: Step, run: Run) -> tuple[Array, ...]:
        if step.node.op in ("CONV", "FULL"):
            x = run.inputs[0]
            first = step.node.op == "CONV" and step.node.attrs["channels"] == "first"
            flat = np.moveaxis(x, 1 if first else -1, -1)
            axes = tuple(range(flat.ndim - 1))
            found = (
                flat.sum(axis=axes),
                (flat**2).sum(axis=axes),
                int(np.prod(flat.shape[:-1])),
                len(x),
            )
            held = self.sums.get(step.result)
            if held is not None:
                found = (
                    found[0] + held[0],
                    found[1] + held[1],
                    found[2] + held[2],
                    found[3] + held[3],
                )
            self.sums[step.result] = found
        return super().ran(step, run)
