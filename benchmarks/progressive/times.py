"""How long it takes, beside loading everything and running it once in the same precision."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import dlv.weights.bounds as bounds
from benchmarks.progressive.measure import Committed, ratio
from dlv.adapters.data.columns import Held
from dlv.adapters.data.sets import Data
from dlv.evaluation import evaluate
from dlv.evaluation.answers import Settings
from dlv.evaluation.data import Rows
from dlv.evaluation.model import Model
from dlv.evaluation.progressive import (
    depths_of,
    depths_read,
    norms_of,
    planes_of,
    progressive,
    suffix_of,
)
from dlv.network.bounds.interval import Balls, certain
from dlv.network.forward import Forward
from dlv.network.suffix.radius import Read, SuffixBalls
from dlv.repository.handle import Repository

Array = NDArray[Any]

BATCHES = (1, 8, 64, 540)
ROUNDS = {1: 25, 8: 15, 64: 7, 540: 3}


def against_load_and_full(committed: Committed) -> dict[int, float]:
    """By the number of rows: seconds of a progressive evaluation / of loading everything and
    running it once, both in float64, the median of the ratios. Other rows each time.

    The repository is open and its network read; the record of the bounds is not.
    """
    found = {}
    rng = np.random.default_rng(0)
    with Repository.find(committed.folder) as repository:

        def opened() -> Model:
            return Model.of(repository, committed.net.name)

        for batch in BATCHES:
            given = []
            for _ in range(ROUNDS[batch]):
                chosen = np.sort(rng.permutation(len(committed.data.test_x))[:batch])
                given.append((committed.data.test_x[chosen], opened(), opened()))
            found[batch], _ = ratio(_progressive, _plain, given)
            for _, one, other in given:
                one.store.close()
                other.store.close()
    return found


Given = tuple[Array, Model, Model]


def _progressive(given: Given) -> None:
    x, model, _ = given
    record = bounds.record_of(
        model.repository.database, model.store, model.manifest, model.snapshot
    )
    progressive(model, _rows(model, x), Settings(), record)


def _plain(given: Given) -> None:
    x, _, model = given
    evaluate.evaluate_fully(model, _rows(model, x), evaluate.Options(precision="float64"))


def _rows(model: Model, x: Array) -> Rows:
    return Rows(model.program, Data("rows", {"x": Held("x", x)}, None, len(x), None))


def passes(committed: Committed, batch: int = 64, rounds: int = 15) -> float | None:
    """Seconds of a pass with bounds and its test / of a plain pass in float64, the median."""
    with Repository.find(committed.folder) as repository:
        model = Model.of(repository, committed.net.name)
        record = bounds.record_of(repository.database, model.store, model.manifest, model.snapshot)
        if isinstance(record, bounds.NoRecord):
            return None
        planes = planes_of(model)
        planes.read(depths_of(record, model.program, planes)[0])
        inputs = {"x": committed.data.test_x[:batch]}
        norms = norms_of(record, model.program, planes, (inputs["x"].shape[1:],))
        balls = Balls(model.program, planes.tensor, norms)
        suffix = suffix_of(record, model.program, planes)
        if suffix is not None:  # what a reader uses then
            read = Read(suffix, depths_read(model.program, planes))
            balls = SuffixBalls(model.program, planes.tensor, norms, read)
        plain = Forward(model.program, planes.tensor, np.float64)
        certain(balls, balls.balls(inputs))
        plain(inputs)
        found, _ = ratio(
            lambda x: certain(balls, balls.balls(x)), lambda x: plain(x), [inputs] * rounds
        )
        model.store.close()
    return found
