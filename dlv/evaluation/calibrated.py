"""Calibrated evaluation: labels that other completions of the unread bits do not sway.

It works for every operation and needs no stored bounds, and it promises nothing: a label is told
where the margin of the centre is many times what random completions move it by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlv.canonical import hash_bytes
from dlv.evaluation.answers import Answers, NoBounds, Settings, Told, first_sets
from dlv.evaluation.levels import Batches, Inputs, Levels, Rows, first_row
from dlv.evaluation.planes import Planes
from dlv.evaluation.progressive import Model, planes_of
from dlv.kinds import Array, Floats, Places
from dlv.network.forward import Forward
from dlv.network.program import Program

Flags = NDArray[np.bool_]

COMPLETIONS = 8
LEAST = 6.0  # standard deviations between a label and the next
SMALL = 0.002  # of the bytes: so much of the smallest tensors is read whole from the start
# Rows that one set of completions is made for, and numbers of their inputs at most.
ROWS = 4096
NUMBERS = 1 << 24


def calibrated(model: Model, rows: Rows, settings: Settings) -> Answers:
    """Labels told with great confidence from the first planes.

    NoBounds where no first planes tell anything.
    """
    planes = planes_of(model, intervals=True)
    levels = Levels(model.program, planes, rows, settings)
    schedule = levels.worthwhile(_calibrated_depths(model.program, planes))
    if not schedule:
        raise NoBounds("its first planes take as many bytes as all of it")
    inputs = first_row(model.network, rows, settings)
    if inputs is not None and Forward(model.program, planes.zeros)(inputs).ndim != 2:
        raise NoBounds("its scores are not [batch, classes]")
    found = levels.run(schedule, lambda: Completions(model.program, planes, settings))
    found.mode = "calibrated"
    found.confidence = {"completions": COMPLETIONS, "z": LEAST, "seed": settings.seed}
    return found


def _calibrated_depths(program: Program, planes: Planes) -> list[dict[str, int]]:
    """A depth for every tensor, one plane more each time; small ones whole from the start."""
    whole = {name: planes.planes(name) for name in planes.names}
    costs = {name: planes.cost({name: most}) for name, most in whole.items()}
    room = SMALL * sum(costs.values())
    large = []
    for name in sorted(costs, key=lambda name: costs[name]):
        room -= costs[name]
        if room < 0 and name in program.matrices and "float" in planes.dtype(name):
            large.append(name)
    deepest = max((whole[name] for name in large), default=1)
    return [
        {**whole, **{name: min(depth, whole[name]) for name in large}}
        for depth in range(1, deepest)
    ]


class Completions:
    """Tells rows by the centre and by seeded random completions of what is not read."""

    def __init__(self, program: Program, planes: Planes, settings: Settings) -> None:
        self._program = program
        self._planes = planes
        self._settings = settings

    def __call__(self, batches: Batches) -> Iterator[tuple[Places, Told]]:
        for block in _blocks(batches):
            yield from self._told(block)

    def _told(self, block: Sequence[tuple[Places, Inputs]]) -> Iterator[tuple[Places, Told]]:
        """Completion by completion, so that one of them is held at a time."""
        centre = Forward(self._program, self._planes.tensor)
        judged = [_Judged.of(centre(inputs), self._settings.top_k) for _, inputs in block]
        for number in range(COMPLETIONS):
            forward = Forward(self._program, self._completion(number))
            for (_, inputs), each in zip(block, judged, strict=True):
                each.add(forward(inputs))
        for (at, _), each in zip(block, judged, strict=True):
            yield at, each.told(COMPLETIONS, self._settings.top_k)

    def _completion(self, number: int) -> Callable[[str], Array]:
        """Every unread bit drawn; the same ones for each block of rows."""
        made: dict[str, Array] = {}
        planes, seed = self._planes, self._settings.seed

        def tensor(name: str) -> Array:
            between = planes.between(name)
            if between is None:
                return planes.tensor(name)
            if name not in made:
                low, high = between
                which = int(hash_bytes(name.encode())[:8], 16)
                rng = np.random.default_rng([seed, number, which])
                made[name] = low + rng.random(low.shape) * (high - low)
            return made[name]

        return tensor


@dataclass
class _Judged:
    """A batch: the centre's scores, and how far completions were from their differences.

    `tops`: the first classes; `apart`, `moved`: (rows, tops, classes).
    """

    scores: Floats
    tops: NDArray[np.int64]
    apart: Floats
    moved: Floats

    @classmethod
    def of(cls, scores: Array, top_k: int) -> _Judged:
        tops = first_sets(scores, top_k)
        with np.errstate(all="ignore"):
            apart = _apart(scores, tops)
        return cls(scores, tops, apart, np.zeros(apart.shape))

    def add(self, scores: Array) -> None:
        with np.errstate(all="ignore"):
            self.moved += (_apart(scores, self.tops) - self.apart) ** 2

    def told(self, completions: int, top_k: int) -> Told:
        with np.errstate(all="ignore"):
            far: Flags = self.apart > LEAST * np.sqrt(self.moved / completions)
        inside = np.zeros(self.scores.shape, bool)
        np.put_along_axis(inside, self.tops[:, :1], True, axis=1)
        finite = np.isfinite(self.scores).all(axis=1) & np.isfinite(self.moved).all(axis=(1, 2))
        sure: Flags = np.all(far[:, 0] | inside, axis=1) & finite
        labels = self.tops[:, 0]
        if top_k == 1:
            return Told(labels, sure)
        np.put_along_axis(inside, self.tops, True, axis=1)
        sets: Flags = np.all(far | inside[:, None], axis=(1, 2)) & finite
        return Told(labels, sure, self.tops, sets)


def _apart(scores: Array, tops: NDArray[np.int64]) -> Floats:
    found: Floats = np.take_along_axis(scores, tops, 1)[:, :, None] - scores[:, None, :]
    return found


def _blocks(batches: Batches) -> Iterator[list[tuple[Places, Inputs]]]:
    """Neighbouring batches that share their completions."""
    block: list[tuple[Places, Inputs]] = []
    rows = numbers = 0
    for at, inputs in batches:
        block.append((at, inputs))
        rows += len(at)
        numbers += sum(value.size for value in inputs.values())
        if rows >= ROWS or numbers >= NUMBERS:
            yield block
            block, rows, numbers = [], 0, 0
    if block:
        yield block
