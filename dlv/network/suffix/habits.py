"""What a suffix metric is made from: the weights, and what linear layers are usually given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dlv.dataclass import dataclass
from dlv.kinds import Array, Floats
from dlv.network.bounds.schedule import Inputs, Weights
from dlv.network.forward import Forward
from dlv.network.ops.op import NoRule, Run
from dlv.network.program import Program, Step, params_of
from dlv.network.suffix.errors import matrix_of
from dlv.network.suffix.plan import Plan, Through, Told
from dlv.network.suffix.record import MOST_CLASSES

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


# Numbers of one form at most: beyond, the recursion of norms has to do.
MOST = 1 << 26
LINEAR = ("CONV", "FULL")


@dataclass(frozen=True)
class Source:
    """A network with its weights, and the depths at which each of them may be read."""

    program: Program
    weights: Weights
    depths: Mapping[str, Sequence[int]]

    def tensor(self, name: str) -> Array:
        return self.weights.tensor(name, None)

    def whole(self, step: Step) -> Array:
        return matrix_of(step, params_of(step, self.tensor))

    def open_at(self, step: Step, planes: int, correction: Array | None = None) -> Array:
        """What a centre leaves open, as (out, in, *kernel), batch normalisation folded in."""
        own = step.node.params["weight"]

        def tensor(name: str) -> Array:
            if name != own:
                return self.tensor(name)
            centre = self.weights.tensor(name, planes)
            return centre if correction is None else centre + correction

        return self.whole(step) - matrix_of(step, params_of(step, tensor))

    def open_depths(self, step: Step) -> Sequence[int]:
        name = step.node.params["weight"]
        return self.depths.get(self.program.network.aliases.get(name, name), ())

    def correctable(self, step: Step) -> bool:
        """Whether its weight is its own, and what it takes in is all of one input."""
        attrs, name = step.node.attrs, step.node.params["weight"]
        aliases = self.program.network.aliases
        users = [
            one
            for one in self.program.linear
            if aliases.get(one.node.params["weight"], one.node.params["weight"])
            == aliases.get(name, name)
        ]
        return len(users) == 1 and attrs.get("groups", 1) == 1 and attrs["layout"] != "depthwise"


def steps_of(made: Plan) -> list[tuple[str, Step]]:
    """The linear steps that the form passes, by their results."""
    told = (move.step for move in made.moves if isinstance(move, Told))
    return [(step.result, step) for step in told if step.node.op in LINEAR]


def scaled_steps(made: Plan) -> list[tuple[str, Step]]:
    """All that the form passes through as matrices."""
    through = (move.step for move in made.moves if isinstance(move, Through))
    return [(step.result, step) for step in through]


def check(made: Plan, source: Source) -> None:
    """NoRule where the form would be too large, or has nothing finite to be made from."""
    for move in made.moves:
        if isinstance(move, (Through, Told)):
            width = move.width
            if made.tori[move.stage].count * width * width > MOST:
                raise NoRule(move.step.node, "its form would be too large")
    last = made.last.node
    if last.attrs["out"] > MOST_CLASSES:
        raise NoRule(last, f"it has more than {MOST_CLASSES} classes")
    for _, step in [*steps_of(made), *scaled_steps(made), (made.last.result, made.last)]:
        if not np.isfinite(source.whole(step)).all():
            raise NoRule(step.node, "its weight is not finite")
