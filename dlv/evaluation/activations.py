"""`desc --activations`: what nodes compute on data, exactly or bounded from the first planes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import dlv.weights.bounds as bounds
from dlv.adapters.data.columns import Spooled
from dlv.dataclass import dataclass
from dlv.errors import UsageError
from dlv.evaluation.answers import BATCH, NoBounds, check_output, write_activations
from dlv.evaluation.data import Rows, find_data, open_source, read_settings, wanted_inputs
from dlv.evaluation.model import Model
from dlv.evaluation.planes import Planes
from dlv.evaluation.progressive import depths_of, norms_of, suffix_of
from dlv.kinds import Array
from dlv.network.bounds.interval import Balls
from dlv.network.forward import Forward
from dlv.network.ops.op import NoRule
from dlv.network.program import program
from dlv.repository.handle import Repository
from dlv.weights.bounds import Record

Values = dict[str, tuple[Array, Array | None]]  # and radii


@dataclass
class Request:
    """`planes`: so many of each matrix are read; `out`: an npz for the values themselves."""

    nodes: Sequence[str]
    data: str | None
    directory: Path
    sets: Sequence[str] = ()
    planes: int | None = None
    out: Path | None = None
    force: bool = False
    progress: Callable[[int], None] = lambda _: None


@dataclass
class Figures:
    """Of a node's values over all rows; those that are not finite are only counted.

    `radius`: how far a row may at most be from what all of the weights give (L2), the mean over
    the rows and the greatest; None where all was read.
    """

    node: str
    shape: tuple[int, ...] = ()
    rows: int = 0
    low: float = math.inf
    high: float = -math.inf
    total: float = 0.0
    squares: float = 0.0
    count: int = 0
    zeros: int = 0
    not_finite: int = 0
    radius: tuple[float, float] | None = None

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    @property
    def std(self) -> float | None:
        if not self.count:
            return None
        return math.sqrt(max(self.squares / self.count - (self.total / self.count) ** 2, 0.0))

    def add(self, values: Array, radius: Array | None) -> None:
        """The values of further rows."""
        self.shape, self.rows = values.shape[1:], self.rows + len(values)
        numbers = values[np.isfinite(values)].astype(np.float64)
        self.not_finite += values.size - numbers.size
        self.count += numbers.size
        self.zeros += int((numbers == 0).sum())
        if numbers.size:
            self.low, self.high = min(self.low, numbers.min()), max(self.high, numbers.max())
            self.total += float(numbers.sum())
            self.squares += float((numbers**2).sum())
        if radius is not None:
            mean, most = self.radius or (0.0, 0.0)
            share = len(values) / self.rows
            self.radius = (
                mean + (float(radius.mean()) - mean) * share,
                max(most, float(radius.max())),
            )


@dataclass
class Activations:
    nodes: list[Figures]
    data: str
    rows: int
    bytes_read: int
    written: Path | None


def activations(repository: Repository, reference: str, request: Request) -> Activations:
    """What these nodes compute for every row of the data."""
    if request.out is not None:
        check_output(request.directory / request.out, (".npz",), force=request.force)
    asked = read_settings(None, request.sets)
    model = Model.of(repository, reference, until=request.nodes)
    source = find_data(repository, request.data, [reference], request.directory)
    data = open_source(
        repository, source, asked.data, wanted_inputs(model.program), request.directory
    )
    rows = Rows(model.program, data)
    planes = Planes(model.store, model.hashes, model.aliases)
    found = {name: Figures(name) for name in model.program.kept}
    columns: dict[str, Spooled] = {}
    batches = (
        _exact(model, planes, rows)
        if request.planes is None
        else _bounded(model, planes, rows, request.planes)
    )
    for values, count in batches:
        for name, (centre, radius) in values.items():
            found[name].add(centre, radius)
            if request.out is not None:
                _keep(columns, name, centre)
                if radius is not None:
                    _keep(columns, f"{name}.radius", radius)
        request.progress(count)
    path = None
    if request.out is not None:
        path = request.directory / request.out
        write_activations(path, columns)
    return Activations(list(found.values()), data.name, rows.count, planes.bytes_read, path)


def _tensors_of(model: Model, planes: Planes) -> Callable[[str], Array]:
    """Return a function for the numbers of a tensor that was read."""

    def tensor(name: str) -> Array:
        empty = not np.prod(model.shapes[model.aliases.get(name, name)][1], dtype=object)
        return model.tensor(name) if empty else planes.tensor(name)

    return tensor


def _exact(model: Model, planes: Planes, rows: Rows) -> Iterator[tuple[Values, int]]:
    planes.read({name: planes.planes(name) for name in planes.names})
    forward = Forward(model.program, _tensors_of(model, planes))
    for batch in rows.batches(BATCH):
        known = forward.values(batch.inputs)
        values: Values = {n: (known[port], None) for n, port in model.program.kept.items()}
        yield values, batch.count


def _bounded(model: Model, planes: Planes, rows: Rows, count: int) -> Iterator[tuple[Values, int]]:
    """Centres and radii, as far as `count` planes tell them."""
    record = bounds.record_of(
        model.repository.database, model.store, model.manifest, model.snapshot
    )
    if not isinstance(record, Record):
        raise UsageError(
            f"the activations of {model.label} have no bounds after {count} byte planes",
            why=record.why,
            hint=f"dlv archive --bounds {model.version.label}",
        )
    _check_folds(model)
    suffix_of(record, model.program, planes)  # that it fits, though its norms alone are used
    asked = replace(record, schedule=(dict.fromkeys(model.hashes, count),))
    try:
        planes.read(depths_of(asked, model.program, planes)[0])
        balls: dict[Any, Balls] = {}
        for batch in rows.batches(BATCH):
            shapes = tuple(
                batch.inputs[item.name].shape[1:]
                for item in model.network.inputs
                if item.name in batch.inputs
            )
            if shapes not in balls:
                norms = norms_of(record, model.program, planes, shapes)
                balls[shapes] = Balls(model.program, planes.tensor, norms)
            known = balls[shapes].balls(batch.inputs)
            kept = {name: known[port] for name, port in model.program.kept.items()}
            yield {name: (ball.centre, ball.radius) for name, ball in kept.items()}, batch.count
    except (NoRule, NoBounds) as error:
        raise UsageError(
            f"the activations of {model.label} have no bounds after {count} byte planes",
            why=str(error),
            hint="without --planes they are exact",
        ) from error


def _check_folds(model: Model) -> None:
    """The stored norms are of weights with the normalisation behind them folded in."""
    usual = {s.node.name: s.fold for s in program(model.network, model.shapes).steps}
    for step in model.program.steps:
        fold = usual.get(step.node.name)
        if fold is not None and step.fold is None:
            raise UsageError(
                f"`{step.node.name}` has no bounds",
                why=f"it is fused with the following normalization, `{fold.name}`",
                hint=f"--activations {fold.name}",
            )


def _keep(columns: dict[str, Spooled], name: str, values: Array) -> None:
    if name not in columns:
        columns[name] = Spooled(name, values.dtype, values.shape[1:])
    columns[name].add(values)
