"""Trials: what would be told if the unread bits were other ones, and whether it would be right.

A trial is one row, one level and one completion of the weights' unread bits: random ones, and for
some row the worst to first order. What a writer would store with that completion, norms and the
tables of the suffix metric, is worked out anew, so that the planes read and what is stored beside
them are those of a weight that may well exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import dlv.weights.bounds as bounds
from benchmarks.progressive.completions import Cells
from benchmarks.progressive.measure import Committed
from benchmarks.progressive.nets import module_of
from benchmarks.progressive.norms import Tensor, norms_of
from dlv.evaluation.model import Model
from dlv.evaluation.planes import Planes
from dlv.evaluation.progressive import depths_of, planes_of
from dlv.network.bounds.ball import Norms
from dlv.network.bounds.interval import Balls, certain
from dlv.network.bounds.schedule import Weights
from dlv.network.inference import node_shapes
from dlv.network.suffix.metric import suffix_of
from dlv.network.suffix.radius import Read, SuffixBalls
from dlv.repository.handle import Repository

Array = NDArray[Any]

# Of the search for tables of the suffix metric: any tables are sound, and fewer steps are faster.
STEPS = 2
ROWS = 40


@dataclass
class Tried:
    """`used`: the largest part of an allowance between two scores that a completion took up."""

    trials: int = 0
    told: int = 0
    wrong: int = 0
    pairs: int = 0
    violated: int = 0
    used: float = 0.0

    def add(self, other: Tried) -> None:
        self.trials += other.trials
        self.told += other.told
        self.wrong += other.wrong
        self.pairs += other.pairs
        self.violated += other.violated
        self.used = max(self.used, other.used)

    @property
    def text(self) -> str:
        return (
            f"{self.trials} trials (row, level, completion), {self.told} told, {self.wrong} wrong;"
            f" {self.violated} of {self.pairs} pairs of scores beyond their bound,"
            f" at most {self.used:.3f} of it used"
        )


def tried(committed: Committed, completions: int, seed: int) -> Tried:
    """Every partial level of the stored schedule, with so many completions each."""
    found = Tried()
    with Repository.find(committed.folder) as repository:
        model = Model.of(repository, committed.net.name)
        record = bounds.record_of(repository.database, model.store, model.manifest, model.snapshot)
        if isinstance(record, bounds.NoRecord):
            raise SystemExit(f"{committed.net.title}: {record.why}")
        planes = planes_of(model, intervals=True)
        for number, depths in enumerate(depths_of(record, model.program, planes)):
            if all(depths[name] >= planes.planes(name) for name in planes.names):
                continue
            planes.read(depths)
            rng = np.random.default_rng([seed, number])
            level = _Level(committed, model, planes, suffix=record.suffix is not None)
            for completion in level.completions(rng, completions):
                level.check(completion, found)
        model.store.close()
    return found


class _Completed(Weights):
    """A completion as a writer has it; what is read of it is the same for all."""

    def __init__(self, whole: Tensor, centre: Tensor) -> None:
        self._whole = whole
        self._centre = centre

    def tensor(self, name: str, planes: int | None) -> Array:
        return self._whole(name) if planes is None else self._centre(name)


class _Level:
    """The planes of one level, and the rows: those of the test, and mixes of them."""

    def __init__(self, committed: Committed, model: Model, planes: Planes, *, suffix: bool) -> None:
        self.suffix = suffix
        self.committed = committed
        self.model = model
        self.planes = planes
        self.x = np.concatenate([committed.data.test_x, committed.data.mixes()])
        self.cells = {}
        for name in planes.names:
            if not planes.whole(name):
                layout: Any = planes.chain(name)[0].layout["id"]
                weights = committed.model[name].array()
                self.cells[name] = Cells(weights, layout, planes.depths[name])
        shapes = node_shapes(model.network, dict(model.shapes))
        self.sides = {}
        for step in model.program.linear:
            shape = shapes[step.inputs[0][0]][0]
            if step.node.op == "CONV" and shape is not None:
                height, width = shape[2:]
                assert isinstance(height, int)
                assert isinstance(width, int)
                self.sides[step.node.name] = height, width
        at_centre = {name: planes.tensor(name) for name in self.cells}
        self.module = self._module(at_centre)
        with torch.no_grad():
            self.order = np.argsort(-self.module(torch.from_numpy(self.x).double()).numpy(), axis=1)

    def completions(self, rng: np.random.Generator, count: int) -> Iterator[Mapping[str, Array]]:
        for number in range(count):
            if number % 4 == 2:
                yield {name: cells.random(rng) for name, cells in self.cells.items()}
            elif number % 4 == 3:
                yield {name: cells.ends(rng) for name, cells in self.cells.items()}
            else:
                yield self._worst(int(rng.integers(len(self.x))))

    def _worst(self, row: int) -> Mapping[str, Array]:
        """That which most lowers the first score of a row below the second, to first order."""
        first, second = (int(place) for place in self.order[row, :2])
        self.module.zero_grad()
        scores = self.module(torch.from_numpy(self.x[row : row + 1]).double())[0]
        (scores[first] - scores[second]).backward()
        held: Mapping[str, Any] = dict(self.module.named_parameters())
        return {name: cells.against(held[name].grad.numpy()) for name, cells in self.cells.items()}

    def _module(self, changed: Mapping[str, Array]) -> Any:
        held = {**self.committed.model}
        module = module_of(self.committed.net, held).double()
        tensors = module.state_dict()
        for name, values in changed.items():
            tensors[name].copy_(torch.from_numpy(values.astype(np.float64)))
        return module

    def _balls(self, whole: Tensor, norms: Mapping[str, Norms]) -> Balls:
        program, planes = self.model.program, self.planes
        if not self.suffix:
            return Balls(program, planes.tensor, norms)
        weights = _Completed(whole, planes.tensor)
        depths = {name: [planes.depths[name]] for name in self.cells}
        rows = {"x": self.committed.data.calibration[:ROWS]}
        made, _ = suffix_of(program, weights, depths, rows, steps=STEPS)
        read = {
            step.result: None if planes.whole(name) else planes.depths[name]
            for step in program.linear
            for name in [step.node.params["weight"]]
        }
        return SuffixBalls(program, planes.tensor, norms, Read(made, read))

    def check(self, completion: Mapping[str, Array], found: Tried) -> None:
        for name, values in completion.items():
            between = self.planes.between(name)
            if between is None or (values < between[0]).any() or (values > between[1]).any():
                raise SystemExit(f"{name}: dlv bounds it otherwise than the format says")

        def whole(name: str) -> Array:
            if name in completion:
                return completion[name].astype(np.float64)
            return self.planes.tensor(name)

        norms = norms_of(self.model.program, whole, self.planes.tensor, self.sides)
        balls = self._balls(whole, norms)
        with torch.no_grad():
            truth = self._module(completion)(torch.from_numpy(self.x).double()).numpy()
        for start in range(0, len(self.x), 64):
            part = truth[start : start + 64]
            known = balls.balls({"x": self.x[start : start + 64]})
            labels, sure = certain(balls, known)
            centre = known[self.model.program.scores].centre
            moved = np.abs(
                part[np.arange(len(part)), labels][:, None]
                - part
                - (centre[np.arange(len(part)), labels][:, None] - centre)
            )
            allowed = balls.allowances(known, labels) + 1e-9 * (1 + np.abs(centre).max())
            found.trials += len(part)
            found.told += int(sure.sum())
            found.wrong += int((sure & (labels != part.argmax(1))).sum())
            found.pairs += moved.size
            found.violated += int((moved > allowed).sum())
            found.used = max(found.used, float((moved / allowed).max()))
