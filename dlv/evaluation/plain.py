"""The full evaluation: all weights are read, and every row is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

import dlv.evaluation.engines as engines
from dlv.adapters.data.columns import Spooled
from dlv.errors import UsageError
from dlv.evaluation.answers import OPEN, Confusion, Evaluation, first_labels, first_sets
from dlv.evaluation.model import Model
from dlv.evaluation.planes import Planes
from dlv.evaluation.rows import Rows
from dlv.kinds import Array
from dlv.network.graph import Port
from dlv.network.sizes import text

Labels = NDArray[np.int64]
MOST_CONFUSED = 4096  # classes


@dataclass
class Tally:
    """Figures summed up batch by batch. `classes` is None where the network predicts values."""

    rows: Rows
    top_k: int = 1
    classes: int | None = None
    loss: float = 0.0
    squares: float = 0.0
    values: int = 0
    begun: bool = False
    labels: list[Labels] = field(default_factory=list)
    sets: list[Labels] = field(default_factory=list)
    not_finite: int = 0

    def add(self, scores: Array, truth: Array | None) -> None:
        """The scores of the next rows."""
        if not self.begun:
            self.begin(scores.shape[1:])
        scores = np.asarray(scores, np.float64)
        if self.classes is None:
            self.labels.append(np.full(len(scores), OPEN, np.int64))
            if truth is not None:
                with np.errstate(all="ignore"):
                    wrong = scores.reshape(len(scores), -1) - truth.reshape(len(scores), -1)
                    self.squares += float((wrong**2).sum())
                self.values += wrong.size
            return
        known = np.logical_not(np.isnan(scores).any(axis=1))
        self.not_finite += int((~known).sum())
        self.labels.append(np.where(known, first_labels(scores), OPEN))
        if self.top_k > 1:
            self.sets.append(np.where(known[:, None], first_sets(scores, self.top_k), OPEN))
        if truth is not None:
            self.loss += float(cross_entropy(scores, truth.astype(np.int64)).sum())

    def begin(self, shape: tuple[int, ...]) -> None:
        """What the scores of one row look like decides what can be told of them."""
        self.begun = True
        self.classes = classes_of(shape, self.rows, self.top_k)
        if self.classes is not None:
            self.rows.check_classes(self.classes)

    def finish(self, found: Evaluation) -> None:
        """Put labels and figures into an evaluation."""
        found.labels = np.concatenate(self.labels)
        found.not_finite = self.not_finite
        found.evaluated = found.rows - self.not_finite
        found.class_count = self.classes
        if self.classes is None:
            if self.rows.has_labels:
                found.metrics["mse"] = self.squares / self.values
            return
        if self.top_k > 1:
            found.sets = np.concatenate(self.sets)
        set_accuracy(found, self.rows)
        if self.rows.has_labels:
            found.metrics["loss"] = self.loss / found.rows


def classes_of(shape: tuple[int, ...], rows: Rows, top_k: int = 1) -> int | None:
    """How many classes the scores of a row tell apart; None where they are values."""
    column = rows.data.labels
    if len(shape) == 1 and shape[0] > 1 and (column is None or column.shape == ()):
        if top_k > shape[0]:
            raise UsageError(f"--top-k {top_k} of {shape[0]} classes", why="there are not so many")
        return shape[0]
    if (
        column is not None
        and column.shape != shape
        and not (column.shape == () and int(np.prod(shape)) == 1)
    ):
        raise UsageError(
            f"{column.name} does not fit what the network computes",
            why=f"a row has labels of {text(column.shape)}, and scores of {text(shape)}",
            hint="--set data.labels=false leaves the labels out",
        )
    return None


def set_accuracy(found: Evaluation, rows: Rows) -> None:
    """Accuracy out of labels and sets; between two ends where rows are open."""
    if not rows.has_labels:
        return
    right, open_rows = _right(found.labels[:, None], rows), int((found.labels == OPEN).sum())
    _settle(found, "accuracy", right, open_rows - found.not_finite)
    if found.sets is not None:
        right, open_rows = _right(found.sets, rows), int((found.sets[:, 0] == OPEN).sum())
        _settle(found, f"top{found.sets.shape[1]}_accuracy", right, open_rows - found.not_finite)


def _right(told: Labels, rows: Rows) -> int:
    return sum(
        int((told[start : start + len(truth)] == truth.astype(np.int64)[:, None]).any(axis=1).sum())
        for start, truth in rows.labels()
    )


def _settle(found: Evaluation, name: str, right: int, open_rows: int) -> None:
    if open_rows:
        found.between[name] = (right / found.rows, (right + open_rows) / found.rows)
    else:
        found.metrics[name] = right / found.rows


def confusion(labels: Labels, rows: Rows, classes: int) -> Confusion:
    """How many rows of each class got each label."""
    if classes > MOST_CONFUSED:
        raise UsageError(
            f"a confusion table of {classes} classes is too large",
            why=f"the limit is {MOST_CONFUSED}",
        )
    counts = np.zeros((classes, classes + 1), np.int64)
    for start, truth in rows.labels():
        told = labels[start : start + len(truth)]
        # The last column takes what has no label.
        np.add.at(counts, (truth.astype(np.int64), np.where(told == OPEN, classes, told)), 1)
    return Confusion(counts[:, :classes], counts[:, classes])


def cross_entropy(scores: Array, truth: Labels) -> NDArray[np.float64]:
    """The loss of each row: minus the logarithm of the softmax at its label."""
    with np.errstate(all="ignore"):
        shifted = scores - scores.max(axis=1, keepdims=True)
        sums = np.log(np.exp(shifted).sum(axis=1))
    found: NDArray[np.float64] = sums - shifted[np.arange(len(truth)), truth]
    return found


BATCH = 64

PRECISIONS = {"float64": "f64", "float32": "float32"}  # and what their labels are called


@dataclass(frozen=True)
class Progress:
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
    watch: Callable[[Progress], None] = lambda _: None


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


def evaluate_fully(model: Model, rows: Rows, options: Options, kept: Kept | None = None) -> Evaluation:
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
        options.watch(Progress(rows.count, 0, planes.bytes_read))

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
        options.watch(Progress(rows.count, done, planes.bytes_read))
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
