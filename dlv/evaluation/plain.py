"""The full evaluation: all weights are read, and every row is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

import dlv.evaluation.engines as engines
from dlv.adapters.data.columns import Spooled
from dlv.errors import UsageError
from dlv.evaluation.model import Model
from dlv.evaluation.outcome import Evaluation
from dlv.evaluation.planes import Planes
from dlv.evaluation.rows import Rows
from dlv.evaluation.scores import Tally
from dlv.kinds import Array
from dlv.network.graph import Port

BATCH = 64

PRECISIONS = {"float64": "f64", "float32": "float32"}  # and what their labels are called


@dataclass(frozen=True)
class Watched:
    """How far it is, for a progress bar."""

    rows: int
    done: int
    bytes_read: int


@dataclass
class Options:
    """How to compute. `keep`: nodes whose values are wanted; they come as `Kept.columns`."""

    precision: str = "float64"
    engine: str = "numpy"
    batch: int = BATCH
    top_k: int = 1
    watch: Callable[[Watched], None] = lambda _: None


@dataclass
class Kept:
    """Values of nodes, a row for each example."""

    columns: dict[str, Spooled] = field(default_factory=dict)

    def add(self, name: str, port: Port, values: Mapping[Port, Array], count: int) -> None:
        found = values[port]
        if not found.ndim or len(found) != count:
            raise UsageError(
                f"the values of `{name}` are no rows", why=f"their shape is {found.shape}"
            )
        if name not in self.columns:
            self.columns[name] = Spooled(name, found.dtype, found.shape[1:])
        if self.columns[name].shape != found.shape[1:]:
            raise UsageError(f"the values of `{name}` have different shapes from row to row")
        self.columns[name].add(found)


def evaluate(model: Model, rows: Rows, options: Options, kept: Kept | None = None) -> Evaluation:
    """Labels and figures of every row, from all of the weights."""
    planes = Planes(model.store, model.hashes, model.aliases)
    found = Evaluation(
        *(model.label, model.id, model.step, rows.count, np.empty(0, np.int64)),
        top_k=options.top_k,
        reference=PRECISIONS[options.precision],
        engine=options.engine,
        raw_whole=model.raw_whole,
    )
    for name in planes.names:
        planes.read({name: planes.planes(name)})
        options.watch(Watched(rows.count, 0, planes.bytes_read))

    tensor = tensors_of(model, planes)
    made = engines.engine(options.engine, model.program, tensor, options.precision)
    tally = Tally(rows, options.top_k)
    program, done = model.program, 0
    for batch in rows.batches(options.batch):
        computed = made.values(batch.inputs)
        tally.add(computed[program.scores], batch.labels)
        for name, port in program.kept.items() if kept is not None else ():
            assert kept is not None
            kept.add(name, port, computed, batch.count)
        done += batch.count
        options.watch(Watched(rows.count, done, planes.bytes_read))
    tally.finish(found)
    found.classes = rows.data.classes
    found.bytes_read = found.bytes_whole = planes.bytes_read
    found.raw_read = found.raw_whole
    return found


def tensors_of(model: Model, planes: Planes) -> Callable[[str], Array]:
    """The numbers of tensors that were read; those without elements have no planes."""

    def tensor(name: str) -> Array:
        empty = not np.prod(model.shapes[model.aliases.get(name, name)][1], dtype=object)
        return model.tensor(name) if empty else planes.tensor(name)

    return tensor
