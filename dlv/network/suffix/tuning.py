"""The parameters of the form, tuned so that weights need the fewest bits.

A layer whose share of the error is c times 2^-bits needs log2(c) bits more than others, each
bit as often as it has weights: the mean of log2(c) over all weights is brought down by Adam.
Whatever comes out is sound: the form is made anew from it, on a torus that is large enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from dlv.dataclass import dataclass
from dlv.kinds import Array
from dlv.network.bounds.schedule import Inputs
from dlv.network.suffix.errors import head_of, over_torus
from dlv.network.suffix.form import Gradients, Parameters, RoughPeaks, dagger, walk
from dlv.network.suffix.habits import Habit, Source, habits, scaled_steps, steps_of
from dlv.network.suffix.plan import Plan, Through, Told
from dlv.network.suffix.torus import Torus, Window

COARSE = 6  # sides of the tori while tuning
STEPS = 12
RATE = 0.15
THETA = 0.25  # at the start: near the best value for most layers


@dataclass(frozen=True)
class Samples:
    """By step: the weight; a sample of its unread part, as (out, in, *kernel), and its size."""

    whole: Mapping[str, Array]
    unread: Mapping[str, Array]
    counts: Mapping[str, int]
    habits: Mapping[str, Habit]

    @classmethod
    def of(cls, plan: Plan, source: Source, usual: Mapping[str, Habit]) -> Samples:
        """What the first planes leave open."""
        linear = steps_of(plan)
        return cls(
            {result: source.whole(step) for result, step in scaled_steps(plan)},
            {
                result: source.open_at(step, min(source.open_depths(step)))
                for result, step in linear
                if source.open_depths(step)
            },
            {result: prod(source.whole(step).shape) for result, step in linear},
            usual,
        )

    def centred(self, name: str) -> Array:
        """The unread part without what a correction takes off it."""
        dw, scale, usual = self.unread[name], *self._usual(name)
        along = np.einsum("oi...,ri->or...", dw, usual / scale)
        found: Array = dw - np.einsum("or...,ri->oi...", along, usual * scale)
        return found

    def power(self, name: str) -> Array:
        """Mean square of each channel, without the same."""
        return self.habits[name].left(*self._usual(name))

    def _usual(self, name: str) -> tuple[Array, Array]:
        habit, scale = self.habits[name], np.exp2(self.habits[name].start)
        return scale, habit.directions(scale, habit.rank(scale, self.unread[name].shape))


@dataclass(frozen=True)
class Tuning:
    """What a suffix is made with, beside weights and their planes."""

    usual: Mapping[str, Habit]
    parameters: Parameters
    a: Mapping[str, Array]


def tuning_of(plan: Plan, source: Source, rows: Inputs, steps: int = STEPS) -> Tuning:
    """By the weights and what their first planes leave open; LinAlgError."""
    usual = habits(source.program, source.weights, rows)
    samples = Samples.of(plan, source, usual)
    a: Mapping[str, Array] = {result: usual[result].start for result in samples.unread}
    parameters = start(plan)
    if a and steps:
        head = head_of(source.whole(plan.last))
        for kind in (np.float32, np.float64):
            found = tuned(Objective(plan, samples, head, kind), parameters, a, steps)
            if found is not None:
                parameters, a = found
                break
    return Tuning(usual, parameters, a)


def start(plan: Plan) -> Parameters:
    """p = 1 and the same theta everywhere."""
    return Parameters(
        {key: np.zeros(size) for key, size in plan.sizes.items()},
        {key: THETA for key in plan.sizes if not key.endswith("/in")},
    )


def coarse(plan: Plan) -> tuple[Torus, ...]:
    return tuple(Torus(tuple(min(n, COARSE) for n in torus.sides)) for torus in plan.tori)


class Objective:
    """Mean log2 of the shares, and its derivatives, computed in one kind of float."""

    def __init__(
        self, plan: Plan, samples: Samples, head: Array, kind: type[np.floating[Any]] = np.float64
    ) -> None:
        self._plan, self._samples = plan, samples
        self._kind = np.dtype(kind)
        self._head = head.astype(kind)
        self._tori = coarse(plan)
        self._peaks = RoughPeaks()
        self._through: dict[str, Array] = {}
        self._unread: dict[str, Array] = {}
        self._power = {name: samples.power(name) for name in samples.unread}
        self._total = sum(samples.counts.values())

    def __call__(self, parameters: Parameters, a: Mapping[str, Array]) -> tuple[float, Gradients]:
        self._sum = 0.0
        own = Gradients()

        def tell(move: Told, block: Array, torus: Torus) -> Array | None:
            name = move.step.result
            if name not in self._samples.unread:
                return None
            share = self._samples.counts[name] / self._total
            if name not in self._unread:
                dw = self._samples.centred(name)
                self._unread[name] = self._over(dw, move.window, torus)
            scale = np.exp2(-a[name]).astype(self._kind)
            dw = self._unread[name]
            x = dw * np.tile(scale, dw.shape[2] // len(scale))
            back = dagger(x)
            shape = (max(len(x), len(block)), x.shape[2])
            kind = np.result_type(x, block)
            value, at, v = self._peaks.of_map(
                f"felt {name}", shape, kind, lambda v: back @ (block @ (x @ v))
            )
            if not value > 0:
                return None
            u = x[min(at, len(x) - 1)] @ v
            power = self._power[name] * np.exp2(2 * a[name])
            self._sum += 0.5 * share * (np.log2(value) + np.log2(power.sum()))
            inner = np.abs(v) ** 2
            inner = inner.reshape(-1, len(scale)).sum(axis=0)
            own.add(f"a {name}", share * (power / power.sum() - inner))
            gradient = np.zeros(block.shape, np.result_type(block, u))
            gradient[min(at, len(block) - 1)] = 0.5 * share / value * np.outer(u, u.conj())
            return gradient

        def through(move: Through | Told, torus: Torus) -> Array:
            name = move.step.result
            if name not in self._through:
                weight = self._samples.whole[name]
                self._through[name] = self._over(weight, move.window, torus)
            return self._through[name]

        traced = walk(self._plan, self._head, parameters, through, tell, self._peaks, self._tori)
        found = traced()
        found.p.update(own.p)
        return self._sum, found

    def _over(self, weight: Array, window: Window | None, torus: Torus) -> Array:
        found = over_torus(weight, window, torus)
        complex_kind = np.result_type(self._kind, np.complex64)
        return found.astype(complex_kind if found.dtype.kind == "c" else self._kind)


def tuned(
    objective: Callable[[Parameters, Mapping[str, Array]], tuple[float, Gradients]],
    parameters: Parameters,
    a: Mapping[str, Array],
    steps: int = STEPS,
) -> tuple[Parameters, dict[str, Array]] | None:
    """Return the best parameters that Adam passes; None if the first value is not finite."""
    names = [*(f"p {k}" for k in parameters.p), *(f"theta {k}" for k in parameters.theta)]
    names += [f"a {k}" for k in a]
    at: dict[str, Array] = {f"p {k}": v.copy() for k, v in parameters.p.items()}
    at |= {f"theta {k}": np.log2(np.array(v)) for k, v in parameters.theta.items()}
    at |= {f"a {k}": v.copy() for k, v in a.items()}
    first = {name: np.zeros_like(at[name]) for name in names}
    second = {name: np.zeros_like(at[name]) for name in names}
    best, lowest = None, np.inf
    for number in range(steps + 1):
        parameters, a = _parts(at)
        value, gradients = objective(parameters, a)
        if not np.isfinite(value):
            break
        if value < lowest:
            best, lowest = (parameters, dict(a)), value
        rate = RATE * (1 - number / (steps + 1))
        for name in names:
            kind, key = name.split(" ", 1)
            if kind == "theta":
                slope = np.array(gradients.theta.get(key, 0.0)) * parameters.theta[key]
            else:
                slope = np.asarray(gradients.p.get(key if kind == "p" else name, 0.0))
            first[name] = 0.9 * first[name] + 0.1 * slope
            second[name] = 0.98 * second[name] + 0.02 * slope**2
            up = first[name] / (1 - 0.9 ** (number + 1))
            size = np.sqrt(second[name] / (1 - 0.98 ** (number + 1)))
            at[name] = at[name] - rate * up / (size + 1e-12)
    return best


def _parts(at: Mapping[str, Array]) -> tuple[Parameters, dict[str, Array]]:
    parts: dict[str, dict[str, Array]] = {"p": {}, "theta": {}, "a": {}}
    for name, value in at.items():
        kind, key = name.split(" ", 1)
        parts[kind][key] = value
    theta = {key: float(np.exp2(value)) for key, value in parts["theta"].items()}
    return Parameters({k: v.copy() for k, v in parts["p"].items()}, theta), {
        k: v.copy() for k, v in parts["a"].items()
    }
