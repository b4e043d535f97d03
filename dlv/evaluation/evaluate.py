"""`eval`: versions tested on data, from all of their weights or from as few as are needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

import dlv.evaluation.engines as engines
from dlv.adapters.data.columns import Spooled
from dlv.adapters.data.sets import Data, Wanted
from dlv.canonical import number
from dlv.dataclass import dataclass
from dlv.errors import UsageError
from dlv.evaluation.answers import (
    BATCH,
    OPEN,
    Answers,
    Confusion,
    Evaluation,
    Level,
    NoBounds,
    Progress,
    Settings,
    check_output,
    first_labels,
    first_sets,
    write_activations,
    write_labels,
)
from dlv.evaluation.data import (
    DataSource,
    Rows,
    find_data,
    open_source,
    read_settings,
    split_words,
    wanted_inputs,
)
from dlv.evaluation.model import Model
from dlv.kinds import Array
from dlv.network.graph import Port
from dlv.network.inference import node_shapes
from dlv.network.sizes import text
from dlv.repository.handle import Change, Repository

Labels = NDArray[np.int64]
MOST_CONFUSED = 4096  # classes
PRECISIONS = {"float64": "f64", "float32": "float32"}  # and what their labels are called
KIND = "evaluation"
CALIBRATED = "calibrated"
_LABELS = (".csv", ".npz")


MISTAKES = 24  # wrong predictions in a report


@dataclass
class Request:
    """What was asked for.

    `words`: the references, and the data if it is named there and not in `data`; `arrays`: the
    data itself, where Python holds it.
    """

    words: Sequence[str]
    data: str | None = None
    arrays: Any = None
    directory: Path = Path()
    config: str | None = None
    sets: Sequence[str] = ()
    progressive: str | None = None
    strict: bool = False
    tighten: bool = False
    precision: str | None = None
    engine: str | None = None
    usual_precision: str = "float64"
    max_bytes: int | None = None
    top_k: int | None = None
    confusion: bool = False
    mistakes: int = 0  # wrong predictions to report, at most
    activations: Sequence[str] = ()
    out: Path | None = None
    labels_out: Path | None = None
    batch: int | None = None
    force: bool = False
    watch: Callable[[Progress], None] = lambda _: None

    def check(self) -> None:
        """What excludes each other, or needs each other."""
        needing = {"strict": "--strict", "tighten": "--tighten", "max_bytes": "--max-bytes"}
        if self.progressive == CALIBRATED and self.strict:
            raise UsageError(
                "--strict cannot be used with --progressive=calibrated",
                why="calibrated ones are not",
            )
        for name, option in needing.items():
            if getattr(self, name) not in (None, False) and self.progressive is None:
                raise UsageError(
                    f"{option} requires --progressive", hint=f"dlv eval .. --progressive {option}"
                )
        if self.progressive is not None and self.precision is not None:
            raise UsageError(
                "--progressive and --precision cannot be combined",
                why="its labels are those of float64, or with --strict of any float32",
            )
        if self.progressive is not None and self.engine not in (None, "numpy"):
            raise UsageError(
                f"--progressive and --engine {self.engine} cannot be combined",
                why="only dlv's own arithmetic is bounded",
            )
        if bool(self.activations) != (self.out is not None):
            raise UsageError(
                "--activations and --output require each other",
                hint="dlv eval REF DATA --activations conv1 -o F.npz",
            )
        if self.activations and self.progressive is not None:
            raise UsageError(
                "--activations and --progressive cannot be combined",
                why="activations are computed from exact weights",
                hint="dlv desc REF --activations NODE --data FILE --planes 2 bounds them",
            )


@dataclass
class Evaluated:
    """`data`: what the facts say of it. `written`: files, which an error within the `with` block
    takes back."""

    results: list[Evaluation]
    data: dict[str, Any]
    notes: tuple[str, ...]
    written: list[Path]
    until: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        self.until.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.until.__exit__(*error)

    def save(self, repository: Repository, author: str) -> list[Evaluation]:
        """Keep the results that have figures with their versions; which ones."""
        known = [each for each in self.results if each.metrics]
        if known:
            save(repository, known, self.data, author)
        return known


def evaluate(repository: Repository, request: Request) -> Evaluated:
    """Each version tested on the data; nothing is saved yet."""
    request.check()
    asked = read_settings(
        None if request.config is None else str(request.directory / request.config), request.sets
    )
    references, named = list(request.words), request.data
    if request.arrays is None and named is None:
        references, named = split_words(repository, request.words, request.directory)
    if request.activations and len(references) != 1:
        raise UsageError("--activations requires one version")
    options = Options(
        precision=request.precision or asked.precision or request.usual_precision,
        engine=request.engine or asked.engine,
        batch=request.batch or asked.batch or BATCH,
        top_k=request.top_k or asked.top_k or 1,
    )
    for path, suffixes in ((request.out, (".npz",)), (request.labels_out, _LABELS)):
        if path is not None:
            check_output(request.directory / path, suffixes, force=request.force)
    source = DataSource("arrays", arrays=request.arrays)
    if request.arrays is None:
        named = named or asked.input_data
        source = find_data(repository, named, references, request.directory)
    models = [Model.of(repository, each, until=request.activations) for each in references]
    opened: dict[tuple[Wanted, ...], Data] = {}
    prepared: list[tuple[Model, Rows]] = []
    for model in models:  # what does not fit is said before anything is computed
        needs = tuple(wanted_inputs(model.program))
        try:
            if needs not in opened:
                opened[needs] = open_source(
                    repository, source, asked.data, needs, request.directory
                )
            rows = Rows(model.program, opened[needs])
            _check_labels(model, rows, options.top_k)
        except UsageError as error:
            if len(models) > 1:
                error.why = f"{model.label}: {error.why}" if error.why else model.label
            raise
        prepared.append((model, rows))
    files: list[Path] = []
    results: list[Evaluation] = []
    with ExitStack() as until:
        for model, rows in prepared:
            kept = KeptValues() if request.activations else None
            results.append(_one(model, rows, request, options, kept))
            if kept is not None and request.out is not None:
                files.append(request.directory / request.out)
                write_activations(files[-1], kept.columns, until)
            model.store.close()
        if request.labels_out is not None:
            files.append(request.directory / request.labels_out)
            write_labels(files[-1], results, prepared[-1][1], until)
        until = until.pop_all()
    notes = [note for model in models for note in model.notes]
    notes += [note for each in opened.values() for note in each.notes]
    data = next(iter(opened.values()))
    told = {"name": data.name, "fingerprint": data.fingerprint, "settings": asked.data.as_json()}
    return Evaluated(results, told, tuple(dict.fromkeys(notes)), files, until)


def _one(
    model: Model, rows: Rows, request: Request, options: Options, kept: KeptValues | None
) -> Evaluation:
    begun = time.perf_counter()

    def watch(progress: Progress) -> None:
        request.watch(replace(progress, version=model.label))

    options = replace(options, watch=watch)
    if request.progressive is None:
        found = evaluate_fully(model, rows, options, kept)
    else:
        found = _progressive(model, rows, request, options)
    if request.confusion:
        if found.class_count is None or not rows.has_labels:
            raise UsageError(
                "no labels for a confusion matrix",
                why="the data has no labels" if found.class_count else "values are predicted",
            )
        found.confusion = confusion(found.labels, rows, found.class_count)
    if request.mistakes and rows.has_labels:
        import dlv.evaluation.mistakes as mistakes

        found.mistakes = mistakes.mistakes(found, rows, request.mistakes)
    found.seconds = time.perf_counter() - begun
    return found


def _check_labels(model: Model, rows: Rows, top_k: int) -> None:
    """Labels that the network cannot give are an error before anything is computed."""
    tensors = dict(model.shapes)
    name, port = model.program.scores
    ports = node_shapes(model.network, tensors).get(name, ())
    shape = ports[port] if port < len(ports) else None
    sides = [] if shape is None else [side for side in shape[1:] if isinstance(side, int)]
    if shape is None or len(sides) != len(shape) - 1:
        return  # only running it tells
    classes = classes_of(tuple(sides), rows, top_k)
    if classes is not None:
        rows.check_classes(classes)


def _progressive(model: Model, rows: Rows, request: Request, options: Options) -> Evaluation:
    """From as few planes as determine the labels; from all of them where that cannot be."""
    import dlv.weights.bounds as bounds
    from dlv.evaluation.progressive import calibrated, progressive

    reference = "strict" if request.strict else "f64"
    asked = Settings(
        reference=reference,
        top_k=options.top_k,
        max_bytes=request.max_bytes,
        tighten=request.tighten,
        batch=options.batch,
        watch=options.watch,
    )
    try:
        if request.progressive == CALIBRATED:
            answers = calibrated(model, rows, asked)
        else:
            record = bounds.record_of(
                model.repository.database, model.store, model.manifest, model.snapshot
            )
            answers = progressive(model, rows, asked, record)
    except NoBounds as error:
        if request.max_bytes is not None and model.bytes_whole > request.max_bytes:
            nothing = Answers(np.full(rows.count, OPEN, np.int64), None, reference=reference)
            nothing.fallback = error.why
            return _of_answers(model, rows, nothing, options.top_k)
        precision = "float32" if request.strict else "float64"
        found = evaluate_fully(model, rows, replace(options, precision=precision))
        found.reference, found.fallback = reference, error.why
        return found
    return _of_answers(model, rows, answers, options.top_k)


def _of_answers(model: Model, rows: Rows, answers: Answers, top_k: int) -> Evaluation:
    found = Evaluation(
        version=model.label,
        id=model.id,
        step=model.step,
        rows=rows.count,
        labels=answers.labels,
        top_k=top_k,
        sets=answers.sets,
        mode=answers.mode,
        reference=answers.reference,
        confidence=answers.confidence,
        not_finite=answers.not_finite,
        evaluated=answers.evaluated,
        proved=answers.proved,
        fallback=answers.fallback,
        levels=answers.levels,
        bytes_read=answers.bytes_read,
        bytes_whole=model.bytes_whole,
        raw_read=answers.raw_read,
        raw_whole=model.raw_whole,
        classes=rows.data.classes,
    )
    shape = node_shapes(model.network, dict(model.shapes)).get(model.program.scores[0], (None,))[0]
    last = shape[-1] if shape else None
    found.class_count = last if isinstance(last, int) else int(np.max(answers.labels)) + 1
    set_accuracy(found, rows)
    return found


@dataclass
class Options:
    """How to compute. `keep`: nodes whose values are wanted; they come as `KeptValues.columns`."""

    precision: str = "float64"
    engine: str | None = None  # the first that can
    batch: int = BATCH
    top_k: int = 1
    watch: Callable[[Progress], None] = lambda _: None


@dataclass
class KeptValues:
    """Values of nodes, a row for each example."""

    columns: dict[str, Spooled] = field(default_factory=dict)

    def add(self, name: str, port: Port, values: Mapping[Port, Array], count: int) -> None:
        found = values[port]
        if not found.ndim or len(found) != count:
            raise UsageError(
                f"the values of `{name}` are not rows", why=f"their shape is {found.shape}"
            )
        if name not in self.columns:
            self.columns[name] = Spooled(name, found.dtype, found.shape[1:])
        if self.columns[name].shape != found.shape[1:]:
            raise UsageError(f"the values of `{name}` have different shapes from row to row")
        self.columns[name].add(found)


def evaluate_fully(
    model: Model, rows: Rows, options: Options, kept: KeptValues | None = None
) -> Evaluation:
    """Labels and figures of every row, from all of the weights."""
    found = Evaluation(
        version=model.label,
        id=model.id,
        step=model.step,
        rows=rows.count,
        labels=np.empty(0, np.int64),
        top_k=options.top_k,
        reference=PRECISIONS[options.precision],
        raw_whole=model.raw_whole,
    )
    program, done = model.program, 0
    chunks_read: dict[tuple[str, int], int] = {}  # bytes of each

    def tensor(name: str) -> Array:
        # Each tensor is read when its layer runs, so a large model need not fit into memory.
        values = model.tensor(name, options.precision)
        pieces = model.store.pieces_behind(model.hashes[model.aliases.get(name, name)])
        before = len(chunks_read)
        chunks_read.update({(piece.pack, piece.offset): piece.length for piece in pieces})
        if len(chunks_read) > before:
            options.watch(Progress(rows.count, done, sum(chunks_read.values())))
        return values

    made = engines.engine(options.engine, model.program, tensor, options.precision)
    tally = Tally(rows, options.top_k)
    for batch in rows.batches(options.batch):
        computed = made.values(batch.inputs)
        tally.add(computed[program.scores], batch.labels)
        for name, port in program.kept.items() if kept is not None else ():
            assert kept is not None
            kept.add(name, port, computed, batch.count)
        done += batch.count
        options.watch(Progress(rows.count, done, sum(chunks_read.values())))
    tally.finish(found)
    found.engine = made.name
    found.engine_why = getattr(made, "why", None)
    found.classes = rows.data.classes
    found.bytes_read = found.bytes_whole = model.bytes_whole
    found.raw_read = found.raw_whole
    return found


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

    def finish(self, evaluation: Evaluation) -> None:
        """Put labels and figures into an evaluation."""
        evaluation.labels = np.concatenate(self.labels)
        evaluation.not_finite = self.not_finite
        evaluation.evaluated = evaluation.rows - self.not_finite
        evaluation.class_count = self.classes
        if self.classes is None:
            if self.rows.has_labels:
                evaluation.metrics["mse"] = self.squares / self.values
            return
        if self.top_k > 1:
            evaluation.sets = np.concatenate(self.sets)
        set_accuracy(evaluation, self.rows)
        if self.rows.has_labels:
            evaluation.metrics["loss"] = self.loss / evaluation.rows


def classes_of(shape: tuple[int, ...], rows: Rows, top_k: int = 1) -> int | None:
    """How many classes the scores of a row tell apart; None where they are values."""
    column = rows.data.labels
    if len(shape) == 1 and shape[0] > 1 and (column is None or column.shape == ()):
        if top_k > shape[0]:
            raise UsageError(
                f"--top-k {top_k} of {shape[0]} classes", why="the network has fewer classes"
            )
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


def cross_entropy(scores: Array, truth: Labels) -> NDArray[np.float64]:
    """The loss of each row: minus the logarithm of the softmax at its label."""
    with np.errstate(all="ignore"):
        shifted = scores - scores.max(axis=1, keepdims=True)
        sums = np.log(np.exp(shifted).sum(axis=1))
    found: NDArray[np.float64] = sums - shifted[np.arange(len(truth)), truth]
    return found


def set_accuracy(evaluation: Evaluation, rows: Rows) -> None:
    """Accuracy out of labels and sets; between two ends where rows are open."""
    if not rows.has_labels:
        return
    right, open_rows = (
        _right(evaluation.labels[:, None], rows),
        int((evaluation.labels == OPEN).sum()),
    )
    _settle(evaluation, "accuracy", right, open_rows - evaluation.not_finite)
    if evaluation.sets is not None:
        right, open_rows = _right(evaluation.sets, rows), int((evaluation.sets[:, 0] == OPEN).sum())
        _settle(
            evaluation,
            f"top{evaluation.sets.shape[1]}_accuracy",
            right,
            open_rows - evaluation.not_finite,
        )


def _right(labels: Labels, rows: Rows) -> int:
    return sum(
        int(
            (labels[start : start + len(truth)] == truth.astype(np.int64)[:, None])
            .any(axis=1)
            .sum()
        )
        for start, truth in rows.labels()
    )


def _settle(evaluation: Evaluation, name: str, right: int, open_rows: int) -> None:
    if open_rows:
        evaluation.between[name] = (right / evaluation.rows, (right + open_rows) / evaluation.rows)
    else:
        evaluation.metrics[name] = right / evaluation.rows


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


def save(
    repository: Repository, evaluations: list[Evaluation], data: Mapping[str, Any], author: str
) -> None:
    """One fact for each; together they are one operation, which `dlv undo` takes back."""
    with repository.change("eval", author) as change:
        for each in evaluations:
            record(change, each, data)
        labels = ", ".join(each.version for each in evaluations)
        change.summary = f"{labels} on {data['name']}"


def record(change: Change, evaluation: Evaluation, data: Mapping[str, Any]) -> None:
    """The fact of one evaluation."""
    change.record(
        KIND,
        evaluation.id,
        {
            "step": evaluation.step,
            "data": dict(data),
            "mode": evaluation.mode,
            "reference": evaluation.reference,
            "rows": evaluation.rows,
            "metrics": {name: number(value) for name, value in evaluation.metrics.items()},
            "bytes_read": evaluation.bytes_read,
            "bytes_whole": evaluation.bytes_whole,
            "levels": [level_record(each) for each in evaluation.levels],
        },
    )


def level_record(level: Level) -> dict[str, Any]:
    """A level as facts and documents have it."""
    return {
        "bits": dict(level.bits),
        "bytes_read": level.bytes_read,
        "raw_read": level.raw_read,
        "share": level.share,
        "determined": level.determined,
        "open": level.open,
    }
