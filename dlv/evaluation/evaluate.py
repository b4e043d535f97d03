"""`eval`: versions tested on data, from all of their weights or from as few as are needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

import dlv.evaluation.asked as settings
import dlv.evaluation.given_data as given_data
import dlv.evaluation.plain as plain
import dlv.evaluation.written as written
import dlv.weights.bounds as bounds
from dlv.adapters.data.sets import Data, Wanted
from dlv.canonical import number
from dlv.errors import UsageError
from dlv.evaluation.answers import OPEN, Answers, Evaluation, Level, NoBounds, Settings
from dlv.evaluation.calibrated import calibrated
from dlv.evaluation.model import Model
from dlv.evaluation.plain import Kept, Options, classes_of
from dlv.evaluation.progressive import progressive
from dlv.evaluation.rows import Rows, wanted_inputs
from dlv.network.inference import node_shapes
from dlv.repository.handle import Change, Repository

KIND = "evaluation"


def save(
    repository: Repository, found: list[Evaluation], data: Mapping[str, Any], author: str
) -> None:
    """One fact for each; together they are one operation, which `dlv undo` takes back."""
    with repository.change("eval", author) as change:
        for each in found:
            record(change, each, data)
        labels = ", ".join(each.version for each in found)
        change.summary = f"{labels} on {data['name']}"


def record(change: Change, found: Evaluation, data: Mapping[str, Any]) -> None:
    """The fact of one evaluation."""
    change.record(
        KIND,
        found.id,
        {
            "step": found.step,
            "data": dict(data),
            "mode": found.mode,
            "reference": found.reference,
            "rows": found.rows,
            "metrics": {name: number(value) for name, value in found.metrics.items()},
            "bytes_read": found.bytes_read,
            "bytes_whole": found.bytes_whole,
            "levels": [level_record(each) for each in found.levels],
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


CALIBRATED = "calibrated"
_LABELS = (".csv", ".npz")


@dataclass(frozen=True)
class Told:
    """How far an evaluation is."""

    version: str
    rows: int
    done: int  # rows that have a label
    bytes_read: int


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
    activations: Sequence[str] = ()
    out: Path | None = None
    labels_out: Path | None = None
    batch: int | None = None
    force: bool = False
    watch: Callable[[Told], None] = lambda _: None

    def check(self) -> None:
        """What excludes each other, or needs each other."""
        needing = {"strict": "--strict", "tighten": "--tighten", "max_bytes": "--max-bytes"}
        if self.progressive == CALIBRATED and self.strict:
            raise UsageError("--strict is about guaranteed labels", why="calibrated ones are not")
        for name, option in needing.items():
            if getattr(self, name) not in (None, False) and self.progressive is None:
                raise UsageError(
                    f"{option} is about --progressive", hint=f"dlv eval .. --progressive {option}"
                )
        if self.progressive is not None and self.precision is not None:
            raise UsageError(
                "--progressive and --precision exclude each other",
                why="its labels are those of float64, or with --strict of any float32",
            )
        if self.progressive is not None and self.engine not in (None, "numpy"):
            raise UsageError(
                f"--progressive and --engine {self.engine} exclude each other",
                why="only dlv's own arithmetic is bounded",
            )
        if bool(self.activations) != (self.out is not None):
            raise UsageError(
                "--activations and --out belong together", hint="--activations conv1 --out F.npz"
            )
        if self.activations and self.progressive is not None:
            raise UsageError(
                "--activations and --progressive exclude each other",
                why="the values of nodes are exact, and so from all of the weights",
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
    asked = settings.read_settings(
        None if request.config is None else str(request.directory / request.config), request.sets
    )
    references, named = list(request.words), request.data
    if request.arrays is None and named is None:
        references, named = given_data.split_words(repository, request.words, request.directory)
    if request.activations and len(references) != 1:
        raise UsageError("--activations is about one version")
    options = Options(
        precision=request.precision or asked.precision or request.usual_precision,
        engine=request.engine or asked.engine or "numpy",
        batch=request.batch or asked.batch or plain.BATCH,
        top_k=request.top_k or asked.top_k or 1,
    )
    for path, suffixes in ((request.out, (".npz",)), (request.labels_out, _LABELS)):
        if path is not None:
            written.check_output(request.directory / path, suffixes, force=request.force)
    source = given_data.DataSource("arrays", arrays=request.arrays)
    if request.arrays is None:
        named = named or asked.input_data
        source = given_data.find_data(repository, named, references, request.directory)
    models = [Model.of(repository, each, until=request.activations) for each in references]
    opened: dict[tuple[Wanted, ...], Data] = {}
    prepared: list[tuple[Model, Rows]] = []
    for model in models:  # what does not fit is said before anything is computed
        needs = tuple(wanted_inputs(model.program))
        try:
            if needs not in opened:
                opened[needs] = given_data.open_source(
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
            kept = Kept() if request.activations else None
            results.append(_one(model, rows, request, options, kept))
            if kept is not None and request.out is not None:
                files.append(request.directory / request.out)
                written.write_activations(files[-1], kept.columns, until)
            model.store.close()
        if request.labels_out is not None:
            files.append(request.directory / request.labels_out)
            written.write_labels(files[-1], results, prepared[-1][1], until)
        until = until.pop_all()
    notes = [note for model in models for note in model.notes]
    notes += [note for each in opened.values() for note in each.notes]
    data = next(iter(opened.values()))
    told = {"name": data.name, "fingerprint": data.fingerprint, "settings": asked.data.as_json()}
    return Evaluated(results, told, tuple(dict.fromkeys(notes)), files, until)


def _one(
    model: Model, rows: Rows, request: Request, options: Options, kept: Kept | None
) -> Evaluation:
    begun = time.perf_counter()

    def watch(done: int, read: int) -> None:
        request.watch(Told(model.label, rows.count, done, read))

    options = replace(options, watch=lambda w: watch(w.done, w.bytes_read))
    if request.progressive is None:
        found = plain.evaluate_fully(model, rows, options, kept)
    else:
        found = _progressive(model, rows, request, options, watch)
    if request.confusion:
        if found.class_count is None or not rows.has_labels:
            raise UsageError(
                "there is nothing for a confusion table",
                why="the data has no labels" if found.class_count else "values are predicted",
            )
        found.confusion = plain.confusion(found.labels, rows, found.class_count)
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


def _progressive(
    model: Model,
    rows: Rows,
    request: Request,
    options: Options,
    watch: Callable[[int, int], None],
) -> Evaluation:
    """From as few planes as determine the labels; from all of them where that cannot be."""
    reference = "strict" if request.strict else "f64"
    asked = Settings(
        reference=reference,
        top_k=options.top_k,
        max_bytes=request.max_bytes,
        tighten=request.tighten,
        batch=options.batch,
        watch=lambda w: watch(w.determined, w.bytes_read),
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
        found = plain.evaluate_fully(model, rows, replace(options, precision=precision, engine="numpy"))
        found.reference, found.fallback = reference, error.why
        return found
    return _of_answers(model, rows, answers, options.top_k)


def _of_answers(model: Model, rows: Rows, answers: Answers, top_k: int) -> Evaluation:
    found = Evaluation(
        *(model.label, model.id, model.step, rows.count, answers.labels),
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
    plain.set_accuracy(found, rows)
    return found
