"""What linear layers are usually given: the mean and the spread of each channel."""

from __future__ import annotations

import numpy as np

from dlv.dataclass import dataclass
from dlv.kinds import Array, Floats
from dlv.network.bounds.schedule import Inputs, Weights
from dlv.network.forward import Forward
from dlv.network.ops.op import Run
from dlv.network.program import Program, Step

BATCH = 32
# Channels that hardly vary are taken to vary by this part of the largest deviation.
_FLOOR = 1e-2


# What corrections cost, against the bytes of weights that they spare.
WORTH = 6.0
RANKS = (1, 2, 3, 4, 6, 8, 12, 16, 24)
# Of a correction in 6 bits, what is left of what it should take away.
_ROUGH = 0.03
MOST_CHANNELS = 2048


def gain(bits: float, weights: float, taken: float) -> float:
    """Bytes that are spared where each weight needs so many bits less, for some that are taken."""
    return float(bits * weights / 8 - WORTH * taken)


@dataclass(frozen=True)
class Habit:
    """Sums over the positions of a row, means over rows."""

    mean: Floats  # of each channel, of one position
    power: Floats
    variance: Floats
    second: Floats | None  # of each pair of channels; None where there are too many

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

    def directions(self, scale: Array, rank: int) -> Floats:
        """(rank, channels): orthonormal ones that hold most of A x."""
        if not rank or self.second is None:
            return np.zeros((0, len(scale)))
        _, vectors = np.linalg.eigh(self.second * scale[:, None] * scale)
        found: Floats = vectors[:, ::-1][:, :rank].T
        return found

    def split(self, scale: Array, usual: Floats) -> tuple[float, float]:
        """Usual norms of what these directions leave of A x, and of what they take."""
        if self.second is None or not len(usual):
            return self.size(scale), 0.0
        moved = self.second * scale[:, None] * scale
        rest = np.eye(len(scale)) - usual.T @ usual
        left, taken = np.einsum("ij,jk,ik->", rest, moved, rest, optimize=True), usual @ moved
        taken = np.einsum("ri,ri->", taken, usual)
        return float(np.sqrt(max(left, 0.0))), float(np.sqrt(max(taken, 0.0)))

    def left(self, scale: Array, usual: Floats) -> Floats:
        """Of each channel, the mean square that is left."""
        if self.second is None or not len(usual):
            return self.power
        rest = np.eye(len(scale)) - usual.T @ usual
        moved = rest @ (self.second * scale[:, None] * scale) @ rest.T
        found: Floats = np.maximum(np.diag(moved) / scale**2, 1e-6 * self.power)
        return found

    def rank(self, scale: Array, shape: tuple[int, ...]) -> int:
        """How many directions pay, for a weight of (out, in, *kernel)."""
        if self.second is None or not self.power.any():
            return 0
        values = np.linalg.eigvalsh(self.second * scale[:, None] * scale)[::-1]
        values = np.maximum(values, 0)
        weights, each = float(np.prod(shape)), shape[0] * float(np.prod(shape[2:])) + shape[1]
        best, most = 0, 0.0
        for rank in RANKS:
            if 2 * rank > shape[1]:
                break
            left = np.sqrt(values[rank:].sum() / values.sum()) + _ROUGH
            found = gain(-np.log2(left), weights, rank * each)
            if found > most:
                best, most = rank, found
        return best


def habits(program: Program, weights: Weights, rows: Inputs) -> dict[str, Habit]:
    """By the result of each linear step: what it is given on these rows."""
    watcher = _Watcher(program, weights)
    count = len(next(iter(rows.values())))
    for first in range(0, count, BATCH):
        watcher({name: each[first : first + BATCH] for name, each in rows.items()})
    return {name: _habit(sums) for name, sums in watcher.sums.items()}


@dataclass
class _Sums:
    total: Floats
    squares: Floats
    places: int = 0
    count: int = 0


def _habit(sums: _Sums) -> Habit:
    count, places = max(sums.count, 1), max(sums.places, 1)
    mean = sums.total / places
    second = sums.squares / count if sums.squares.ndim == 2 else None
    power = sums.squares / count if second is None else np.diag(second)
    variance = np.maximum(power - places / count * mean**2, 1e-6 * power)
    return Habit(mean, power, variance, second)


class _Watcher(Forward):
    def __init__(self, program: Program, weights: Weights) -> None:
        super().__init__(program, lambda name: weights.tensor(name, None))
        self.sums: dict[str, _Sums] = {}

    def ran(self, step: Step, run: Run) -> tuple[Array, ...]:
        if step.node.op in ("CONV", "FULL"):
            x = run.inputs[0]
            first = step.node.op == "CONV" and step.node.attrs["channels"] == "first"
            flat = np.moveaxis(x, 1 if first else -1, -1)
            flat = flat.reshape(-1, flat.shape[-1])
            wide = flat.shape[1]
            shape = (wide, wide) if wide <= MOST_CHANNELS else (wide,)
            sums = self.sums.setdefault(step.result, _Sums(np.zeros(wide), np.zeros(shape)))
            sums.total += flat.sum(axis=0)
            sums.squares += flat.T @ flat if sums.squares.ndim == 2 else (flat**2).sum(axis=0)
            sums.places += len(flat)
            sums.count += len(x)
        return super().ran(step, run)
