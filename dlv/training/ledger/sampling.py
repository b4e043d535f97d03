"""Which points of a space are tried: drawn by lot, or suggested by what was found so far.

The same seed gives the same points on every run: nothing is kept between two questions but
what has been found, and each question is answered from that alone.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dlv.dataclass import dataclass
from dlv.errors import require
from dlv.training.ledger.space import Choices, Dimension, Point, Row, Space, Uniform, named

LISTED = 10_000  # points of a space that are looked at one by one
TRIES = 200  # draws before a point that is not there yet is looked for otherwise
_STRIDE = 1_000_003


def drawn(space: Space, n: int, seed: int = 0) -> list[Point]:
    """`n` different points, or all there are: the first ones whatever `n` is."""
    known = _listed(space)
    if known is not None:
        n = min(n, len(known))
    found: list[Point] = []
    seen: set[str] = set()
    for ordinal in range(n):
        point = _fresh(space, seed, ordinal, seen, known)
        if point is None:
            break
        seen.add(named(point))
        found.append(point)
    return found


def _listed(space: Space) -> list[Point] | None:
    """All points of a small space."""
    count = space.count
    return list(space.grid()) if count is not None and count <= LISTED else None


def _fresh(
    space: Space, seed: int, ordinal: int, used: set[str], known: Sequence[Point] | None
) -> Point | None:
    """A point that is not there yet, from the numbers of (seed, ordinal)."""
    numbers = _numbers(seed, ordinal)
    for _ in range(TRIES):
        point = space.point(lambda _, dimension: _drawn(dimension, numbers))
        if named(point) not in used:
            return point
    return next((each for each in known or () if named(each) not in used), None)


def _numbers(seed: int, ordinal: int) -> Iterator[float]:
    """Numbers in 0 .. 1 from Philox, whose raw words numpy promises to keep."""
    words = np.random.Philox(key=(seed % (1 << 64)) << 64 | ordinal)
    while True:
        yield (int(words.random_raw()) >> 11) * 2.0**-53


def _drawn(dimension: Dimension, numbers: Iterator[float]) -> Row:
    share, domain = next(numbers), dimension.domain
    if isinstance(domain, Choices):
        return domain.rows[int(share * len(domain.rows))]
    if not isinstance(domain, Uniform):
        return (domain.low + int(share * (domain.high - domain.low + 1)),)
    if not domain.log:
        return (domain.low + share * (domain.high - domain.low),)
    low, high = math.log(domain.low), math.log(domain.high)
    return (min(max(math.exp(low + share * (high - low)), domain.low), domain.high),)


# By what was found: Optuna's estimator


@dataclass(frozen=True)
class TriedPoint:
    """A point that was tried. `value`: None if it failed."""

    point: Point
    value: float | None


@dataclass(frozen=True)
class Suggesting:
    """Points by a tree-structured Parzen estimator. `direction`: "min" or "max"."""

    space: Space
    direction: str
    seed: int = 0

    def batch(self, tried: Sequence[TriedPoint], size: int) -> list[Point]:
        """The next points, none of which was there: fewer only where there are no more.

        `tried` in the order in which they were asked.
        """
        known = _listed(self.space)
        seen = {named(each.point) for each in tried}
        found: list[Point] = []
        while len(found) < size:
            asked = len(tried) + len(found)
            point: Point | None = self._suggest(tried, found, asked)
            if point is None or named(point) in seen:
                point = _fresh(self.space, self.seed, asked, seen, known)
            if point is None:
                break
            seen.add(named(point))
            found.append(point)
        return found

    def _suggest(self, tried: Sequence[TriedPoint], waiting: Sequence[Point], number: int) -> Point:
        optuna = _optuna()
        seed = (self.seed * _STRIDE + number) % (1 << 32)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is experimental
            sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
            direction = "maximize" if self.direction == "max" else "minimize"
            study = optuna.create_study(direction=direction, sampler=sampler)
            for each in tried:
                study.add_trial(self._trial(optuna, each.point, each.value, running=False))
            for point in waiting:
                study.add_trial(self._trial(optuna, point, None, running=True))
            trial = study.ask()
            return self.space.point(lambda place, one: _suggested(trial, place, one))

    def _trial(self, optuna: Any, point: Point, value: float | None, *, running: bool) -> Any:
        states = optuna.trial.TrialState
        done = states.FAIL if value is None else states.COMPLETE
        parameters: dict[str, Any] = {}
        distributions: dict[str, Any] = {}
        for place, (dimension, row) in enumerate(zip(self.space.dimensions, point, strict=True)):
            if row is not None:
                known = _distribution(optuna, dimension)
                distributions[str(place)] = known
                domain = dimension.domain
                parameters[str(place)] = (
                    _index(domain, row) if isinstance(domain, Choices) else row[0]
                )
        return optuna.trial.create_trial(
            params=parameters,
            distributions=distributions,
            value=value,
            state=states.RUNNING if running else done,
        )


def _index(domain: Choices, row: Row) -> int:
    wanted = named((row,))
    return next(at for at, each in enumerate(domain.rows) if named((each,)) == wanted)


def _distribution(optuna: Any, dimension: Dimension) -> Any:
    domain, kinds = dimension.domain, optuna.distributions
    if isinstance(domain, Choices):
        return kinds.CategoricalDistribution(tuple(range(len(domain.rows))))
    if isinstance(domain, Uniform):
        return kinds.FloatDistribution(domain.low, domain.high, log=domain.log)
    return kinds.IntDistribution(domain.low, domain.high)


def _suggested(trial: Any, place: int, dimension: Dimension) -> Row:
    domain, name = dimension.domain, str(place)
    if isinstance(domain, Choices):
        return domain.rows[trial.suggest_categorical(name, tuple(range(len(domain.rows))))]
    if isinstance(domain, Uniform):
        return (trial.suggest_float(name, domain.low, domain.high, log=domain.log),)
    return (trial.suggest_int(name, domain.low, domain.high),)


def _optuna() -> Any:
    optuna = require("optuna", "optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
