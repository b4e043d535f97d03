"""No label is told that some completion of the unread bits denies.

Small random networks; of each, some planes of every weight are taken for read. For many
completions, random and against the gradient, the norms that a writer would store for them are
worked out anew: then balls must hold what torch computes with that completion, at every node, and
labels that are told must be its.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from benchmarks.progressive.completions import PLANES, Cells, Layout
from dlv.network.bounds.ball import F64, STRICT, Reference
from dlv.network.bounds.interval import Balls, certain
from dlv.network.program import program
from tests.evaluation.progressive.random_nets import RandomNet, random_net
from tests.evaluation.progressive.tight_norms import norms_of

Array = NDArray[Any]


@dataclass
class Count:
    """What was tried: a trial is one row, level and completion."""

    trials: int = 0
    told: int = 0
    wrong: int = 0
    tightest: float = 0.0  # the largest part of a radius that was really used


class Case:
    """A net after some planes of its weights, the same for every completion."""

    def __init__(self, net: RandomNet, layout: Layout, planes: dict[str, int]) -> None:
        self.net = net
        self.cells = {name: Cells(net.tensors[name], layout, k) for name, k in planes.items()}
        self.centre = dict(net.tensors)
        for name, cells in self.cells.items():
            if planes[name] < PLANES[layout]:
                middle = (cells.near.astype(np.float64) + cells.far) / 2
                self.centre[name] = middle
        plain = program(net.network)
        single = [step.result for step in plain.steps]
        self.program = program(net.network, until=single)
        assert [step.fold for step in self.program.steps] == [step.fold for step in plain.steps]
        self.names = single
        inputs = {step.node.name: step.inputs[0][0] for step in self.program.linear}
        values = net.values([name for name in inputs.values() if name != "x"] or [net.scores_of])
        values["x"] = net.x
        self.shapes = {node: values[name].shape[1:] for node, name in inputs.items()}

    def completions(self, rng: np.random.Generator, count: int) -> Iterator[dict[str, Array]]:
        """Random ones, corners, and for some row the furthest and the worst to first order."""
        yield {name: self.net.tensors[name] for name in self.cells}
        order = np.argsort(-self.net.scores(self.centre), axis=1)
        for number in range(count):
            if number % 4 == 0:
                yield {name: cells.random(rng) for name, cells in self.cells.items()}
            elif number % 4 == 1:
                yield {name: cells.ends(rng) for name, cells in self.cells.items()}
            elif number % 4 == 2:
                yield self.furthest(rng)
            else:
                row = int(rng.integers(len(order)))
                slope = self.net.gradients(row, order[row, 0], order[row, 1])
                yield {name: cells.against(slope[name]) for name, cells in self.cells.items()}

    def furthest(self, rng: np.random.Generator) -> dict[str, Array]:
        """That which moves a node's value far from its centre, along what norms measure.

        Of few weights, or of all: what one leaves open is what the next ones' norms stretch.
        """
        name = self.names[int(rng.integers(len(self.names)))]
        row = int(rng.integers(len(self.net.x)))
        centre = {each: self.centre[each] for each in self.cells}
        moving = [each for each in self.cells if rng.random() < 0.5] or list(self.cells)
        found = {**centre, **{each: self.cells[each].random(rng) for each in moving}}
        for _ in range(3):
            pushes = self.net.pushes(row, name, centre, found)
            found = {
                each: self.cells[each].along(np.nan_to_num(pushes[each]))
                if each in moving
                else found[each]
                for each in found
            }
        return {
            each: self.cells[each].along(np.zeros(held.shape)) if each not in moving else held
            for each, held in found.items()
        }

    def balls(self, completion: dict[str, Array], reference: Reference, share: float) -> Balls:
        """In the norms of a completion; of their dW only a share, to see that it is needed."""
        whole = {**self.net.tensors, **completion}
        norms = norms_of(self.program, whole, self.centre, self.shapes)
        for name, each in norms.items():
            assert each.drows is not None
            small = each.dn * share, each.dfro * share, each.drows * share, each.dopn * share
            norms[name] = replace(each, dn=small[0], dfro=small[1], drows=small[2], dopn=small[3])
        centre = self.centre
        return Balls(self.program, lambda name: centre[name].astype(np.float64), norms, reference)

    def check(
        self,
        completion: dict[str, Array],
        count: Count,
        reference: Reference = F64,
        share: float = 1.0,
    ) -> None:
        balls = self.balls(completion, reference, share)
        known = balls.balls({"x": self.net.x})
        dtype = torch.float64 if reference is F64 else torch.float32
        truth = self.net.values(self.names, completion, dtype)
        for name in self.names:
            ball = known[name, 0]
            apart = truth[name] - ball.centre
            used = np.linalg.norm(apart.reshape(len(apart), -1), axis=1)
            assert (used <= ball.radius).all(), f"{name}: {(used - ball.radius).max()}"
            if ball.box is not None:
                assert (np.abs(apart) <= ball.box).all(), f"{name}: its box"
        some = ball.radius > 1e-9 * np.linalg.norm(ball.centre, axis=1)
        if some.any():
            count.tightest = max(count.tightest, float((used / ball.radius)[some].max()))
        scores = truth[self.net.scores_of]
        self._pairs_hold(balls, known, scores)
        for top_k in range(1, scores.shape[1]):
            labels, sure = certain(balls, known, top_k)
            wrong = sure & ~_same_set(known[self.net.scores_of, 0].centre, scores, top_k)
            if top_k == 1:
                wrong |= sure & (labels != scores.argmax(1))
                count.trials += len(sure)
                count.told += int(sure.sum())
            count.wrong += int(wrong.sum())

    def _pairs_hold(self, balls: Balls, known: Any, truth: Array) -> None:
        """The allowance of each pair of classes, beyond what labels need."""
        centre = known[self.net.scores_of, 0].centre
        slack = 1e-9 * (1 + np.abs(centre).max(1, keepdims=True))
        for top in range(centre.shape[1]):
            tops = np.full(len(centre), top)
            moved = (truth[:, [top]] - truth) - (centre[:, [top]] - centre)
            with np.errstate(all="ignore"):
                allowed = balls.allowances(known, tops) + slack
            # NaN allows nothing to be told, and so anything.
            assert not (np.abs(moved) > allowed).any()


def _same_set(centre: Array, scores: Array, top_k: int) -> Array:
    """Rows whose first k scores are those of the centre, with no tie at the border."""
    best = np.argsort(-centre, axis=1, kind="stable")[:, :top_k]
    inside = np.take_along_axis(scores, best, 1).min(1)
    others = scores.copy()
    np.put_along_axis(others, best, -np.inf, 1)
    return np.asarray(inside > others.max(1))


def case_of(seed: int) -> tuple[Case, np.random.Generator]:
    rng = np.random.default_rng([seed, 1])
    net = random_net(seed)
    drawn = rng.random()
    layout: Layout = "halved" if drawn < 0.35 else "fixed" if drawn < 0.7 else "ieee"
    least = 2 if layout == "ieee" else 1
    planes = {name: int(rng.integers(least, PLANES[layout] + 1)) for name in net.matrices}
    return Case(net, layout, planes), rng


def run(seed: int, completions: int, count: Count, share: float = 1.0) -> None:
    case, rng = case_of(seed)
    for completion in case.completions(rng, completions):
        case.check(completion, count, share=share)
        # Batch normalisation that is folded is not what a float32 evaluation computes.
        if not case.net.normalised and share == 1:
            case.check(completion, Count(), STRICT)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 32))
def test_random_nets(seed: int) -> None:
    count = Count()
    run(seed, 4, count)
    assert count.wrong == 0


def test_trials_are_not_vacuous() -> None:
    count = Count()
    for seed in range(25):
        run(seed, 4, count)
    assert count.wrong == 0
    assert count.told > count.trials / 5
    assert count.tightest > 0.5


def test_bounds_that_are_too_small_are_found() -> None:
    """The trials see it when half is missing of the norms of what is unread."""
    found = 0
    for seed in range(25):
        try:
            run(seed, 4, Count(), share=0.5)
        except AssertionError:
            found += 1
    assert found > 5


@pytest.mark.slow
def test_many_random_nets() -> None:
    count = Count()
    for seed in range(1000, 1600):
        run(seed, 8, count)
    assert count.trials >= 100_000
    assert count.wrong == 0
